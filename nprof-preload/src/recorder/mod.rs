//! The recorder's end: accepts processes and reads their rings.

mod listener;
mod ring;

pub use listener::{Connection, Listener};
pub use ring::{Losses, Ring};
