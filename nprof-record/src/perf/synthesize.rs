//! Records of mappings that existed before the recording, made from /proc/PID/maps as the kernel would have written them (perf calls it "synthesize"). Pure.

use crate::perf::record::{Identity, Mmap};

/// The executable mappings in the text of /proc/PID/maps, named as the kernel's records name
/// them.
pub(crate) fn executable(text: &[u8], pid: u32) -> impl Iterator<Item = Mmap<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(move |line| mapping(line, pid))
}

/// One line: range, rights, offset, device, inode, path.
fn mapping(line: &[u8], pid: u32) -> Option<Mmap<'_>> {
    let mut rest = line;
    let range = field(&mut rest)?;
    if field(&mut rest)?.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let offset = hexadecimal(field(&mut rest)?)?;
    let (major, minor) = field(&mut rest)?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = field(&mut rest)?.parse().ok()?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let path = if rest.is_empty() { b"//anon" } else { rest };
    let identity = Identity { device, inode, generation: 0 };
    Some(Mmap { pid, start, length: end.checked_sub(start)?, offset, identity, path })
}

/// Takes the next field and the blanks behind it.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (field, after) = rest.split_at(length);
    *rest = after.trim_ascii_start();
    std::str::from_utf8(field).ok().filter(|field| !field.is_empty())
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
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
        let names: Vec<_> = found.iter().map(|mmap| mmap.path).collect();
        assert_eq!(names, [&b"/bin/a b (deleted)"[..], b"//anon", b"[vdso]"]);
        let identity = Identity { device: (0xfe, 1), inode: 99, generation: 0 };
        let first = &found[0];
        assert_eq!((first.start, first.length, first.offset), (0x55e0, 0x10, 0x1000));
        assert_eq!((first.pid, first.identity), (5, identity));
    }

    #[test]
    fn own_process_has_executable_mappings() {
        let pid = std::process::id();
        assert!(executable(&procfs::maps(pid).expect("ours"), pid).count() > 0);
    }
}
