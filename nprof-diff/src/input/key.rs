//! What is compared: the keys that calls of different builds have in common.
//!
//! Never an address: a key is a name that survives a rebuild. Names lose what a compiler adds to
//! them at will, and all of an image that has no name is one key. Pure.

use nprof_report::folded::part;
use nprof_stream::Mark;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, Tables};
use rustc_hash::FxHashMap;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum By {
    /// Function and base name of its image
    Function,
    /// Source file
    File,
    /// Source file and line
    Line,
    /// Base name of the image
    Image,
    /// Name of the thread
    Thread,
    /// Call path: functions, outermost first
    Path,
}

impl By {
    /// Its name on the command line, and what rows are called in a message.
    pub(crate) fn name(self) -> &'static str {
        match self {
            By::Function => "function",
            By::File => "file",
            By::Line => "line",
            By::Image => "image",
            By::Thread => "thread",
            By::Path => "path",
        }
    }

    /// Whether rows have the names that symbolizing gives.
    pub(crate) fn needs_symbols(self) -> bool {
        !matches!(self, By::Image | By::Thread)
    }

    /// Whether a row is a function of an image, or a path of such.
    pub(crate) fn has_image(self) -> bool {
        matches!(self, By::Function | By::Path)
    }
}

/// Names a row on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    /// Of a call path, the path without its last function.
    pub(crate) caller: Option<KeyId>,
    /// Function, file, line, image or thread, as bytes from the stream.
    pub(crate) name: Box<[u8]>,
    /// The base name of a function's image; empty for the other kinds of rows, and for what lies
    /// in no image.
    pub(crate) image: Box<[u8]>,
}

/// Identifies a [`RowKey`], see [`KeyTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId(u32);

impl KeyId {
    /// The id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every distinct key once, for both sides.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    ids: FxHashMap<RowKey, KeyId>,
    keys: Vec<RowKey>,
}

impl KeyTable {
    /// The id of a key, the same for equal keys.
    pub(crate) fn intern(&mut self, key: RowKey) -> KeyId {
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = KeyId(self.keys.len() as u32);
        self.keys.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    /// What a row is called, safe for a terminal: the functions of a path joined by `;`, of
    /// which none is left in a name.
    pub(crate) fn name(&self, id: KeyId) -> String {
        let key = self.get(id);
        let Some(caller) = key.caller else { return escaped(&key.name) };
        let callers = std::iter::successors(Some(caller), |caller| self.get(*caller).caller);
        let mut names: Vec<String> =
            std::iter::once(id).chain(callers).map(|id| self.part(id)).collect();
        names.reverse();
        names.join(";")
    }

    /// A function as a part of a path.
    pub(crate) fn part(&self, id: KeyId) -> String {
        part(&escaped(&self.get(id).name))
    }

    /// The place of each key in the order of names, then of images; a path comes after those it
    /// begins with.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut ordered: Vec<KeyId> = self.ids().collect();
        // Backwards, since what is pushed last is taken first.
        ordered.sort_by(|a, b| {
            let (a, b) = (self.get(*a), self.get(*b));
            (&b.name, &b.image).cmp(&(&a.name, &a.image))
        });
        let mut called: Vec<Vec<KeyId>> = vec![Vec::new(); self.keys.len()];
        let mut open = Vec::new();
        for id in ordered {
            match self.get(id).caller {
                Some(caller) => called[caller.index()].push(id),
                None => open.push(id),
            }
        }
        let mut ranks = vec![0; self.keys.len()];
        let mut rank = 0;
        while let Some(id) = open.pop() {
            ranks[id.index()] = rank;
            rank += 1;
            open.append(&mut called[id.index()]);
        }
        ranks
    }

    /// The key of an id from here.
    pub(crate) fn get(&self, id: KeyId) -> &RowKey {
        &self.keys[id.index()]
    }

    /// The ids of all keys.
    pub(crate) fn ids(&self) -> impl Iterator<Item = KeyId> + use<> {
        (0..self.keys.len() as u32).map(KeyId)
    }
}

impl RowKey {
    /// A key that is no function.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        Self { caller: None, name: name.into(), image: Box::default() }
    }

    /// Whether it stands for what has no name of its own: `[incomplete:stack-truncated]` and the like.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.name.starts_with(b"[") && self.name.ends_with(b"]")
    }
}

/// The key of a sample without a stack.
pub(crate) fn no_stack_key() -> RowKey {
    RowKey::of_name(b"[no stack]")
}

/// The key of a thread, by the name it had.
pub(crate) fn thread_key(name: &[u8]) -> RowKey {
    RowKey::of_name(if name.is_empty() { b"[no name]" } else { name })
}

