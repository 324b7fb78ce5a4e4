use nprof_object::{ImageOffset, RuntimeAddress};

use super::*;
use crate::convert::process_tree::exits::DoubtfulExit;
use crate::convert::process_tree::membership::{RELEASED, STRANGERS_MAX};

const COMMAND: u32 = 100;

fn mapping(start: u64, end: u64, image: ImageIndex) -> Mapping {
    let (start, end) = (RuntimeAddress(start), RuntimeAddress(end));
    Mapping { start, end, offset: ImageOffset(0), image }
}

fn sample_id(tid: u32) -> SampleId {
    SampleId { pid: tid, tid, time: u64::from(tid), cpu: 0 }
}

fn ids(pid: u32, parent_pid: u32, tid: u32) -> TaskIds {
    TaskIds { pid, parent_pid, tid }
}

fn tree() -> ProcessTree {
    let mut tree = ProcessTree::for_command(COMMAND, Membership::Descendants);
    assert_eq!(tree.rename(COMMAND, false, b"early", sample_id(COMMAND)), None);
    assert_eq!(tree.rename(COMMAND, true, b"cmd", sample_id(COMMAND)), Some(CommChange::Started));
    tree.map(COMMAND, 0, mapping(1, 9, 7));
    tree.process_mut(COMMAND).expect("it").exec = None;
    tree
}

/// Returns the ids in the stream of the tasks that have exited without an exit record.
fn replaced(tree: &mut ProcessTree) -> Vec<TaskId> {
    tree.take_replaced().into_iter().map(|(task, _)| task).collect()
}

/// Takes an exit record of a process that has been running for a while.
fn exit(tree: &mut ProcessTree, ids: TaskIds) -> bool {
    tree.exit(ids, 5000)
}

/// /proc of a machine on which exited tasks have ended.
fn has_ended(_tid: u32, _time_ns: u64) -> bool {
    false
}

/// Ends the batches until exited tasks are removed. Returns the doubtful exits.
fn settle(tree: &mut ProcessTree) -> Vec<DoubtfulExit> {
    [tree.end_batch(has_ended), tree.end_batch(has_ended)].concat()
}

fn process(tree: &ProcessTree, pid: u32) -> Option<&Process> {
    tree.processes.get(&pid)
}

fn mapped(tree: &ProcessTree, pid: u32) -> bool {
    process(tree, pid).is_some_and(|process| process.maps.find(RuntimeAddress(1)).is_some())
}

#[test]
fn tree_holds_only_the_command_and_its_descendants() {
    let mut tree = tree();
    assert!(!tree.fork(ids(7, 6, 7), sample_id(6)));
    assert!(tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND)));
    assert!(tree.fork(ids(102, 101, 102), sample_id(101)));
    assert!(tree.task(7).is_none() && process(&tree, 7).is_none());
    assert_eq!(tree.task(102).map(|task| task.comm.as_slice()), Some(&b"cmd"[..]));
    tree.set_id(101, TaskId(5));
    assert_eq!(tree.parent_id(tree.task(102).expect("a task")), TaskId(5));
}

#[test]
fn child_has_mappings_of_parent_until_exec() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.map(101, 0, mapping(20, 30, 8));
    assert!(
        mapped(&tree, 101)
            && process(&tree, COMMAND).expect("it").maps.find(RuntimeAddress(20)).is_none()
    );
    assert_eq!(tree.rename(101, true, b"other", sample_id(101)), Some(CommChange::Executed));
    assert!(!mapped(&tree, 101) && mapped(&tree, COMMAND));
    assert!(process(&tree, 101).expect("it").not_seen_since_exec);
}

#[test]
fn process_stays_until_its_last_thread_exits() {
    let mut tree = tree();
    tree.fork(ids(COMMAND, COMMAND, 101), sample_id(COMMAND));
    assert!(exit(&mut tree, ids(COMMAND, 1, COMMAND)));
    settle(&mut tree);
    assert!(tree.task(COMMAND).is_none() && mapped(&tree, COMMAND));
    assert!(exit(&mut tree, ids(COMMAND, 1, 101)));
    assert!(!exit(&mut tree, ids(COMMAND, 1, 101)), "a task ends once");
    assert!(tree.task(101).is_some(), "late records find it");
    settle(&mut tree);
    assert!(process(&tree, COMMAND).is_none());
}

#[test]
fn reused_pid_is_another_task() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.fork(ids(101, 101, 102), sample_id(101));
    let first = tree.task(101).expect("it").serial;
    exit(&mut tree, ids(101, COMMAND, 101));
    exit(&mut tree, ids(101, COMMAND, 102));
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    assert_eq!(tree.take_replaced(), [], "they have exit records");
    settle(&mut tree);
    assert_ne!(tree.task(101).expect("the new one").serial, first);
    assert!(mapped(&tree, 101) && tree.task(102).is_none());
}

