//! The ring of one process, read by the recorder.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::thread::futex;

use crate::protocol::{
    ALIGNMENT, DATA_OFFSET, Kind, MAGIC, MAXIMUM_RING_BYTES, MEMO_BYTES, MINIMUM_RING_BYTES,
    RecordHeader, RingHeader, VERSION,
};

use super::mapping::Mapping;
use super::memos::Memos;

/// The ring of one process. The process may write anything into it at any time: sizes are checked, and records are
/// copied before they are read.
#[derive(Debug)]
pub struct Ring {
    mapping: Arc<Mapping>,
    has_memos: bool,
    data_bytes: u64,
    key: u64,
    id: u64,
    /// The end of the records that were read.
    tail: u64,
    /// The end of those of which the writers have the room, and its last value when waiting writers were woken.
    released: u64,
    woken: u64,
}

/// The writers get the room of this part of the data area at once. They read the word with its end for each record, so
/// that a store to it takes 0.04 us: a fifth of the time in which the recorder processes a record.
const ROOM_PARTS: u64 = 16;

/// The records that found no room in a ring, since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Sampled allocations.
    pub allocations: u64,
    /// The sum of their weights in bytes.
    pub weight: u64,
    /// Frees of sampled blocks: these blocks look live.
    pub frees: u64,
    /// Sampled calls.
    pub calls: u64,
    /// Records of descriptors.
    pub others: u64,
}

