//! From the records of a stream to the rows of a window of time, or of all time. Pure.

mod clock;
pub mod facts;
pub mod live;
pub mod view;
mod window;
