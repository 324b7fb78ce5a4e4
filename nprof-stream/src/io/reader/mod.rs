//! Decodes a stream: finds blocks and lines, checks them, and resynchronizes after damage.
//!
//! Damage does not end the reading. The reader records its place, skips the damaged bytes, and
//! continues at the next whole block (in text: the next line).

mod block;
mod blocks;
mod lines;
mod resync;
mod stream;

pub use crate::io::verdict::{Damage, Verdict};
pub use stream::Reader;
