//! The functions of the running kernel and its modules at which calls are counted: those that the kernel can
//! trace, which it lists itself.

use std::collections::BTreeMap;

use nprof_object::kallsyms::symbols;
use nprof_object::{FileOffset, ImageAddress, RuntimeAddress, build_id, kprobes};
use nprof_stream::{ImageKind, Status};
use rustc_hash::FxHashMap;

use super::entries::{Entries, Entry, Refused};
use super::failure::Failure;
use super::kallsyms;
use super::recorded::RecordedImage;
use super::running_kernel::{kallsyms_failure, module_name, module_notes, read, unreadable};
use crate::elf::symbol_table::SymbolTable;

/// The list of the functions that the kernel can trace, one on each line: `NAME` or `NAME [MODULE]`. One of the
/// paths is mounted.
const TRACEABLE: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];

/// The reason for functions that are not in it.
const NOT_TRACEABLE: &str = "the kernel cannot trace it: it is not in available_filter_functions";

/// The reason for some functions of one name.
const AMBIGUOUS: &str = "the kernel can trace only some of the functions with this name";

/// True if a path is the name of the kernel or of a module in streams: `[kernel]`, `[ext4]`.
pub(crate) fn is_kernel(path: &[u8]) -> bool {
    module_name(path).is_some()
}

/// Returns the running kernel or a module of it, and the functions of which `is_wanted` holds for a name.
///
/// # Errors
///
/// If this kernel has no such probes, or its symbols are hidden or missing.
pub(crate) fn entries(
    path: &[u8],
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<(RecordedImage, Entries), Failure> {
    let text = read("/proc/kallsyms")?;
    if let Some(obstacle) = kprobes::obstacle(&text) {
        return Err(unreadable(&format!("calls in this kernel cannot be counted: {obstacle}")));
    }
    let name = module_name(path).unwrap_or_default();
    let (kind, module, notes) = match name {
        "kernel" => (ImageKind::Kernel, "", read("/sys/kernel/notes")?),
        module => (ImageKind::Module, module, module_notes(module)?),
    };
    let (symbols, base) = if module.is_empty() {
        (kallsyms::kernel(&text), kallsyms::kernel_base(&text))
    } else {
        let loaded = read("/proc/modules")?;
        let base = kallsyms::module_base(&loaded, module.as_bytes());
        (kallsyms::module(&text, &loaded, module.as_bytes()), base)
    };
    let symbols = symbols.map_err(kallsyms_failure)?;
    let base = base.ok_or_else(|| unreadable(&"its address is unknown"))?;
    let build_id = build_id::of_notes(&notes).unwrap_or_default().into();
    let recorded = RecordedImage { build_id, path: path.into(), ..RecordedImage::new(kind) };
    let kernel =
        KernelText { kallsyms: &text, traceable: &traceable()?, module: module.as_bytes() };
    Ok((recorded, kernel.entries(base, &symbols, is_wanted)))
}

/// Reads the list of the functions that the kernel can trace.
fn traceable() -> Result<Vec<u8>, Failure> {
    let [first, second] = TRACEABLE.map(std::fs::read);
    first.or(second).map_err(|error| Failure {
        status: Status::Unreadable,
        reason: format!(
            "{}: {error}; it needs root, tracefs, and a kernel that is not locked down",
            TRACEABLE[0]
        ),
    })
}

/// The symbols of the kernel and the functions that it can trace, as it prints them.
struct KernelText<'a> {
    kallsyms: &'a [u8],
    traceable: &'a [u8],
    /// The module; empty for the kernel itself.
    module: &'a [u8],
}

