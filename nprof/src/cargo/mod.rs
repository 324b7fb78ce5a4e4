//! `cargo nprof`: builds a target of a Rust project, and records it without cargo.

mod args;
mod build;
mod debug_info;
mod messages;
mod profile;

pub use profile::main;
