use super::*;

use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// The processes of a machine: parent, and times in ms with those of the children.
#[derive(Default)]
struct Machine(BTreeMap<u32, Reading>);

impl Machine {
    fn set(&mut self, pid: u32, parent: u32, total: u64, children: u64) {
        let (total_ns, children_ns) = (total * MS, children * MS);
        let start_ticks = u64::from(pid);
        self.0.insert(pid, Reading { parent, start_ticks, total_ns, children_ns });
    }

    fn read(&self, times: &mut ProcessTimes, now_ms: u64) -> Option<u64> {
        let living: Vec<u32> = self.0.keys().copied().filter(|&pid| pid >= 10).collect();
        let read = |pid, _| self.0.get(&pid).copied();
        times.read(now_ms * MS, Listing::All, living.into_iter(), read);
        times.sum_ns(Some(0)).map(|ns| ns / MS)
    }

    /// Reads as [`Machine::read`], where it suffices by clocks.
    fn read_clocks(&self, times: &mut ProcessTimes, now_ms: u64) -> Option<u64> {
        times.read(now_ms * MS, Listing::None, std::iter::empty(), |pid, before| {
            let now = *self.0.get(&pid)?;
            Some(before.map_or(now, |before| Reading { total_ns: now.total_ns, ..before }))
        });
        times.sum_ns(Some(0)).map(|ns| ns / MS)
    }
}

/// Notes the records of the end of a process.
fn note_records(times: &mut ProcessTimes, pid: u32, parent: u32, at_ms: u64, sampled_ms: u64) {
    let (time_ns, sampled_ns) = (at_ms * MS, sampled_ms * MS);
    times.note_records(ProcessEnd { pid, parent, time_ns, sampled_ns });
}

/// Returns the sum in ms.
fn sum(times: &ProcessTimes) -> Option<u64> {
    times.sum_ns(Some(0)).map(|ns| ns / MS)
}

/// Returns the times of an attached process 10, which has used 1000 ms before.
fn attached() -> (Machine, ProcessTimes) {
    let mut machine = Machine::default();
    machine.set(10, 1, 1000, 300);
    let mut times = ProcessTimes::new(0);
    times.add_existing(10, machine.0[&10], true);
    (machine, times)
}

#[test]
fn time_of_child_counts_once_before_and_after_its_parent_has_waited() {
    let (mut machine, mut times) = attached();
    machine.set(10, 1, 1020, 300);
    machine.set(11, 10, 500, 0);
    assert_eq!(machine.read(&mut times, 100), Some(520));
    machine.0.remove(&11);
    machine.set(10, 1, 1530, 810);
    assert_eq!(machine.read(&mut times, 200), Some(530), "it has used 10 ms since it was read");
}

#[test]
fn later_process_with_the_id_of_another_counts_once_the_records_of_that_have_come() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 20, 0);
    machine.read(&mut times, 100);
    let later = Reading { start_ticks: 99, total_ns: 700 * MS, ..machine.0[&11] };
    machine.0.insert(11, later);
    assert_eq!(machine.read(&mut times, 200), Some(20), "it may be any process");
    note_records(&mut times, 11, 10, 150, 20);
    assert_eq!(machine.read(&mut times, 300), Some(720));
    // The records may also come first.
    note_records(&mut times, 11, 10, 350, 700);
    machine.0.insert(11, Reading { start_ticks: 100, total_ns: 50 * MS, ..later });
    assert_eq!(machine.read(&mut times, 400), Some(770));
}

#[test]
fn time_of_child_counts_if_its_parent_exits_right_after_waiting() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 500, 0);
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 200), Some(500));
}

#[test]
fn time_of_process_that_no_followed_one_waits_for_counts() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 100, 0);
    machine.set(12, 11, 70, 0);
    machine.read(&mut times, 100);
    // A daemon: its parent has exited.
    machine.0.remove(&11);
    machine.set(10, 1, 1100, 400);
    machine.set(12, 1, 90, 0);
    assert_eq!(machine.read(&mut times, 200), Some(190));
    machine.0.remove(&12);
    assert_eq!(machine.read(&mut times, 300), Some(190));
}

#[test]
fn time_of_orphan_counts_once_if_its_next_parent_waits_for_it() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 0, 0);
    machine.set(12, 11, 70, 0);
    machine.read(&mut times, 100);
    // 10 adopts the children of its children (PR_SET_CHILD_SUBREAPER).
    machine.0.remove(&11);
    machine.set(12, 10, 80, 0);
    machine.read_clocks(&mut times, 200);
    machine.set(12, 10, 90, 0);
    assert_eq!(machine.read_clocks(&mut times, 300), Some(90));
    machine.0.remove(&12);
    machine.set(10, 1, 1090, 390);
    machine.read_clocks(&mut times, 400);
    assert_eq!(machine.read(&mut times, 500), Some(90));
}

