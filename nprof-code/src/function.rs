//! A function with its code, independent of the ids of the stream.

use std::sync::Arc;

use nprof_stream::escape::escaped;
use nprof_stream::labels::UNKNOWN;
use nprof_stream::tables::{FrameEntry, NameId, Tables};
use nprof_stream::{CodeEntry, CodeRow, Md5Sum};
use rustc_hash::FxHashMap;

/// The function and the line of an instruction, or of a call inlined there. Names are escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// None if only the line is known.
    pub function: Option<Arc<str>>,
    /// None if it is unknown.
    pub file: Option<Arc<str>>,
    /// 0 if it is unknown.
    pub line: u32,
}

/// The code of a function, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name of the function that was compiled, escaped.
    pub name: Arc<str>,
    /// The path of its image, escaped.
    pub image: Arc<str>,
    /// The base name of its image, escaped.
    pub image_name: Arc<str>,
    /// The offset of its first byte in the image.
    pub start: u64,
    /// The architecture of its instructions.
    pub arch: Box<[u8]>,
    /// Its code.
    pub bytes: Box<[u8]>,
    /// The places at an instruction and those after it up to the next entry, innermost first.
    rows: Vec<(u32, Vec<Place>)>,
    callees: Vec<(u32, Arc<str>)>,
    /// The MD5 of source files, as they were compiled.
    md5s: FxHashMap<Arc<str>, Md5Sum>,
    /// The memory of its names.
    name_bytes: usize,
}

impl Function {
    /// Creates the function of code in a stream. `frame` is a frame in it.
    pub fn new(tables: &Tables, frame: &FrameEntry, code: &CodeEntry) -> Self {
        let image = tables.image(frame.image);
        // The record of the image may be lost to damage.
        let path = image.map_or(UNKNOWN, |image| tables.names.get(image.path));
        let image_name = image.map_or(UNKNOWN, |image| tables.names.get(image.name));
        let image_name: Arc<str> = escaped(image_name).into();
        let mut names = Names { tables, known: FxHashMap::default(), md5s: FxHashMap::default() };
        let mut rows: Vec<(u32, Vec<Place>)> = Vec::new();
        for row in code.rows().iter() {
            let place = names.place(&row);
            match rows.last_mut().filter(|(offset, _)| *offset == row.offset) {
                Some((_, places)) => places.push(place),
                None => rows.push((row.offset, vec![place])),
            }
        }
        let callees = code.callees();
        let callees =
            callees.iter().filter_map(|row| Some((row.offset, names.place(&row).function?)));
        let callees = callees.collect();
        // The outermost call of any instruction is the function itself.
        let name = rows.iter().find_map(|(_, places)| places.last()?.function.clone());
        let name = name.unwrap_or_else(|| format!("{image_name}+{:#x}", code.offset).into());
        let image: Arc<str> = escaped(path).into();
        let Names { known, md5s, .. } = names;
        let names = known.values().chain([&name, &image, &image_name]);
        let name_bytes = names.map(|name| name.len() + size_of::<Arc<str>>()).sum();
        Self {
            name_bytes,
            md5s,
            name,
            image,
            image_name,
            start: code.offset,
            arch: code.arch.clone(),
            bytes: code.bytes.clone(),
            rows,
            callees,
        }
    }

    /// Returns the places at an offset from the start, innermost first.
    pub fn places(&self, offset: u32) -> &[Place] {
        let after = self.rows.partition_point(|(row, _)| *row <= offset);
        let row = after.checked_sub(1).and_then(|index| self.rows.get(index));
        row.map_or(&[], |(_, places)| places)
    }

    /// Returns the name of the function that the instruction at an offset calls or jumps to. None unless
    /// it is another one, and known.
    pub fn callee(&self, offset: u32) -> Option<&Arc<str>> {
        let found = self.callees.binary_search_by_key(&offset, |(row, _)| *row).ok()?;
        Some(&self.callees[found].1)
    }

    /// Returns the MD5 of one of its source files, as it was compiled. None if the stream does not have it.
    pub fn md5(&self, file: &str) -> Option<Md5Sum> {
        self.md5s.get(file).copied()
    }

    /// Returns its memory use in bytes.
    pub fn size(&self) -> usize {
        let places: usize = self.rows.iter().map(|(_, places)| places.len()).sum();
        size_of::<Self>()
            + self.name_bytes
            + self.bytes.len()
            + places * size_of::<Place>()
            + self.rows.len() * size_of::<(u32, Vec<Place>)>()
            + self.callees.len() * size_of::<(u32, Arc<str>)>()
            + self.md5s.len() * size_of::<(Arc<str>, Md5Sum)>()
    }
}

/// The escaped names of a function and the MD5 of its files. An instruction mostly has the names of the one
/// before.
struct Names<'a> {
    tables: &'a Tables,
    known: FxHashMap<NameId, Arc<str>>,
    md5s: FxHashMap<Arc<str>, Md5Sum>,
}

impl Names<'_> {
    fn place(&mut self, row: &CodeRow) -> Place {
        let mut name = |id| {
            // A function has few names for many instructions.
            let text = || escaped(self.tables.names.get(id)).into();
            Arc::clone(self.known.entry(id).or_insert_with(text))
        };
        let function = self.tables.function(row.line.function).map(&mut name);
        let file = self.tables.file(row.line.file).map(&mut name);
        if let (Some(file), Some(md5)) = (&file, self.tables.md5(row.line.file)) {
            // A function has one line table, in which a path has one MD5.
            self.md5s.entry(Arc::clone(file)).or_insert(md5);
        }
        Place { function, file, line: row.line.line }
    }
}
