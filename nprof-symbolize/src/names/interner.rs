//! Stores every name once: functions with their shown and linkage names, and source files. Pure.

use std::borrow::Cow;

use nprof_stream::Md5Sum;
use rustc_hash::FxHashMap;

use crate::names::demangle::{NameStyle, demangle};

/// A function's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionName {
    /// The name to show.
    pub(crate) shown: Box<[u8]>,
    /// The linkage name, empty if it is the same.
    pub(crate) linkage: Box<[u8]>,
    /// The line at which it begins, 0 if unknown: functions of one name can be several.
    pub(crate) start_line: u32,
}

impl FunctionName {
    fn new(shown: &[u8], linkage: &[u8]) -> Self {
        Self { shown: shown.into(), linkage: linkage.into(), start_line: 0 }
    }
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourcePath {
    pub(crate) path: Box<[u8]>,
    /// The MD5 of the file that was compiled, None if it is unknown: files of one path can be several.
    pub(crate) md5: Option<Md5Sum>,
}

/// Names, numbered from 1 for the whole run; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    /// The style of shown names.
    pub(crate) style: NameStyle,
    /// True if source files that lookups find keep their MD5, which only reports of code need.
    pub(crate) has_md5s: bool,
    functions: Vec<FunctionName>,
    by_linkage: FxHashMap<Box<[u8]>, u32>,
    by_shown: FxHashMap<Box<[u8]>, u32>,
    files: Vec<SourcePath>,
    by_path: FxHashMap<Box<[u8]>, u32>,
    /// By the number of a file without an MD5, and by its MD5.
    by_md5: FxHashMap<(u32, Md5Sum), u32>,
    /// By the number of a function without a line, and by its line.
    by_line: FxHashMap<(u32, u32), u32>,
    key: Key,
}

/// Scratch memory for the key of a function in `by_shown`.
#[derive(Debug, Default)]
struct Key(Vec<u8>);

impl Key {
    /// Builds a key of both names and the length of the first, since names may have any byte.
    fn of(&mut self, shown: &[u8], linkage: &[u8]) -> &[u8] {
        self.0.clear();
        self.0.extend_from_slice(shown);
        self.0.extend_from_slice(linkage);
        self.0.extend_from_slice(&(shown.len() as u64).to_le_bytes());
        &self.0
    }
}

impl Interner {
    /// Returns the number of a function by its linkage name, which is demangled the first time.
    pub(crate) fn function(&mut self, linkage: &[u8]) -> u32 {
        if let Some(&number) = self.by_linkage.get(linkage) {
            return number;
        }
        let name = match demangle(linkage, self.style) {
            // Most C names: stored once.
            Cow::Borrowed(same) => FunctionName::new(same, b""),
            Cow::Owned(shown) => FunctionName::new(&shown, linkage),
        };
        // The input may have defined it.
        let known = self.by_shown.get(self.key.of(&name.shown, &name.linkage)).copied();
        let number = known.unwrap_or_else(|| push(&mut self.functions, name));
        self.by_linkage.insert(linkage.into(), number);
        number
    }

    /// Returns the number of a function by a name that is never demangled.
    pub(crate) fn unmangled(&mut self, name: &[u8]) -> u32 {
        self.with_linkage(name, b"")
    }

    /// Returns the number of a function in a file of another build: its name may be wrong, and shows
    /// that in every report.
    pub(crate) fn mismatched(&mut self, number: u32) -> u32 {
        let Some(known) = self.function_name(number).cloned() else { return number };
        let shown = [&known.shown, &b" [mismatch]"[..]].concat();
        let number = self.with_linkage(&shown, &known.linkage);
        self.at_line(number, known.start_line)
    }

    /// Returns the number of a function by both names, as the input defines it.
    pub(crate) fn with_linkage(&mut self, shown: &[u8], linkage: &[u8]) -> u32 {
        let key = self.key.of(shown, linkage);
        if let Some(&number) = self.by_shown.get(key) {
            return number;
        }
        let found = self.by_linkage.get(if linkage.is_empty() { shown } else { linkage });
        let is_same = |name: &FunctionName| (&*name.shown, &*name.linkage) == (shown, linkage);
        // A lookup may have given it the same names.
        let same = found.filter(|&&found| is_same(&self.functions[found as usize - 1])).copied();
        let name = || FunctionName::new(shown, linkage);
        let number = same.unwrap_or_else(|| push(&mut self.functions, name()));
        self.by_shown.insert(key.into(), number);
        number
    }

    /// Returns the number of a function that begins at a line, by its number without one.
    pub(crate) fn at_line(&mut self, number: u32, start_line: u32) -> u32 {
        if start_line == 0 {
            return number;
        }
        if let Some(&known) = self.by_line.get(&(number, start_line)) {
            return known;
        }
        let Some(name) = self.function_name(number) else { return number };
        let name = FunctionName { start_line, ..name.clone() };
        let at_line = push(&mut self.functions, name);
        self.by_line.insert((number, start_line), at_line);
        at_line
    }