#[test]
fn time_of_children_of_a_process_that_ignores_their_ends_counts() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 200, 0);
    machine.set(12, 10, 300, 0);
    machine.read(&mut times, 100);
    machine.0.remove(&11);
    assert_eq!(machine.read(&mut times, 200), Some(500));
    machine.0.remove(&12);
    machine.set(10, 1, 1005, 300);
    assert_eq!(machine.read(&mut times, 300), Some(505));
}

#[test]
fn time_of_more_processes_than_one_reading_adds_counts() {
    let (mut machine, mut times) = attached();
    for pid in 11..1011 {
        machine.set(pid, 1, 30, 0);
    }
    for round in 1..5 {
        machine.read(&mut times, 100 * round);
    }
    assert!(machine.0.keys().all(|&pid| times.has(pid)));
    machine.0.retain(|&pid, _| pid == 10);
    assert_eq!(machine.read(&mut times, 500), Some(1000 * 30));
}

#[test]
fn every_process_is_read_in_proc_in_turn() {
    let (mut machine, mut times) = attached();
    for pid in 11..1011 {
        machine.set(pid, 1, 30, 0);
    }
    for round in 1..5 {
        machine.read(&mut times, 100 * round);
    }
    let listed = std::cell::RefCell::new(FxHashSet::default());
    for round in 5..9 {
        let before = listed.borrow().len();
        times.read(100 * round * MS, Listing::Part, std::iter::empty(), |pid, last| {
            if last.is_none() {
                listed.borrow_mut().insert(pid);
            }
            machine.0.get(&pid).copied()
        });
        assert!(listed.borrow().len() - before <= LISTED_MAX + 1, "and the attached one");
    }
    assert_eq!(listed.borrow().len(), machine.0.len());
}

#[test]
fn time_since_the_last_reading_of_exited_process_is_estimated() {
    let (mut machine, mut times) = attached();
    machine.set(10, 1, 1080, 300);
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 150), Some(120), "80 % of 50 ms");
    let (mut machine, mut times) = attached();
    machine.set(10, 1, 1080, 300);
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 900), Some(160), "at most as much as was read");
}

#[test]
fn time_before_the_beginning_does_not_count() {
    let mut machine = Machine::default();
    machine.set(10, 1, 1000, 300);
    machine.set(11, 10, 700, 0);
    machine.set(9, 10, 400, 0);
    let mut times = ProcessTimes::new(0);
    times.add_existing(10, machine.0[&10], true);
    times.add_existing(11, machine.0[&11], true);
    // A child of a followed process that is not followed itself.
    times.add_existing(9, machine.0[&9], false);
    machine.set(9, 10, 450, 0);
    machine.set(11, 10, 730, 0);
    assert_eq!(machine.read(&mut times, 100), Some(30));
    machine.0.remove(&9);
    machine.0.remove(&11);
    machine.set(10, 1, 1000 + 450 + 730, 300 + 450 + 730);
    assert_eq!(machine.read(&mut times, 200), Some(30));
}

#[test]
fn time_of_orphan_that_is_not_followed_does_not_count() {
    let (mut machine, mut times) = attached();
    machine.set(9, 10, 400, 0);
    times.add_existing(9, machine.0[&9], false);
    machine.set(9, 1, 450, 0);
    machine.read(&mut times, 100);
    machine.0.remove(&9);
    assert_eq!(machine.read(&mut times, 150), Some(0));
}

#[test]
fn process_uses_no_time_after_its_noted_end() {
    let (mut machine, mut times) = attached();
    machine.set(10, 1, 1100, 300);
    machine.read(&mut times, 200);
    times.note_end(10, 300 * MS);
    // Its parent has not waited for it yet.
    machine.set(10, 1, 1150, 300);
    assert_eq!(machine.read(&mut times, 301), Some(150));
    machine.0.remove(&10);
    assert_eq!(machine.read(&mut times, 800), Some(150));
    // Its parent was faster.
    let (mut machine, mut times) = attached();
    machine.set(10, 1, 1100, 300);
    machine.read(&mut times, 200);
    times.note_end(10, 300 * MS);
    machine.0.remove(&10);
    assert_eq!(machine.read(&mut times, 800), Some(150));
}

#[test]
fn sum_is_unknown_if_process_exits_long_after_it_was_read() {
    let (mut machine, mut times) = attached();
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 4100), None, "the recorder was stopped");
    let (mut machine, mut times) = attached();
    machine.read(&mut times, 60_000);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 61_500), Some(0), "a small part of a minute");
}

#[test]
fn samples_of_child_count_if_it_ends_unread_with_its_parent() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 60, 0);
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 200), Some(60));
    note_records(&mut times, 11, 10, 190, 140);
    // It was never read.
    note_records(&mut times, 12, 10, 195, 30);
    note_records(&mut times, 10, 0, 196, 0);
    assert_eq!(sum(&times), Some(170));
    // The same if the records come before the reading.
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 60, 0);
    machine.read(&mut times, 100);
    machine.0.clear();
    note_records(&mut times, 11, 10, 190, 140);
    note_records(&mut times, 12, 10, 195, 30);
    note_records(&mut times, 10, 0, 196, 0);
    assert_eq!(machine.read(&mut times, 200), Some(170));
}

