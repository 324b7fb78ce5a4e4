//! One recording from start to end: launch or attach, the main loop, CPU-time accounting, output, header and summary.

pub(crate) mod call_source;
pub(crate) mod cpu_time;
pub(crate) mod delays;
pub(crate) mod event_source;
pub(crate) mod existing_threads;
pub(crate) mod header;
pub(crate) mod launch;
pub(crate) mod output;
pub(crate) mod preload;
pub(crate) mod process_times;
pub(crate) mod recording;
pub(crate) mod summary;
pub(crate) mod wait_meter;
pub(crate) mod wait_windows;
pub(crate) mod workload;