impl KernelText<'_> {
    /// Returns the functions of which `is_wanted` holds for a name. `symbols` has the names that reports show,
    /// by the distance from `base`.
    fn entries(
        &self,
        base: RuntimeAddress,
        symbols: &SymbolTable,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Entries {
        let traceable = self.traceable_names();
        let functions = self.functions();
        let mut uses: FxHashMap<&[u8], usize> = FxHashMap::default();
        for name in functions.values().flatten() {
            *uses.entry(name).or_default() += 1;
        }
        let mut entries = Entries::default();
        for (address, names) in &functions {
            let Some(distance) = address.offset_from(base) else { continue };
            if !names.iter().any(|name| is_wanted(name)) {
                continue;
            }
            let shown = symbols.find(ImageAddress(distance)).map_or(names[0], |found| found.name);
            let name = shown.to_vec();
            // The list has one of the names of a function, and no addresses: a name that several functions
            // share must be in it for each.
            let listed = |name: &&[u8]| traceable.get(name).copied().unwrap_or(0);
            if names.iter().any(|name| listed(name) >= uses[name]) {
                let offset = FileOffset(distance);
                entries.found.push(Entry {
                    offset,
                    is_slow: false,
                    frame: offset,
                    name,
                    ends: None,
                });
            } else {
                let is_listed = names.iter().any(|name| listed(name) > 0);
                let reason = if is_listed { AMBIGUOUS } else { NOT_TRACEABLE };
                entries.refused.push(Refused { name, reason });
            }
        }
        entries.refused.sort_unstable();
        entries.refused.dedup();
        entries
    }

    /// Returns the names of the functions by address.
    fn functions(&self) -> BTreeMap<RuntimeAddress, Vec<&[u8]>> {
        let mut functions: BTreeMap<RuntimeAddress, Vec<&[u8]>> = BTreeMap::new();
        for symbol in symbols(self.kallsyms) {
            if symbol.module == self.module && matches!(symbol.kind, b'T' | b't' | b'W' | b'w') {
                functions.entry(symbol.address).or_default().push(symbol.name);
            }
        }
        functions
    }

    /// Returns how often each name is in the list of functions that can be traced.
    fn traceable_names(&self) -> FxHashMap<&[u8], usize> {
        let mut names: FxHashMap<&[u8], usize> = FxHashMap::default();
        for line in self.traceable.split(|&byte| byte == b'\n') {
            let mut words = line.split(|&byte| byte == b' ');
            let name = words.next().unwrap_or_default();
            let module = words.next().and_then(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"));
            if module.unwrap_or_default() == self.module {
                *names.entry(name).or_default() += 1;
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &[u8] = b"ffffffff81000000 T _stext
ffffffff81000010 T sys_read
ffffffff81000010 t alias_read
ffffffff81000020 t twice
ffffffff81000030 t twice
ffffffff81000040 t half
ffffffff81000050 t half
ffffffff81000060 t sys_hidden
ffffffff81000070 D sys_data
ffffffff81000080 T _etext
ffffffffc0000000 t sys_read\t[ext4]
";
    const MODULES: &[u8] = b"ext4 4096 1 - Live 0xffffffffc0000000\n";
    const LIST: &[u8] = b"sys_read\ntwice\ntwice\nhalf\nsys_read [ext4]\nonly [ext4]\n";

    fn found(entries: &Entries) -> Vec<(u64, &str)> {
        let name =
            |entry: &Entry| std::str::from_utf8(&entry.name).unwrap().to_owned().leak() as &str;
        entries.found.iter().map(|entry| (entry.offset.0, name(entry))).collect()
    }

    #[test]
    fn functions_that_the_kernel_can_trace_have_their_distance_from_its_start() {
        let base = RuntimeAddress(0xffff_ffff_8100_0000);
        let kernel = KernelText { kallsyms: KALLSYMS, traceable: LIST, module: b"" };
        let symbols = kallsyms::kernel(KALLSYMS).unwrap();
        let entries = kernel.entries(base, &symbols, |name| name != b"_stext" && name != b"_etext");
        assert_eq!(found(&entries), [(0x10, "sys_read"), (0x20, "twice"), (0x30, "twice")]);
        let refused: Vec<_> = entries.refused.iter().map(|it| (&*it.name, it.reason)).collect();
        assert_eq!(refused, [(&b"half"[..], AMBIGUOUS), (b"sys_hidden", NOT_TRACEABLE)]);
        // Any name of a function selects it.
        let entries = kernel.entries(base, &symbols, |name| name.starts_with(b"alias"));
        assert_eq!(found(&entries), [(0x10, "sys_read")]);
    }

    #[test]
    fn functions_of_a_module_are_apart_from_those_of_the_kernel() {
        let base = RuntimeAddress(0xffff_ffff_c000_0000);
        let module = KernelText { kallsyms: KALLSYMS, traceable: LIST, module: b"ext4" };
        let symbols = kallsyms::module(KALLSYMS, MODULES, b"ext4").unwrap();
        assert_eq!(found(&module.entries(base, &symbols, |_| true)), [(0, "sys_read")]);
        let without = KernelText { traceable: b"sys_read\n", ..module };
        let entries = without.entries(base, &symbols, |_| true);
        assert!(entries.found.is_empty() && entries.refused[0].reason == NOT_TRACEABLE);
    }
}
