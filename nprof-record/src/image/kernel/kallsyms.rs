//! The text of /proc/kallsyms: the kernel's symbols by address, then those of modules, then those
//! of code made at run time, each with the name of what it belongs to. Pure over its lines.

use std::io::BufRead;
use std::ops::ControlFlow;

use nprof_object::kallsyms::visit;

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

impl Symbols {
    /// Reads to the end, or to where reading fails.
    pub(crate) fn read(symbols: impl BufRead) -> Self {
        let mut text_end = None;
        // All that is not the kernel's own: code made at run time may have modules beside it.
        let mut others: Vec<(u64, Vec<u8>)> = Vec::new();
        visit(symbols, |symbol| {
            let address = symbol.address.0;
            // The kernel hides its addresses.
            if address == 0 {
                return ControlFlow::Continue(());
            }
            if symbol.name == b"_etext" {
                text_end = Some(address);
            }
            match symbol.module {
                b"" => {}
                _ if symbol.is_generated() => others.push((address, symbol.name.into())),
                _ => others.push((address, Vec::new())),
            }
            ControlFlow::Continue(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_object::RuntimeAddress;
    use nprof_object::kallsyms::start_of_text;

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
        assert_eq!(start_of_text(SYMBOLS), Some(RuntimeAddress(0xffff_ffff_8100_0000)));
        assert_eq!(Symbols::read(SYMBOLS).text_end, Some(0xffff_ffff_8220_9988));
        let hidden = &b"0000000000000000 T _stext\n0000000000000000 T _etext\n\
                        0000000000000000 t bpf_prog_1\t[bpf]\n"[..];
        assert_eq!((start_of_text(hidden), Symbols::read(hidden)), (None, Symbols::default()));
        assert_eq!((start_of_text(&b""[..]), Symbols::read(&b""[..])), (None, Symbols::default()));
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
