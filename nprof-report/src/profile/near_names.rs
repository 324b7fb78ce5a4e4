//! Names that are similar to a regular expression that matches none of them. Pure.

use strsim::osa_distance;

/// The number of similar names.
const NAMES: usize = 5;

/// The longest part of a name that is compared letter by letter, in bytes.
const COMPARED: usize = 64;

/// The names seen so far that are most similar to a regular expression. Bounded, however many names
/// there are.
#[derive(Clone, Debug)]
pub struct NearNames {
    /// The longest literal part of the expression, in lower case.
    literal: String,
    /// The names with their distances, the nearest first, each once.
    nearest: Vec<(usize, Vec<u8>)>,
    /// The first names, similar or not, each once.
    first: Vec<Vec<u8>>,
    /// True if there were others.
    has_others: bool,
}

impl NearNames {
    /// Creates an empty list for an expression.
    pub fn new(pattern: &str) -> Self {
        let is_operator = |c: char| r"\^$.|?*+()[]{}".contains(c);
        let literals = pattern.split(is_operator);
        let literal = literals.max_by_key(|part| part.len()).unwrap_or_default();
        let literal = literal.to_lowercase();
        Self { literal, nearest: Vec::new(), first: Vec::new(), has_others: false }
    }

    /// Considers a name.
    pub fn see(&mut self, name: &[u8]) {
        if !self.has_others && !self.first.iter().any(|known| known == name) {
            self.has_others = self.first.len() == NAMES;
            self.first.extend((!self.has_others).then(|| name.to_vec()));
        }
        let Some(distance) = self.distance(name) else { return };
        let entry = (distance, name.to_vec());
        if let Err(at) = self.nearest.binary_search(&entry) {
            self.nearest.insert(at, entry);
            self.nearest.truncate(NAMES);
        }
    }

    /// Returns the names, the nearest first.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.nearest.iter().map(|(_, name)| &name[..])
    }

    /// Returns the first names, similar or not, and whether there were others.
    pub fn first(&self) -> (impl Iterator<Item = &[u8]>, bool) {
        (self.first.iter().map(|name| &name[..]), self.has_others)
    }

    /// Returns the distance of a name. None if it is not similar.
    fn distance(&self, name: &[u8]) -> Option<usize> {
        let name = String::from_utf8_lossy(name).to_lowercase();
        // One or two letters are in most names.
        if self.literal.len() < 3 {
            return None;
        }
        if name.contains(&self.literal) {
            return Some(name.len() - self.literal.len());
        }
        let distance = parts(&name, self.literal.matches("::").count())
            .into_iter()
            .filter(|part| part.len().max(self.literal.len()) <= COMPARED)
            .map(|part| osa_distance(part, &self.literal))
            .min()?;
        // Names that contain the expression come first, long ones, too.
        (distance <= self.literal.len() / 3).then_some((1 << 16) + distance)
    }
}

/// Returns the parts of a name that users type: of `int a::b::name(int)` with one qualifier `b::name`, of
/// `4711/4712 worker` the last word, of `libc.so.6` also the part before the dot.
fn parts(name: &str, qualifiers: usize) -> [&str; 2] {
    let plain = name.split('(').next().unwrap_or(name).trim_end();
    let plain = plain.rsplit(' ').next().unwrap_or(plain);
    let begin = plain.rmatch_indices("::").nth(qualifiers).map_or(0, |(at, _)| at + 2);
    let plain = &plain[begin..];
    [plain, plain.split('.').next().unwrap_or(plain)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(pattern: &str, names: &[&str]) -> Vec<String> {
        let mut near = NearNames::new(pattern);
        names.iter().chain(names).for_each(|name| near.see(name.as_bytes()));
        near.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn names_that_contain_the_expression_precede_misspelled_ones() {
        let names = ["mallok", "free", "__GI___libc_malloc", "ns::Malloc(int)", "main"];
        assert_eq!(near("^malloc$", &names), ["ns::Malloc(int)", "__GI___libc_malloc", "mallok"]);
        assert_eq!(near("prase_.*", &["parse_file", "ns::parse_(int)"]), ["ns::parse_(int)"]);
        assert_eq!(near("shop::hsh", &["int shop::hash(long)", "hush"]), ["int shop::hash(long)"]);
        assert_eq!(near("wrk-1", &["47/48 work-1", "47/49 other"]), ["47/48 work-1"]);
        assert_eq!(near("libcc", &["libc.so.6", "libm.so.6"]), ["libc.so.6"]);
        assert_eq!(near("zzz", &names), [""; 0]);
        assert_eq!(near("^f$", &["free"]), [""; 0]);
        assert_eq!(near("", &names), [""; 0]);
    }

    #[test]
    fn number_and_length_of_names_are_bounded() {
        let names: Vec<String> = (0..1000).map(|i| format!("malloc{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(near("^malloc$", &names).len(), NAMES);
        assert_eq!(near("x", &[&"y".repeat(1 << 20)]), [""; 0]);
        let mut near = NearNames::new("7");
        names.iter().for_each(|name| near.see(name.as_bytes()));
        let (first, has_others) = near.first();
        assert_eq!((first.count(), has_others), (NAMES, true));
    }
}
