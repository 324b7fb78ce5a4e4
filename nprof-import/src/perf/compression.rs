//! Compressed records: one zstd stream over the bodies of all of them. Pure.

use ruzstd::decoding::FrameDecoder;

/// The largest window: perf uses at most 8 MiB.
const MAX_WINDOW: u64 = 64 << 20;

/// The most bytes of one record: perf compresses the ring of a CPU, of 512 KiB by default, into several.
const MAX_OUTPUT: usize = 64 << 20;

/// The decoder takes all blocks that it is given before it returns bytes. A damaged record of 64 KiB can
/// have blocks of 4 bytes that expand to 2 GiB.
const PIECE: usize = 256;

/// Decompresses the stream as far as it was read.
pub(super) struct Decompressor {
    decoder: FrameDecoder,
    /// Bytes of a block that is not complete.
    input: Vec<u8>,
    /// Decompressed bytes that are not a complete record.
    output: Vec<u8>,
}

impl Decompressor {
    /// Creates one at the beginning of the stream.
    pub(super) fn new() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { decoder, input: Vec::new(), output: Vec::new() }
    }

    /// Adds compressed bytes. None if they are damaged.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        self.input.extend_from_slice(bytes);
        let mut target = vec![0; 1 << 16];
        let mut length = PIECE;
        loop {
            let source = &self.input[..length.min(self.input.len())];
            let (read, written) = self.decoder.decode_from_to(source, &mut target).ok()?;
            let read = read.min(source.len());
            self.input.drain(..read);
            self.output.extend_from_slice(&target[..written]);
            if self.output.len() > MAX_OUTPUT {
                return None;
            }
            if read > 0 || written > 0 {
                length = PIECE;
            } else if length < self.input.len() {
                // The block is longer.
                length += PIECE;
            } else {
                return Some(());
            }
        }
    }

    /// Ends the stream: perf does not. The decoder keeps the last window until then.
    pub(super) fn finish(&mut self) -> Option<()> {
        // An empty raw block with the bit of the last one (RFC 8878, section 3.1.1.2).
        self.add(&[1, 0, 0])
    }

    /// Returns the next complete record: type, `misc`, body.
    pub(super) fn next_record(&mut self, at: &mut usize) -> Option<(u32, u16, &[u8])> {
        let rest = self.output.get(*at..)?;
        let header = rest.get(..8)?;
        let kind = u32::from_le_bytes(header[..4].try_into().ok()?);
        let misc = u16::from_le_bytes(header[4..6].try_into().ok()?);
        let size = usize::from(u16::from_le_bytes(header[6..8].try_into().ok()?));
        let body = rest.get(8..size.max(8))?;
        // A size below that of the header would repeat the record for ever.
        *at += size.max(8);
        Some((kind, misc, body))
    }

    /// Drops the records before a position.
    pub(super) fn drop_before(&mut self, at: usize) {
        self.output.drain(..at.min(self.output.len()));
    }
}
