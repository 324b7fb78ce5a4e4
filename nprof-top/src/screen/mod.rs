//! From rows and keys to lines of text. Pure, except for [`draw::draw`], which copies them to the screen.

mod cells;
pub(crate) mod draw;
mod lines;
pub(crate) mod state;
#[cfg(test)]
mod tests;
