//! Names of the running kernel and its vDSO.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use fixture::{Binary, Places, names};
use nprof_stream::{ImageKind, Status};
use object::{Object, ObjectSymbol};

/// Returns the build ID in the kernel's own notes.
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

/// Returns the address of a symbol of the kernel. None if it is hidden.
fn address(kallsyms: &str, name: &str) -> Option<u64> {
    let line = kallsyms.lines().find(|line| line.split(' ').nth(2) == Some(name))?;
    u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|&address| address != 0)
}

fn places<'a>(kind: ImageKind, path: &'a [u8], build_id: &'a [u8], offset: u64) -> Places<'a> {
    Places { kind, build_id, path, places: vec![(offset, false)] }
}

#[test]
fn names_the_running_kernel_only() {
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

/// A program in the place of a kernel: its code is at the address of `_stext`.
const VMLINUX: &str = "
static inline int helper(int n) { return n * 3; }
__attribute__((noinline)) int do_work(int n) { int s = 0; while (n--) s ^= helper(n + s); return s; }
void _start(void) { do_work(3); }
";

#[test]
fn vmlinux_with_the_build_id_gives_lines() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("vmlinux.c"), VMLINUX).unwrap();
    std::fs::create_dir_all(at.join("lib/modules/9.9-test")).unwrap();
    std::fs::create_dir_all(at.join("usr/lib/debug/boot")).unwrap();
    let home = "@/usr/lib/debug/boot/vmlinux-9.9-test";
    fixture::run_in(
        at,
        &format!(
            "gcc -O2 -g -nostdlib -static -no-pie -Wl,--build-id -Wl,-Ttext=0x81000000 \
             -Wl,--defsym=_stext=0x81000000 -o {home} @/vmlinux.c"
        ),
    );
    let kernel = Binary::read(&at.join("usr/lib/debug/boot/vmlinux-9.9-test"));
    let offset = kernel.symbol("do_work") - 0x8100_0000;
    let symfs = ["--symfs", at.to_str().unwrap()];
    let places = |id| Places {
        kind: ImageKind::Kernel,
        build_id: id,
        path: b"[kernel]",
        places: (0..32).map(|i| (offset + i, false)).collect(),
    };
    let named = names(&symfs, places(&kernel.build_id));
    let last = named[0].1.last().unwrap();
    assert_eq!((last.name.as_str(), last.line > 0), ("do_work", true));
    let inlined = |calls: &[fixture::Named]| calls.len() == 2 && calls[0].name == "helper";
    assert!(named.iter().any(|(_, calls)| inlined(calls)), "{named:?}");
    let functions =
        names(&[&symfs[..], &["--no-lines", "--no-inlines"]].concat(), places(&kernel.build_id));
    assert_eq!((functions[0].1[0].name.as_str(), functions[0].1[0].line), ("do_work", 0));
    // Neither the names of another kernel nor those of the running one.
    let other = names(&symfs, places(&[7; 20]));
    assert!(other.iter().all(|(status, calls)| *status == Status::Mismatch && calls.is_empty()));
}

#[test]
fn names_the_vdso_from_memory() {
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
    // The weak alias without underscores, as for all exported symbols of one address.
    assert_eq!(named[0].1[0].name, "clock_gettime");
}
