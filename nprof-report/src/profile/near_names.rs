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
}

impl NearNames {
    /// Creates an empty list for an expression.
    pub fn new(pattern: &str) -> Self {
        let is_operator = |c: char| r"\^$.|?*+()[]{}".contains(c);
        let literals = pattern.split(is_operator);
        let literal = literals.max_by_key(|part| part.len()).unwrap_or_default();
        Self { literal: literal.to_lowercase(), nearest: Vec::new() }
    }

    /// Considers a name.
    pub fn see(&mut self, name: &[u8]) {
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
        // The last part of `a::b::name(int)`.
        let plain = name.split('(').next().unwrap_or(&name);
        let plain = plain.rsplit("::").next().unwrap_or(plain);
        if plain.len().max(self.literal.len()) > COMPARED {
            return None;
        }
        let distance = osa_distance(plain, &self.literal);
        // Names that contain the expression come first, long ones, too.
        (distance <= self.literal.len() / 3).then_some((1 << 16) + distance)
    }
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
    }
}
