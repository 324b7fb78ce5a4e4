//! Tests of the image table: identities, memory bounds, epochs.

use super::opened::MemoryReader;
use super::*;

use crate::sys;
use nprof_object::RuntimeAddress;
use nprof_unwind::image::elf::Elf;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// A process with our pid.
fn own(serial: u64) -> ProcessId {
    ProcessId { pid: std::process::id(), serial: TaskSerial(serial) }
}

fn mmap<'a>(path: &'a [u8], identity: Identity) -> Mmap<'a> {
    Mmap {
        pid: std::process::id(),
        start: RuntimeAddress(0x4000),
        length: 0x1000,
        offset: FileOffset(0x2000),
        identity,
        path: path.into(),
    }
}

#[test]
fn name_and_device_give_backing_of_mapping() {
    let disk = Identity { device: (8, 1), inode: 5, generation: 0 };
    let internal = Identity { device: (0, 1), ..disk };
    for (name, identity, backing) in [
        (&b"/usr/lib/x.so"[..], disk, Backing::File),
        (b"[vdso]", internal, Backing::Vdso),
        (b"[heap]", internal, Backing::Anonymous),
        (b"//anon", internal, Backing::Anonymous),
        (b"/dev/zero", internal, Backing::Anonymous),
        (b"/dev/zero (deleted)", internal, Backing::Anonymous),
        (b"/memfd:jit (deleted)", internal, Backing::SharedMemory),
        (b"/SYSV00000000 (deleted)", internal, Backing::SharedMemory),
        (b"/memfd:dir/prog", internal, Backing::File),
        (b"/SYSVdir/prog (deleted)", disk, Backing::File),
        (b"anon_inode:[x]", internal, Backing::Anonymous),
        (b"", internal, Backing::Anonymous),
    ] {
        assert_eq!(Backing::of(&mmap(name, identity)), backing);
    }
}

#[test]
fn shared_memory_with_program_is_file_and_else_memory_of_process() {
    let mut images = ImageTable::default();
    let path = std::env::current_exe().expect("a path");
    let inode = path.metadata().expect("this program").ino();
    // A link in /proc leads to the program, as to a memfd.
    let program = Identity { inode, ..Identity::default() };
    let mapped = mmap(b"/memfd:packed (deleted)", program);
    let (index, offset) = images.image_of(&mapped, TaskSerial(1), u64::MAX);
    let image = images.get(index);
    assert_eq!(
        (image.kind, &*image.path, offset),
        (ImageKind::Elf, &b"/memfd:packed"[..], ImageOffset(0x2000))
    );
    assert!(image.elf.is_some() && !images.may_contain_jit(index));
    let other = Identity { inode: 0, ..Identity::default() };
    let mapped = mmap(b"/memfd:jit (deleted)", other);
    let (index, offset) = images.image_of(&mapped, TaskSerial(1), u64::MAX);
    let image = images.get(index);
    assert_eq!(
        (image.kind, image.owner, offset),
        (ImageKind::Anonymous, Some(own(1)), ImageOffset(0x4000))
    );
    assert!(images.may_contain_jit(index));
}

#[test]
fn only_code_of_elf_files_is_permanent() {
    let mut images = ImageTable::default();
    let path = std::env::current_exe().expect("a path");
    let inode = path.metadata().expect("this program").ino();
    let program = mmap(path.as_os_str().as_bytes(), Identity { inode, ..Identity::default() });
    let data = tempfile::NamedTempFile::new().expect("a file");
    let inode = data.path().metadata().expect("it exists").ino();
    let data = mmap(data.path().as_os_str().as_bytes(), Identity { inode, ..Identity::default() });
    let anon = mmap(b"//anon", Identity::default());
    let vdso = mmap(b"[vdso]", Identity::default());
    for (mapped, expected) in [(&program, true), (&vdso, true), (&data, false), (&anon, false)] {
        let (index, _) = images.image_of(mapped, TaskSerial(1), u64::MAX);
        let name = String::from_utf8_lossy(&mapped.path);
        assert_eq!(images.is_permanent(ImageKey::File(index)), expected, "{name}");
    }
    for key in [ImageKey::Kernel(0), ImageKey::Function(0), ImageKey::Unnamed(0)] {
        assert!(!images.is_permanent(key), "{key:?}: of no file, though image 0 is one");
    }
}

