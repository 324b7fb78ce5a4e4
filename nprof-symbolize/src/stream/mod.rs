//! The filter: selects the frames that need names, orders the annotations and flushes a live stream.

pub(crate) mod deferred;
pub(crate) mod epoch_frames;
pub(crate) mod epoch_names;
pub(crate) mod existing_location;
pub(crate) mod existing_names;
pub(crate) mod filter;
pub(crate) mod frame_queue;
pub(crate) mod frame_sites;
pub(crate) mod hottest_images;
pub(crate) mod read_ahead;
pub(crate) mod wall_clock;

#[cfg(test)]
mod tests;
