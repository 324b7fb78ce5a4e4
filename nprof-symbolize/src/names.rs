//! Every name once: functions with what they are shown as, and source files. Pure.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::demangle::{Style, demangle};

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
pub(crate) struct Names {
    /// How much of a name is shown.
    pub(crate) style: Style,
    functions: Vec<FunctionName>,
    by_linkage: FxHashMap<Box<[u8]>, u32>,
    by_shown: FxHashMap<Box<[u8]>, u32>,
    files: Vec<Box<[u8]>>,
    by_path: FxHashMap<Box<[u8]>, u32>,
}

impl Names {
    /// The number of a function; it is demangled when it is first seen.
    pub(crate) fn function(&mut self, linkage: &[u8]) -> u32 {
        if let Some(&number) = self.by_linkage.get(linkage) {
            return number;
        }
        let name = match demangle(linkage, self.style) {
            Cow::Borrowed(same) => FunctionName { shown: same.into(), linkage: Box::default() },
            Cow::Owned(shown) => FunctionName { shown: shown.into(), linkage: linkage.into() },
        };
        self.functions.push(name);
        let number = self.functions.len() as u32;
        self.by_linkage.insert(linkage.into(), number);
        number
    }

    /// The number of a function by a name that no linker knows, and that is shown as it is.
    pub(crate) fn shown(&mut self, name: &[u8]) -> u32 {
        if let Some(&number) = self.by_shown.get(name) {
            return number;
        }
        self.functions.push(FunctionName { shown: name.into(), linkage: Box::default() });
        let number = self.functions.len() as u32;
        self.by_shown.insert(name.into(), number);
        number
    }

    /// The number of a function in a file that is not the recorded one: its name may be wrong,
    /// and says so wherever it is shown.
    pub(crate) fn mismatched(&mut self, number: u32) -> u32 {
        let Some(known) = self.function_name(number).cloned() else { return number };
        let shown = [&known.shown, &b" [mismatch]"[..]].concat();
        if let Some(&number) = self.by_shown.get(&shown[..]) {
            return number;
        }
        let number = self.shown(&shown);
        self.functions[number as usize - 1].linkage = known.linkage;
        number
    }

    /// The number of a function the input has these names of.
    pub(crate) fn kept(&mut self, shown: &[u8], linkage: &[u8]) -> u32 {
        if linkage.is_empty() {
            return self.shown(shown);
        }
        // No name has a zero in it.
        let key = [shown, b"\0", linkage].concat().into_boxed_slice();
        if let Some(&number) = self.by_shown.get(&key) {
            return number;
        }
        self.functions.push(FunctionName { shown: shown.into(), linkage: linkage.into() });
        let number = self.functions.len() as u32;
        self.by_shown.insert(key, number);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let mut names = Names::default();
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
        let file = names.file(b"/a.c");
        assert_eq!(names.path(file), Some(&b"/a.c"[..]));
    }
}