    /// Returns the number of a source file.
    pub(crate) fn file(&mut self, path: &[u8]) -> u32 {
        if let Some(&number) = self.by_path.get(path) {
            return number;
        }
        let number = push(&mut self.files, SourcePath { path: path.into(), md5: None });
        self.by_path.insert(path.into(), number);
        number
    }

    /// Returns the number of a source file with an MD5, by its number without one.
    pub(crate) fn with_md5(&mut self, number: u32, md5: Option<Md5Sum>) -> u32 {
        let Some(md5) = md5 else { return number };
        if let Some(&known) = self.by_md5.get(&(number, md5)) {
            return known;
        }
        let Some(file) = self.source_path(number) else { return number };
        let file = SourcePath { md5: Some(md5), ..file.clone() };
        let with_md5 = push(&mut self.files, file);
        self.by_md5.insert((number, md5), with_md5);
        with_md5
    }

    /// Returns the names of a function.
    pub(crate) fn function_name(&self, number: u32) -> Option<&FunctionName> {
        self.functions.get((number as usize).checked_sub(1)?)
    }

    /// Returns the path and the MD5 of a source file.
    pub(crate) fn source_path(&self, number: u32) -> Option<&SourcePath> {
        self.files.get((number as usize).checked_sub(1)?)
    }
}

/// Adds a name; returns its number.
fn push<T>(names: &mut Vec<T>, name: T) -> u32 {
    names.push(name);
    names.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_number() {
        let mut names = Interner::default();
        let (f, main) = (names.function(b"_Z1fv"), names.function(b"main"));
        assert_eq!((f, main, names.function(b"_Z1fv")), (1, 2, 1));
        let name = names.function_name(1).unwrap();
        assert_eq!((&*name.shown, &*name.linkage), (&b"f()"[..], &b"_Z1fv"[..]));
        assert_eq!(names.function_name(2).unwrap().linkage.len(), 0);
        assert_eq!((names.function_name(0), names.function_name(4)), (None, None));
        let shown = names.unmangled(b"_Z1fv");
        assert_eq!((shown, names.unmangled(b"_Z1fv"), names.function(b"_Z1fv")), (3, 3, 1));
        assert_eq!(&*names.function_name(3).unwrap().shown, b"_Z1fv");
        let kept = names.with_linkage(b"f()", b"_Z1fi");
        assert_eq!(
            (kept, names.with_linkage(b"f()", b"_Z1fi"), names.with_linkage(b"_Z1fv", b"")),
            (4, 4, 3)
        );
        assert_eq!(&*names.function_name(4).unwrap().linkage, b"_Z1fi");
        let (known, new) =
            (names.with_linkage(b"f()", b"_Z1fv"), names.with_linkage(b"g()", b"_Z1gv"));
        assert_eq!(
            (known, new, names.function(b"_Z1gv")),
            (1, 5, 5),
            "the same names of the input and of a lookup"
        );
        assert_eq!((names.with_linkage(b"main", b""), names.function(b"main")), (2, 2));
        assert_ne!(names.with_linkage(b"a\0b", b""), names.with_linkage(b"a", b"b"));
        let file = names.file(b"/a.c");
        assert_eq!(names.source_path(file).map(|file| &*file.path), Some(&b"/a.c"[..]));
    }

    #[test]
    fn files_of_one_path_differ_by_their_md5() {
        let mut names = Interner::default();
        let plain = names.file(b"/a.c");
        let [one, two] = [1, 2].map(|byte| names.with_md5(plain, Some([byte; 16])));
        assert!(one != two && one != plain && two != plain);
        assert_eq!(
            (names.with_md5(plain, Some([1; 16])), names.with_md5(plain, None)),
            (one, plain)
        );
        let file = names.source_path(two).unwrap();
        assert_eq!((&*file.path, file.md5), (&b"/a.c"[..], Some([2; 16])));
        assert_eq!((names.with_md5(0, Some([1; 16])), names.file(b"/a.c")), (0, plain));
    }

    #[test]
    fn functions_of_one_name_differ_by_their_lines() {
        let mut names = Interner::default();
        let plain = names.function(b"f");
        let [third, fourth] = [3, 4].map(|line| names.at_line(plain, line));
        assert_eq!((names.at_line(plain, 3), names.at_line(plain, 0)), (third, plain));
        assert!(third != fourth && third != plain);
        assert_eq!(names.function(b"f"), plain);
        let other = names.mismatched(third);
        let name = names.function_name(other).unwrap();
        assert_eq!((&*name.shown, name.start_line), (&b"f [mismatch]"[..], 3));
    }
}
