//! Names of the running kernel and its vDSO.

#![allow(clippy::unwrap_used)] // what cannot be set up is a failed test

mod fixture;

use fixture::{Places, names};
use nprof_format::{ImageKind, Status};
use object::{Object, ObjectSymbol};

/// The build ID in the kernel's own notes.
fn build_id() -> Option<Vec<u8>> {
    let mut notes = &std::fs::read("/sys/kernel/notes").ok()?[..];
    loop {
        let word = |at: usize| Some(u32::from_ne_bytes(*notes.get(at..)?.first_chunk()?) as usize);
        let (name, size, kind) = (word(0)?, word(4)?, word(8)?);
        let start = 12 + name.next_multiple_of(4);
        if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
            return Some(notes.get(start..start + size)?.to_vec());
        }
        notes = notes.get(start + size.next_multiple_of(4)..)?;
    }
}

/// Address of a symbol of the kernel; `None` where it is hidden.
fn address(kallsyms: &str, name: &str) -> Option<u64> {
    let line = kallsyms.lines().find(|line| line.split(' ').nth(2) == Some(name))?;
    u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|&address| address != 0)
}

fn places<'a>(kind: ImageKind, path: &'a [u8], build_id: &'a [u8], offset: u64) -> Places<'a> {
    Places { kind, build_id, path, places: vec![(offset, false)] }
}

#[test]
fn the_running_kernel_is_named_and_no_other() {
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let base = address(&kallsyms, "_stext");
    let function = address(&kallsyms, "vfs_read");
    let (Some(base), Some(function), Some(mut id)) = (base, function, build_id()) else {
        println!("SKIPPED: the kernel does not show its symbols or its build ID");
        return;
    };
    let named = names(&[], places(ImageKind::Kernel, b"[kernel]", &id, function - base + 4));
    assert_eq!(named[0].1[0].name, "vfs_read");
    let none = names(&[], places(ImageKind::Kernel, b"[kernel]", b"", function - base + 4));
    assert_eq!(none, [(Status::Mismatch, vec![])]);
    id[0] ^= 1;
    let other = names(&[], places(ImageKind::Kernel, b"[kernel]", &id, function - base + 4));
    assert_eq!(other, [(Status::Mismatch, vec![])]);
}

#[test]
fn the_vdso_is_named_from_memory() {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        println!("SKIPPED: there is no vDSO");
        return;
    };
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|digits| u64::from_str_radix(digits, 16).unwrap());
    let mut bytes = vec![0; (end - start) as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, start).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let name = "__vdso_clock_gettime";
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    // Its file offsets are its addresses.
    let named = names(&[], places(ImageKind::Vdso, b"[vdso]", id, symbol.address() + 1));
    assert_eq!(named[0].1[0].name, name);
}
