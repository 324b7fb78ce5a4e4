//! Enumerations: a word in text, a number in binary.

/// An enumeration as a field of a record.
pub(crate) trait Enumeration: Copy + From<u8> + std::fmt::Display {
    /// The noun that an error message expects in its place.
    const EXPECTED: &'static str;

    /// Returns the number in the binary encoding.
    fn number(self) -> u8;

    /// Returns the value of a word or of `?N`. None if it is neither.
    fn from_word(word: &[u8]) -> Option<Self>;
}

/// Defines an enumeration with a word in text and a number in binary for each value. It keeps
/// the numbers of values that a later minor version added (`?N` in text).
macro_rules! words {
    ($(#[$doc:meta])* $name:ident $expected:literal { $($(#[$vdoc:meta])* $variant:ident = $number:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
            /// A value that a later minor version added, kept as its number.
            Other(u8),
        }

        impl $name {
            /// The values that this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the number in the binary encoding.
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// Returns the value of a number; never fails.
            pub fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// Returns the word in text. None for [`Self::Other`], which is written as `?N`.
            pub fn word(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($word),)*
                    Self::Other(_) => None,
                }
            }

            /// Returns the value of a word or of `?N`. None if it is neither.
            pub fn from_word(word: &[u8]) -> Option<Self> {
                $(if word == $word.as_bytes() {
                    return Some(Self::$variant);
                })*
                // An earlier version writes `?N` for a value that this version has a word for.
                let number = crate::record::number::decimal(word.strip_prefix(b"?")?)?;
                u8::try_from(number).ok().map(Self::from_number)
            }
        }

        impl From<u8> for $name {
            fn from(number: u8) -> Self {
                Self::from_number(number)
            }
        }

        impl Enumeration for $name {
            const EXPECTED: &'static str = $expected;

            fn number(self) -> u8 {
                self.number()
            }

            fn from_word(word: &[u8]) -> Option<Self> {
                Self::from_word(word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.word() {
                    Some(word) => f.pad(word),
                    None => write!(f, "?{}", self.number()),
                }
            }
        }
    };
}

words! {
    /// The kind of an image.
    ImageKind "a kind of image" {
        /// An ELF file.
        Elf = 0 "elf",
        /// The kernel; offsets count from its `_stext`.
        Kernel = 1 "kernel",
        /// A kernel module; offsets count from its base address.
        Module = 2 "module",
        /// The kernel's shared object in every process; offsets are file offsets in it.
        Vdso = 3 "vdso",
        /// Executable memory without a file; offsets are addresses of the process.
        Anonymous = 4 "anon",
        /// One function of code generated at run time; offsets count from its start.
        Jit = 5 "jit",
    }
}

words! {
    /// The reason for an incomplete stack. The frame at its root has a mark, in the place of the
    /// missing callers.
    Mark "a mark" {
        /// An ordinary frame.
        None = 0 "none",
        /// The copy of the stack ended before the stack did.
        StackTruncated = 1 "stack-truncated",
        /// No unwind table covers the next address.
        NoUnwindInfo = 2 "no-unwind-info",
        /// The unwind rule led nowhere: a wrong table, or a frame that breaks the rules.
        UnwindFailed = 3 "unwind-failed",
        /// The stack has more frames than the recorder keeps (`--depth`).
        MaxDepth = 4 "max-depth",
        /// The next address is in no mapping that the recorder knows.
        Unmapped = 5 "unmapped",
        /// The stack could not be copied at all.
        NoStack = 6 "no-stack",
        /// A page of the stack was not in memory when it was copied.
        PageAbsent = 7 "page-absent",
        /// The program is a 32-bit one, of which the recorder unwinds no stacks.
        Bits32 = 8 "32-bit",
        /// The callers are on another stack, which was not copied: the program has switched stacks.
        OtherStack = 9 "other-stack",
    }
}

words! {
    /// The kind of change of a task.
    ChangeKind "a change" {
        /// It took the name in `value`.
        Comm = 0 "comm",
        /// It executed another image and took the name in `value`.
        Exec = 1 "exec",
        /// It exited; `value` is its exit status or `signal N`, empty if unknown.
        Exit = 2 "exit",
        /// The exact times of the part of its life that was recorded, in the extras; `value` is empty.
        Times = 3 "times",
    }
}

words! {
    /// The cause of lost samples.
    Cause "a cause" {
        /// The kernel's ring was full: the recorder was too slow.
        Ring = 0 "ring",
        /// The kernel throttled the event; the number of lost samples is unknown.
        Throttle = 1 "throttle",
        /// The recorder dropped it for lack of memory, or because it could not be read.
        Recorder = 2 "recorder",
        /// A reader found the stream damaged there.
        Damage = 3 "damage",
        /// The event had no counter for a part of the time, since more events than counters were
        /// recorded; their number is estimated from the rest of the time.
        Multiplex = 4 "multiplex",
    }
}

words! {
    /// The result of naming a frame.
    Status "a status" {
        /// Named.
        Named = 0 "named",
        /// The image has symbols, but none covers this place.
        NoSymbol = 1 "no-symbol",
        /// The image and its debug files hold no symbols.
        Stripped = 2 "stripped",
        /// The image was not found.
        NoImage = 3 "no-image",
        /// The file found has another build ID than the recorded one.
        Mismatch = 4 "mismatch",
        /// The file was found but is not a valid file of its kind.
        Unreadable = 5 "unreadable",
        /// The kernel hides its symbols (kptr_restrict).
        Restricted = 6 "restricted",
        /// There is no image: anonymous memory, or an address in no mapping.
        Anonymous = 7 "anonymous",
    }
}