#[test]
fn samples_of_attached_child_count_if_it_ends_unread_with_its_parent() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 100, 0);
    times.add_existing(11, machine.0[&11], true);
    machine.set(11, 10, 160, 0);
    machine.read(&mut times, 100);
    machine.0.clear();
    assert_eq!(machine.read(&mut times, 200), Some(60));
    note_records(&mut times, 11, 10, 190, 140);
    assert_eq!(sum(&times), Some(140));
}

#[test]
fn samples_of_child_do_not_count_if_its_parent_was_read_after_waiting() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 60, 0);
    machine.read(&mut times, 100);
    machine.0.remove(&11);
    // It has waited for 12, too, which was never read.
    machine.set(10, 1, 1171, 470);
    assert_eq!(machine.read(&mut times, 200), Some(171));
    note_records(&mut times, 11, 10, 190, 145);
    note_records(&mut times, 12, 10, 195, 35);
    assert_eq!(sum(&times), Some(171));
    machine.0.clear();
    machine.read(&mut times, 200);
    assert_eq!(sum(&times), Some(171));
    // The same if the records come before the reading.
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 60, 0);
    machine.read(&mut times, 100);
    machine.0.remove(&11);
    note_records(&mut times, 11, 10, 190, 145);
    note_records(&mut times, 12, 10, 195, 35);
    machine.set(10, 1, 1171, 470);
    assert_eq!(machine.read(&mut times, 200), Some(171));
}

#[test]
fn samples_of_children_do_not_add_up_beside_one_that_was_not_waited_for() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 5000, 0);
    machine.read(&mut times, 100);
    machine.0.remove(&11);
    for round in 2..20 {
        note_records(&mut times, 100 + round as u32, 10, 100 * round - 50, 30);
        machine.set(10, 1, 1000 + 30 * (round - 1), 300 + 30 * (round - 1));
        machine.read(&mut times, 100 * round);
    }
    assert_eq!(sum(&times), Some(5000));
}

#[test]
fn samples_of_grandchild_count_if_all_above_it_end_unread() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 20, 0);
    machine.set(12, 11, 50, 0);
    machine.read(&mut times, 100);
    machine.0.clear();
    machine.read(&mut times, 200);
    note_records(&mut times, 12, 11, 190, 90);
    note_records(&mut times, 11, 10, 195, 25);
    note_records(&mut times, 10, 0, 196, 0);
    assert_eq!(sum(&times), Some(115));
    // Their parent, which lives, has all of it.
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 20, 0);
    machine.set(12, 11, 50, 0);
    machine.read(&mut times, 100);
    machine.0.retain(|&pid, _| pid == 10);
    machine.set(10, 1, 1115, 415);
    machine.read(&mut times, 200);
    note_records(&mut times, 12, 11, 190, 95);
    note_records(&mut times, 11, 10, 195, 30);
    assert_eq!(sum(&times), Some(115));
}

#[test]
fn samples_of_grandchild_do_not_count_if_the_process_that_waited_for_its_parent_is_read() {
    let (mut machine, mut times) = attached();
    machine.set(11, 10, 20, 0);
    machine.set(12, 11, 50, 0);
    machine.read(&mut times, 100);
    // 11 is read by its clock only, as if it had not waited for 12.
    machine.0.remove(&12);
    note_records(&mut times, 12, 11, 190, 300);
    assert_eq!(machine.read_clocks(&mut times, 200), Some(320));
    machine.0.remove(&11);
    machine.set(10, 1, 1325, 625);
    assert_eq!(machine.read(&mut times, 300), Some(325));
}

#[test]
fn samples_of_process_without_known_parent_do_not_count() {
    let (_, mut times) = attached();
    // The command has waited for the parent 11, which was never read either.
    note_records(&mut times, 12, 11, 190, 90);
    assert_eq!(sum(&times), Some(0));
}

#[test]
fn command_counts_by_its_usage_and_with_children_it_did_not_wait_for() {
    let mut machine = Machine::default();
    let mut times = ProcessTimes::new(0);
    times.end_command(10, 40 * MS);
    assert_eq!(times.sum_ns(Some(7 * MS)), Some(47 * MS), "never read");
    let mut times = ProcessTimes::new(0);
    machine.set(10, 1, 20, 0);
    machine.set(11, 10, 500, 0);
    machine.read(&mut times, 100);
    times.end_command(10, 530 * MS);
    machine.set(10, 1, 530, 510);
    machine.0.remove(&11);
    assert_eq!(machine.read(&mut times, 200), Some(530));
}
