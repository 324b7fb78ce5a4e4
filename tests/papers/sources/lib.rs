//! See `Cargo.toml`.
