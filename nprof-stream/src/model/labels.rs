//! What a call is called: the names reports group by.

use crate::model::epoch_cache::EpochCache;
use crate::model::tables::{Call, FrameEntry, NameId, Names, Tables};
use crate::record::{ImageKind, Line, Mark};

/// What a call can be grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKey {
    /// The function's shown name; `image+0xoffset` where there is none.
    Function,
    /// The image's path, or its name in brackets.
    Image,
    /// The image's base name.
    ImageName,
    /// The source file; the image's base name in brackets where there is none.
    File,
    /// The source file and line, `file:line`; as [`CallKey::File`] where there is none.
    Line,
    /// The place in the image, `image+0xoffset`.
    Address,
}

/// Gives calls their labels. Equal labels have equal ids, also across epochs and streams.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Every label given so far.
    pub names: Names,
    cache: EpochCache<(CallKey, Call), NameId>,
}

/// The label of what the stream lost to damage.
const DAMAGED: &str = "[damaged]";

/// The label of generated code, of which each function is an image of its own.
const GENERATED: &[u8] = b"[jit]";

/// The label of what a sample without a stack ran.
const NO_STACK: &[u8] = b"[no stack]";

/// The label of what lies in no image, and of a task or event that no record defines.
pub const UNKNOWN: &[u8] = b"[unknown]";

impl Labels {
    /// No labels yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The label of what a sample without a stack ran, under every key.
    pub fn no_stack(&mut self) -> NameId {
        self.names.intern(NO_STACK)
    }

    /// The label of a call. The mark of an incomplete stack is `[truncated:CAUSE]` under every
    /// key.
    pub fn label(&mut self, tables: &Tables, call: Call, key: CallKey) -> NameId {
        if let Some(label) = self.cache.get(tables, &(key, call)) {
            return label;
        }
        let text = match tables.frame(call.frame) {
            None => DAMAGED.as_bytes().to_vec(),
            Some(frame) if frame.mark != Mark::None => {
                format!("[truncated:{}]", frame.mark).into_bytes()
            }
            Some(frame) => text(tables, frame, call.line, key),
        };
        let label = self.names.intern(&text);
        self.cache.insert((key, call), label);
        label
    }
}

fn text(tables: &Tables, frame: &FrameEntry, line: Line, key: CallKey) -> Vec<u8> {
    let image = tables.image(frame.image);
    let image_name = image.map_or(UNKNOWN, |image| tables.names.get(image.name));
    let is_made = image.is_some_and(|image| image.kind == ImageKind::Jit);
    match key {
        CallKey::Image | CallKey::ImageName | CallKey::File | CallKey::Line if is_made => {
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
                if key == CallKey::Line && line.line > 0 {
                    text.extend_from_slice(format!(":{}", line.line).as_bytes());
                }
                text
            }
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