/// The key of a call. `labels` must have seen no tables but these.
pub(crate) fn call_key(labels: &mut Labels, tables: &Tables, call: Call, by: By) -> RowKey {
    let frame = tables.frame(call.frame);
    let call_key = match by {
        By::Function | By::Path | By::Thread => CallKey::Function,
        By::File => CallKey::File,
        By::Line => CallKey::Line,
        By::Image => CallKey::ImageName,
    };
    let label = labels.label(tables, call, call_key);
    let label = labels.names.get(label);
    let Some(frame) = frame.filter(|frame| frame.mark == Mark::None) else {
        return RowKey::of_name(label);
    };
    match by {
        By::File | By::Line => return RowKey::of_name(label),
        By::Image => return RowKey::of_name(stable_image(label)),
        By::Function | By::Path | By::Thread => {}
    }
    let function = tables.function(call.line.function).filter(|_| frame.is_named());
    let name = function.map(|_| stable_function(label).into());
    let Some(image) = tables.image(frame.image) else {
        let name = name.unwrap_or_else(|| (*b"[unknown]").into());
        return RowKey { caller: None, name, image: Box::default() };
    };
    let image: Box<[u8]> = stable_image(tables.names.get(image.name)).into();
    let name = name.unwrap_or_else(|| [b"[unnamed in ", &image[..], b"]"].concat().into());
    RowKey { caller: None, name, image }
}

/// What compilers append to the name of a part or copy of a function, a number after it or not.
const CLONES: [&[u8]; 8] = [
    b".cold",
    b".constprop",
    b".isra",
    b".llvm",
    b".localalias",
    b".lto_priv",
    b".part",
    b".__uniq",
];

/// A function's name without what changes from build to build: the marks of parts and copies the
/// compiler made of it, and Rust's hash.
fn stable_function(name: &[u8]) -> &[u8] {
    let mut name = name;
    while let Some(shorter) = without_clone(name).or_else(|| without_hash(name)) {
        name = shorter;
    }
    name
}

fn without_clone(name: &[u8]) -> Option<&[u8]> {
    if let Some(inner) = name.strip_suffix(b"]") {
        let at = inner.windows(9).rposition(|window| window == b" [clone .")?;
        return Some(&name[..at]).filter(|name| !name.is_empty());
    }
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let numbered = name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0);
    let stem = numbered.unwrap_or(name);
    let shorter = CLONES.iter().find_map(|clone| stem.strip_suffix(*clone));
    shorter.filter(|name| !name.is_empty())
}

fn without_hash(name: &[u8]) -> Option<&[u8]> {
    let (path, hash) = name.split_at_checked(name.len().checked_sub(19)?)?;
    let is_hash = hash.starts_with(b"::h") && hash[3..].iter().all(u8::is_ascii_hexdigit);
    Some(path).filter(|path| is_hash && !path.is_empty())
}

/// An image's name without what changes from build to build: that it was replaced while it ran,
/// and the hash cargo gives to tests and benchmarks.
fn stable_image(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let split = name.len().checked_sub(17).and_then(|at| name.split_at_checked(at));
    match split {
        Some((stem, hash)) if !stem.is_empty() && is_cargo_hash(hash) => stem,
        _ => name,
    }
}

fn is_cargo_hash(hash: &[u8]) -> bool {
    hash[0] == b'-' && hash[1..].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable(name: &str) -> &str {
        std::str::from_utf8(stable_function(name.as_bytes())).unwrap()
    }

    #[test]
    fn what_the_compiler_appends_is_dropped() {
        for (name, expected) in [
            ("main", "main"),
            ("foo.isra.0", "foo"),
            ("foo.constprop.0.isra.12.cold", "foo"),
            ("foo.part.0", "foo"),
            ("foo.llvm.1234567", "foo"),
            ("f(int) [clone .part.0] [clone .cold]", "f(int)"),
            ("a::b::h0123456789abcdef", "a::b"),
            ("operator[]", "operator[]"),
            ("std::array<int, 3ul>::operator[]", "std::array<int, 3ul>::operator[]"),
            ("foo.12", "foo.12"),
            ("cold", "cold"),
            (".cold", ".cold"),
            ("h.ish", "h.ish"),
            ("", ""),
        ] {
            assert_eq!(stable(name), expected);
        }
    }

    #[test]
    fn a_path_comes_right_after_what_it_begins_with() {
        let mut keys = KeyTable::default();
        let mut path =
            |caller, name: &str| keys.intern(RowKey { caller, ..RowKey::of_name(name.as_bytes()) });
        let main = path(None, "main");
        let late = path(Some(main), "z");
        let init = path(None, "init");
        let called = path(Some(main), "a");
        let deep = path(Some(called), "b");
        let ranks = keys.ranks();
        let mut order = [main, late, init, called, deep];
        order.sort_by_key(|id| ranks[id.index()]);
        assert_eq!(order.map(|id| keys.name(id)), ["init", "main", "main;a", "main;a;b", "main;z"]);
    }

    #[test]
    fn what_cargo_and_the_kernel_append_is_dropped() {
        for (name, expected) in [
            ("demo", "demo"),
            ("demo (deleted)", "demo"),
            ("bench-0123456789abcdef", "bench"),
            ("bench-0123456789abcdeg", "bench-0123456789abcdeg"),
            ("-0123456789abcdef", "-0123456789abcdef"),
            ("[kernel]", "[kernel]"),
        ] {
            assert_eq!(stable_image(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }
}
