//! Pages of stacks that are not in memory: the kernel's copy of a stack ends at the first. A page
//! that was never written, such as one of a large local array, becomes present when the recorder reads
//! it in the process, as a mapping of the kernel's page of zeros. Later copies then contain the pages
//! beyond it. The process does not see this: its first write to the page faults as before.
//!
//! A thread of its own reads the pages: a program may handle its page faults itself (userfaultfd(2)),
//! and a read that its handler never answers blocks until the recorder exits.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::sys;

/// The most pages that are read after one sample: those of the largest copy.
const PAGES_MAX: u64 = 16;

/// The most samples with pages to read. More are dropped: their threads have others.
const WAITING_MAX: usize = 256;

/// The pages that the copy of a stack lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AbsentPages {
    pid: u32,
    /// The address of the first page.
    address: u64,
    count: u64,
}

impl AbsentPages {
    /// Returns the pages from the end of a copy up to the word that a walk did not find there. None
    /// if that word is below.
    fn between(pid: u32, copied_end: u64, absent: u64, page_bytes: u64) -> Option<Self> {
        let first = copied_end / page_bytes;
        let count = (absent / page_bytes).checked_sub(first)?.saturating_add(1).min(PAGES_MAX);
        Some(Self { pid, address: first * page_bytes, count })
    }
}

/// Makes absent pages of stacks present.
#[derive(Debug, Default)]
pub(crate) struct PageReader {
    /// To the thread that reads; `None` before the first page.
    waiting: Option<SyncSender<AbsentPages>>,
}

impl PageReader {
    /// Makes the pages from the end of a copy up to a word that it lacks present, soon.
    pub(crate) fn make_present(&mut self, pid: u32, copied_end: u64, absent: u64) {
        let page_bytes = sys::page_size() as u64;
        let Some(pages) = AbsentPages::between(pid, copied_end, absent, page_bytes) else { return };
        if self.waiting.is_none() {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let name = std::thread::Builder::new().name("nprof-pages".into());
            // Without a thread later stacks stay incomplete, too.
            if name.spawn(move || read_pages(&receiver, page_bytes)).is_ok() {
                self.waiting = Some(sender);
            }
        }
        if let Some(waiting) = &self.waiting {
            let _ = waiting.try_send(pages);
        }
    }
}

/// Reads pages until the recorder ends.
fn read_pages(waiting: &Receiver<AbsentPages>, page_bytes: u64) {
    while let Ok(AbsentPages { pid, address, count }) = waiting.recv() {
        for page in 0..count {
            // The first may have been unmapped since, without the others.
            sys::read_absent_memory(pid, address.saturating_add(page * page_bytes), &mut [0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_up_to_the_missing_word_are_read() {
        let pages = |copied_end, absent| {
            let pages = AbsentPages::between(7, copied_end, absent, 4096)?;
            Some([pages.address, pages.count])
        };
        assert_eq!(pages(0x7000, 0x9ff8), Some([0x7000, 3]));
        assert_eq!(pages(0x7000, 0x7008), Some([0x7000, 1]));
        assert_eq!(pages(0x7000, 0x6ff8), None, "not beyond the copy");
        assert_eq!(pages(0x7000, u64::MAX), Some([0x7000, 16]), "a wrong rule may lead anywhere");
    }
}
