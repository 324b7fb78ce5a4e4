//! Reads of the memory of other processes.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads the memory of another process from `address`, as far as it is present and `bytes` reaches.
/// Returns the number of bytes read; 0 if the process may not be read.
///
/// Pages that are mapped but not present are not read. The kernel would handle the page fault on
/// our behalf, and a handler in user space (userfaultfd(2)) could block us forever, even for
/// signals. A page removed between the check and the read can still do that: this protects against
/// programs that handle their own faults, not against one that races with us.
pub(crate) fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    PresentPages::open(pid).read_memory(pid, address, bytes)
}

/// The bytes of the first part of a stack that is read. The kernel looks at the entry of each page.
const STACK_PART_BYTES: usize = 64 << 10;

/// The list of the present pages of a process: opened once for the stacks of all its threads.
#[derive(Debug, Default)]
pub(crate) struct PresentPages(Option<File>);

impl PresentPages {
    /// Opens the list of the process of a thread; empty if it may not be read.
    pub(crate) fn open(tid: u32) -> Self {
        Self(File::open(format!("/proc/{tid}/pagemap")).ok())
    }

    /// Reads memory as [`read_memory`], by a thread of the process.
    pub(crate) fn read_memory(&self, tid: u32, address: u64, bytes: &mut [u8]) -> usize {
        let length = self.0.as_ref().and_then(|list| present(list, address, bytes.len()));
        read_absent_memory(tid, address, &mut bytes[..length.unwrap_or(0)])
    }

    /// Reads memory at several addresses by a thread of the process, at most `limit` bytes of each, in one
    /// call. Returns the bytes, one part after the other, and the lengths of the parts; 0 of those after one
    /// that cannot be read.
    pub(crate) fn read_each(
        &self,
        tid: u32,
        addresses: &[u64],
        limit: usize,
    ) -> (Vec<u8>, Vec<usize>) {
        let length = |&address: &u64| present(self.0.as_ref()?, address, limit);
        let mut lengths: Vec<usize> = addresses.iter().map(|it| length(it).unwrap_or(0)).collect();
        let parts: Vec<_> = addresses.iter().copied().zip(lengths.iter().copied()).collect();
        let mut bytes = with_present_pages(lengths.iter().sum());
        let (iov_base, iov_len) = (bytes.as_mut_ptr().cast(), bytes.capacity());
        // SAFETY: the memory is that of `bytes`, to which nothing else refers.
        let read = unsafe { read_parts(tid, &parts, libc::iovec { iov_base, iov_len }) };
        // SAFETY: the kernel has written this many bytes, at most the capacity.
        unsafe { bytes.set_len(read.min(iov_len)) };
        let mut left = bytes.len();
        for length in &mut lengths {
            *length = if left < *length { 0 } else { *length };
            left -= *length;
        }
        (bytes, lengths)
    }

    /// Reads the present pages of a range by a thread of the process. Returns the bytes, one part after the other,
    /// and the parts: addresses with lengths.
    pub(crate) fn read_present(
        &self,
        tid: u32,
        address: u64,
        length: usize,
    ) -> (Vec<u8>, Vec<(u64, usize)>) {
        let end = address.saturating_add(length as u64);
        let pages = self.0.as_ref().and_then(|list| presence(list, address, length));
        let pages = pages.unwrap_or_default();
        let page = super::page_size() as u64;
        let (mut parts, mut at): (Vec<(u64, usize)>, u64) = (Vec::new(), address);
        for run in pages.chunk_by(|one, other| one == other) {
            let next = (at / page + run.len() as u64).saturating_mul(page).min(end);
            if run[0] {
                parts.push((at, (next - at) as usize));
            }
            at = next;
        }
        let mut bytes = vec![0; parts.iter().map(|&(_, length)| length).sum()];
        let (iov_base, iov_len) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the memory is that of `bytes`, to which nothing else refers.
        bytes.truncate(unsafe { read_parts(tid, &parts, libc::iovec { iov_base, iov_len }) });
        let mut left = bytes.len();
        parts.retain(|&(_, length)| {
            let is_read = length <= left;
            left = left.saturating_sub(length);
            is_read
        });
        (bytes, parts)
    }

