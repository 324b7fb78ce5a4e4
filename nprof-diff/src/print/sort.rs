//! `--sort`: the order of the rows.

use clap::ValueEnum;

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The largest difference in self first
    #[value(name = "self")]
    Self_,
    /// The largest difference in total first
    Total,
    /// Name, then image
    Name,
}
