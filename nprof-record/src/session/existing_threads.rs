//! The threads that exist when a measurement starts: BPF programs and switches add only those that
//! they see created.

use std::path::PathBuf;

use rustc_hash::FxHashSet;

use crate::os::{cgroup, procfs};

/// The most passes over the threads.
pub(crate) const PASSES_MAX: usize = 16;

/// The processes of which the threads are measured.
#[derive(Clone, Debug)]
pub(crate) enum ExistingThreads {
    /// These, with their descendants that are not in `known`.
    Processes { pids: Vec<u32>, known: Vec<u32> },
    /// All but this process.
    System,
    /// Those of a control group.
    Group(PathBuf),
}

impl ExistingThreads {
    /// Returns those of no process.
    pub(crate) fn none() -> Self {
        Self::Processes { pids: Vec::new(), known: Vec::new() }
    }

    /// Returns the ids of the processes that exist now. None if only some of their threads may be measured.
    pub(crate) fn processes(&self) -> Option<Vec<u32>> {
        let own = std::process::id();
        match self {
            Self::Processes { pids, known } => {
                let all = pids.iter().copied().chain(procfs::descendants(pids, known));
                Some(all.filter(|&pid| pid != own).collect())
            }
            // A recording of all processes has samples of the recorder, too.
            Self::System => Some(procfs::processes()),
            Self::Group(_) => None,
        }
    }

    /// Returns the ids of the threads that exist now.
    pub(crate) fn list(&self) -> Vec<u32> {
        match self {
            Self::Group(directory) => cgroup::threads(directory),
            _ => self.processes().into_iter().flatten().flat_map(procfs::threads).collect(),
        }
    }
}

/// Passes the threads that `list` returns to `follow`, which returns the number of those that were not
/// followed before, until there are none: a thread may create others before it is followed itself.
///
/// # Errors
///
/// Those of `follow`.
pub(crate) fn follow_all(
    mut list: impl FnMut() -> Vec<u32>,
    mut follow: impl FnMut(Vec<u32>) -> anyhow::Result<usize>,
) -> anyhow::Result<()> {
    // Those that have exited would be new in each pass.
    let mut listed = FxHashSet::default();
    for _ in 0..PASSES_MAX {
        let mut threads = list();
        threads.retain(|&tid| listed.insert(tid));
        if threads.is_empty() || follow(threads)? == 0 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_created_before_their_creators_are_followed_are_found() {
        let mut passes =
            [vec![1, 2], vec![1, 2, 3], vec![2, 3, 4], vec![3, 4], vec![5]].into_iter();
        let mut followed: Vec<u32> = Vec::new();
        let follow = |threads: Vec<u32>| {
            followed.extend(&threads);
            Ok(threads.len())
        };
        follow_all(|| passes.next().unwrap_or_default(), follow).expect("no error");
        assert_eq!(followed, [1, 2, 3, 4], "the pass without a new one is the last");
    }

    #[test]
    fn threads_that_never_end_to_come_end_the_passes() {
        let (mut next, mut count) = (0, 0);
        let list = || {
            next += 1;
            vec![next]
        };
        let follow = |threads: Vec<u32>| {
            count += threads.len();
            Ok(threads.len())
        };
        follow_all(list, follow).expect("no error");
        assert_eq!(count, PASSES_MAX);
    }

    #[test]
    fn threads_of_a_process_have_those_of_its_new_children() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("it is installed");
        let parent = std::os::unix::process::parent_id();
        let own = std::process::id();
        // This process is a descendant of its parent, but never listed with it.
        let of = |pids: &[u32], known: &[u32]| {
            let (pids, known) = (pids.to_vec(), known.to_vec());
            ExistingThreads::Processes { pids, known }.list()
        };
        assert!(of(&[child.id()], &[]).contains(&child.id()));
        assert!(!of(&[parent], &[]).contains(&own) && !of(&[own], &[]).contains(&own));
        assert!(
            of(&[own], &[]).contains(&child.id())
                && !of(&[own], &[child.id()]).contains(&child.id())
        );
        assert!(ExistingThreads::System.list().contains(&child.id()));
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