#[test]
fn thread_that_executes_takes_the_process_id() {
    let mut tree = tree();
    tree.fork(ids(COMMAND, COMMAND, 101), sample_id(COMMAND));
    exit(&mut tree, ids(COMMAND, 1, COMMAND));
    let renamed = tree.rename(COMMAND, true, b"new", sample_id(COMMAND));
    assert_eq!(renamed, Some(CommChange::Started));
    settle(&mut tree);
    assert_eq!(tree.task(COMMAND).map(|task| task.comm.as_slice()), Some(&b"new"[..]));
    assert!(tree.task(101).is_none() && process(&tree, COMMAND).is_some());
    tree.process_mut(COMMAND).expect("it").exec = None;
    exit(&mut tree, ids(COMMAND, 1, COMMAND));
    settle(&mut tree);
    assert!(process(&tree, COMMAND).is_none());
}

#[test]
fn old_id_of_executing_thread_leaves_the_tree() {
    let mut tree = tree();
    tree.fork(ids(200, COMMAND, 200), sample_id(COMMAND));
    tree.fork(ids(200, 200, 201), sample_id(200));
    tree.set_id(COMMAND, TaskId(1));
    tree.set_id(201, TaskId(7));
    exit(&mut tree, ids(200, COMMAND, 200));
    settle(&mut tree);
    assert!(tree.fork(ids(210, 200, 210), sample_id(201)));
    // Only thread 201 is left, and executes.
    assert_eq!(tree.rename(200, true, b"new", sample_id(200)), Some(CommChange::Started));
    assert!(tree.accepts(200) && !tree.accepts(201), "the kernel has freed its id");
    assert_eq!(replaced(&mut tree), [TaskId(7)], "no exit record comes");
    tree.set_id(200, TaskId(2));
    assert_eq!(tree.parent_id(tree.task(200).expect("it")), TaskId(1));
    assert_eq!(tree.parent_id(tree.task(210).expect("it")), TaskId(2), "it is the same process");
    tree.process_mut(200).expect("it").exec = None;
    exit(&mut tree, ids(200, COMMAND, 200));
    settle(&mut tree);
    assert!(process(&tree, 200).is_none());
}

#[test]
fn reused_id_of_other_process_leaves_the_tree() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.fork(ids(101, 101, 102), sample_id(101));
    tree.fork(ids(COMMAND, COMMAND, 103), sample_id(COMMAND));
    for tid in 101..=103 {
        tree.set_id(tid, TaskId(tid));
    }
    // The exit records of all three were lost.
    assert!(!tree.fork(ids(101, 7, 101), SampleId { time: 900, ..sample_id(7) }));
    assert!(!tree.accepts(101) && !tree.accepts(102) && process(&tree, 101).is_none());
    assert_eq!(replaced(&mut tree), [TaskId(101), TaskId(102)], "the stream has no exit of them");
    assert!(!tree.fork(ids(8, 8, 103), SampleId { time: 900, ..sample_id(8) }));
    assert!(!tree.accepts(103));
    assert_eq!(replaced(&mut tree), [TaskId(103)]);
    exit(&mut tree, ids(COMMAND, 1, COMMAND));
    settle(&mut tree);
    assert!(process(&tree, COMMAND).is_none(), "103 is no thread of it any more");
}

#[test]
fn exited_task_stays_until_a_batch_after_its_end() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.fork(ids(102, COMMAND, 102), sample_id(COMMAND));
    for pid in [101, 102] {
        assert!(exit(&mut tree, ids(pid, COMMAND, pid)));
    }
    for _ in 0..5 {
        tree.end_batch(|tid, time_ns| tid == 101 && time_ns == u64::from(COMMAND));
        assert!(tree.accepts(101) && !tree.lives(101));
    }
    assert!(!tree.accepts(102) && process(&tree, 102).is_none());
    tree.end_batch(has_ended);
    assert!(tree.accepts(101), "its last records may come in the next batch");
    tree.end_batch(has_ended);
    assert!(!tree.accepts(101) && process(&tree, 101).is_none());
}

#[test]
fn reused_id_of_a_task_that_has_not_ended_leaves_the_tree() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    assert!(exit(&mut tree, ids(101, COMMAND, 101)));
    tree.end_batch(|_, _| true);
    assert!(!tree.fork(ids(101, 7, 101), sample_id(7)));
    assert!(!tree.accepts(101));
    tree.end_batch(|_, _| true);
    assert!(!tree.accepts(101));
}

