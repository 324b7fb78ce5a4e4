//! The procedure linkage table: stubs that jump to functions of other libraries. They have no
//! symbols of their own, and are named after where they lead: `memcpy@plt`. Pure over bytes.
//!
//! A stub jumps through a slot of the global offset table, and a relocation says whose address
//! the loader puts there. The stubs are read as instructions, since linkers lay them out in
//! several ways (`.plt`, `.plt.sec` with branch tracking, `.plt.got`).

use std::collections::HashMap;

use object::elf::{self, Rela64, Sym64};
use object::read::elf::{Rela, Sym};
use object::{Endianness, ReadRef};

use crate::elf::headers::{Headers, Section};
use crate::elf::symbol_table::{Binding, SymbolTableBuilder};

/// The largest section of stubs or relocations that is looked at, bytes.
const LARGEST: u64 = 256 << 20;

/// Adds the names of the stubs of an x86-64 file; of others there are none.
pub(crate) fn add_stubs<'d, R: ReadRef<'d>>(
    table: &mut SymbolTableBuilder,
    headers: &Headers,
    data: R,
) {
    if headers.machine != elf::EM_X86_64.0 || !headers.is_64 {
        return;
    }
    let mut slots = HashMap::new();
    let mut stubs = Vec::new();
    for section in headers.sections.iter().filter(|section| section.name.starts_with(b".plt")) {
        let Some(code) = bytes(section, data) else { continue };
        for (start, size, slot) in find_stubs(code, section.address, section.entry_size) {
            slots.insert(slot, Vec::new());
            stubs.push((start, size, slot));
        }
    }
    if stubs.is_empty() {
        return;
    }
    for section in headers.sections.iter().filter(|section| section.kind == elf::SHT_RELA.0) {
        // A relocation section without a symbol table has no names to give.
        let _ = name_slots(&mut slots, headers, data, section);
    }
    for (start, size, slot) in stubs {
        let Some(name) = slots.get(&slot).filter(|name| !name.is_empty()) else { continue };
        let name = [name, &b"@plt"[..]].concat();
        table.add(&name, start, size, start + size, Binding::Local);
    }
}

/// The stubs in a section: address, size, and the slot each jumps through.
fn find_stubs(code: &[u8], address: u64, entry_size: u64) -> Vec<(u64, u64, u64)> {
    // `.plt.got` has entries of 8 bytes where there is no branch tracking.
    let size = if entry_size == 8 { 8 } else { 16 };
    let mut stubs = Vec::new();
    for (i, entry) in code.chunks_exact(size).enumerate() {
        let start = address.wrapping_add((i * size) as u64);
        // `push slot(%rip); jmp *slot(%rip)` is the head of the table, not a stub.
        if entry.starts_with(&[0xff, 0x35]) {
            continue;
        }
        // `jmp *distance(%rip)`, after `endbr64` or with a `bnd` prefix or neither.
        let jump = entry.windows(6).position(|bytes| bytes[..2] == [0xff, 0x25]);
        let Some(at) = jump.filter(|&at| at <= 5) else { continue };
        let distance = entry[at + 2..at + 6].first_chunk().map_or(0, |b| i32::from_le_bytes(*b));
        let next = start.wrapping_add(at as u64 + 6);
        stubs.push((start, size as u64, next.wrapping_add_signed(distance.into())));
    }
    stubs
}

/// Finds out whose addresses the loader puts into the slots.
fn name_slots<'d, R: ReadRef<'d>>(
    slots: &mut HashMap<u64, Vec<u8>>,
    headers: &Headers,
    data: R,
    section: &Section,
) -> Option<()> {
    let symbols = headers.sections.get(section.link)?;
    let strings = bytes(headers.sections.get(symbols.link)?, data)?;
    let count = usize::try_from(symbols.size.min(LARGEST) / size_of::<Sym64<Endianness>>() as u64);
    let symbols = data.read_slice_at::<Sym64<Endianness>>(symbols.offset?, count.ok()?).ok()?;
    let count = usize::try_from(section.size.min(LARGEST) / size_of::<Rela64<Endianness>>() as u64);
    let relocations =
        data.read_slice_at::<Rela64<Endianness>>(section.offset?, count.ok()?).ok()?;
    for relocation in relocations {
        let endian = headers.endian;
        let Some(name) = slots.get_mut(&relocation.r_offset(endian)) else { continue };
        let Some(symbol) = symbols.get(relocation.r_sym(endian, false) as usize) else { continue };
        let rest = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
        *name = rest.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
    }
    Some(())
}

fn bytes<'d, R: ReadRef<'d>>(section: &Section, data: R) -> Option<&'d [u8]> {
    data.read_bytes_at(section.offset?, section.size.min(LARGEST)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_of_every_layout_are_found() {
        let head = [0xff, 0x35, 2, 0, 0, 0, 0xff, 0x25, 4, 0, 0, 0, 0x0f, 0x1f, 0x40, 0];
        let lazy = [0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let tracked =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
        let bound =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        let code = [head, lazy, tracked, bound].concat();
        let stubs = find_stubs(&code, 0x1000, 16);
        let expected = [(0x1010, 16, 0x1026), (0x1020, 16, 0x103a), (0x1030, 16, 0x104b)];
        assert_eq!(stubs, expected);
        let short = [0xff, 0x25, 0xfe, 0xff, 0xff, 0xff, 0x66, 0x90];
        assert_eq!(find_stubs(&short, 0x1000, 8), [(0x1000, 8, 0x1004)]);
    }
}
