//! The functions and files the input itself tells of: kept as they came, since few are needed.

use std::ops::Range;

use nprof_format::{FileId, FunctionId, Line, Record};
use rustc_hash::FxHashMap;

use crate::catalog::NamedLine;
use crate::names::Names;

/// The names of the input in the epoch at hand.
#[derive(Default)]
pub(crate) struct InputNames {
    /// All names, one behind the other.
    bytes: Vec<u8>,
    /// Where a function's names are, the shown one before the linkage name.
    functions: FxHashMap<FunctionId, (Range<usize>, Range<usize>)>,
    /// Where a file's path is.
    files: FxHashMap<FileId, Range<usize>>,
}

impl InputNames {
    /// Takes note of a function or a file.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Function(function) => {
                let [name, linkage] = [function.name, function.linkage];
                let old = self.functions.get(&function.id);
                if old.is_none_or(|old| self.at(&old.0) != name || self.at(&old.1) != linkage) {
                    let names = (self.push(name), self.push(linkage));
                    self.functions.insert(function.id, names);
                }
            }
            Record::File(file)
                if self.files.get(&file.id).is_none_or(|old| self.at(old) != file.path) =>
            {
                let path = self.push(file.path);
                self.files.insert(file.id, path);
            }
            _ => {}
        }
    }

    /// All ids are forgotten.
    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
        self.functions.clear();
        self.files.clear();
    }

    /// A line of the input by numbers in `names`, which get to know what it refers to.
    pub(crate) fn line(&self, line: &Line, names: &mut Names) -> NamedLine {
        let function = self
            .functions
            .get(&line.function)
            .map_or(0, |(name, linkage)| names.kept(self.at(name), self.at(linkage)));
        let file = self.files.get(&line.file).map(|path| names.file(self.at(path)));
        NamedLine { function, file: file.unwrap_or(0), line: line.line, column: line.column }
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    fn push(&mut self, name: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        start..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_format::{Extras, Function, SourceFile};

    #[test]
    fn names_are_found_by_id_until_they_are_forgotten() {
        let (mut input, mut names) = (InputNames::default(), Names::default());
        let function = |id, name, linkage| {
            Record::Function(Function { id: FunctionId(id), name, linkage, extras: Extras::NONE })
        };
        input.note(&function(7, b"f()", b"_Z1fv"));
        input.note(&function(3, b"g", b""));
        let extras = Extras::NONE;
        input.note(&Record::File(SourceFile { id: FileId(7), path: b"/a.c", extras }));
        let line = Line { function: FunctionId(7), file: FileId(7), line: 5, column: 2 };
        let named = input.line(&line, &mut names);
        let name = names.function_name(named.function).unwrap();
        assert_eq!((&*name.shown, &*name.linkage), (&b"f()"[..], &b"_Z1fv"[..]));
        assert_eq!(names.path(named.file), Some(&b"/a.c"[..]));
        assert_eq!((named.line, named.column), (5, 2));
        let other = input.line(&Line { function: FunctionId(3), ..line }, &mut names);
        assert_eq!(&*names.function_name(other.function).unwrap().shown, b"g");
        let taken = input.bytes.len();
        input.note(&function(7, b"f()", b"_Z1fv"));
        assert_eq!(input.bytes.len(), taken, "said once more");
        input.forget();
        let named = input.line(&line, &mut names);
        assert_eq!((named.function, named.file), (0, 0));
    }
}
