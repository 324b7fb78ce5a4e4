//! The names of the current epoch: those the input defines, and their ids in the output.
//!
//! A name of the input keeps its id in the output until a name is defined that the input does not
//! have. Until then, the records of the input pass unchanged.

use nprof_stream::{FileId, FunctionId, Line, Record, limits};
use rustc_hash::FxHashMap;

use crate::names::interner::Interner;
use crate::names::location::InternedLine;

/// The functions and files of an epoch, by their numbers in [`Interner`].
#[derive(Default)]
pub(crate) struct EpochNames {
    /// The numbers of the input's names.
    input_functions: FxHashMap<FunctionId, u32>,
    input_files: FxHashMap<FileId, u32>,
    /// The ids in the output.
    functions: OutputIds,
    files: OutputIds,
    /// True if some ids differ between input and output.
    has_diverged: bool,
}

impl EpochNames {
    /// Forgets all ids.
    pub(crate) fn forget(&mut self) {
        self.input_functions.clear();
        self.input_files.clear();
        self.functions.forget();
        self.files.forget();
        self.has_diverged = false;
    }

    /// Notes a function or a file of the input. True if its record passes unchanged, which
    /// `may_pass` must allow.
    pub(crate) fn note(
        &mut self,
        record: &Record<'_>,
        names: &mut Interner,
        may_pass: bool,
    ) -> bool {
        let keeps_id = match record {
            Record::Function(function) => {
                let number = names.with_linkage(function.name, function.linkage);
                let number = names.at_line(number, function.start_line());
                self.input_functions.insert(function.id, number);
                may_pass && !self.has_diverged && self.functions.define(number, function.id.0)
            }
            Record::File(file) => {
                let number = names.file(file.path);
                let number = names.with_md5(number, file.md5());
                self.input_files.insert(file.id, number);
                may_pass && !self.has_diverged && self.files.define(number, file.id.0)
            }
            _ => return false,
        };
        // From here on ids of input and output may differ.
        self.has_diverged |= !keeps_id;
        keeps_id
    }

    /// True if a line of the input means the same in the output.
    pub(crate) fn is_same(&self, line: &Line) -> bool {
        let is_defined = line.function.0 <= self.functions.count && line.file.0 <= self.files.count;
        is_defined && !self.has_diverged
    }

    /// True if the input has defined the names of a line. Damage may have lost their records.
    pub(crate) fn knows(&self, line: &Line) -> bool {
        (line.function.is_none() || self.input_functions.contains_key(&line.function))
            && (line.file.is_none() || self.input_files.contains_key(&line.file))
    }

    /// Returns a line of the input with interned names.
    pub(crate) fn line(&self, line: &Line) -> InternedLine {
        let function = self.input_functions.get(&line.function).copied();
        let file = self.input_files.get(&line.file).copied();
        InternedLine {
            function: function.unwrap_or(0),
            file: file.unwrap_or(0),
            line: line.line,
            column: line.column,
        }
    }

    /// Returns the output id of a function, and whether it is new and must be defined. None if the
    /// stream has no more ids, after 67 million names in one epoch.
    pub(crate) fn function(&mut self, number: u32) -> Option<(FunctionId, bool)> {
        let (id, is_new) = self.functions.id(number)?;
        self.has_diverged |= is_new;
        Some((FunctionId(id), is_new))
    }

    /// Returns the output id of a file, as [`EpochNames::function`] does.
    pub(crate) fn file(&mut self, number: u32) -> Option<(FileId, bool)> {
        let (id, is_new) = self.files.id(number)?;
        self.has_diverged |= is_new;
        Some((FileId(id), is_new))
    }
}

/// The output ids of numbers, ascending from 1 in the order they are defined.
#[derive(Default)]
struct OutputIds {
    /// The id of each number, 0 if it has none.
    ids: Vec<u32>,
    count: u32,
}

impl OutputIds {
    fn forget(&mut self) {
        self.ids.clear();
        self.count = 0;
    }

