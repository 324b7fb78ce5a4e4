use super::*;

const COMMAND: u32 = 100;

fn stamp(tid: u32) -> Stamp {
    Stamp { pid: tid, tid, time: u64::from(tid), cpu: 0 }
}

fn kin(pid: u32, parent_pid: u32, tid: u32) -> Kin {
    Kin { pid, parent_pid, tid }
}

fn tree() -> Tree {
    let mut tree = Tree::awaiting(COMMAND);
    assert_eq!(tree.rename(COMMAND, false, b"early", stamp(COMMAND)), None);
    assert_eq!(tree.rename(COMMAND, true, b"cmd", stamp(COMMAND)), Some(Renamed::Began));
    tree.map(COMMAND, 0, Mapping { start: 1, end: 9, offset: 0, image: 7 });
    tree
}

fn process(tree: &Tree, pid: u32) -> Option<&Process> {
    tree.processes.get(&pid)
}

fn mapped(tree: &Tree, pid: u32) -> bool {
    process(tree, pid).is_some_and(|process| process.maps.find(1).is_some())
}

#[test]
fn only_the_commands_family_is_in_the_tree() {
    let mut tree = tree();
    assert!(!tree.fork(kin(7, 6, 7), stamp(6)));
    assert!(tree.fork(kin(101, COMMAND, 101), stamp(COMMAND)));
    assert!(tree.fork(kin(102, 101, 102), stamp(101)));
    assert!(tree.task(7).is_none() && process(&tree, 7).is_none());
    assert_eq!(tree.task(102).map(|task| task.comm.as_slice()), Some(&b"cmd"[..]));
    tree.set_id(101, TaskId(5));
    assert_eq!(tree.parent_id(tree.task(102).expect("a task")), TaskId(5));
}

#[test]
fn a_child_has_its_parents_mappings_until_it_executes() {
    let mut tree = tree();
    tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
    tree.map(101, 0, Mapping { start: 20, end: 30, offset: 0, image: 8 });
    assert!(mapped(&tree, 101) && process(&tree, COMMAND).expect("it").maps.find(20).is_none());
    assert_eq!(tree.rename(101, true, b"other", stamp(101)), Some(Renamed::Executed));
    assert!(!mapped(&tree, 101) && mapped(&tree, COMMAND));
    assert!(process(&tree, 101).expect("it").fresh);
}

#[test]
fn a_process_lives_as_long_as_any_of_its_threads() {
    let mut tree = tree();
    tree.fork(kin(COMMAND, COMMAND, 101), stamp(COMMAND));
    assert!(tree.exit(kin(COMMAND, 1, COMMAND)));
    tree.end_round();
    tree.end_round();
    assert!(tree.task(COMMAND).is_none() && mapped(&tree, COMMAND));
    assert!(tree.exit(kin(COMMAND, 1, 101)));
    assert!(!tree.exit(kin(COMMAND, 1, 101)), "a task ends once");
    assert!(tree.task(101).is_some(), "what is late finds it");
    tree.end_round();
    tree.end_round();
    assert!(process(&tree, COMMAND).is_none());
}

#[test]
fn a_reused_pid_is_another_task() {
    let mut tree = tree();
    tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
    tree.fork(kin(101, 101, 102), stamp(101));
    let first = tree.task(101).expect("it").serial;
    tree.exit(kin(101, COMMAND, 101));
    tree.exit(kin(101, COMMAND, 102));
    tree.fork(kin(101, COMMAND, 101), stamp(COMMAND));
    tree.end_round();
    tree.end_round();
    assert_ne!(tree.task(101).expect("the new one").serial, first);
    assert!(mapped(&tree, 101) && tree.task(102).is_none());
}

#[test]
fn a_thread_that_executes_becomes_the_process() {
    let mut tree = tree();
    tree.fork(kin(COMMAND, COMMAND, 101), stamp(COMMAND));
    tree.exit(kin(COMMAND, 1, COMMAND));
    let renamed = tree.rename(COMMAND, true, b"new", stamp(COMMAND));
    assert_eq!(renamed, Some(Renamed::Began));
    tree.end_round();
    tree.end_round();
    assert_eq!(tree.task(COMMAND).map(|task| task.comm.as_slice()), Some(&b"new"[..]));
    assert!(tree.task(101).is_none() && process(&tree, COMMAND).is_some());
    tree.exit(kin(COMMAND, 1, COMMAND));
    tree.end_round();
    tree.end_round();
    assert!(process(&tree, COMMAND).is_none());
}

fn found(pid: u32, tid: u32, parent: u32) -> Found {
    Found { pid, tid, parent, comm: b"old".to_vec() }
}

#[test]
fn what_was_there_is_adopted_once() {
    let mut tree = Tree::default();
    tree.adopt(50, 50, Some(&found(50, 50, 1)), 900);
    tree.adopt(50, 51, Some(&found(50, 51, 1)), 900);
    let early = Stamp { time: 800, ..stamp(50) };
    assert!(!tree.fork(kin(50, 50, 51), early), "it is known already");
    assert!(tree.fork(kin(60, 50, 60), Stamp { time: 950, ..stamp(51) }));
    assert_eq!(tree.task(60).map(|task| task.comm.as_slice()), Some(&b"old"[..]));
    assert!(!tree.takes(7) && tree.is_unread(50) && tree.is_unread(60));
    tree.begin_reading(50, 2000);
    assert!(tree.fork(kin(61, 50, 61), Stamp { time: 960, ..stamp(50) }));
    tree.map(61, 970, Mapping { start: 1, end: 9, offset: 0, image: 3 });
    assert!(mapped(&tree, 61), "what it maps itself is its own");
    tree.exit(kin(61, 1, 61));
    tree.exit(kin(50, 1, 50));
    tree.exit(kin(50, 1, 51));
    tree.end_round();
    tree.end_round();
    assert_eq!(tree.processes().collect::<Vec<_>>(), [60]);
}

#[test]
fn records_from_before_the_mappings_were_read_change_nothing() {
    let mut tree = Tree::default();
    tree.adopt(50, 50, Some(&found(50, 50, 1)), 900);
    let mapping = |image| Mapping { start: 1, end: 9, offset: 0, image };
    tree.map(50, 900, mapping(3));
    assert!(!mapped(&tree, 50), "they will be read with the others");
    tree.begin_reading(50, 1000);
    tree.map(50, 1000, mapping(4));
    let early = Stamp { time: 999, ..stamp(50) };
    assert_eq!(tree.rename(50, true, b"x", early), Some(Renamed::Executed));
    tree.map(50, 999, mapping(5));
    assert_eq!(process(&tree, 50).expect("it").maps.find(1), Some((4, 0)));
    let late = Stamp { time: 1001, ..stamp(50) };
    assert_eq!(tree.rename(50, true, b"y", late), Some(Renamed::Executed));
    assert!(!mapped(&tree, 50));
}

#[test]
fn an_open_tree_takes_all_but_the_idle_task() {
    let mut tree = Tree::of_everyone();
    assert!(tree.takes(9) && !tree.takes(0));
    tree.adopt(9, 9, None, 5);
    assert!(tree.task(9).is_some());
    tree.end_round();
    tree.end_round();
    assert!(tree.task(9).is_none(), "what is gone is forgotten");
}

#[test]
fn the_living_are_listed_oldest_first() {
    let mut tree = tree();
    tree.fork(kin(90, COMMAND, 90), stamp(COMMAND));
    assert_eq!(tree.living(), [COMMAND, 90]);
}
