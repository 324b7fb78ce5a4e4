//! What the functions on a stack are called, by the symbols of the program that was recorded.

use std::collections::BTreeMap;
use std::fs;

use crate::support::Seen;
use object::{Object, ObjectSegment, ObjectSymbol};

/// The symbols of a program by the file offsets of their code.
pub(crate) struct Symbols(pub(crate) BTreeMap<u64, (u64, String)>);

impl Symbols {
    /// Those in an ELF file.
    pub(crate) fn of(program: &str) -> Self {
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
        // `_start` says nothing of its size.
        Self(known.filter(|(_, (size, name))| *size > 0 || name == "_start").collect())
    }

    /// The name of the function at a file offset; parts that were split off have the whole's.
    fn at(&self, offset: u64) -> Option<&str> {
        let (start, (size, name)) = self.0.range(..=offset).next_back()?;
        let is_inside = offset - start < (*size).max(0x40);
        is_inside.then(|| name.split('.').next().unwrap_or(name))
    }
}

/// The user part of a stack, leaf first: the name of each function of the program, where there
/// is one, else the image's.
pub(crate) fn names<'a>(sample: &'a Seen, symbols: &'a Symbols) -> Vec<&'a str> {
    let user = sample.frames.iter().zip(&sample.offsets).filter(|((_, kernel), _)| !kernel);
    let name = |((image, _), offset): (&'a (String, bool), &u64)| match image.as_str() {
        "program" => symbols.at(*offset).unwrap_or("?"),
        other => other,
    };
    user.map(name).collect()
}