    /// Returns the id of a number, and whether it is new.
    fn id(&mut self, number: u32) -> Option<(u32, bool)> {
        let (count, id) = self.entry(number);
        if *id != 0 {
            return Some((*id, false));
        }
        // The frame then has a location without this name.
        if *count >= limits::ID {
            return None;
        }
        *count += 1;
        *id = *count;
        Some((*id, true))
    }

    /// Gives a number the id of the input. False if it has one, or that id is not the next.
    fn define(&mut self, number: u32, input_id: u32) -> bool {
        let (count, id) = self.entry(number);
        if *id != 0 || input_id != *count + 1 {
            return false;
        }
        (*count, *id) = (input_id, input_id);
        true
    }

    /// Returns the count of ids and the id of a number.
    fn entry(&mut self, number: u32) -> (&mut u32, &mut u32) {
        let index = number as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, 0);
        }
        (&mut self.count, &mut self.ids[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{Extras, Function, SourceFile};

    fn function(id: u32, name: &'static str, linkage: &'static str) -> Record<'static> {
        let (id, name, linkage) = (FunctionId(id), name.as_bytes(), linkage.as_bytes());
        Record::Function(Function { id, name, linkage, extras: Extras::NONE })
    }

    fn line(function: u32, file: u32) -> Line {
        Line { function: FunctionId(function), file: FileId(file), line: 5, column: 2 }
    }

    #[test]
    fn ids_name_functions_until_forgotten() {
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        epoch.note(&function(7, "f()", "_Z1fv"), &mut names, false);
        epoch.note(&function(3, "g", ""), &mut names, false);
        let extras = Extras::NONE;
        let file = Record::File(SourceFile { id: FileId(7), path: b"/a.c", extras });
        epoch.note(&file, &mut names, false);
        let named = epoch.line(&line(7, 7));
        let name = names.function_name(named.function).unwrap();
        assert_eq!((&*name.shown, &*name.linkage), (&b"f()"[..], &b"_Z1fv"[..]));
        assert_eq!(names.source_path(named.file).map(|file| &*file.path), Some(&b"/a.c"[..]));
        assert_eq!((named.line, named.column), (5, 2));
        let other = epoch.line(&line(3, 7));
        assert_eq!(&*names.function_name(other.function).unwrap().shown, b"g");
        epoch.note(&function(3, "h", ""), &mut names, false);
        let other = epoch.line(&line(3, 7));
        assert_eq!(&*names.function_name(other.function).unwrap().shown, b"h");
        epoch.forget();
        let named = epoch.line(&line(7, 7));
        assert_eq!((named.function, named.file), (0, 0));
    }

    #[test]
    fn ids_diverge_after_a_name_the_input_lacks() {
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        let [f, g, h] = ["f", "g", "h"].map(|name| names.function(name.as_bytes()));
        assert!(epoch.note(&function(1, "f", ""), &mut names, true));
        assert!(
            epoch.is_same(&line(1, 0))
                && !epoch.is_same(&line(2, 0))
                && !epoch.is_same(&line(1, 1))
        );
        assert_eq!(epoch.function(f), Some((FunctionId(1), false)), "a lookup finds it, too");
        assert!(epoch.note(&function(2, "g", ""), &mut names, true));
        assert_eq!(epoch.function(h), Some((FunctionId(3), true)), "new");
        assert!(!epoch.is_same(&line(1, 0)));
        assert!(!epoch.note(&function(3, "i", ""), &mut names, true), "3 is another");
        let named = epoch.line(&line(3, 0));
        assert_eq!(epoch.function(named.function), Some((FunctionId(4), true)));
        assert_eq!(epoch.function(g), Some((FunctionId(2), false)));
    }

    #[test]
    fn ids_out_of_order_are_renumbered() {
        let odd = [function(2, "f", ""), function(0, "f", ""), function(1, "e", "")];
        for record in odd {
            let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
            assert!(epoch.note(&function(1, "e", ""), &mut names, true));
            let is_next = matches!(&record, Record::Function(f) if f.id.0 == 2);
            assert_eq!(epoch.note(&record, &mut names, true), is_next, "{record:?}");
        }
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        assert!(!epoch.note(&function(1, "e", ""), &mut names, false), "must not pass");
        assert!(!epoch.is_same(&line(0, 0)));
    }
}
