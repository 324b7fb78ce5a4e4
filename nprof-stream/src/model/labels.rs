//! Labels of calls: the names by which reports group.

use crate::model::epoch_cache::EpochCache;
use crate::model::tables::{Call, FrameEntry, NameId, Names, Tables};

pub use crate::model::names::OTHER;
use crate::record::{ImageKind, Line, Mark};

/// A property of a call by which reports group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKey {
    /// The name of the function; `image+0xoffset` if it has none.
    Function,
    /// The image's path, or its name in brackets.
    Image,
    /// The image's base name.
    ImageName,
    /// The source file; the image's base name in brackets if there is none.
    File,
    /// The source file and line, `file:line`; like [`CallKey::File`] if there is none.
    Line,
    /// The address in the image, `image+0xoffset`.
    Address,
}

/// The labels of calls. Equal labels have equal ids, also across epochs and streams.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// All labels returned so far.
    pub names: Names,
    cache: EpochCache<(CallKey, Call), NameId>,
    renamed: Renamed,
}

/// The labels that are names of the tables as they are, by these names: few names label many calls.
#[derive(Clone, Debug, Default)]
struct Renamed {
    /// The generation of the tables.
    generation: u64,
    labels: Vec<Option<NameId>>,
}

/// The label of frames that damage left undefined.
const DAMAGED: &str = "[damaged]";

/// The image label of JIT code: each function is an image, and a row for each would say little.
const GENERATED: &[u8] = b"[jit]";

/// The label of a sample without a stack.
const NO_STACK: &[u8] = b"[no stack]";

/// The label of code outside of all images, and of undefined tasks and events.
pub const UNKNOWN: &[u8] = b"[unknown]";

impl Labels {
    /// Creates an empty set of labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the label of a sample without a stack; the same for all keys.
    pub fn no_stack(&mut self) -> NameId {
        self.names.intern(NO_STACK)
    }

    /// Returns the label of a call. The mark of an incomplete stack is `[incomplete:MAGIC]` for all keys.
    pub fn label(&mut self, tables: &Tables, call: Call, key: CallKey) -> NameId {
        if let Some(name) = whole_name(tables, call, key) {
            return self.renamed.label(tables, name, &mut self.names);
        }
        if let Some(label) = self.cache.get(tables, &(key, call)) {
            return label;
        }
        let text = match tables.frame(call.frame) {
            None if tables.has_omissions() => OTHER.to_vec(),
            None => DAMAGED.as_bytes().to_vec(),
            Some(frame) if frame.mark != Mark::None => {
                format!("[incomplete:{}]", frame.mark).into_bytes()
            }
            Some(frame) => text(tables, frame, call.line, key),
        };
        let label = self.names.intern(&text);
        self.cache.insert((key, call), label);
        label
    }
}

impl Renamed {
    /// Returns the label that is a name of the tables.
    fn label(&mut self, tables: &Tables, name: NameId, names: &mut Names) -> NameId {
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.labels.clear();
        }
        let index = name.0 as usize;
        if self.labels.len() <= index {
            self.labels.resize(index + 1, None);
        }
        *self.labels[index].get_or_insert_with(|| names.intern(tables.names.get(name)))
    }
}

/// Returns the name of the tables that is the label of a call as it is. None if [`text`] has to make it.
fn whole_name(tables: &Tables, call: Call, key: CallKey) -> Option<NameId> {
    let frame = tables.frame(call.frame).filter(|frame| frame.mark == Mark::None)?;
    match key {
        CallKey::Function => tables.function(call.line.function),
        CallKey::Image | CallKey::ImageName => {
            let image = tables.image(frame.image)?;
            // Code in memory may be `[jit]`.
            let is_file = !matches!(image.kind, ImageKind::Anonymous | ImageKind::Jit);
            is_file.then_some(if key == CallKey::Image { image.path } else { image.name })
        }
        CallKey::File | CallKey::Line | CallKey::Address => None,
    }
}

