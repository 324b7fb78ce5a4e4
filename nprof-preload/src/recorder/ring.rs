//! The ring of one process, read by the recorder.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use crate::protocol::{
    ALIGNMENT, DATA_OFFSET, Kind, MAGIC, MAXIMUM_RING_BYTES, MINIMUM_RING_BYTES, RecordHeader,
    RingHeader, VERSION,
};

/// The ring of one process. The process may write anything into it at any time: sizes are checked, and records are
/// copied before they are read.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    data_bytes: u64,
    key: u64,
    id: u64,
    tail: u64,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on the thread.
unsafe impl Send for Ring {}

/// The records that found no room in a ring, since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Sampled allocations.
    pub allocations: u64,
    /// The sum of their weights in bytes.
    pub weight: u64,
    /// Frees of sampled blocks: these blocks look live.
    pub frees: u64,
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
        let data_bytes = size.checked_sub(DATA_OFFSET as u64).ok_or_else(invalid)?;
        let allowed = u64::from(MINIMUM_RING_BYTES)..=u64::from(MAXIMUM_RING_BYTES);
        if !data_bytes.is_power_of_two() || !allowed.contains(&data_bytes) {
            return Err(invalid());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(std::ptr::null_mut(), size as usize, protection, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or_else(invalid)?;
        let mut ring = Ring { base, data_bytes, key: 0, id: 0, tail: 0 };
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

    /// Moves the next complete record out of the ring into `buffer`, without its header, and returns its kind for
    /// [`crate::protocol::Record::parse`]; None if there is none. Padding is skipped.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the process damaged the ring: it cannot be read further.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<u32>> {
        loop {
            let offset = (self.tail & (self.data_bytes - 1)) as usize;
            // SAFETY: the offset is within the data area and, as a multiple of 16, leaves room for a header. Other
            // threads access its fields only as atomics.
            let header =
                unsafe { &*self.base.as_ptr().add(DATA_OFFSET + offset).cast::<RecordHeader>() };
            // Pairs with the release store of the writer: the bytes of the record are visible after it.
            if header.commit.load(Acquire) != self.key.wrapping_add(self.tail) {
                return Ok(None);
            }
            let (bytes, kind) = (u64::from(header.bytes.load(Relaxed)), header.kind.load(Relaxed));
            let room = self.data_bytes - offset as u64;
            if bytes < ALIGNMENT || !bytes.is_multiple_of(ALIGNMENT) || bytes > room {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let content = bytes as usize - size_of::<RecordHeader>();
            buffer.clear();
            if kind != Kind::Padding as u32 {
                buffer.reserve(content);
                // SAFETY: source is within the mapping by the check above, the destination has the capacity. A
                // process that writes at the same time only changes the bytes that are copied.
                unsafe {
                    let source =
                        self.base.as_ptr().add(DATA_OFFSET + offset + size_of::<RecordHeader>());
                    source.copy_to_nonoverlapping(buffer.as_mut_ptr(), content);
                    buffer.set_len(content);
                }
            }
            self.tail += bytes;
            // Release: the copy above is complete before a writer sees the room. SeqCst, with the load of `waiters`
            // in `wake`, orders this store before that load: a writer either sees the room or is seen waiting.
            self.header().tail.0.store(self.tail, std::sync::atomic::Ordering::SeqCst);
            if kind != Kind::Padding as u32 {
                return Ok(Some(kind));
            }
        }
    }

    /// Wakes the threads that wait for room. Call it after each batch of records.
    pub fn wake(&self) {
        let header = self.header();
        if header.waiters.load(std::sync::atomic::Ordering::SeqCst) != 0 {
            header.room.fetch_add(1, Release);
            // An error can only mean that the memory is gone, which the mapping excludes.
            let _ = futex::wake(&header.room, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Returns true if a record is reserved but not yet read: complete or being written.
    pub fn is_pending(&self) -> bool {
        self.header().head.0.load(Acquire) != self.tail
    }

    /// Sets the mean distance of heap samples in bytes.
    pub fn set_heap_period(&self, bytes: u64) {
        self.header().heap_period.0.store(bytes, Relaxed);
    }

    /// Returns the mean distance of heap samples in bytes.
    pub fn heap_period(&self) -> u64 {
        self.header().heap_period.0.load(Relaxed)
    }

    /// Returns the records that found no room.
    pub fn losses(&self) -> Losses {
        let header = self.header();
        Losses {
            allocations: header.lost_allocations.0.load(Relaxed),
            weight: header.lost_weight.load(Relaxed),
            frees: header.lost_frees.load(Relaxed),
            others: header.lost_others.load(Relaxed),
        }
    }

    fn header(&self) -> &RingHeader {
        // SAFETY: the mapping begins with a header and lives as long as `self`; all fields are atomics.
        unsafe { self.base.cast::<RingHeader>().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps the range of `map`, to which no reference is left.
        let _ =
            unsafe { munmap(self.base.as_ptr().cast(), self.data_bytes as usize + DATA_OFFSET) };
    }
}
