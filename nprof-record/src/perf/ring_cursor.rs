//! The unread records of a ring, in their order, and the stack chunks that stay in front of their sample.

use crate::perf::record::{self, Header};
use crate::sys::Ring;

/// Bytes at the start of a record that are loaded ahead.
const PREFETCHED_BYTES: u64 = 1536;

/// Returns the bytes of a ring from an offset on, in two parts.
#[inline]
fn split_at<'a>(
    (first, second): (&'a [u8], &'a [u8]),
    offset: usize,
) -> Option<(&'a [u8], &'a [u8])> {
    match offset.checked_sub(first.len()) {
        Some(offset) => Some((second.get(offset..)?, &[])),
        None => Some((&first[offset..], second)),
    }
}

/// Joins the two parts of a record of `size` bytes. None for a size that leads past the head, which
/// only a damaged record has.
#[cold]
fn joined<'a>(
    wrapped: &'a mut Vec<u8>,
    first: &[u8],
    second: &[u8],
    size: usize,
) -> Option<&'a [u8]> {
    let rest = second.get(..size.checked_sub(first.len())?)?;
    wrapped.clear();
    wrapped.extend_from_slice(first);
    wrapped.extend_from_slice(rest);
    Some(wrapped)
}

/// The unread records of a ring.
#[derive(Debug)]
pub(super) struct RingCursor {
    pub(super) ring: Ring,
    /// The end of the records that this drain reads.
    pub(super) head: u64,
    /// Reassembles a record that wraps around the end of the ring.
    wrapped: Vec<u8>,
    /// Bytes of the stack chunks in front of all other records that stay until their sample is removed,
    /// in one piece.
    pub(super) kept: usize,
    /// The place of the oldest record, in bytes after these: it may be the second one.
    oldest: usize,
    /// The position of a record that was taken before the one in front of it.
    taken: Option<u64>,
}

impl RingCursor {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, head: 0, wrapped: Vec::new(), kept: 0, oldest: 0, taken: None }
    }

    /// Returns the oldest record. None if this drain has read all, or the record is damaged.
    #[inline]
    pub(super) fn oldest(&mut self) -> Option<(Header, &[u8])> {
        self.record_at(self.kept + self.oldest)
    }

    /// Returns the oldest record, and the chunks that were kept in front of it.
    #[inline]
    pub(super) fn oldest_with_chunks(&mut self) -> Option<(Header, &[u8], &[u8])> {
        let Self { ring, wrapped, head, kept, oldest, .. } = self;
        let (front, _) = ring.bytes(*head);
        let (header, bytes) = record_in(ring, *head, *kept + *oldest, wrapped)?;
        Some((header, bytes, front.get(..*kept)?))
    }

    #[inline]
    pub(super) fn record_at(&mut self, offset: usize) -> Option<(Header, &[u8])> {
        record_in(&self.ring, self.head, offset, &mut self.wrapped)
    }

    /// Returns the number of bytes in front that do not wrap around the end of the ring.
    pub(super) fn in_one_piece(&self) -> usize {
        self.ring.bytes(self.head).0.len()
    }

    /// Keeps the next `size` bytes, a chunk, and starts to load the record after it, which may be a
    /// sample of `sample_size` bytes.
    pub(super) fn keep_chunk(&mut self, size: usize, sample_size: usize) {
        self.kept += size;
        self.prefetch(self.ring.tail() + self.kept as u64, sample_size as u64);
    }

    /// Returns the kept chunks.
    pub(super) fn kept_chunks(&self) -> &[u8] {
        let (front, _) = self.ring.bytes(self.head);
        front.get(..self.kept).unwrap_or_default()
    }

    /// Removes the kept chunks.
    pub(super) fn remove_chunks(&mut self) {
        self.ring.advance(std::mem::take(&mut self.kept));
    }

    /// Finds the oldest record. An interrupt may write one between the time stamp of a record by
    /// `late_writer` and its place in the ring: it then lies in front of an older one.
    pub(super) fn find_oldest(&mut self, late_writer: Option<u64>) {
        self.oldest = 0;
        if late_writer.is_none() {
            return;
        }
        let Some((header, bytes)) = self.record_at(0) else { return };
        let (size, time) = (header.size, record::time(header, bytes));
        if self.taken == Some(self.ring.tail() + size as u64) {
            return;
        }
        let Some((header, bytes)) = self.record_at(size) else { return };
        let is_late = header.is_sample() && record::event_id(header, bytes) == late_writer;
        if is_late && record::time(header, bytes) < time {
            self.oldest = size;
        }
    }

    /// Removes the oldest record, which has this size, and the chunks in front of it.
    pub(super) fn remove_oldest(&mut self, size: usize) {
        if self.kept > 0 {
            self.remove_chunks();
        }
        match std::mem::take(&mut self.oldest) {
            0 => self.ring.advance(size),
            // The ring is read in order: it stays until the one in front of it is removed.
            offset => self.taken = Some(self.ring.tail() + offset as u64),
        }
    }

    /// Removes the record in front if it was taken before.
    pub(super) fn remove_taken(&mut self) {
        if self.taken == Some(self.ring.tail()) {
            self.taken = None;
            let size = self.record_at(0).map_or(0, |(header, _)| header.size);
            self.ring.advance(size);
        }
    }

    /// Starts to load the record in front, which may have `size` bytes: up to the part of the stack that
    /// most walks need, and its end, where the length of the copy is stated.
    #[inline]
    pub(super) fn prefetch_front(&self, size: usize) {
        self.prefetch(self.ring.tail(), size as u64);
    }

    /// Starts to load the header of the stack chunk in front. Its length is not known yet.
    #[inline]
    pub(super) fn prefetch_chunk(&self) {
        self.ring.prefetch(self.ring.tail(), record::CHUNK_OFFSET as u64, self.head);
    }

    #[inline]
    fn prefetch(&self, position: u64, size: u64) {
        self.ring.prefetch(position, size.min(PREFETCHED_BYTES), self.head);
        if size > PREFETCHED_BYTES {
            self.ring.prefetch(position + size - 8, 8, self.head);
        }
    }

    /// Returns the bytes that this drain has not read yet.
    pub(super) fn remaining_bytes(&self) -> u64 {
        self.head.saturating_sub(self.ring.tail() + self.kept as u64)
    }
}

/// Returns the record at an offset from the front of a ring.
#[inline]
fn record_in<'a>(
    ring: &'a Ring,
    head: u64,
    offset: usize,
    wrapped: &'a mut Vec<u8>,
) -> Option<(Header, &'a [u8])> {
    let (first, second) = split_at(ring.bytes(head), offset)?;
    let header = Header::read(first)?;
    // Nearly all records lie in one piece and are decoded in place.
    match first.get(..header.size) {
        Some(bytes) => Some((header, bytes)),
        None => Some((header, joined(wrapped, first, second, header.size)?)),
    }
}