#[test]
fn file_is_opened_once_and_only_with_its_inode() {
    let mut images = ImageTable::default();
    let path = std::env::current_exe().expect("a path");
    let inode = path.metadata().expect("this program").ino();
    let path = path.as_os_str().as_bytes();
    let right = mmap(path, Identity { inode, ..Identity::default() });
    let (first, offset) = images.image_of(&right, TaskSerial(1), u64::MAX);
    assert_eq!((first, offset), (0, ImageOffset(0x2000)));
    assert_eq!(images.image_of(&right, TaskSerial(2), u64::MAX).0, first);
    assert!(images.get(first).elf.is_some());
    // The file was replaced after it was mapped.
    let wrong = mmap(path, Identity { inode: inode + 1, ..Identity::default() });
    let (second, _) = images.image_of(&wrong, TaskSerial(1), u64::MAX);
    assert!(images.get(second).elf.is_none());
    assert!(images.get(second).build_id.is_empty());
    assert_eq!(images.open, 1);
}

#[test]
fn file_that_is_overwritten_is_another_image() {
    let mut images = ImageTable::default();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let copy = |from: &std::path::Path| std::fs::copy(from, file.path()).expect("a copy");
    let inode = file.path().metadata().expect("it exists").ino();
    let mapped =
        mmap(file.path().as_os_str().as_bytes(), Identity { inode, ..Identity::default() });
    copy(&std::env::current_exe().expect("a path"));
    let (first, _) = images.image_of(&mapped, TaskSerial(1), u64::MAX);
    assert_eq!(images.image_of(&mapped, TaskSerial(2), u64::MAX).0, first);
    let before_ns = sys::monotonic_ns();
    std::thread::sleep(std::time::Duration::from_millis(20));
    copy(std::path::Path::new("/bin/sh"));
    assert_eq!(
        images.image_of(&mapped, TaskSerial(3), before_ns).0,
        first,
        "it was the first then"
    );
    let (second, _) = images.image_of(&mapped, TaskSerial(4), u64::MAX);
    assert_ne!(second, first);
    images.images[first as usize].read_tables();
    assert!(matches!(images.get(first).tables, TableState::Read(None)), "its tables are gone");
    images.images[second as usize].read_tables();
    assert!(matches!(images.get(second).tables, TableState::Read(Some(_))));
    // Nothing is known of a file that was first seen after it had been overwritten.
    let mut others = ImageTable::default();
    let (unknown, _) = others.image_of(&mapped, TaskSerial(1), before_ns);
    assert!(others.get(unknown).elf.is_none() && !others.is_generated(unknown));
    let (known, _) = others.image_of(&mapped, TaskSerial(2), u64::MAX);
    assert!(known != unknown && others.get(known).elf.is_some());
}

#[test]
fn file_that_cannot_be_opened_is_not_taken_for_generated_code() {
    let mut images = ImageTable::default();
    let data = tempfile::NamedTempFile::new().expect("a file");
    let path = data.path().as_os_str().as_bytes();
    let inode = data.path().metadata().expect("it exists").ino();
    let mut kind = |path: &[u8], inode| {
        let mapped = mmap(path, Identity { inode, ..Identity::default() });
        let (index, offset) = images.image_of(&mapped, TaskSerial(1), u64::MAX);
        assert!(images.may_contain_jit(index), "for names");
        (images.is_generated(index), images.generated_frame(index, offset))
    };
    assert_eq!(kind(path, inode), (true, GeneratedFrame::FramePointer));
    assert_eq!(kind(b"/absent/program", inode + 1), (false, GeneratedFrame::Unknown));
}

