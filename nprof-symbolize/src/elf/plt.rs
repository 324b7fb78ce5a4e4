//! The procedure linkage table (PLT): stubs that jump to functions of other libraries. They have no
//! symbols of their own, and are named after their target: `memcpy@plt`. Pure over bytes.
//!
//! A stub jumps through a slot of the global offset table, and the relocation of the slot names the
//! function. The stubs are found by their instructions, since linkers
//! lay them out in several ways (`.plt`, `.plt.sec` with branch tracking, `.plt.got`).

use std::collections::HashMap;

use nprof_object::ImageAddress;
use object::elf::{self, Rela64, Sym64};
use object::read::elf::{Rela, Sym};
use object::{Endianness, ReadRef};

use super::headers::{Headers, Section};
use super::plt_stub::PltStub;
use super::symbol_table::{Binding, SymbolTableBuilder};
use super::{plt_aarch64, plt_x86_64};

/// The largest section of stubs or relocations that is read.
const MAX_BYTES: u64 = 256 << 20;

/// Finds the stubs in a section at an address with entries of a size.
type FindStubs = fn(&[u8], ImageAddress, u64) -> Vec<PltStub>;

/// Adds the names of the stubs of a file. A file for another architecture has none.
pub(crate) fn add_stubs<'d, R: ReadRef<'d>>(
    table: &mut SymbolTableBuilder,
    headers: &Headers,
    data: R,
) {
    let Some(find_stubs) = stub_finder(headers) else { return };
    let mut slots = HashMap::new();
    let mut stubs = Vec::new();
    for section in headers.sections.iter().filter(|section| section.name.starts_with(b".plt")) {
        let Some(code) = bytes(section, data) else { continue };
        for stub in find_stubs(code, ImageAddress(section.address), section.entry_size) {
            // Only slots of stubs are named: a file may have a million relocations.
            slots.insert(stub.slot, Vec::new());
            stubs.push(stub);
        }
    }
    // Saves reading all relocations.
    if stubs.is_empty() {
        return;
    }
    for section in headers.sections.iter().filter(|section| section.kind == elf::SHT_RELA.0) {
        // A relocation section without a symbol table names no function.
        let _ = name_slots(&mut slots, headers, data, section);
    }
    for PltStub { start, size, slot } in stubs {
        let Some(name) = slots.get(&slot).filter(|name| !name.is_empty()) else { continue };
        let name = [name, &b"@plt"[..]].concat();
        table.add(&name, start, size, start.wrapping_add(size), Binding::Local);
    }
}

/// Returns the function for a file's architecture. Each architecture has a file of its own.
fn stub_finder(headers: &Headers) -> Option<FindStubs> {
    match headers.machine {
        // x32 has this machine and 32-bit headers; its stubs are not known.
        machine if machine == elf::EM_X86_64.0 && headers.is_64 => Some(plt_x86_64::find_stubs),
        machine if machine == elf::EM_AARCH64.0 && headers.is_64 => Some(plt_aarch64::find_stubs),
        _ => None,
    }
}

/// Names the slots of which a relocation section states the function.
fn name_slots<'d, R: ReadRef<'d>>(
    slots: &mut HashMap<ImageAddress, Vec<u8>>,
    headers: &Headers,
    data: R,
    section: &Section,
) -> Option<()> {
    let symbols = headers.sections.get(section.link)?;
    let strings = bytes(headers.sections.get(symbols.link)?, data)?;
    let count =
        usize::try_from(symbols.size.min(MAX_BYTES) / size_of::<Sym64<Endianness>>() as u64);
    let symbols = data.read_slice_at::<Sym64<Endianness>>(symbols.offset?, count.ok()?).ok()?;
    let count =
        usize::try_from(section.size.min(MAX_BYTES) / size_of::<Rela64<Endianness>>() as u64);
    let relocations =
        data.read_slice_at::<Rela64<Endianness>>(section.offset?, count.ok()?).ok()?;
    for relocation in relocations {
        let endian = headers.endian;
        let slot = ImageAddress(relocation.r_offset(endian));
        let Some(name) = slots.get_mut(&slot) else { continue };
        let Some(symbol) = symbols.get(relocation.r_sym(endian, false) as usize) else { continue };
        let rest = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
        *name = rest.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
    }
    Some(())
}

fn bytes<'d, R: ReadRef<'d>>(section: &Section, data: R) -> Option<&'d [u8]> {
    data.read_bytes_at(section.offset?, section.size.min(MAX_BYTES)).ok()
}
