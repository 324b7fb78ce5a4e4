//! Every name once: functions with what they are shown as, and source files. Pure.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::names::demangle::{NameStyle, demangle};

/// A function's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionName {
    /// The name to show.
    pub(crate) shown: Box<[u8]>,
    /// The linkage name, empty when it is the same.
    pub(crate) linkage: Box<[u8]>,
}

/// Names with numbers that stay the same for the whole run, from 1 on; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    /// How much of a name is shown.
    pub(crate) style: NameStyle,
    functions: Vec<FunctionName>,
    by_linkage: FxHashMap<Box<[u8]>, u32>,
    by_shown: FxHashMap<Box<[u8]>, u32>,
    files: Vec<Box<[u8]>>,
    by_path: FxHashMap<Box<[u8]>, u32>,
    key: Key,
}

/// Room for what functions are found by when both their names are given.
#[derive(Debug, Default)]
struct Key(Vec<u8>);

impl Key {
    /// The names, and where the one ends: they may hold any byte.
    fn of(&mut self, shown: &[u8], linkage: &[u8]) -> &[u8] {
        self.0.clear();
        self.0.extend_from_slice(shown);
        self.0.extend_from_slice(linkage);
        self.0.extend_from_slice(&(shown.len() as u64).to_le_bytes());
        &self.0
    }
}

impl Interner {
    /// The number of a function; it is demangled when it is first seen.
    pub(crate) fn function(&mut self, linkage: &[u8]) -> u32 {
        if let Some(&number) = self.by_linkage.get(linkage) {
            return number;
        }
        let name = match demangle(linkage, self.style) {
            Cow::Borrowed(same) => FunctionName { shown: same.into(), linkage: Box::default() },
            Cow::Owned(shown) => FunctionName { shown: shown.into(), linkage: linkage.into() },
        };
        // The input may have told of it.
        let known = self.by_shown.get(self.key.of(&name.shown, &name.linkage)).copied();
        let number = known.unwrap_or_else(|| push(&mut self.functions, name));
        self.by_linkage.insert(linkage.into(), number);
        number
    }

    /// The number of a function by a name that no linker knows, and that is shown as it is.
    pub(crate) fn shown(&mut self, name: &[u8]) -> u32 {
        self.kept(name, b"")
    }

    /// The number of a function in a file that is not the recorded one: its name may be wrong,
    /// and says so wherever it is shown.
    pub(crate) fn mismatched(&mut self, number: u32) -> u32 {
        let Some(known) = self.function_name(number).cloned() else { return number };
        self.kept(&[&known.shown, &b" [mismatch]"[..]].concat(), &known.linkage)
    }

    /// The number of a function the input has these names of.
    pub(crate) fn kept(&mut self, shown: &[u8], linkage: &[u8]) -> u32 {
        let key = self.key.of(shown, linkage);
        if let Some(&number) = self.by_shown.get(key) {
            return number;
        }
        let ours = self.by_linkage.get(if linkage.is_empty() { shown } else { linkage });
        let is_same = |name: &FunctionName| (&*name.shown, &*name.linkage) == (shown, linkage);
        let same = ours.filter(|&&ours| is_same(&self.functions[ours as usize - 1])).copied();
        let name = || FunctionName { shown: shown.into(), linkage: linkage.into() };
        let number = same.unwrap_or_else(|| push(&mut self.functions, name()));
        self.by_shown.insert(key.into(), number);
        number
    }

    /// The number of a source file.
    pub(crate) fn file(&mut self, path: &[u8]) -> u32 {
        if let Some(&number) = self.by_path.get(path) {
            return number;
        }
        self.files.push(path.into());
        let number = self.files.len() as u32;
        self.by_path.insert(path.into(), number);
        number
    }

    /// The names of a function.
    pub(crate) fn function_name(&self, number: u32) -> Option<&FunctionName> {
        self.functions.get((number as usize).checked_sub(1)?)
    }

    /// The path of a source file.
    pub(crate) fn path(&self, number: u32) -> Option<&[u8]> {
        self.files.get((number as usize).checked_sub(1)?).map(|path| &**path)
    }
}

/// Adds a function, and gives its number.
fn push(functions: &mut Vec<FunctionName>, name: FunctionName) -> u32 {
    functions.push(name);
    functions.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let mut names = Interner::default();
        let (f, main) = (names.function(b"_Z1fv"), names.function(b"main"));
        assert_eq!((f, main, names.function(b"_Z1fv")), (1, 2, 1));
        let name = names.function_name(1).unwrap();
        assert_eq!((&*name.shown, &*name.linkage), (&b"f()"[..], &b"_Z1fv"[..]));
        assert_eq!(names.function_name(2).unwrap().linkage.len(), 0);
        assert_eq!((names.function_name(0), names.function_name(4)), (None, None));
        let shown = names.shown(b"_Z1fv");
        assert_eq!((shown, names.shown(b"_Z1fv"), names.function(b"_Z1fv")), (3, 3, 1));
        assert_eq!(&*names.function_name(3).unwrap().shown, b"_Z1fv");
        let kept = names.kept(b"f()", b"_Z1fi");
        assert_eq!((kept, names.kept(b"f()", b"_Z1fi"), names.kept(b"_Z1fv", b"")), (4, 4, 3));
        assert_eq!(&*names.function_name(4).unwrap().linkage, b"_Z1fi");
        let (known, new) = (names.kept(b"f()", b"_Z1fv"), names.kept(b"g()", b"_Z1gv"));
        assert_eq!((known, new, names.function(b"_Z1gv")), (1, 5, 5), "theirs and ours are one");
        assert_eq!((names.kept(b"main", b""), names.function(b"main")), (2, 2));
        assert_ne!(names.kept(b"a\0b", b""), names.kept(b"a", b"b"));
        let file = names.file(b"/a.c");
        assert_eq!(names.path(file), Some(&b"/a.c"[..]));
    }
}