/// Executes a set-user-ID program: the kernel writes an exec, then an exit.
fn execute_set_user_id(tree: &mut ProcessTree, time_ns: u64) {
    let at = SampleId { time: time_ns, ..sample_id(COMMAND) };
    assert_eq!(tree.rename(COMMAND, true, b"su", at), Some(CommChange::Executed));
    assert!(!tree.exit(ids(COMMAND, 1, COMMAND), time_ns + 1), "it is in doubt");
}

#[test]
fn exit_record_of_exec_is_refuted_by_later_records() {
    let mut tree = tree();
    execute_set_user_id(&mut tree, 1000);
    assert!(!tree.note_life(COMMAND, 1001), "a record of the time before proves nothing");
    assert!(!tree.note_life(COMMAND, 1002), "its exit is not in the stream");
    assert_eq!(settle(&mut tree), []);
    assert!(tree.accepts(COMMAND) && tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND)));
    tree.process_mut(COMMAND).expect("it").exec = None;
    assert!(exit(&mut tree, ids(COMMAND, 1, COMMAND)), "a later exit is one");
}

#[test]
fn exit_record_of_exec_is_doubtful_until_confirmed() {
    let mut tree = tree();
    execute_set_user_id(&mut tree, 1000);
    let doubtful = DoubtfulExit {
        pid: COMMAND,
        tid: COMMAND,
        time_ns: 1001,
        known_since_ns: 100,
        follows_exec: true,
    };
    assert_eq!(settle(&mut tree), [doubtful]);
    assert!(tree.lives(COMMAND));
    tree.confirm_exit(doubtful);
    assert!(!tree.lives(COMMAND) && tree.accepts(COMMAND));
    assert_eq!(settle(&mut tree), []);
    assert!(!tree.accepts(COMMAND));
}

#[test]
fn written_exit_is_corrected_if_the_task_goes_on() {
    let mut tree = tree();
    assert!(tree.exit(ids(COMMAND, 1, COMMAND), 1000));
    assert!(tree.note_life(COMMAND, 1001), "the stream has its exit");
    assert_eq!(settle(&mut tree), []);
    assert!(tree.lives(COMMAND));
}

#[test]
fn task_without_exit_record_is_doubtful() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.doubt(101, 2000);
    tree.doubt(COMMAND, 2000);
    assert!(tree.exit(ids(101, COMMAND, 101), 1500), "its record was only late");
    let doubtful = settle(&mut tree);
    assert_eq!(doubtful.iter().map(|exit| exit.tid).collect::<Vec<_>>(), [COMMAND]);
    assert!(!doubtful[0].follows_exec);
}

#[test]
fn unknown_task_belongs_to_tree_after_gap_if_an_ancestor_does() {
    let mut tree = tree();
    // 103 -> 102 -> the command, 8 -> 7 -> 1.
    let parent_of = |pid| match pid {
        103 => Some(102),
        102 => Some(COMMAND),
        8 => Some(7),
        7 => Some(1),
        _ => None,
    };
    assert!(!tree.accepts(103) && !tree.may_miss(103));
    tree.note_gap();
    assert!(tree.accepts(103) && tree.accepts(8) && !tree.accepts(0) && !tree.accepts(RELEASED));
    assert_eq!(tree.missing_lineage(103, parent_of), Some(vec![102, 103]));
    assert_eq!(tree.missing_lineage(COMMAND, parent_of), Some(vec![]), "a thread of it");
    assert_eq!(tree.missing_lineage(8, parent_of), None);
    assert!(!tree.accepts(8) && !tree.accepts(7), "they are looked up once");
    assert!(!tree.fork(ids(9, 8, 9), sample_id(8)) && !tree.accepts(9), "nor are their children");
    // Their ids are used again.
    assert!(tree.fork(ids(9, COMMAND, 9), sample_id(COMMAND)) && tree.accepts(9));
    for tid in 0..STRANGERS_MAX as u32 * 3 {
        tree.note_stranger(1000 + tid);
    }
    assert!(tree.unknown.strangers() <= STRANGERS_MAX);
    tree.exclude(102);
    assert_eq!(tree.missing_lineage(103, parent_of), None);
    tree.note_gap();
    assert!(tree.accepts(8) && tree.accepts(103), "every gap is a new reason");
    assert_eq!(tree.missing_lineage(103, parent_of), None, "excluded processes stay outside");
}

#[test]
fn unknown_task_belongs_to_tree_if_no_others_have_events() {
    let mut tree = ProcessTree::for_command(COMMAND, Membership::AllWithRecords);
    assert!(!tree.accepts(7), "the command has not executed yet");
    tree.rename(COMMAND, true, b"cmd", sample_id(COMMAND));
    assert!(tree.accepts(7) && !tree.accepts(0) && !tree.accepts(RELEASED));
}

fn found(pid: u32, tid: u32, parent: u32) -> ThreadInfo {
    ThreadInfo { pid, tid, parent, comm: b"old".to_vec(), is_zombie: false }
}

