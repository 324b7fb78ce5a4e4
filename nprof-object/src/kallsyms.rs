//! The text of `/proc/kallsyms`: the kernel's symbols by address, then those of modules, then those
//! of code generated at run time. A line is `ffffffff81000000 T _stext` or `... t f\t[module]`.
//!
//! All addresses are 0 where the reader may not see them (`kernel.kptr_restrict`, proc(5)).

use std::io::BufRead;
use std::ops::ControlFlow;

use memchr::{memchr, memmem, memrchr};

use crate::address::RuntimeAddress;

/// A symbol of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its address; 0 if it is hidden.
    pub address: RuntimeAddress,
    /// Its type, as nm(1) has it: `T`, `t`, `W`, `D`, ...
    pub kind: u8,
    /// Its name.
    pub name: &'a [u8],
    /// The module, or the owner of generated code, such as `bpf`; empty for the kernel itself.
    pub module: &'a [u8],
}

impl<'a> Symbol<'a> {
    /// Parses a line without its newline. None if it is malformed.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        // The third field is the rest of the line: the name, and perhaps a module.
        let mut fields = line.splitn(3, |&byte| byte == b' ');
        let (address, kind, rest) = (fields.next()?, fields.next()?, fields.next()?);
        let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
        // A TAB separates the module (kernel/kallsyms.c, s_show).
        let mut names = rest.splitn(2, |&byte| byte == b'\t');
        let name = names.next().filter(|name| !name.is_empty())?;
        let module = names.next().and_then(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"));
        Some(Self {
            address: RuntimeAddress(address),
            kind: *kind.first()?,
            name,
            module: module.unwrap_or_default(),
        })
    }

    /// True if the kernel generated the code at run time: BPF programs and trampolines (`bpf`),
    /// `__builtin__ftrace`, `__builtin__kprobes`.
    pub fn is_generated(&self) -> bool {
        self.module == b"bpf" || self.module.starts_with(b"__builtin__")
    }
}

/// Returns the symbols of a whole text. Malformed lines are left out.
pub fn symbols(text: &[u8]) -> impl Iterator<Item = Symbol<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            if let Some(symbol) = Symbol::parse(line) {
                return Some(symbol);
            }
        }
        None
    })
}

/// Passes the symbols of a file to `visit` until it breaks, or to the file's end, or to where
/// reading fails. The text takes the kernel long to write (0.1 s), so that a reader of the first
/// symbols should not read all.
pub fn visit(mut file: impl BufRead, mut visit: impl FnMut(Symbol<'_>) -> ControlFlow<()>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match file.read_until(b'\n', &mut line) {
            Ok(length) if length > 0 => {}
            // The end of the file, or an error: the symbols so far are still valid.
            _ => return,
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(symbol) = Symbol::parse(text)
            && visit(symbol).is_break()
        {
            return;
        }
    }
}

/// Returns the address of a symbol of the kernel itself in a whole text: 0 if it is hidden, None if
/// there is no such symbol.
pub fn find(text: &[u8], name: &[u8]) -> Option<RuntimeAddress> {
    memmem::find_iter(text, name).find_map(|at| {
        let end = at + name.len();
        // Symbols of the kernel itself end their line; those of modules have the module after them.
        let is_last = matches!(text.get(end), None | Some(b'\n'));
        let start = memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1);
        let symbol = Symbol::parse(&text[start..end]).filter(|_| is_last)?;
        (symbol.name == name && symbol.module.is_empty()).then_some(symbol.address)
    })
}

/// Returns the address of `_stext`, which is among the first symbols. None if it is hidden.
pub fn start_of_text(file: impl BufRead) -> Option<RuntimeAddress> {
    let mut start = None;
    visit(file, |symbol| {
        // Symbols of per-CPU data may come before the text.
        if symbol.name != b"_stext" {
            return ControlFlow::Continue(());
        }
        start = Some(symbol.address);
        ControlFlow::Break(())
    });
    start.filter(|address| address.0 != 0)
}

/// True if all addresses of a text are hidden.
pub fn is_hidden(text: &[u8]) -> bool {
    !text.is_empty() && symbols(text).all(|symbol| symbol.address.0 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000010 t not_stext
ffffffff82209988 T _etext
ffffffffc0100000 t init\t[ext4]
garbage
x T y
ffffffffc0201000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0100040 t bpf_prog_6deef7357e7b4530_drop\t[bpf]
";

    #[test]
    fn malformed_lines_are_left_out() {
        let names: Vec<_> = symbols(TEXT).map(|symbol| symbol.name).collect();
        assert_eq!(names.len(), 8);
        let mut visited = Vec::new();
        visit(TEXT, |symbol| {
            visited.push(symbol.name.to_vec());
            ControlFlow::Continue(())
        });
        assert_eq!(visited, names);
    }

    #[test]
    fn symbol_has_its_type_and_module() {
        let init = Symbol::parse(b"ffffffffc0100000 t init\t[ext4]").expect("a symbol");
        let expected = Symbol {
            address: RuntimeAddress(0xffff_ffff_c010_0000),
            kind: b't',
            name: b"init",
            module: b"ext4",
        };
        assert_eq!(init, expected);
    }

    #[test]
    fn generated_code_is_recognized_by_its_owner() {
        let generated = symbols(TEXT).filter(Symbol::is_generated).map(|symbol| symbol.name);
        let expected = [&b"ftrace_trampoline"[..], b"bpf_prog_6deef7357e7b4530_drop"];
        assert_eq!(generated.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn whole_names_of_the_kernel_itself_are_found() {
        assert_eq!(find(TEXT, b"_stext"), Some(RuntimeAddress(0xffff_ffff_8100_0000)));
        assert_eq!(find(TEXT, b"stext"), None);
        assert_eq!(find(TEXT, b"init"), None);
        assert_eq!(start_of_text(TEXT), Some(RuntimeAddress(0xffff_ffff_8100_0000)));
    }

    #[test]
    fn hidden_addresses_are_reported() {
        let hidden = &b"0000000000000000 T _stext\n0000000000000000 t f\n"[..];
        assert!(is_hidden(hidden) && !is_hidden(TEXT) && !is_hidden(b""));
        assert_eq!(start_of_text(hidden), None);
        assert_eq!(find(hidden, b"_stext"), Some(RuntimeAddress(0)));
    }
}