#[test]
fn memory_is_not_read_through_a_thread_of_an_earlier_batch() {
    let words = Box::new([0x5a_u8; 64]);
    let address = words.as_ptr() as u64;
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    // The id of a thread that has ended is that of another process now: of this one.
    let reader = MemoryReader { thread: Cell::new(Some((std::process::id(), 1))) };
    let mut bytes = [0; 64];
    reader.read(child.id(), 2, address, &mut bytes);
    assert_ne!(bytes, *words);
    assert_eq!(reader.read(std::process::id(), 3, address, &mut bytes), 64);
    assert_eq!(bytes, *words);
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn dropped_tables_are_read_again_from_same_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = std::env::current_exe().expect("a path");
    let mut images = ImageTable::default();
    let mut copies = Vec::new();
    for name in ["a", "b", "c"] {
        let path = directory.path().join(name);
        std::fs::copy(&own, &path).expect("copied");
        let inode = path.metadata().expect("it").ino();
        let mapped = mmap(path.as_os_str().as_bytes(), Identity { inode, ..Identity::default() });
        copies.push((images.image_of(&mapped, TaskSerial(1), u64::MAX).0, path));
    }
    let code = Elf::read(&object::ReadCache::new(File::open(&own).expect("this program")));
    let offset = code.and_then(|elf| elf.entry_offset()).expect("an entry").0 + 1;
    let has_rule = |images: &mut ImageTable, at: usize| {
        matches!(images.unwind_info(copies[at].0, ImageOffset(offset)), UnwindInfo::Rule(_))
    };
    assert!((0..3).all(|at| has_rule(&mut images, at)) && images.open == 0);
    let each = images.get(copies[0].0).bytes;
    assert!(each > 0 && images.bytes >= 3 * each);
    assert!(has_rule(&mut images, 0), "b is the least recently used one");
    images.drop_tables(copies[1].0, 0);
    assert_eq!(images.bytes, images.get(copies[1].0).bytes);
    assert!(has_rule(&mut images, 0));
    images.drop_tables(copies[0].0, images.bytes - 1);
    let is_closed = |at: usize| matches!(images.get(copies[at].0).tables, TableState::Closed);
    assert!(is_closed(1) && is_closed(2) && !is_closed(0));
    // Same inode, other contents: the ELF headers differ.
    std::fs::write(&copies[2].1, b"another file").expect("written");
    assert!(has_rule(&mut images, 1) && !has_rule(&mut images, 2));
    images.begin_epoch([copies[1].0].into_iter());
    assert_eq!(images.bytes, images.get(copies[1].0).bytes);
    assert_eq!((images.by_identity.len(), images.free.len()), (1, 2));
}

#[test]
fn epoch_drops_unmapped_images() {
    let mut images = ImageTable::default();
    let anon = mmap(b"//anon", Identity::default());
    let mapped: Vec<_> = (0..NEW_MAX as u64)
        .map(|serial| images.image_of(&anon, TaskSerial(serial), u64::MAX).0)
        .collect();
    assert!(images.is_full());
    images.begin_epoch([mapped[5], mapped[7], mapped[5]].into_iter());
    assert!(!images.is_full());
    assert_eq!(images.get(mapped[7]).owner, Some(own(7)));
    assert_eq!(images.image_of(&anon, TaskSerial(7), u64::MAX).0, mapped[7]);
    let again = images.image_of(&anon, TaskSerial(8), u64::MAX).0;
    assert!(again != mapped[7] && (again as usize) < NEW_MAX, "indices are reused");
    assert_eq!(images.get(again).owner, Some(own(8)));
    assert_eq!(images.images.len(), NEW_MAX);
}

#[test]
fn image_without_a_file_is_tried_once_for_all_epochs() {
    let directory = tempfile::tempdir().expect("a directory");
    let kept = Some(KeptImages::create(directory.path()).expect("a directory"));
    let mut images = ImageTable { kept, ..ImageTable::default() };
    let gone = mmap(b"/absent/program", Identity { inode: 1, ..Identity::default() });
    let (index, _) = images.image_of(&gone, TaskSerial(1), u64::MAX);
    for _ in 0..3 {
        assert_eq!(images.keep(index), None);
        images.begin_epoch([index].into_iter());
    }
    let summary = images.kept.take().expect("kept").finish();
    assert_eq!((summary.images, summary.failed), (0, 1), "{:?}", summary.failures);
}

#[test]
fn anonymous_memory_has_owner_and_runtime_addresses() {
    let mut images = ImageTable::default();
    let anon = mmap(b"//anon", Identity::default());
    let (first, offset) = images.image_of(&anon, TaskSerial(1), u64::MAX);
    assert_eq!(offset, ImageOffset(0x4000));
    assert_ne!(images.image_of(&anon, TaskSerial(2), u64::MAX).0, first);
    assert_eq!(
        (images.get(first).path.as_slice(), images.get(first).owner),
        (&b"[anon]"[..], Some(own(1)))
    );
}

#[test]
fn vdso_has_unwind_tables() {
    let mut images = ImageTable::default();
    let (vdso, _) = images.image_of(&mmap(b"[vdso]", Identity::default()), TaskSerial(1), u64::MAX);
    let image = images.get(vdso);
    assert!(matches!(image.tables, TableState::Read(Some(_))), "{image:?}");
    assert!(!image.build_id.is_empty());
}
