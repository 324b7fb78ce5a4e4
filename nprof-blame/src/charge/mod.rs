//! Waits, wake-ups and CPU samples in, charges out. Pure.
//!
//! A wait is charged by draws: each of its observations is a random point of its interval, and
//! goes to the activity of the waker at that point. If the waker waited, too, the draw goes on to its
//! waker (the cascaded redistribution of wPerf, OSDI 2018). A draw splits no observation, so that
//! charges have the effective sample size of the waits that they come from.

mod activity;
mod charger;
mod donors;
mod follow;
#[cfg(test)]
mod tests;
mod timeline;
mod waits;

pub(crate) use activity::{Charge, Pair, Reason, Wait, Waker};
pub(crate) use charger::{Charger, Limits};
