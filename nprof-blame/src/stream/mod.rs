//! Copies the stream, passes its samples to the charger, and writes the charges.

mod error;
mod filter;
mod own_records;
#[cfg(test)]
mod tests;

pub(crate) use filter::Filter;
