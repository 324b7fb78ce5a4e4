//! The files that processes execute. The kernel reports an exec before it maps the file, and samples of the
//! process may come between the two. Pure.

use nprof_stream::ImageKind;
use rustc_hash::FxHashMap;

use super::machine::kind_and_name;
use super::record::Content;

/// Adds to each exec, in records in order of time, the first file that its process maps. An exec keeps none
/// if its mappings are in later records.
pub(super) fn add_executed_files(records: &mut [(u64, Content)]) {
    // By process, the place of an exec without a mapping so far.
    let mut pending: FxHashMap<u32, usize> = FxHashMap::default();
    let mut found = Vec::new();
    for (index, (_, content)) in records.iter().enumerate() {
        match content {
            Content::Comm { pid, is_exec: true, .. } => {
                pending.insert(*pid, index);
            }
            Content::Exit { pid, tid } if pid == tid => {
                pending.remove(pid);
            }
            Content::Mmap(mmap) if kind_and_name(false, &mmap.path).0 == ImageKind::Elf => {
                if let Some(exec) = pending.remove(&mmap.pid) {
                    found.push((exec, mmap.path.clone()));
                }
            }
            _ => {}
        }
    }
    for (index, path) in found {
        if let Content::Comm { executed, .. } = &mut records[index].1 {
            *executed = Some(path);
        }
    }
}
