//! The result of one comparison.

/// A difference (new minus base) with its confidence interval and p-value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// The value of the base.
    pub(crate) base: f64,
    /// The value of the new side.
    pub(crate) new: f64,
    /// The lower end of the interval of the difference.
    pub(crate) low: f64,
    /// The upper end of the interval of the difference.
    pub(crate) high: f64,
    /// The smallest alpha at which the interval of confidence 1 - alpha excludes zero; larger if a
    /// permutation test gave a larger p-value.
    pub(crate) p: f64,
}

impl Estimate {
    /// Returns the new value minus the base value.
    pub(crate) fn difference(&self) -> f64 {
        self.new - self.base
    }
}