    /// Reads at most `limit` bytes into `bytes`, which is reused, in parts: most stacks end in the first one.
    pub(crate) fn read_stack<'a>(
        &self,
        tid: u32,
        address: u64,
        limit: usize,
        bytes: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let mut length = 0;
        while length < limit {
            let end = (2 * length).max(STACK_PART_BYTES).min(limit);
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            let Some(start) = address.checked_add(length as u64) else { break };
            length += self.read_memory(tid, start, &mut bytes[length..end]);
            // The next page is absent, or belongs to no mapping.
            if length < end {
                break;
            }
        }
        &bytes[..length]
    }
}

/// Reads the memory of another process from `address`, as far as it is mapped and `bytes` reaches.
/// Returns the number of bytes read; 0 if the process may not be read. Makes absent pages present,
/// and may block forever, see [`read_memory`].
pub(crate) fn read_absent_memory(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    let (iov_base, iov_len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: the memory is that of `bytes`, to which nothing else refers.
    unsafe { read_parts(pid, &[(address, iov_len)], libc::iovec { iov_base, iov_len }) }
}

/// Returns a vector with room for `length` bytes, which are to be written next.
fn with_present_pages(length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(length);
    let page = super::page_size();
    let first = bytes.as_mut_ptr().align_offset(page);
    let whole = bytes.capacity().saturating_sub(first) / page * page;
    if whole > 0 {
        // One call for all pages: a page fault for each takes eight times as long in a virtual machine, 2 us.
        // Before Linux 5.14 it fails, and they are present with the first write.
        //
        // SAFETY: the range lies in the memory of `bytes`, to which nothing else refers, and the call does
        // not change its contents.
        unsafe {
            libc::madvise(bytes.as_mut_ptr().add(first).cast(), whole, libc::MADV_POPULATE_WRITE)
        };
    }
    bytes
}

/// Reads parts of the memory of another process, addresses with lengths, one after the other to `local`.
/// Returns the number of bytes written there: the kernel ends at a part that it cannot read.
///
/// # Safety
///
/// `local` must be valid for writes of its length.
unsafe fn read_parts(pid: u32, parts: &[(u64, usize)], local: libc::iovec) -> usize {
    let to_iovec = |&(address, iov_len): &(u64, usize)| {
        let iov_base = std::ptr::without_provenance_mut(usize::try_from(address).ok()?);
        Some(libc::iovec { iov_base, iov_len })
    };
    let remote: Option<Vec<libc::iovec>> = parts.iter().map(to_iovec).collect();
    let (Ok(pid), Some(remote)) = (i32::try_from(pid), remote) else { return 0 };
    if local.iov_len == 0 {
        return 0;
    }
    let (base, count) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the caller guarantees `local`, to which the kernel writes at most its length; the `count`
    // remote addresses are only used in the other process, where the kernel checks them.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, base, count, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// Returns how many of the `length` bytes from `address` are in memory, up to the first absent page. None if it
/// cannot be read.
fn present(list: &File, address: u64, length: usize) -> Option<usize> {
    let page = super::page_size() as u64;
    let pages = presence(list, address, length)?;
    let count = pages.iter().take_while(|&&is_present| is_present).count() as u64;
    let bytes = (count * page).saturating_sub(address % page);
    Some(usize::try_from(bytes).ok()?.min(length))
}

/// Returns whether each page of the `length` bytes from `address` is in memory, by /proc/PID/pagemap
/// (Documentation/admin-guide/mm/pagemap.rst). None if it cannot be read.
fn presence(list: &File, address: u64, length: usize) -> Option<Vec<bool>> {
    const PRESENT: u64 = 1 << 63;
    const ENTRY: usize = size_of::<u64>();
    let page = super::page_size() as u64;
    let last = address.checked_add((length as u64).checked_sub(1)?)?;
    let pages = usize::try_from(last / page - address / page + 1).ok()?;
    let mut entries = vec![0; pages.checked_mul(ENTRY)?];
    let read = list.read_at(&mut entries, address / page * ENTRY as u64).ok()?;
    let is_present = |entry: &[u8; ENTRY]| u64::from_ne_bytes(*entry) & PRESENT != 0;
    Some(entries[..read].as_chunks().0.iter().map(is_present).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_present_pages() {
        const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (page, rights) = (crate::sys::page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses does not affect memory in
        // use.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4 * page, rights, FLAGS, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let own = std::process::id();
        let address = memory.expose_provenance() as u64;
        let mut bytes = vec![9; 4 * page];
        // SAFETY: address and length are those of the new mapping, which nothing else uses.
        unsafe { libc::madvise(memory, 4 * page, libc::MADV_NOHUGEPAGE) };
        assert_eq!(read_memory(own, address, &mut bytes), 0);
        // SAFETY: the three addresses are inside the writable mapping of four pages.
        unsafe {
            memory.cast::<u8>().write(1);
            memory.cast::<u8>().add(page).write(2);
            memory.cast::<u8>().add(3 * page).write(3);
        }
        assert_eq!(read_memory(own, address, &mut bytes), 2 * page);
        assert_eq!((bytes[0], bytes[1], bytes[page], bytes[2 * page]), (1, 0, 2, 9));
        assert_eq!(read_memory(own, address + 5, &mut bytes), 2 * page - 5);
        assert_eq!(read_memory(own, address + 5, &mut bytes[..7]), 7);
        assert_eq!(read_memory(own, address, &mut []), 0);
        assert_eq!(read_memory(own, address + 2 * page as u64, &mut bytes), 0);
        assert_eq!(read_memory(own, u64::MAX - 3, &mut bytes), 0);
        let (pages, mut read) = (PresentPages::open(own), Vec::new());
        assert_eq!(pages.read_stack(own, address + 5, 1 << 20, &mut read).len(), 2 * page - 5);
        assert_eq!(pages.read_stack(own, address, 7, &mut read), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pages.read_stack(own, u64::MAX - 3, 1 << 20, &mut read), []);
        let (second, absent) = (address + page as u64, address + 2 * page as u64);
        let (read, lengths) = pages.read_each(own, &[address + 5, absent, second], 1 << 20);
        assert_eq!(lengths, [2 * page - 5, 0, page]);
        assert_eq!((read[0], read[page - 5], read[2 * page - 5]), (0, 2, 2));
        let first_bytes = pages.read_each(own, &[second, address], 2);
        assert_eq!(first_bytes, (vec![2, 0, 1, 0], vec![2, 2]));
        let of_no_process = pages.read_each(u32::MAX >> 1, &[address], 7);
        assert_eq!(of_no_process, (Vec::new(), vec![0]));
        assert_eq!(PresentPages::default().read_each(own, &[address], 7).1, [0]);
        let fourth = address + 3 * page as u64;
        let (read, parts) = pages.read_present(own, address + 5, 4 * page - 6);
        assert_eq!(parts, [(address + 5, 2 * page - 5), (fourth, page - 1)]);
        assert_eq!((read.len(), read[page - 5], read[2 * page - 5]), (3 * page - 6, 2, 3));
        assert_eq!(pages.read_present(own, absent, page), (Vec::new(), Vec::new()));
        assert_eq!(pages.read_present(own, u64::MAX - 3, 9), (Vec::new(), Vec::new()));
        // One that is not in memory any more ends the read.
        let parts = [(address, 3), (0, 3), (second, 3)];
        let mut some = [9_u8; 9];
        let local = libc::iovec { iov_base: some.as_mut_ptr().cast(), iov_len: some.len() };
        // SAFETY: the memory is that of `some`.
        assert_eq!(unsafe { read_parts(own, &parts, local) }, 3);
        assert_eq!(some, [1, 0, 0, 9, 9, 9, 9, 9, 9]);
        // SAFETY: address and length are those of the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(memory, 4 * page) };
    }
}
