//! The CPU time that counting adds to a call. Pure.

/// The cost of a slow count in counts at other places, where it could not be measured: that of a virtual
/// machine.
const SLOW_TIMES: u64 = 15;

/// The CPU time that counting adds to a call, in ns. None where it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallCost {
    /// That at most places of functions.
    pub(crate) usual_ns: Option<u64>,
    /// That at slow ones, see [`super::points::Point::is_slow`].
    pub(crate) slow_ns: Option<u64>,
}

impl CallCost {
    /// Returns the cost of a slow count in usual ones.
    pub(crate) fn slow_times(self) -> u64 {
        match (self.slow_ns, self.usual_ns) {
            (Some(slow_ns), Some(usual_ns)) => (slow_ns / usual_ns.max(1)).max(1),
            _ => SLOW_TIMES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_count_takes_a_whole_number_of_usual_ones() {
        let times = |usual_ns, slow_ns| CallCost { usual_ns, slow_ns }.slow_times();
        assert_eq!(times(Some(1000), Some(12_900)), 12);
        assert_eq!(times(Some(1000), Some(900)), 1, "never less");
        assert_eq!(times(Some(0), Some(900)), 900);
        assert_eq!((times(None, Some(900)), times(Some(900), None)), (SLOW_TIMES, SLOW_TIMES));
    }
}
