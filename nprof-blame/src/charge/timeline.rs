//! The activity of one thread, by time. Pure.

use std::collections::VecDeque;

use super::activity::Activity;

/// A sample explains points up to this number of its weights away. With samples at random times,
/// 1 point of 50 is farther from the nearest one.
const REACH: u64 = 4;

/// The observations of one thread.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Waits that are recorded with certainty: they cover their interval. Sorted by end.
    exact: VecDeque<Activity>,
    /// CPU samples and short waits that were chosen at random. Sorted by end.
    sampled: VecDeque<Activity>,
}

impl Timeline {
    /// Adds an observation.
    pub(crate) fn add(&mut self, activity: Activity) {
        let row = if activity.is_exact() { &mut self.exact } else { &mut self.sampled };
        // Nearly always the last one: a search only for late records.
        let at = match row.back() {
            Some(last) if last.end > activity.end => row.partition_point(|a| a.end <= activity.end),
            _ => row.len(),
        };
        row.insert(at, activity);
    }

    /// Returns the activity of the thread at a point: the exact observation that covers it, else the sampled
    /// one that is nearest to it between `low` and `high`. None if there is none near.
    pub(crate) fn at(&self, point: u64, low: u64, high: u64) -> Option<&Activity> {
        // Intervals contain their start and not their end, so that parts of a wait do not overlap.
        let covering = self.exact.get(self.exact.partition_point(|a| a.end <= point));
        if let Some(activity) = covering.filter(|activity| activity.start <= point) {
            return Some(activity);
        }
        let next = self.sampled.partition_point(|a| a.end < point);
        // Sampled waits are short, so that the nearest end is nearly always the nearest one.
        let before = next.checked_sub(1).and_then(|at| self.sampled.get(at));
        let near = [before, self.sampled.get(next)].into_iter().flatten();
        let near = near.filter(|activity| (low..=high).contains(&activity.end));
        let near = near.map(|activity| (distance(activity, point), activity));
        let near = near.filter(|(distance, a)| *distance <= a.weight.saturating_mul(REACH));
        near.min_by_key(|(distance, _)| *distance).map(|(_, activity)| activity)
    }

    /// Removes the observations that ended before `time`; returns their number.
    pub(crate) fn forget_before(&mut self, time: u64) -> usize {
        let before = self.len();
        for row in [&mut self.exact, &mut self.sampled] {
            let keep_from = row.partition_point(|activity| activity.end < time);
            row.drain(..keep_from);
        }
        before - self.len()
    }

    /// Returns the number of observations.
    pub(crate) fn len(&self) -> usize {
        self.exact.len() + self.sampled.len()
    }
}

/// Returns the time between an observation and a point; 0 inside of it.
fn distance(activity: &Activity, point: u64) -> u64 {
    activity.start.saturating_sub(point).max(point.saturating_sub(activity.end))
}

#[cfg(test)]
mod tests {
    use nprof_stream::NodeId;

    use super::super::activity::Doing;
    use super::*;

    fn sample(time: u64, node: u32) -> Activity {
        Activity { start: time, end: time, node: NodeId(node), doing: Doing::Running, weight: 10 }
    }

    fn runnable(start: u64, end: u64, node: u32) -> Activity {
        let weight = end - start;
        Activity { start, end, node: NodeId(node), doing: Doing::Runnable, weight }
    }

    fn node_at(timeline: &Timeline, point: u64, low: u64, high: u64) -> Option<u32> {
        timeline.at(point, low, high).map(|activity| activity.node.0)
    }

    #[test]
    fn exact_observation_wins_over_nearer_sample() {
        let mut timeline = Timeline::default();
        timeline.add(sample(100, 1));
        timeline.add(runnable(90, 99, 2));
        assert_eq!(node_at(&timeline, 98, 0, 200), Some(2));
        assert_eq!(node_at(&timeline, 101, 0, 200), Some(1));
    }

    #[test]
    fn nearest_sample_inside_of_the_bounds_is_found() {
        let mut timeline = Timeline::default();
        // Late records come after newer ones.
        for (time, node) in [(100, 1), (140, 3), (120, 2)] {
            timeline.add(sample(time, node));
        }
        assert_eq!(node_at(&timeline, 121, 0, 200), Some(2));
        assert_eq!(node_at(&timeline, 131, 0, 200), Some(3));
        assert_eq!(node_at(&timeline, 131, 0, 139), Some(2));
        assert_eq!(node_at(&timeline, 60, 50, 139), Some(1), "four weights away");
        assert_eq!(node_at(&timeline, 59, 50, 139), None);
    }

    #[test]
    fn old_observations_are_forgotten() {
        let mut timeline = Timeline::default();
        timeline.add(sample(100, 1));
        timeline.add(runnable(90, 120, 2));
        timeline.add(sample(130, 3));
        assert_eq!((timeline.forget_before(120), timeline.len()), (1, 2));
        assert_eq!((timeline.forget_before(131), timeline.len()), (2, 0));
    }
}
