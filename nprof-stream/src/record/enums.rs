//! The values that have a word in text and a number in binary.

/// An enumeration whose values have a word in text and a number in binary, and which keeps
/// numbers a later minor version added (`?N` in text).
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
            /// A value added by a later minor version, kept as its number.
            Other(u8),
        }

        impl $name {
            /// Every value this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number in the binary spelling.
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Other(number) => number,
                }
            }

            /// The value of a number; never fails.
            pub fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// The word in the text spelling; `None` for [`Self::Other`], which is spelled `?N`.
            pub fn word(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($word),)*
                    Self::Other(_) => None,
                }
            }

            /// The value of a word or of `?N`.
            pub fn from_word(word: &[u8]) -> Option<Self> {
                $(if word == $word.as_bytes() {
                    return Some(Self::$variant);
                })*
                // An earlier version may have spelled so what this one has a word for.
                let number = crate::record::number::decimal(word.strip_prefix(b"?")?)?;
                u8::try_from(number).ok().map(Self::from_number)
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
    /// What an image is.
    ImageKind {
        /// An ELF file.
        Elf = 0 "elf",
        /// The kernel; offsets count from its `_stext`.
        Kernel = 1 "kernel",
        /// A kernel module; offsets count from its base address.
        Module = 2 "module",
        /// The kernel's shared object in every process; offsets are file offsets in it.
        Vdso = 3 "vdso",
        /// Executable memory with no file behind it; offsets are the process's addresses.
        Anonymous = 4 "anon",
        /// One function of code generated at run time; offsets count from its start.
        Jit = 5 "jit",
    }
}

words! {
    /// Why a stack is incomplete. A frame with a mark stands at the root of such a stack, in
    /// place of the callers that are missing.
    Mark {
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
    }
}

words! {
    /// What happened to a task.
    ChangeKind {
        /// It took the name in `value`.
        Comm = 0 "comm",
        /// It executed another image and took the name in `value`.
        Exec = 1 "exec",
        /// It ended; `value` is its exit status or `signal N`, empty when unknown.
        Exit = 2 "exit",
    }
}

words! {
    /// Why observations are missing.
    Cause {
        /// The kernel's ring was full: the recorder was too slow.
        Ring = 0 "ring",
        /// The kernel throttled the event; how many samples that cost is not known.
        Throttle = 1 "throttle",
        /// The recorder dropped it for want of memory or because it could not be read.
        Recorder = 2 "recorder",
        /// A stage found the stream damaged there.
        Damage = 3 "damage",
    }
}

words! {
    /// How the naming of a frame went.
    Status {
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
        /// The file was found but cannot be read as what it should be.
        Unreadable = 5 "unreadable",
        /// The kernel does not tell its symbols (kptr_restrict).
        Restricted = 6 "restricted",
        /// There is no image: anonymous memory, or an address in no mapping.
        Anonymous = 7 "anonymous",
    }
}
