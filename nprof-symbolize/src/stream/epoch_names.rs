//! The names of the epoch at hand: which the input tells of, and which ids they have in the output.
//!
//! What the input tells of has the same id in the output as long as no other name was defined
//! there: then the input's records can be passed on as they are.

use nprof_stream::{FileId, FunctionId, Line, Record, limits};
use rustc_hash::FxHashMap;

use crate::names::interner::Interner;
use crate::names::location::InternedLine;

/// The functions and files of an epoch. Their numbers are those of [`Interner`].
#[derive(Default)]
pub(crate) struct EpochNames {
    /// The numbers of what the input tells of.
    their_functions: FxHashMap<FunctionId, u32>,
    their_files: FxHashMap<FileId, u32>,
    /// The ids in the output.
    functions: Ids,
    files: Ids,
    /// Whether some are not what they are in the input.
    is_apart: bool,
}

impl EpochNames {
    /// All ids are forgotten.
    pub(crate) fn forget(&mut self) {
        self.their_functions.clear();
        self.their_files.clear();
        self.functions.forget();
        self.files.forget();
        self.is_apart = false;
    }

    /// Takes note of a function or a file of the input. Whether its record can be passed on, if it
    /// `may` be.
    pub(crate) fn note(&mut self, record: &Record<'_>, names: &mut Interner, may: bool) -> bool {
        let is_next = match record {
            Record::Function(function) => {
                let number = names.kept(function.name, function.linkage);
                self.their_functions.insert(function.id, number);
                may && !self.is_apart && self.functions.adopt(number, function.id.0)
            }
            Record::File(file) => {
                let number = names.file(file.path);
                self.their_files.insert(file.id, number);
                may && !self.is_apart && self.files.adopt(number, file.id.0)
            }
            _ => return false,
        };
        self.is_apart |= !is_next;
        is_next
    }

    /// Whether a line of the input means the same in the output.
    pub(crate) fn is_same(&self, line: &Line) -> bool {
        let is_defined = line.function.0 <= self.functions.count && line.file.0 <= self.files.count;
        is_defined && !self.is_apart
    }

    /// Whether the input has told of what a line refers to: of a damaged one that may be lost.
    pub(crate) fn knows(&self, line: &Line) -> bool {
        let knows_function = || self.their_functions.contains_key(&line.function);
        let knows_file = || self.their_files.contains_key(&line.file);
        (line.function.is_none() || knows_function()) && (line.file.is_none() || knows_file())
    }

    /// A line of the input by numbers.
    pub(crate) fn line(&self, line: &Line) -> InternedLine {
        let function = self.their_functions.get(&line.function).copied();
        let file = self.their_files.get(&line.file).copied();
        InternedLine {
            function: function.unwrap_or(0),
            file: file.unwrap_or(0),
            line: line.line,
            column: line.column,
        }
    }

    /// The id of a function, and whether it has yet to be defined. `None` when the stream has no
    /// more ids, which takes 67 million names in one epoch.
    pub(crate) fn function(&mut self, number: u32) -> Option<(FunctionId, bool)> {
        let (id, is_new) = self.functions.id(number)?;
        self.is_apart |= is_new;
        Some((FunctionId(id), is_new))
    }

    /// The same of a file.
    pub(crate) fn file(&mut self, number: u32) -> Option<(FileId, bool)> {
        let (id, is_new) = self.files.id(number)?;
        self.is_apart |= is_new;
        Some((FileId(id), is_new))
    }
}

/// Which numbers have been defined, and as which ids, from 1 on.
#[derive(Default)]
struct Ids {
    ids: Vec<u32>,
    count: u32,
}

impl Ids {
    fn forget(&mut self) {
        self.ids.clear();
        self.count = 0;
    }

    fn id(&mut self, number: u32) -> Option<(u32, bool)> {
        let (count, id) = self.of(number);
        if *id != 0 {
            return Some((*id, false));
        }
        if *count >= limits::ID {
            return None;
        }
        *count += 1;
        *id = *count;
        Some((*id, true))
    }

    /// Defines a number as the input does, if it has no id and this is the next one.
    fn adopt(&mut self, number: u32, theirs: u32) -> bool {
        let (count, id) = self.of(number);
        if *id != 0 || theirs != *count + 1 {
            return false;
        }
        (*count, *id) = (theirs, theirs);
        true
    }

    /// How many ids there are, and that of a number.
    fn of(&mut self, number: u32) -> (&mut u32, &mut u32) {
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
    fn names_are_found_by_id_until_they_are_forgotten() {
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        epoch.note(&function(7, "f()", "_Z1fv"), &mut names, false);
        epoch.note(&function(3, "g", ""), &mut names, false);
        let extras = Extras::NONE;
        let file = Record::File(SourceFile { id: FileId(7), path: b"/a.c", extras });
        epoch.note(&file, &mut names, false);
        let named = epoch.line(&line(7, 7));
        let name = names.function_name(named.function).unwrap();
        assert_eq!((&*name.shown, &*name.linkage), (&b"f()"[..], &b"_Z1fv"[..]));
        assert_eq!(names.path(named.file), Some(&b"/a.c"[..]));
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
    fn ids_stay_until_a_name_is_defined_that_the_input_has_not() {
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        let [f, g, h] = ["f", "g", "h"].map(|name| names.function(name.as_bytes()));
        assert!(epoch.note(&function(1, "f", ""), &mut names, true));
        assert!(
            epoch.is_same(&line(1, 0))
                && !epoch.is_same(&line(2, 0))
                && !epoch.is_same(&line(1, 1))
        );
        assert_eq!(epoch.function(f), Some((FunctionId(1), false)), "found here as well");
        assert!(epoch.note(&function(2, "g", ""), &mut names, true));
        assert_eq!(epoch.function(h), Some((FunctionId(3), true)), "new");
        assert!(!epoch.is_same(&line(1, 0)));
        assert!(!epoch.note(&function(3, "i", ""), &mut names, true), "3 is another");
        let named = epoch.line(&line(3, 0));
        assert_eq!(epoch.function(named.function), Some((FunctionId(4), true)));
        assert_eq!(epoch.function(g), Some((FunctionId(2), false)));
    }

    #[test]
    fn what_is_not_numbered_on_has_other_ids() {
        let odd = [function(2, "f", ""), function(0, "f", ""), function(1, "e", "")];
        for record in odd {
            let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
            assert!(epoch.note(&function(1, "e", ""), &mut names, true));
            let is_next = matches!(&record, Record::Function(f) if f.id.0 == 2);
            assert_eq!(epoch.note(&record, &mut names, true), is_next, "{record:?}");
        }
        let (mut epoch, mut names) = (EpochNames::default(), Interner::default());
        assert!(!epoch.note(&function(1, "e", ""), &mut names, false), "it may not");
        assert!(!epoch.is_same(&line(0, 0)));
    }
}