fn text(tables: &Tables, frame: &FrameEntry, line: Line, key: CallKey) -> Vec<u8> {
    let image = tables.image(frame.image);
    let image_name = image.map_or(UNKNOWN, |image| tables.names.get(image.name));
    // Code in anonymous memory has a name only if the process generated it; the recorder found the
    // name after it had written the frame.
    let is_jit = image.is_some_and(|image| match image.kind {
        ImageKind::Anonymous => frame.is_named(),
        kind => kind == ImageKind::Jit,
    });
    match key {
        CallKey::Image | CallKey::ImageName | CallKey::File | CallKey::Line if is_jit => {
            GENERATED.to_vec()
        }
        CallKey::Image => image.map_or(UNKNOWN, |image| tables.names.get(image.path)).to_vec(),
        CallKey::ImageName => image_name.to_vec(),
        CallKey::Address => address(image_name, frame),
        CallKey::Function => match tables.function(line.function) {
            Some(name) => tables.names.get(name).to_vec(),
            None => address(image_name, frame),
        },
        CallKey::File | CallKey::Line => match tables.file(line.file) {
            Some(path) => {
                let mut text = tables.names.get(path).to_vec();
                // 0 means that the line is unknown.
                if key == CallKey::Line && line.line > 0 {
                    text.extend_from_slice(format!(":{}", line.line).as_bytes());
                }
                text
            }
            // The name has its brackets already: `[kernel]`, `[vdso]`.
            None if image_name.starts_with(b"[") => image_name.to_vec(),
            None => [b"[", image_name, b"]"].concat(),
        },
    }
}

fn address(image_name: &[u8], frame: &FrameEntry) -> Vec<u8> {
    let mut text = image_name.to_vec();
    text.extend_from_slice(format!("+{:#x}", frame.offset).as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::reader::Reader;
    use crate::record::FrameId;

    /// Returns the function and the image of all calls of frame 1, each time a sample is read.
    fn labels_of(lines: &str) -> Vec<String> {
        let text = format!("@nprof\t1.1\trun=0x1\n{lines}");
        let mut reader = Reader::new(text.as_bytes());
        let (mut tables, mut labels, mut seen) = (Tables::new(), Labels::new(), Vec::new());
        while let Some(record) = reader.next().unwrap() {
            let is_sample = matches!(record, crate::record::Record::Sample(_));
            tables.apply(&record);
            if is_sample {
                for call in tables.calls(FrameId(1)) {
                    let keys = [CallKey::Function, CallKey::Image, CallKey::ImageName];
                    let ids = keys.map(|key| labels.label(&tables, call, key));
                    let names = ids.map(|id| String::from_utf8_lossy(labels.names.get(id)));
                    seen.push(names.join(" "));
                }
            }
        }
        seen
    }

    #[test]
    fn names_of_an_epoch_are_labels_until_its_end() {
        let epoch = |function: &str, image: &str| {
            format!(
                "I\t1\telf\t-\t{image}\nF\t1\t1\t0x10\tu\nU\t1\t{function}\t-\n\
                 Y\t1\tnamed\t1,0,0,0\nS\t1\t0\t0\t0\t0\t1\t1\n"
            )
        };
        let lines = format!("{}@epoch\tnumber=1\n{}", epoch("f", "/x/a"), epoch("g", "/y/b"));
        assert_eq!(labels_of(&lines), ["f /x/a a", "g /y/b b"]);
    }

    #[test]
    fn label_of_a_mark_or_of_generated_code_is_not_the_name_of_its_image() {
        let lines = "I\t1\tjit\t-\t/a\nF\t1\t1\t0x10\tu\nS\t1\t0\t0\t0\t0\t1\t1\n\
                     @epoch\tnumber=1\nF\t1\t0\t0x0\tu,no-stack\nS\t1\t0\t0\t0\t0\t1\t1\n";
        let mark = "[incomplete:no-stack]";
        assert_eq!(labels_of(lines), ["/a+0x10 [jit] [jit]".into(), [mark; 3].join(" ")]);
    }
}
