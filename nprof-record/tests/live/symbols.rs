//! Names the functions on a stack by the ELF symbols of the recorded program.

use std::collections::BTreeMap;
use std::fs;

use crate::support::StackSample;
use object::{Object, ObjectSegment, ObjectSymbol};

/// The symbols of a program: size and name by the file offset of their start.
pub(crate) struct Symbols(pub(crate) BTreeMap<u64, (u64, String)>);

impl Symbols {
    /// Reads the symbols of an ELF file.
    pub(crate) fn from_file(program: &str) -> Self {
        let bytes = fs::read(program).expect("read");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let offset = |address: u64| {
            file.segments().find_map(|segment| {
                let at = address.checked_sub(segment.address())?;
                let (start, size) = segment.file_range();
                (at < size).then_some(start + at)
            })
        };
        let code = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let known = code.filter_map(|symbol| {
            Some((offset(symbol.address())?, (symbol.size(), symbol.name().ok()?.to_owned())))
        });
        // `_start` is assembly without a .size directive: its size is 0.
        Self(known.filter(|(_, (size, name))| *size > 0 || name == "_start").collect())
    }

    /// Returns the function at a file offset; split-off parts (`f.cold`) have the name of the
    /// whole.
    fn at(&self, offset: u64) -> Option<&str> {
        let (start, (size, name)) = self.0.range(..=offset).next_back()?;
        let is_inside = offset - start < (*size).max(0x40);
        is_inside.then(|| name.split('.').next().unwrap_or(name))
    }
}

/// Returns the user part of a stack, leaf first: function names for the program's own frames, image
/// names for all others.
pub(crate) fn names<'a>(sample: &'a StackSample, symbols: &'a Symbols) -> Vec<&'a str> {
    let user = sample.frames.iter().zip(&sample.offsets).filter(|((_, kernel), _)| !kernel);
    let name = |((image, _), offset): (&'a (String, bool), &u64)| match image.as_str() {
        "program" => symbols.at(*offset).unwrap_or("?"),
        other => other,
    };
    user.map(name).collect()
}
