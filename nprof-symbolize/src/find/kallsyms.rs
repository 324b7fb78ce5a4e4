//! Symbol tables of the running kernel and its modules, from the text of `/proc/kallsyms` and
//! `/proc/modules`. Pure over their text.

use nprof_object::kallsyms::{Symbol, find, is_hidden, symbols};
use nprof_object::modules::modules;
use nprof_object::{ImageAddress, RuntimeAddress};

use crate::elf::function_ranges::FunctionRanges;
use crate::elf::symbol_table::{Binding, SymbolTable, SymbolTableBuilder};

/// The reason kernel symbols cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KallsymsError {
    /// All addresses are zero: this process may not see them.
    Restricted,
    /// There is no such module, or no code in it.
    Absent,
}

/// Reads the symbols of the kernel itself, with their distance from `_stext` as addresses.
///
/// # Errors
///
/// See [`KallsymsError`].
pub(crate) fn kernel(kallsyms: &[u8]) -> Result<SymbolTable, KallsymsError> {
    match kernel_base(kallsyms) {
        Some(RuntimeAddress(0)) => Err(KallsymsError::Restricted),
        Some(base) => table(kallsyms, b"", base, text_end(kallsyms)),
        None if is_hidden(kallsyms) => Err(KallsymsError::Restricted),
        None => Err(KallsymsError::Absent),
    }
}

/// Returns the address from which offsets in the kernel count, 0 if it is hidden.
pub(crate) fn kernel_base(kallsyms: &[u8]) -> Option<RuntimeAddress> {
    find(kallsyms, b"_stext").or_else(|| find(kallsyms, b"_text"))
}

/// Returns the address from which offsets in a module count.
pub(crate) fn module_base(modules_text: &[u8], name: &[u8]) -> Option<RuntimeAddress> {
    modules(modules_text).find(|module| module.name == name).map(|module| module.base)
}

/// Reads the symbols of a module, with their distance from its base in `/proc/modules` as addresses.
///
/// # Errors
///
/// See [`KallsymsError`].
pub(crate) fn module(
    kallsyms: &[u8],
    modules_text: &[u8],
    name: &[u8],
) -> Result<SymbolTable, KallsymsError> {
    let Some(module) = modules(modules_text).find(|module| module.name == name) else {
        return Err(KallsymsError::Absent);
    };
    if module.base.0 == 0 {
        return Err(KallsymsError::Restricted);
    }
    // The size is that of all sections of the module.
    let end = RuntimeAddress(module.base.0.saturating_add(module.size));
    table(kallsyms, name, module.base, end)
}

/// Returns the end of the kernel's text. Code that the kernel generates later lies after it, and
/// must not be attributed to its last function.
fn text_end(kallsyms: &[u8]) -> RuntimeAddress {
    let ends: [&[u8]; 2] = [b"_etext", b"_einittext"];
    let end = ends.iter().filter_map(|name| find(kallsyms, name)).max();
    end.unwrap_or(RuntimeAddress(u64::MAX))
}

fn table(
    kallsyms: &[u8],
    module: &[u8],
    base: RuntimeAddress,
    end: RuntimeAddress,
) -> Result<SymbolTable, KallsymsError> {
    let mut builder = SymbolTableBuilder::default();
    // kallsyms has no sizes: each symbol ends at the next, and the last at the end of the text.
    let limit = ImageAddress(end.offset_from(base).unwrap_or(0));
    for symbol in symbols(kallsyms).filter(|symbol| symbol.module == module) {
        if let Some(binding) = binding(&symbol)
            && let Some(distance) = symbol.address.offset_from(base)
        {
            builder.add(symbol.name, ImageAddress(distance), 0, limit, binding);
        }
    }
    let symbols = builder.build(&FunctionRanges::default());
    if symbols.is_empty() { Err(KallsymsError::Absent) } else { Ok(symbols) }
}

/// Returns the binding of a symbol of code. None for data.
fn binding(symbol: &Symbol<'_>) -> Option<Binding> {
    match symbol.kind {
        b'T' => Some(Binding::Global),
        // Weak symbols have either case.
        b'W' | b'w' => Some(Binding::Weak),
        b't' => Some(Binding::Local),
        _ => None,
    }
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
ffffffff810000c0 t __do_sys_getppid
ffffffff810000c0 T __ia32_sys_getppid
ffffffff810000c0 T __x64_sys_getppid
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

    fn name(table: &SymbolTable, offset: u64) -> Option<&str> {
        table.find(ImageAddress(offset)).map(|found| std::str::from_utf8(found.name).unwrap())
    }

    #[test]
    fn kernel_offsets_count_from_stext() {
        let table = kernel(KALLSYMS).unwrap();
        assert_eq!(name(&table, 0), Some("_stext"));
        assert_eq!(name(&table, 0x41), Some("do_one_alias"));
        assert_eq!(name(&table, 0x80), Some("weak_one"));
        assert_eq!(name(&table, 0xc0), Some("__x64_sys_getppid"));
        assert_eq!(name(&table, 0x27f), Some("last"));
        assert_eq!(name(&table, 0x2f_f0ff), Some("init_only"));
        assert_eq!(name(&table, 0x2f_f100), None);
        assert_eq!(name(&table, 0x3f20_0005), None);
    }

    #[test]
    fn module_has_its_own_symbols_only() {
        let table = module(KALLSYMS, MODULES, b"ext4").unwrap();
        assert_eq!(name(&table, 0x5), Some("init"));
        assert_eq!(name(&table, 0xfff), Some("write"));
        assert_eq!(name(&table, 0x1000), None);
        assert_eq!(module(KALLSYMS, MODULES, b"xfs").unwrap_err(), KallsymsError::Absent);
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let zeros = b"0000000000000000 T _stext\n0000000000000000 t f\n";
        assert_eq!(kernel(zeros).unwrap_err(), KallsymsError::Restricted);
        assert_eq!(kernel(b"").unwrap_err(), KallsymsError::Absent);
        let modules = b"ext4 4096 1 - Live 0x0000000000000000\n";
        assert_eq!(module(zeros, modules, b"ext4").unwrap_err(), KallsymsError::Restricted);
    }
}
