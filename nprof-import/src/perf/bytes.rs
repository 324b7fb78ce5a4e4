//! Little-endian fields of a slice. Pure.

/// A position in a slice. Reading beyond its end gives None.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    /// Returns the next bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Returns the bytes up to a NUL, or all.
    pub(super) fn text(self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns a string that is preceded by its length (`perf_header_string`).
    pub(super) fn header_string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        Some(Bytes(self.take(usize::try_from(length).ok()?)?).text())
    }
}
