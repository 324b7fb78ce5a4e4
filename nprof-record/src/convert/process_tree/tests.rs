use nprof_object::{ImageOffset, RuntimeAddress};

use super::*;

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
    let mut tree = ProcessTree::for_command(COMMAND);
    assert_eq!(tree.rename(COMMAND, false, b"early", sample_id(COMMAND)), None);
    assert_eq!(tree.rename(COMMAND, true, b"cmd", sample_id(COMMAND)), Some(CommChange::Started));
    tree.map(COMMAND, 0, mapping(1, 9, 7));
    tree
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
    assert!(tree.exit(ids(COMMAND, 1, COMMAND)));
    tree.end_batch();
    tree.end_batch();
    assert!(tree.task(COMMAND).is_none() && mapped(&tree, COMMAND));
    assert!(tree.exit(ids(COMMAND, 1, 101)));
    assert!(!tree.exit(ids(COMMAND, 1, 101)), "a task ends once");
    assert!(tree.task(101).is_some(), "late records find it");
    tree.end_batch();
    tree.end_batch();
    assert!(process(&tree, COMMAND).is_none());
}

#[test]
fn reused_pid_is_another_task() {
    let mut tree = tree();
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.fork(ids(101, 101, 102), sample_id(101));
    let first = tree.task(101).expect("it").serial;
    tree.exit(ids(101, COMMAND, 101));
    tree.exit(ids(101, COMMAND, 102));
    tree.fork(ids(101, COMMAND, 101), sample_id(COMMAND));
    tree.end_batch();
    tree.end_batch();
    assert_ne!(tree.task(101).expect("the new one").serial, first);
    assert!(mapped(&tree, 101) && tree.task(102).is_none());
}

#[test]
fn thread_that_executes_takes_the_process_id() {
    let mut tree = tree();
    tree.fork(ids(COMMAND, COMMAND, 101), sample_id(COMMAND));
    tree.exit(ids(COMMAND, 1, COMMAND));
    let renamed = tree.rename(COMMAND, true, b"new", sample_id(COMMAND));
    assert_eq!(renamed, Some(CommChange::Started));
    tree.end_batch();
    tree.end_batch();
    assert_eq!(tree.task(COMMAND).map(|task| task.comm.as_slice()), Some(&b"new"[..]));
    assert!(tree.task(101).is_none() && process(&tree, COMMAND).is_some());
    tree.exit(ids(COMMAND, 1, COMMAND));
    tree.end_batch();
    tree.end_batch();
    assert!(process(&tree, COMMAND).is_none());
}

fn found(pid: u32, tid: u32, parent: u32) -> ThreadInfo {
    ThreadInfo { pid, tid, parent, comm: b"old".to_vec() }
}

#[test]
fn existing_thread_is_added_once() {
    let mut tree = ProcessTree::default();
    tree.add_existing_thread(50, 50, Some(&found(50, 50, 1)), 900);
    tree.add_existing_thread(50, 51, Some(&found(50, 51, 1)), 900);
    let early = SampleId { time: 800, ..sample_id(50) };
    assert!(!tree.fork(ids(50, 50, 51), early), "it is in the tree already");
    assert!(tree.fork(ids(60, 50, 60), SampleId { time: 950, ..sample_id(51) }));
    assert_eq!(tree.task(60).map(|task| task.comm.as_slice()), Some(&b"old"[..]));
    assert!(!tree.accepts(7) && tree.needs_maps(50) && tree.needs_maps(60));
    tree.set_maps_known_until(50, 2000);
    assert!(tree.fork(ids(61, 50, 61), SampleId { time: 960, ..sample_id(50) }));
    tree.map(61, 970, mapping(1, 9, 3));
    assert!(mapped(&tree, 61), "its own mappings do not change the parent");
    tree.exit(ids(61, 1, 61));
    tree.exit(ids(50, 1, 50));
    tree.exit(ids(50, 1, 51));
    tree.end_batch();
    tree.end_batch();
    assert_eq!(tree.processes().collect::<Vec<_>>(), [60]);
}

#[test]
fn records_older_than_the_mappings_of_proc_are_ignored() {
    let mut tree = ProcessTree::default();
    tree.add_existing_thread(50, 50, Some(&found(50, 50, 1)), 900);
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
fn system_tree_accepts_all_but_the_idle_task() {
    let mut tree = ProcessTree::for_system();
    assert!(tree.accepts(9) && !tree.accepts(0));
    tree.add_existing_thread(9, 9, None, 5);
    assert!(tree.task(9).is_some());
    tree.end_batch();
    tree.end_batch();
    assert!(tree.task(9).is_none(), "exited tasks are removed");
}

#[test]
fn living_tasks_are_listed_oldest_first() {
    let mut tree = tree();
    tree.fork(ids(90, COMMAND, 90), sample_id(COMMAND));
    assert_eq!(tree.living(), [COMMAND, 90]);
}
