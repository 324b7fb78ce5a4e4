//! The text of /proc/kallsyms: the kernel's symbols by address, then those of modules, then those
//! of code made at run time, each with the name of what it belongs to. Pure over its lines.

use std::io::BufRead;

/// The most a piece of code made at run time is taken to have, bytes: the kernel packs BPF
/// programs into pieces of memory of this size, and tells only where they start.
const SIZE_MAX: u64 = 2 << 20;

/// What of the symbols is of use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbols {
    /// Where the kernel's text ends; `None` when it is hidden.
    pub(crate) text_end: Option<u64>,
    /// The code made at run time: address, size, name.
    pub(crate) made: Vec<(u64, u64, Vec<u8>)>,
}

/// A line: `ffffffff81000000 T _stext`, or `... t f\t[module]`.
struct Line<'a> {
    address: u64,
    name: &'a [u8],
    /// What stands in the brackets; empty for the kernel itself.
    group: &'a [u8],
}

/// The address of `_stext`, which is one of the first; `None` when it is hidden.
pub(crate) fn stext(symbols: impl BufRead) -> Option<u64> {
    let mut found = None;
    each(symbols, |line| {
        found = (line.name == b"_stext").then_some(line.address);
        found.is_none()
    });
    found.filter(|&address| address != 0)
}

impl Symbols {
    /// Reads to the end, or to where reading fails.
    pub(crate) fn read(symbols: impl BufRead) -> Self {
        let mut text_end = None;
        // All that is not the kernel's own: code made at run time may have modules beside it.
        let mut others: Vec<(u64, Vec<u8>)> = Vec::new();
        each(symbols, |line| {
            if line.address == 0 {
                return true;
            }
            if line.name == b"_etext" {
                text_end = Some(line.address);
            }
            match line.group {
                b"" => {}
                group if is_made(group) => others.push((line.address, line.name.into())),
                _ => others.push((line.address, Vec::new())),
            }
            true
        });
        // The name of two at one address is the last one, as sorted.
        others.sort_unstable();
        let ends = others.iter().skip(1).map(|(address, _)| *address).chain([u64::MAX]);
        let sized =
            others.iter().zip(ends).filter(|((start, name), end)| !name.is_empty() && end > start);
        let made =
            sized.map(|((start, name), end)| (*start, (end - start).min(SIZE_MAX), name.clone()));
        Self { text_end, made: made.collect() }
    }
}

/// Whether the symbols of this group are of code made at run time: `bpf`, `__builtin__ftrace`,
/// `__builtin__kprobes`.
fn is_made(group: &[u8]) -> bool {
    group == b"bpf" || group.starts_with(b"__builtin__")
}

/// Hands on each line that is one, until `take` says that it is enough.
fn each(mut symbols: impl BufRead, mut take: impl FnMut(Line<'_>) -> bool) {
    let mut text = Vec::new();
    loop {
        text.clear();
        match symbols.read_until(b'\n', &mut text) {
            Ok(length) if length > 0 => {}
            _ => return,
        }
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        if !line_of(line).is_none_or(&mut take) {
            return;
        }
    }
}

fn line_of(text: &[u8]) -> Option<Line<'_>> {
    let mut fields = text.splitn(3, |&byte| byte == b' ');
    let (address, _kind, rest) = (fields.next()?, fields.next()?, fields.next()?);
    let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    let mut names = rest.splitn(2, |&byte| byte == b'\t');
    let name = names.next().filter(|name| !name.is_empty())?;
    let group = names.next().and_then(|group| group.strip_prefix(b"[")?.strip_suffix(b"]"));
    Some(Line { address, name, group: group.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000010 t bpf_prog_load
ffffffff82209988 T _etext
ffffffff83783000 T _sinittext
ffffffffc0100000 t init\t[ext4]
ffffffffc0100080 t exit\t[ext4]
garbage
x T y
ffffffffc0201000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0201000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0100040 t bpf_prog_6deef7357e7b4530_drop\t[bpf]
ffffffffc0300000 t bpf_trampoline_1\t[bpf]
";

    #[test]
    fn the_text_has_a_beginning_and_an_end() {
        assert_eq!(stext(SYMBOLS), Some(0xffff_ffff_8100_0000));
        assert_eq!(Symbols::read(SYMBOLS).text_end, Some(0xffff_ffff_8220_9988));
        let hidden = &b"0000000000000000 T _stext\n0000000000000000 T _etext\n\
                        0000000000000000 t bpf_prog_1\t[bpf]\n"[..];
        assert_eq!((stext(hidden), Symbols::read(hidden)), (None, Symbols::default()));
        assert_eq!((stext(&b""[..]), Symbols::read(&b""[..])), (None, Symbols::default()));
    }

    #[test]
    fn code_made_at_run_time_reaches_to_the_next_symbol() {
        let made = Symbols::read(SYMBOLS).made;
        let made: Vec<_> = made
            .iter()
            .map(|(start, size, name)| (start & 0xff_ffff, *size, std::str::from_utf8(name)))
            .collect();
        let expected = [
            (0x10_0040, 0x40, Ok("bpf_prog_6deef7357e7b4530_drop")),
            (0x20_1000, 0xf_f000, Ok("ftrace_trampoline")),
            (0x30_0000, SIZE_MAX, Ok("bpf_trampoline_1")),
        ];
        assert_eq!(made, expected);
    }
}
