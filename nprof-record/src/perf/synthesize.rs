//! Records of mappings that existed before the recording, made from /proc/PID/maps in the form in
//! which the kernel reports new ones (perf calls it "synthesize"). Pure.

use nprof_object::maps::{Mapping, mappings};

use crate::os::code_mapping::{Identity, Mmap};

/// Returns the executable mappings in the text of /proc/PID/maps.
pub(crate) fn executable(text: &[u8], pid: u32) -> impl Iterator<Item = Mmap<'_>> {
    let executable = mappings(text).filter(Mapping::is_executable);
    executable.map(move |mapping| mmap(mapping, pid))
}

fn mmap(mapping: Mapping<'_>, pid: u32) -> Mmap<'_> {
    Mmap {
        pid,
        start: mapping.start,
        length: mapping.size(),
        offset: mapping.offset,
        // /proc does not state the generation of the inode.
        identity: Identity { device: mapping.device, inode: mapping.inode, generation: 0 },
        // Records name anonymous memory so, /proc/PID/maps leaves the field empty.
        path: if mapping.path.is_empty() { b"//anon"[..].into() } else { mapping.path },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::procfs;

    #[test]
    fn executable_mappings_are_read() {
        let text = b"55d0-55e0 r--p 00000000 fe:01 99     /bin/x\n\
            55e0-55f0 r-xp 00001000 fe:01 99         /bin/a b (deleted)\n\
            7f00-7f10 rwxp 00000000 00:00 0 \n\
            7ffd-7fff r-xp 00000000 00:00 0          [vdso]\n\
            wild\n55e0-5 r-xp 0 0:0 0\n";
        let found: Vec<_> = executable(text, 5).collect();
        let names: Vec<_> = found.iter().map(|mmap| &*mmap.path).collect();
        assert_eq!(names, [&b"/bin/a b (deleted)"[..], b"//anon", b"[vdso]"]);
        let identity = Identity { device: (0xfe, 1), inode: 99, generation: 0 };
        let first = &found[0];
        assert_eq!((first.start.0, first.length, first.offset.0), (0x55e0, 0x10, 0x1000));
        assert_eq!((first.pid, first.identity), (5, identity));
    }

    #[test]
    fn own_process_has_executable_mappings() {
        let pid = std::process::id();
        assert!(executable(&procfs::maps(pid).expect("ours"), pid).count() > 0);
    }
}
