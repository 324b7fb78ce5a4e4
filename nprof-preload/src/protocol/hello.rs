//! The first and only message of a process to the recorder. Pure.

use super::layout::{MAGIC, VERSION};

/// The executable defines `malloc` itself: its calls do not reach the library.
pub const FLAG_PROGRAM_ALLOCATOR: u32 = 1;

/// The message of a process that starts to record; the memfd of its ring comes with it.
///
/// The process id in the recorder's namespace is that of `SO_PEERCRED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The id of the ring: random, never 0.
    pub id: u64,
    /// The id of the ring of the process that this one was forked from; 0 if this image was executed. A second
    /// image of the same process ends the first.
    pub parent_id: u64,
    /// The time, CLOCK_MONOTONIC, at which the image loaded the library; in a forked child, that of the fork: the
    /// child has the blocks that its parent had then. If the program does not call fork(3) through the C library,
    /// the time of the child's first record.
    pub started_at_ns: u64,
    /// The process id in the process's own namespace, as in its records.
    pub pid: u32,
    /// [`FLAG_PROGRAM_ALLOCATOR`].
    pub flags: u32,
    /// [`super::Settings::secret`].
    pub secret: u64,
}

impl Hello {
    /// The size of the message in bytes.
    pub const BYTES: usize = 56;

    /// Returns the message in bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [
            MAGIC,
            u64::from(VERSION),
            self.id,
            self.parent_id,
            self.started_at_ns,
            u64::from(self.pid) | u64::from(self.flags) << 32,
            self.secret,
        ];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads a message; None if it has another length, magic or version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_ne_bytes(word)
        };
        let valid = word(0) == MAGIC && word(1) == u64::from(VERSION) && word(2) != 0;
        valid.then(|| Hello {
            id: word(2),
            parent_id: word(3),
            started_at_ns: word(4),
            pid: word(5) as u32,
            flags: (word(5) >> 32) as u32,
            secret: word(6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        id: 7,
        parent_id: 9,
        started_at_ns: 1 << 40,
        pid: 123,
        flags: FLAG_PROGRAM_ALLOCATOR,
        secret: 5,
    };

    #[test]
    fn parse_returns_encoded_hello() {
        assert_eq!(Hello::parse(&HELLO.to_bytes()), Some(HELLO));
    }

    #[test]
    fn rejects_other_magic_version_and_length() {
        for index in [0, 8] {
            let mut bytes = HELLO.to_bytes();
            bytes[index] ^= 1;
            assert_eq!(Hello::parse(&bytes), None);
        }
        assert_eq!(Hello::parse(&HELLO.to_bytes()[1..]), None);
    }
}
