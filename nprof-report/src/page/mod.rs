//! Pages for browsers, in one file without network: their common document, style and script, and the
//! text of their data.

mod document;
mod names;
mod numbers;

pub use document::Page;
pub use names::{shorten, text_bytes};
pub use numbers::Numbers;
