//! What the kernel says of itself: `/proc/kallsyms`, `/proc/modules`. Pure over their text.

use memchr::{memchr, memmem, memrchr};

use crate::elf::symbol_table::{Binding, SymbolTable, SymbolTableBuilder};

/// Why kernel symbols are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KallsymsError {
    /// All addresses are zero: the reader may not see them.
    Restricted,
    /// There is no such part, or no text in it.
    Absent,
}

/// Reads the symbols of the kernel proper, with offsets from `_stext`.
///
/// # Errors
///
/// See [`KallsymsError`].
pub(crate) fn kernel(kallsyms: &[u8]) -> Result<SymbolTable, KallsymsError> {
    let base = find(kallsyms, b"_stext").or_else(|| find(kallsyms, b"_text"));
    match base {
        Some(0) => Err(KallsymsError::Restricted),
        Some(base) => table(kallsyms, b"", base, text_end(kallsyms)),
        None => Err(restricted(kallsyms)),
    }
}

/// Reads the symbols of a module, with offsets from its base as `/proc/modules` has it.
///
/// # Errors
///
/// See [`KallsymsError`].
pub(crate) fn module(
    kallsyms: &[u8],
    modules: &[u8],
    name: &[u8],
) -> Result<SymbolTable, KallsymsError> {
    let Some((base, size)) = module_range(modules, name) else {
        return Err(KallsymsError::Absent);
    };
    match base {
        0 => Err(KallsymsError::Restricted),
        _ => table(kallsyms, name, base, base.saturating_add(size)),
    }
}

/// The base address and size of each module, from a line such as
/// `ext4 1048576 1 - Live 0xffffffffc0200000`.
fn module_range(modules: &[u8], name: &[u8]) -> Option<(u64, u64)> {
    modules.split(|&byte| byte == b'\n').find_map(|line| {
        let mut words = line.split(|&byte| byte == b' ');
        let size = words.next().filter(|&word| word == name).and(words.next())?;
        let size = std::str::from_utf8(size).ok()?.parse().ok()?;
        let base = words.find_map(|word| word.strip_prefix(b"0x"))?;
        Some((hexadecimal(base)?, size))
    })
}

fn restricted(kallsyms: &[u8]) -> KallsymsError {
    let all_zero = !kallsyms.is_empty() && Symbols(kallsyms).all(|symbol| symbol.address == 0);
    if all_zero { KallsymsError::Restricted } else { KallsymsError::Absent }
}

/// The address of a symbol of the kernel proper, whose lines end in the name.
fn find(kallsyms: &[u8], name: &[u8]) -> Option<u64> {
    memmem::find_iter(kallsyms, name).find_map(|at| {
        let end = at + name.len();
        let is_last = matches!(kallsyms.get(end), None | Some(b'\n'));
        let start = memrchr(b'\n', &kallsyms[..at]).map_or(0, |before| before + 1);
        let symbol = symbol(&kallsyms[start..end]).filter(|_| is_last)?;
        (symbol.name == name && symbol.module.is_empty()).then_some(symbol.address)
    })
}

/// Where the kernel's text ends. What has an address beyond, as code made at run time, is not in
/// its last function.
fn text_end(kallsyms: &[u8]) -> u64 {
    let ends: [&[u8]; 2] = [b"_etext", b"_einittext"];
    ends.iter().filter_map(|name| find(kallsyms, name)).max().unwrap_or(u64::MAX)
}

fn table(
    kallsyms: &[u8],
    module: &[u8],
    base: u64,
    end: u64,
) -> Result<SymbolTable, KallsymsError> {
    let mut builder = SymbolTableBuilder::default();
    // No symbol has a size; each reaches up to the next, the last up to where the text ends.
    let limit = end.saturating_sub(base);
    for symbol in Symbols(kallsyms).filter(|symbol| symbol.module == module) {
        let binding = match symbol.kind {
            b'T' => Binding::Global,
            b'W' | b'w' => Binding::Weak,
            b't' => Binding::Local,
            _ => continue,
        };
        if let Some(offset) = symbol.address.checked_sub(base) {
            builder.add(symbol.name, offset, 0, limit, binding);
        }
    }
    let symbols = builder.build();
    if symbols.is_empty() { Err(KallsymsError::Absent) } else { Ok(symbols) }
}

