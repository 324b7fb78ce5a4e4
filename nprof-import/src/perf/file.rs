//! The container: the header, its sections, and the records of a file or pipe.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;

use super::attribute::Attribute;
use super::bytes::Bytes;
use super::error::Error;
use super::features::Features;

/// The first bytes of a file on a little-endian machine.
pub(crate) const MAGIC: &[u8; 8] = b"PERFILE2";

/// The lengths of the headers of a file and of a pipe.
const FILE_HEADER: usize = 104;
const PIPE_HEADER: u64 = 16;

/// The largest section that is read: lists of build IDs and of event names.
const MAX_SECTION: u64 = 64 << 20;

/// The sizes that the attributes of an event can have, with their section of ids.
const ATTRIBUTE_SIZES: std::ops::RangeInclusive<u64> = 64 + 16..=4096;

/// Most attributes: `perf record` opens some for each CPU.
const MAX_ATTRIBUTES: u64 = 1 << 16;

/// The facts before the records.
#[derive(Debug, Default)]
pub(super) struct Preamble {
    pub(super) attributes: Vec<Attribute>,
    pub(super) features: Features,
    /// The bytes of records. None if they reach to the end of the input.
    pub(super) data_size: Option<u64>,
    /// The reason why features are missing, as at the end of a file that was cut off.
    pub(super) damage: Option<Error>,
}

/// A part of a file.
#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn decode(at: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { offset: at.u64()?, size: at.u64()? })
    }

    /// Reads the part, which `name` describes in errors.
    fn read(self, file: &File, name: &'static str) -> Result<Vec<u8>, Error> {
        let Self { offset, size } = self;
        let length = file.metadata()?.len();
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(Error::Truncated { offset: length, part: name });
        }
        if size > MAX_SECTION {
            return Err(Error::Damaged { offset, problem: "a section is too large" });
        }
        // Within the file, so that damage cannot ask for more memory than the file has bytes.
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Counts the bytes of an input.
pub(super) struct Counted<R> {
    input: R,
    /// The offset of the next byte.
    pub(super) offset: u64,
}

impl<R: Read> Counted<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, offset: 0 }
    }

    /// Fills a buffer. False at the end of the input; fails if that is within the buffer.
    pub(super) fn fill(&mut self, buffer: &mut [u8], part: &'static str) -> Result<bool, Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(Error::Truncated { offset: self.offset, part }),
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Skips bytes; fails at the end of the input.
    pub(super) fn skip(&mut self, count: u64, part: &'static str) -> Result<(), Error> {
        let mut left = count;
        let mut buffer = [0; 4096];
        while left > 0 {
            let next = left.min(buffer.len() as u64) as usize;
            if !self.fill(&mut buffer[..next], part)? {
                return Err(Error::Truncated { offset: self.offset, part });
            }
            left -= next as u64;
        }
        Ok(())
    }
}

/// Reads up to the first record. `file` is the same input, for the sections at its end.
pub(super) fn preamble(
    input: &mut Counted<impl Read>,
    file: Option<&File>,
) -> Result<Preamble, Error> {
    // The header of a pipe is the beginning of that of a file.
    let mut header = [0; FILE_HEADER];
    let truncated =
        |input: &Counted<_>| Error::Truncated { offset: input.offset, part: "the header" };
    let (start, rest) = header.split_at_mut(PIPE_HEADER as usize);
    if !input.fill(start, "the header")? {
        return Err(truncated(input));
    }
    if start.starts_with(b"2ELIFREP") {
        let reason = "it was recorded on a big-endian machine, which is not supported";
        return Err(Error::Unsupported(reason));
    }
    let size = Bytes(&start[8..]).u64().unwrap_or_default();
    if size == PIPE_HEADER {
        return Ok(Preamble::default());
    }
    if size < FILE_HEADER as u64 {
        return Err(Error::Damaged { offset: 8, problem: "the size of the header is wrong" });
    }
    if !input.fill(rest, "the header")? {
        return Err(truncated(input));
    }
    let Some(file) = file.filter(|file| file.metadata().is_ok_and(|facts| facts.is_file())) else {
        return Err(Error::Unsupported(
            "it has facts at its end, so that it cannot be read from a pipe; name the file",
        ));
    };
    // Eleven numbers follow, and the array is long enough for them.
    let mut at = Bytes(rest);
    let attribute_size = at.u64().unwrap_or_default();
    let [attributes, data, _types] =
        [(); 3].map(|()| Section::decode(&mut at).unwrap_or(Section { offset: 0, size: 0 }));
    let attributes = read_attributes(file, attributes, attribute_size)?;
    let mut preamble = Preamble { attributes, ..Preamble::default() };
    // perf writes the size at its end: 0 means that it was killed.
    if data.size > 0 {
        preamble.data_size = Some(data.size);
        preamble.damage = read_features(file, data, at, &mut preamble.features).err();
    }
    let behind = data.offset.checked_sub(input.offset);
    let problem = "the records begin within the header";
    input.skip(behind.ok_or(Error::Damaged { offset: 40, problem })?, "the header")?;
    preamble.features.name_events(&mut preamble.attributes);
    Ok(preamble)
}

fn read_attributes(file: &File, section: Section, size: u64) -> Result<Vec<Attribute>, Error> {
    if !ATTRIBUTE_SIZES.contains(&size) {
        return Err(Error::Damaged { offset: 16, problem: "the size of attributes is wrong" });
    }
    if section.size / size > MAX_ATTRIBUTES {
        return Err(Error::Damaged { offset: 32, problem: "there are too many attributes" });
    }
    let bytes = section.read(file, "the attributes of events")?;
    let mut attributes = Vec::new();
    // The lists of all events together, as a damaged file can have one list for many events.
    let mut ids_left = MAX_SECTION;
    for entry in bytes.chunks_exact(size as usize) {
        let (attribute, ids) = entry.split_at(entry.len() - 16);
        let offset = section.offset;
        let problem = "the attributes of an event are wrong";
        let mut attribute =
            Attribute::decode(attribute).ok_or(Error::Damaged { offset, problem })?;
        if let Some(ids) = Section::decode(&mut Bytes(ids)).filter(|ids| ids.size > 0) {
            let problem = "the ids of events are too large";
            let left = ids_left.checked_sub(ids.size);
            ids_left = left.ok_or(Error::Damaged { offset: section.offset, problem })?;
            let ids = ids.read(file, "the ids of an event")?;
            attribute.ids = ids.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// Reads the features: their sections follow each other in a table after the records.
fn read_features(
    file: &File,
    data: Section,
    mut bits: Bytes<'_>,
    features: &mut Features,
) -> Result<(), Error> {
    let problem = "the records end beyond the largest file";
    let end = data.offset.checked_add(data.size);
    let mut entry = end.ok_or(Error::Damaged { offset: 48, problem })?;
    for word in 0..4 {
        let bits = bits.u64().unwrap_or_default();
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let bytes = Section { offset: entry, size: 16 }.read(file, "the table of features")?;
            entry += 16;
            let section = Section::decode(&mut Bytes(&bytes));
            // Others may be large, such as the types of BPF programs.
            let Some(section) = section.filter(|_| Features::is_used(64 * word + bit)) else {
                continue;
            };
            let bytes = section.read(file, "a feature")?;
            if !features.add(64 * word + bit, &bytes) {
                let problem = "a feature is shorter than its fields";
                return Err(Error::Damaged { offset: section.offset, problem });
            }
        }
    }
    Ok(())
}
