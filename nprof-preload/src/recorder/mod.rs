//! The recorder's end: accepts processes and reads their rings.

mod listener;
mod mapping;
mod memos;
mod ring;

pub use listener::{Connection, Listener};
pub use memos::{Memos, TooLarge, WalkedStack};
pub use ring::{Losses, Ring};
