//! The kinds of address. Each is a type of its own, since a mix-up yields wrong profiles silently.

use std::fmt;

macro_rules! addresses {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(pub u64);

            impl $name {
                /// Returns the address `bytes` further on. None if it overflows.
                #[inline]
                pub fn checked_add(self, bytes: u64) -> Option<Self> {
                    self.0.checked_add(bytes).map(Self)
                }

                /// Returns the address `bytes` further on, modulo 2^64.
                #[inline]
                pub fn wrapping_add(self, bytes: u64) -> Self {
                    Self(self.0.wrapping_add(bytes))
                }

                /// Returns the address `bytes` before, modulo 2^64.
                #[inline]
                pub fn wrapping_sub(self, bytes: u64) -> Self {
                    Self(self.0.wrapping_sub(bytes))
                }

                /// Returns the bytes from `start` to this address. None if it lies before `start`.
                #[inline]
                pub fn offset_from(self, start: Self) -> Option<u64> {
                    self.0.checked_sub(start.0)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!(stringify!($name), "({:#x})"), self.0)
                }
            }

            impl fmt::LowerHex for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::LowerHex::fmt(&self.0, f)
                }
            }
        )*
    };
}

// One macro, so that the types stay alike but do not convert into each other.
addresses! {
    /// An address in the memory of a process, or of the kernel (framehop: AVMA).
    RuntimeAddress
    /// An address as the image was linked: as its symbols, tables and DWARF state it (SVMA).
    ImageAddress
    /// An offset in the file of an image.
    FileOffset
    /// An offset in an image, as frames of the stream hold it: of a file, the file offset; of the
    /// kernel, the distance from `_stext`; of a module, of the vDSO and of generated code, the
    /// distance from its base.
    ImageOffset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_from_is_none_before_the_start() {
        assert_eq!(FileOffset(5).offset_from(FileOffset(3)), Some(2));
        assert_eq!(FileOffset(3).offset_from(FileOffset(5)), None);
    }

    #[test]
    fn addition_reports_overflow_or_wraps() {
        assert_eq!(ImageAddress(u64::MAX).checked_add(1), None);
        assert_eq!(ImageAddress(u64::MAX).wrapping_add(2), ImageAddress(1));
        assert_eq!(ImageAddress(1).wrapping_sub(2), ImageAddress(u64::MAX));
    }

    #[test]
    fn addresses_print_in_hexadecimal() {
        assert_eq!(format!("{:?}", ImageOffset(0x1f)), "ImageOffset(0x1f)");
        assert_eq!(format!("{:#x}", RuntimeAddress(0x1f)), "0x1f");
    }
}
