//! Names the functions on a stack by the ELF symbols of the recorded program.

use std::collections::BTreeMap;
use std::fs;

use nprof_stream::NodeId;
use nprof_stream::tables::Tables;
use object::{Object, ObjectSegment, ObjectSymbol};

use crate::support::StackSample;

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

    /// Returns the function at a file offset; split-off parts (`f.cold`) have the name of the whole.
    pub(crate) fn at(&self, offset: u64) -> Option<&str> {
        let (start, (size, name)) = self.0.range(..=offset).next_back()?;
        // `<=`: the offset may be one past the end of its function, after a call that never returns. Only
        // `_start` has no size.
        let is_inside = offset - start <= if *size == 0 { 0x40 } else { *size };
        is_inside.then(|| name.split('.').next().unwrap_or(name))
    }

    /// Returns the functions on a sample's stack, leaf first.
    pub(crate) fn on_stack<'a>(&'a self, sample: &StackSample) -> Vec<&'a str> {
        let program = |(image, _): &(String, bool)| image.ends_with("program");
        let own = sample.frames.iter().zip(&sample.offsets).filter(|(frame, _)| program(frame));
        own.filter_map(|(_, &offset)| self.at(offset)).collect()
    }

    /// Returns the functions on a stack, leaf first. None for code that is not the program's.
    pub(crate) fn on_path<'a>(&'a self, tables: &Tables, leaf: NodeId) -> Vec<Option<&'a str>> {
        let mut functions = Vec::new();
        let mut node = leaf;
        while let Some((parent, frame)) = tables.node(node) {
            let entry = tables.frame(frame).expect("a frame");
            let image = tables.image(entry.image).map(|image| tables.names.get(image.name));
            let own = image.filter(|image| image == b"program");
            functions
                .push(own.and_then(|_| self.at(entry.offset - u64::from(entry.return_address))));
            node = parent;
        }
        functions
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