impl Ring {
    /// Maps the ring that a process sent.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file can shrink, or has another layout; those of fstat(2) and mmap(2).
    pub fn map(file: &OwnedFd) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        // A file that shrinks while it is mapped raises SIGBUS in the recorder.
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK | SealFlags::SEAL) {
            return Err(invalid());
        }
        let size = u64::try_from(fstat(file)?.st_size).map_err(|_| invalid())?;
        let content = size.checked_sub(DATA_OFFSET as u64).ok_or_else(invalid)?;
        // No two powers of two differ by the size of the memos.
        let with_memos = content.checked_sub(MEMO_BYTES as u64).filter(|it| it.is_power_of_two());
        let has_memos = with_memos.is_some();
        let data_bytes = with_memos.unwrap_or(content);
        let allowed = u64::from(MINIMUM_RING_BYTES)..=u64::from(MAXIMUM_RING_BYTES);
        if !data_bytes.is_power_of_two() || !allowed.contains(&data_bytes) {
            return Err(invalid());
        }
        let mapping = Arc::new(Mapping::new(file, size as usize)?);
        let mut ring =
            Ring { mapping, has_memos, data_bytes, key: 0, id: 0, tail: 0, released: 0, woken: 0 };
        let header = ring.header();
        let (key, id, tail) =
            (header.key.load(Acquire), header.id.load(Relaxed), header.tail.0.load(Relaxed));
        let valid = header.magic.load(Relaxed) == MAGIC
            && header.version.load(Relaxed) == u64::from(VERSION)
            && header.data_bytes.load(Relaxed) == data_bytes
            && tail == 0;
        if !valid {
            return Err(invalid());
        }
        (ring.key, ring.id, ring.tail) = (key, id, tail);
        Ok(ring)
    }

    /// Returns the id of the ring.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the memos of known stacks; None if the ring has none. Only one value may write them.
    pub fn memos(&self) -> Option<Memos> {
        let offset = DATA_OFFSET + self.data_bytes as usize;
        self.has_memos.then(|| Memos::new(self.mapping.clone(), offset))
    }

    /// Moves the next complete record out of the ring into `buffer`, without its header, and returns its kind for
    /// [`crate::protocol::Record::parse`]; None if there is none. Padding and abandoned records are skipped.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the process damaged the ring: it cannot be read further.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<u32>> {
        loop {
            let offset = (self.tail & (self.data_bytes - 1)) as usize;
            let header = self.record_header(self.tail);
            // Pairs with the release store of the writer: the bytes of the record are visible after it.
            if header.commit.load(Acquire) != self.key.wrapping_add(self.tail) {
                return Ok(None);
            }
            let (bytes, kind) = (u64::from(header.bytes.load(Relaxed)), header.kind.load(Relaxed));
            let room = self.data_bytes - offset as u64;
            // Padding ends at the end of the area, so that a record or nothing follows it: the loop ends.
            let is_padding = kind == Kind::Padding as u32;
            let is_misplaced = is_padding && (bytes != room || offset == 0);
            if bytes < ALIGNMENT || !bytes.is_multiple_of(ALIGNMENT) || bytes > room || is_misplaced
            {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let content = bytes as usize - size_of::<RecordHeader>();
            buffer.clear();
            let has_content = !is_padding && kind != Kind::Abandoned as u32;
            if has_content {
                buffer.reserve(content);
                // SAFETY: source is within the mapping by the check above, the destination has the capacity. A
                // process that writes at the same time only changes the bytes that are copied.
                unsafe {
                    let source =
                        self.mapping.address(DATA_OFFSET + offset + size_of::<RecordHeader>());
                    source.copy_to_nonoverlapping(buffer.as_mut_ptr(), content);
                    buffer.set_len(content);
                }
            }
            self.tail += bytes;
            if self.tail - self.released >= self.data_bytes / ROOM_PARTS {
                self.release();
                // A writer that fills a small room at once and waits again takes more time than its records.
                if self.tail - self.woken >= self.data_bytes / 4 {
                    self.wake();
                }
            }
            if has_content {
                return Ok(Some(kind));
            }
        }
    }

    /// True if the process has reserved records that were not read.
    pub fn has_unread(&self) -> bool {
        self.header().head.0.load(Relaxed) != self.tail
    }

    /// Skips the next record if it is incomplete and its writer is gone; returns whether it did. `lives` is called
    /// with the id of the writing thread in its own namespace, or with None if that is unknown.
    pub fn skip_abandoned(&mut self, lives: impl FnOnce(Option<u32>) -> bool) -> bool {
        let end = self.header().head.0.load(Relaxed);
        // The process may have written any number.
        if end <= self.tail || end - self.tail > self.data_bytes || !end.is_multiple_of(ALIGNMENT) {
            return false;
        }
        let commit = self.key.wrapping_add(self.tail);
        let header = self.record_header(self.tail);
        let found = header.commit.load(Acquire);
        let bytes = u64::from(header.bytes.load(Relaxed));
        let is_announced =
            found == !commit && bytes >= ALIGNMENT && bytes.is_multiple_of(ALIGNMENT);
        // To complete it, its thread overwrites its id by the kind first: it may have ended just then.
        let writer = is_announced.then(|| header.kind.load(Relaxed));
        let writer = writer.filter(|writer| writer & RecordHeader::WRITER != 0);
        // It may also have completed it and ended since the first look.
        if lives(writer.map(|writer| writer & !RecordHeader::WRITER))
            || header.commit.load(Acquire) == commit
        {
            return false;
        }
        self.tail = if is_announced {
            (self.tail + bytes).min(end)
        } else {
            let mut later = (self.tail + ALIGNMENT..end).step_by(ALIGNMENT as usize);
            let next = later.find(|&at| {
                let commit = self.key.wrapping_add(at);
                let found = self.record_header(at).commit.load(Acquire);
                found == commit || found == !commit
            });
            next.unwrap_or(end)
        };
        self.release_room();
        true
    }

    /// Gives the room of all records that were read to the writers, and wakes the threads that wait for it. Call it
    /// after each batch of records.
    pub fn release_room(&mut self) {
        self.release();
        self.wake();
    }

    fn release(&mut self) {
        self.released = self.tail;
        // Release: the records were copied before a writer sees the room. SeqCst, with the load of `waiters` in
        // `wake`, orders this store before that load: a writer either sees the room or is seen waiting.
        self.header().tail.0.store(self.tail, std::sync::atomic::Ordering::SeqCst);
    }

    fn wake(&mut self) {
        self.woken = self.released;
        let header = self.header();
        if header.waiters.load(std::sync::atomic::Ordering::SeqCst) != 0 {
            header.room.0.fetch_add(1, Release);
            // An error can only mean that the memory is gone, which the mapping excludes.
            let _ = futex::wake(&header.room.0, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Returns the bytes of the ring that were read so far, with headers and padding.
    pub fn read_bytes(&self) -> u64 {
        self.tail
    }

    /// Returns the size of the data area in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Sets the mean distance of heap samples in bytes.
    pub fn set_heap_period(&self, bytes: u64) {
        self.header().heap_period.0.store(bytes, Relaxed);
    }

    /// Returns the mean distance of heap samples in bytes.
    pub fn heap_period(&self) -> u64 {
        self.header().heap_period.0.load(Relaxed)
    }

    /// Sets the mean distance of samples in calls of instrumented functions.
    pub fn set_call_period(&self, calls: u64) {
        self.header().call_period.store(calls, Relaxed);
    }

    /// Returns the mean distance of samples in calls of instrumented functions.
    pub fn call_period(&self) -> u64 {
        self.header().call_period.load(Relaxed)
    }

    /// Returns the records that found no room.
    pub fn losses(&self) -> Losses {
        let header = self.header();
        Losses {
            allocations: header.lost_allocations.0.load(Relaxed),
            weight: header.lost_weight.load(Relaxed),
            frees: header.lost_frees.load(Relaxed),
            calls: header.lost_calls.load(Relaxed),
            others: header.lost_others.load(Relaxed),
        }
    }

    /// Returns the number of calls of dlopen(3) with RTLD_DEEPBIND.
    pub fn deep_bindings(&self) -> u64 {
        self.header().deep_bindings.load(Relaxed)
    }

    /// Returns the number of forked children of the process that could not connect.
    pub fn unconnected_children(&self) -> u64 {
        self.header().unconnected_children.load(Relaxed)
    }

    /// Returns the header of the record at a position, a multiple of [`ALIGNMENT`].
    fn record_header(&self, position: u64) -> &RecordHeader {
        let offset = (position & (self.data_bytes - 1)) as usize;
        // SAFETY: the offset is within the data area and, as a multiple of 16, leaves room for a header. Other
        // threads access its fields only as atomics.
        unsafe { &*self.mapping.address(DATA_OFFSET + offset).cast::<RecordHeader>() }
    }

    fn header(&self) -> &RingHeader {
        // SAFETY: the mapping begins with a header and lives as long as `self`; all fields are atomics.
        unsafe { &*self.mapping.address(0).cast::<RingHeader>() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::*;

    const KEY: u64 = 1000;
    const DATA_BYTES: u64 = MINIMUM_RING_BYTES as u64;

    /// Returns a ring without records.
    fn file() -> File {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = File::from(memfd_create("ring", flags).expect("a file"));
        file.set_len(DATA_OFFSET as u64 + DATA_BYTES).expect("a size");
        write(&file, 0, &[MAGIC, u64::from(VERSION), DATA_BYTES, KEY, 7]);
        file
    }

    fn write(file: &File, offset: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, offset).expect("written");
    }

    fn write_record(file: &File, position: u64, bytes: u64, kind: Kind) {
        let offset = DATA_OFFSET as u64 + position % DATA_BYTES;
        write(file, offset, &[KEY + position, bytes | (kind as u64) << 32]);
    }

    fn map(file: &File) -> io::Result<Ring> {
        Ring::map(&OwnedFd::from(file.try_clone().expect("a descriptor")))
    }

    fn sealed(file: &File) -> Ring {
        fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::SEAL).expect("sealed");
        map(file).expect("a ring")
    }

    #[test]
    fn file_that_can_shrink_or_has_another_layout_is_refused() {
        assert!(map(&file()).is_err(), "it can shrink");
        let tail = std::mem::offset_of!(RingHeader, tail) as u64;
        for (offset, value) in [(0, 1), (8, 99), (16, 2 * DATA_BYTES), (tail, 16)] {
            let file = file();
            write(&file, offset, &[value]);
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).expect("sealed");
            assert!(map(&file).is_err(), "{offset}");
        }
    }

    #[test]
    fn abandoned_record_and_padding_are_skipped() {
        let file = file();
        write_record(&file, 0, 64, Kind::Freed);
        write_record(&file, 64, 32, Kind::Abandoned);
        write_record(&file, 96, DATA_BYTES - 96, Kind::Padding);
        let (mut ring, mut buffer) = (sealed(&file), Vec::new());
        assert_eq!(ring.next(&mut buffer).expect("valid"), Some(Kind::Freed as u32));
        assert_eq!((buffer.len(), ring.read_bytes()), (48, 64));
        assert_eq!(ring.next(&mut buffer).expect("valid"), None);
        assert_eq!(ring.read_bytes(), DATA_BYTES);
        write_record(&file, DATA_BYTES, 32, Kind::Closed);
        assert_eq!(ring.next(&mut buffer).expect("valid"), Some(Kind::Closed as u32));
    }

    fn set_head(file: &File, position: u64) {
        write(file, std::mem::offset_of!(RingHeader, head) as u64, &[position]);
    }

    #[test]
    fn announced_record_of_a_thread_that_is_gone_is_skipped() {
        let file = file();
        let (mut ring, mut buffer) = (sealed(&file), Vec::new());
        assert!(!ring.has_unread() && !ring.skip_abandoned(|_| false), "it is empty");
        write(&file, DATA_OFFSET as u64, &[!KEY, 64 | (1234 | 1 << 31) << 32]);
        write_record(&file, 64, 32, Kind::Freed);
        set_head(&file, 96);
        assert_eq!(ring.next(&mut buffer).expect("valid"), None);
        assert!(ring.has_unread() && !ring.skip_abandoned(|thread| thread == Some(1234)));
        write(&file, DATA_OFFSET as u64, &[!KEY, 64 | (Kind::Freed as u64) << 32]);
        assert!(!ring.skip_abandoned(|thread| thread.is_none()), "its thread completes it");
        write(&file, DATA_OFFSET as u64, &[!KEY, 64 | (1234 | 1 << 31) << 32]);
        assert!(ring.skip_abandoned(|_| false));
        assert_eq!(ring.next(&mut buffer).expect("valid"), Some(Kind::Freed as u32));
        assert!(!ring.has_unread());
        // Its thread has ended just before it would have been complete.
        write(&file, DATA_OFFSET as u64 + 96, &[!(KEY + 96), 32 | (Kind::Freed as u64) << 32]);
        set_head(&file, 128);
        assert!(ring.skip_abandoned(|thread| thread.is_some()));
        assert_eq!((ring.read_bytes(), ring.has_unread()), (128, false));
        // Its size may lead beyond the reserved bytes.
        write(&file, DATA_OFFSET as u64 + 128, &[!(KEY + 128), 1 << 20 | 1 << 63]);
        set_head(&file, 160);
        assert!(ring.skip_abandoned(|_| false));
        assert_eq!((ring.read_bytes(), ring.has_unread()), (160, false));
    }

    #[test]
    fn record_without_announcement_is_skipped_to_the_next_commit_word() {
        let file = file();
        let (mut ring, mut buffer) = (sealed(&file), Vec::new());
        write_record(&file, 160, 48, Kind::Closed);
        set_head(&file, 208);
        assert!(!ring.skip_abandoned(|thread| thread.is_none()));
        assert!(ring.skip_abandoned(|_| false));
        assert_eq!((ring.read_bytes(), buffer.len()), (160, 0));
        assert_eq!(ring.next(&mut buffer).expect("valid"), Some(Kind::Closed as u32));
        for head in [208 + DATA_BYTES + 16, 100, 216] {
            set_head(&file, head);
            assert!(!ring.skip_abandoned(|_| false), "no head that the library writes: {head}");
        }
    }

    #[test]
    fn damaged_header_is_an_error() {
        for (bytes, kind) in [
            (0, Kind::Freed),
            (24, Kind::Freed),
            (DATA_BYTES + 16, Kind::Freed),
            (DATA_BYTES, Kind::Padding),
        ] {
            let file = file();
            write_record(&file, 0, bytes, kind);
            assert!(sealed(&file).next(&mut Vec::new()).is_err(), "{bytes} {kind:?}");
        }
        let file = file();
        write_record(&file, 0, 16, Kind::Freed);
        write_record(&file, 16, 16, Kind::Padding);
        let mut ring = sealed(&file);
        assert!(ring.next(&mut Vec::new()).is_ok());
        assert!(ring.next(&mut Vec::new()).is_err(), "padding that does not lead to the end");
    }
}
