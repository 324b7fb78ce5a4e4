//! Addresses in the kernel: which of its parts they lie in, from the text of /proc/kallsyms and
//! /proc/modules. Where the kernel keeps its addresses to itself, they stay what they are.

use std::fs;
use std::io::{BufRead, BufReader};

use nprof_format::ImageKind;

/// The kernel itself or a module of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) kind: ImageKind,
    /// `[kernel]` or `[name]`.
    pub(crate) name: Vec<u8>,
    /// Empty when it could not be read.
    pub(crate) build_id: Vec<u8>,
    /// The address its offsets count from; 0 when the kernel does not tell.
    pub(crate) base: u64,
    /// Bytes, for a module.
    size: u64,
}

/// The parts of the running kernel; the first is the kernel itself.
#[derive(Debug)]
pub(crate) struct Kernel {
    parts: Vec<Part>,
}

impl Kernel {
    /// Asks the running kernel. What cannot be read stays unknown.
    pub(crate) fn running() -> Self {
        let base =
            fs::File::open("/proc/kallsyms").ok().and_then(|file| stext(BufReader::new(file)));
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let mut kernel = Self::new(base.unwrap_or(0), &notes, &modules);
        for part in kernel.parts.iter_mut().skip(1) {
            let name = String::from_utf8_lossy(&part.name[1..part.name.len() - 1]).into_owned();
            let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id"));
            part.build_id = build_id(&notes.unwrap_or_default());
        }
        kernel
    }

    /// Puts together what was read: the address of `_stext`, the kernel's notes, and the text of
    /// /proc/modules.
    fn new(base: u64, notes: &[u8], modules: &str) -> Self {
        let kernel = Part {
            kind: ImageKind::Kernel,
            name: b"[kernel]".to_vec(),
            build_id: build_id(notes),
            base,
            size: u64::MAX,
        };
        let mut parts = vec![kernel];
        parts.extend(modules.lines().filter_map(module));
        Self { parts }
    }

    /// The part an address lies in, as its number, and the offset in it. What is in no module is
    /// the kernel's.
    pub(crate) fn find(&self, address: u64) -> (usize, u64) {
        let offset = |part: &Part| address.checked_sub(part.base).filter(|&at| at < part.size);
        let module = self.parts.iter().enumerate().skip(1);
        let found = module.filter_map(|(number, part)| Some((number, offset(part)?))).next();
        found.unwrap_or_else(|| (0, address.wrapping_sub(self.parts[0].base)))
    }

    /// A part, by its number.
    pub(crate) fn part(&self, number: usize) -> &Part {
        &self.parts[number]
    }
}

/// The address of `_stext` in the text of /proc/kallsyms; `None` when it is hidden.
fn stext(symbols: impl BufRead) -> Option<u64> {
    for line in symbols.split(b'\n') {
        let line = line.ok()?;
        let mut fields = line.split(|&byte| byte == b' ');
        let (address, _kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        if name == b"_stext" {
            let address = std::str::from_utf8(address).ok()?;
            return u64::from_str_radix(address, 16).ok().filter(|&address| address != 0);
        }
    }
    None
}

/// A module, from its line in /proc/modules: name, size, users, by whom, state, address.
fn module(line: &str) -> Option<Part> {
    let mut fields = line.split(' ');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let size = fields.next()?.parse().ok()?;
    let address = fields.nth(3)?.strip_prefix("0x")?;
    let base = u64::from_str_radix(address, 16).ok().filter(|&base| base != 0)?;
    let name = format!("[{name}]").into_bytes();
    Some(Part { kind: ImageKind::Module, name, build_id: Vec::new(), base, size })
}

/// The GNU build ID in ELF notes: name size, description size, type, then both padded to words.
fn build_id(mut notes: &[u8]) -> Vec<u8> {
    const GNU_BUILD_ID: u32 = 3;
    let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u32::from_le_bytes(*word));
    loop {
        let (Some(header), Some(kind)) = (notes.get(..12), notes.get(8..).and_then(word)) else {
            return Vec::new();
        };
        let sizes = [word(header), word(&header[4..])];
        let [name_size, size] = sizes.map(|size| size.unwrap_or(0) as usize);
        let at = 12usize.saturating_add(name_size.next_multiple_of(4));
        let Some(description) = notes.get(at..at.saturating_add(size)) else { return Vec::new() };
        if kind == GNU_BUILD_ID && notes[12..].starts_with(b"GNU\0") {
            return description.to_vec();
        }
        notes = notes.get(at.saturating_add(size.next_multiple_of(4))..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &[u8] = b"\x06\0\0\0\x01\0\0\0\0\x01\0\0Linux\0\0\0\0\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xab\xcd\xef\0";
    const MODULES: &str = "virtio 4096 2 net,blk, Live 0xffffffffc0001000\n\
                           hidden 4096 0 - Live 0x0000000000000000\n\
                           broken\n";

    #[test]
    fn addresses_lie_in_a_module_or_the_kernel() {
        let kernel = Kernel::new(0xffff_ffff_8100_0000, NOTES, MODULES);
        assert_eq!(kernel.find(0xffff_ffff_c000_1010), (1, 0x10));
        assert_eq!(kernel.find(0xffff_ffff_c000_2000), (0, 0x3f00_2000));
        assert_eq!(kernel.find(0xffff_ffff_8100_0123), (0, 0x123));
        assert_eq!(kernel.part(1).name, b"[virtio]");
        assert_eq!(kernel.part(0).build_id, [0xab, 0xcd, 0xef]);
        assert_eq!(kernel.parts.len(), 2);
    }

    #[test]
    fn hidden_addresses_stay_what_they_are() {
        let kernel = Kernel::new(0, &[], "");
        assert_eq!(kernel.find(0xffff_ffff_8100_0123), (0, 0xffff_ffff_8100_0123));
        assert_eq!(stext(&b"0000000000000000 T _stext\n"[..]), None);
        assert_eq!(stext(&b"ffffffff81000000 T _stext\nx"[..]), Some(0xffff_ffff_8100_0000));
    }

    #[test]
    fn wild_notes_have_no_build_id() {
        for length in 0..NOTES.len() - 1 {
            assert!(build_id(&NOTES[..length]).is_empty());
        }
        assert!(build_id(&[0xff; 40]).is_empty());
        assert!(build_id(&[0; 40]).is_empty());
    }
}