/// One line of kallsyms.
struct Symbol<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    /// Empty for the kernel proper.
    module: &'a [u8],
}

/// The lines of kallsyms: `ffffffff81000000 T _stext` or `... t f\t[module]`.
struct Symbols<'a>(&'a [u8]);

impl<'a> Iterator for Symbols<'a> {
    type Item = Symbol<'a>;

    fn next(&mut self) -> Option<Symbol<'a>> {
        while !self.0.is_empty() {
            let end = memchr(b'\n', self.0).unwrap_or(self.0.len());
            let line = &self.0[..end];
            self.0 = self.0.get(end + 1..).unwrap_or_default();
            if let Some(symbol) = symbol(line) {
                return Some(symbol);
            }
        }
        None
    }
}

fn symbol(line: &[u8]) -> Option<Symbol<'_>> {
    let mut words = line.split(|&byte| matches!(byte, b' ' | b'\t'));
    let address = hexadecimal(words.next()?)?;
    let kind = *words.next()?.first()?;
    let name = words.next().filter(|name| !name.is_empty())?;
    let module = words.next().and_then(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"));
    Some(Symbol { address, kind, name, module: module.unwrap_or_default() })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t do_one
ffffffff81000040 T do_one_alias
ffffffff81000080 W weak_one
ffffffff81000100 D data
ffffffff81000200 t last
ffffffff81000280 T _etext
ffffffff812ff000 t init_only
ffffffff812ff100 T _einittext
ffffffffc0200000 t init\t[ext4]
ffffffffc0200010 t write\t[ext4]
ffffffffc0300000 t other\t[xfs]
garbage
";
    const MODULES: &[u8] = b"ext4 4096 1 - Live 0xffffffffc0200000\next42 1 0 - Live 0x1\n";

    fn name(part: &SymbolTable, offset: u64) -> Option<&str> {
        part.find(offset).map(|name| std::str::from_utf8(name).unwrap())
    }

    #[test]
    fn offsets_count_from_stext() {
        let part = kernel(KALLSYMS).unwrap();
        assert_eq!(name(&part, 0), Some("_stext"));
        assert_eq!(name(&part, 0x41), Some("do_one_alias"));
        assert_eq!(name(&part, 0x80), Some("weak_one"));
        assert_eq!(name(&part, 0x27f), Some("last"));
        assert_eq!(name(&part, 0x2f_f0ff), Some("init_only"));
        assert_eq!(name(&part, 0x2f_f100), None);
        assert_eq!(name(&part, 0x3f20_0005), None);
    }

    #[test]
    fn a_module_has_its_own_symbols_only() {
        let part = module(KALLSYMS, MODULES, b"ext4").unwrap();
        assert_eq!(name(&part, 0x5), Some("init"));
        assert_eq!(name(&part, 0xfff), Some("write"));
        assert_eq!(name(&part, 0x1000), None);
        assert_eq!(module(KALLSYMS, MODULES, b"xfs").unwrap_err(), KallsymsError::Absent);
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let zeros = b"0000000000000000 T _stext\n0000000000000000 t f\n";
        assert_eq!(kernel(zeros).unwrap_err(), KallsymsError::Restricted);
        assert_eq!(kernel(b"").unwrap_err(), KallsymsError::Absent);
        let modules = b"ext4 4096 1 - Live 0x0000000000000000\n";
        assert_eq!(module(zeros, modules, b"ext4").unwrap_err(), KallsymsError::Restricted);
    }
}
