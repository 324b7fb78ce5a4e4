//! The filter: selects frames that need names, orders the annotations, and flushes a live stream.

mod deferred;
mod epoch_frames;
mod epoch_names;
mod existing_annotations;
pub(crate) mod filter;
mod frame_queue;
mod frame_targets;
pub(crate) mod hottest_images;
pub(crate) mod read_ahead;
mod wall_clock;

#[cfg(test)]
mod tests;