#[test]
fn existing_thread_is_added_once() {
    let mut tree = ProcessTree::default();
    tree.add_existing_thread(50, 50, Some(&found(50, 50, 1)), 900, 900);
    tree.add_existing_thread(50, 51, Some(&found(50, 51, 1)), 900, 900);
    let early = SampleId { time: 800, ..sample_id(50) };
    assert!(!tree.fork(ids(50, 50, 51), early), "it is in the tree already");
    assert!(tree.fork(ids(60, 50, 60), SampleId { time: 950, ..sample_id(51) }));
    assert_eq!(tree.task(60).map(|task| task.comm.as_slice()), Some(&b"old"[..]));
    assert!(!tree.accepts(7) && tree.needs_maps(50) && tree.needs_maps(60));
    tree.set_maps_known_until(50, 2000);
    assert!(tree.fork(ids(61, 50, 61), SampleId { time: 960, ..sample_id(50) }));
    tree.map(61, 970, mapping(1, 9, 3));
    assert!(mapped(&tree, 61), "its own mappings do not change the parent");
    exit(&mut tree, ids(61, 1, 61));
    exit(&mut tree, ids(50, 1, 50));
    exit(&mut tree, ids(50, 1, 51));
    settle(&mut tree);
    assert_eq!(tree.processes().collect::<Vec<_>>(), [60]);
}

#[test]
fn records_older_than_the_mappings_of_proc_are_ignored() {
    let mut tree = ProcessTree::default();
    tree.add_existing_thread(50, 50, Some(&found(50, 50, 1)), 900, 900);
    let mapping = |image| mapping(1, 9, image);
    tree.map(50, 900, mapping(3));
    assert!(!mapped(&tree, 50), "they will be read with the others");
    tree.set_maps_known_until(50, 1000);
    tree.map(50, 1000, mapping(4));
    let early = SampleId { time: 999, ..sample_id(50) };
    assert_eq!(tree.rename(50, true, b"x", early), Some(CommChange::Executed));
    tree.map(50, 999, mapping(5));
    assert_eq!(
        process(&tree, 50).expect("it").maps.find(RuntimeAddress(1)),
        Some((4, ImageOffset(0)))
    );
    let late = SampleId { time: 1001, ..sample_id(50) };
    assert_eq!(tree.rename(50, true, b"y", late), Some(CommChange::Executed));
    assert!(!mapped(&tree, 50));
}

#[test]
fn thread_that_is_looked_up_after_its_exit_is_known_since_its_record() {
    let mut tree = ProcessTree::for_system();
    tree.add_existing_thread(50, 50, None, 900, 950);
    assert_eq!(tree.task(50).map(|task| task.time_ns), Some(900));
    assert!(!tree.note_life(50, 920), "another record from before it was looked up");
    assert!(!tree.lives(50));
}

#[test]
fn system_tree_accepts_all_but_the_idle_task() {
    let mut tree = ProcessTree::for_system();
    assert!(tree.accepts(9) && !tree.accepts(0) && !tree.accepts(RELEASED));
    tree.add_existing_thread(9, 9, None, 5, 5);
    assert!(tree.task(9).is_some());
    settle(&mut tree);
    assert!(tree.task(9).is_none(), "exited tasks are removed");
}

#[test]
fn process_lives_without_its_first_thread() {
    let mut tree = ProcessTree::for_processes(Membership::Descendants);
    let zombie = ThreadInfo { is_zombie: true, ..found(50, 50, 1) };
    tree.add_existing_thread(50, 50, Some(&zombie), 900, 900);
    tree.add_existing_thread(50, 51, Some(&found(50, 51, 1)), 900, 900);
    settle(&mut tree);
    assert!(!tree.accepts(50) && tree.accepts(51));
    exit(&mut tree, ids(50, 1, 51));
    settle(&mut tree);
    assert!(process(&tree, 50).is_none());
}

#[test]
fn mappings_may_be_lost_with_a_gap_once_per_process() {
    let mut tree = tree();
    assert!(!tree.take_lost_maps(COMMAND));
    tree.note_gap();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    assert!(tree.take_lost_maps(COMMAND) && !tree.take_lost_maps(COMMAND));
    assert!(tree.take_lost_maps(101), "it has the mappings that its parent had");
    tree.fork(ids(102, COMMAND, 102), sample_id(COMMAND));
    assert!(!tree.take_lost_maps(102) && !tree.take_lost_maps(7));
}

#[test]
fn living_tasks_are_listed_oldest_first() {
    let mut tree = tree();
    tree.fork(ids(90, COMMAND, 90), sample_id(COMMAND));
    assert_eq!(tree.living(), [COMMAND, 90]);
}
