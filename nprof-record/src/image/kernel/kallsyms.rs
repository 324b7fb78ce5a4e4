//! Reads the end of the kernel's text and the generated code from /proc/kallsyms. Pure over its
//! lines.
//!
//! The file has the kernel's symbols by address, then those of modules, then those of generated
//! code, each with the name of its module or generator.

use std::io::BufRead;
use std::ops::{ControlFlow, Range};

use nprof_object::kallsyms::visit;

/// The largest size of generated code: the kernel packs BPF programs into blocks of this size, and
/// lists only their starts.
const SIZE_MAX: u64 = 2 << 20;

/// The facts from the symbols.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelSymbols {
    /// The end of the kernel's text (`_etext`). None if addresses are hidden.
    pub(crate) text_end: Option<u64>,
    /// The generated code: address, size, name.
    pub(crate) generated: Vec<(u64, u64, Vec<u8>)>,
}

impl KernelSymbols {
    /// Reads the symbols, to the end or to a read error.
    pub(crate) fn read(symbols: impl BufRead) -> Self {
        let mut text_end = None;
        // Symbols of modules, too: they also end generated code before them.
        let mut others: Vec<(u64, Vec<u8>)> = Vec::new();
        visit(symbols, |symbol| {
            let address = symbol.address.0;
            // The kernel hides its addresses.
            if address == 0 {
                return ControlFlow::Continue(());
            }
            // /proc/iomem has the size of the text, too, but only with CAP_SYS_ADMIN.
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
        // Of several symbols at one address, the last in order names it: the others have size 0.
        others.sort_unstable();
        let ends = others.iter().skip(1).map(|(address, _)| *address).chain([u64::MAX]);
        let sized =
            others.iter().zip(ends).filter(|((start, name), end)| !name.is_empty() && end > start);
        let generated =
            sized.map(|((start, name), end)| (*start, (end - start).min(SIZE_MAX), name.clone()));
        Self { text_end, generated: generated.collect() }
    }
}

/// The addresses of functions by which stacks of waits and wake-ups are cut. Empty if addresses are
/// hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitSymbols {
    /// The scheduler's functions, by which the kernel chooses the function of /proc/PID/wchan.
    pub(crate) scheduler: Range<u64>,
    /// The function that wakes a task.
    pub(crate) waking: Range<u64>,
    /// The functions that handle interrupts, the outermost of each.
    pub(crate) interrupts: Vec<Range<u64>>,
}

impl WaitSymbols {
    /// Reads the symbols, to the end of the kernel's text or to a read error.
    pub(crate) fn read(symbols: impl BufRead) -> Self {
        let mut found = Self::default();
        visit(symbols, |symbol| {
            let address = symbol.address.0;
            // A function ends where the next one begins.
            let waking = Some(&mut found.waking);
            for range in found.interrupts.last_mut().into_iter().chain(waking) {
                if range.is_empty() && range.start != 0 && address > range.start {
                    range.end = address;
                }
            }
            match symbol.name {
                _ if address == 0 => {}
                b"__sched_text_start" => found.scheduler.start = address,
                b"__sched_text_end" => found.scheduler.end = address,
                b"try_to_wake_up" => found.waking = address..address,
                b"_etext" => return ControlFlow::Break(()),
                name if is_interrupt(name) => found.interrupts.push(address..address),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        found
    }
}

/// True if a function is the outermost one of an interrupt: arch/x86/include/asm/idtentry.h,
/// arch/x86/entry/entry_fred.c for processors with FRED, and arch/arm64/kernel/entry.S.
fn is_interrupt(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [
        b"asm_common_interrupt",
        b"asm_spurious_interrupt",
        b"fred_extint",
        b"el0t_64_irq",
        b"el0t_64_fiq",
        b"el1h_64_irq",
        b"el1h_64_fiq",
    ];
    name.starts_with(b"asm_sysvec_") || NAMES.contains(&name)
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
    fn functions_of_wake_ups_end_at_the_next_ones() {
        let symbols = &b"ffffffff81000d40 T asm_common_interrupt
ffffffff81000d60 T asm_exc_nmi
ffffffff81000df0 T asm_sysvec_apic_timer_interrupt
ffffffff81000e10 T asm_sysvec_x86_platform_ipi
ffffffff81000e30 T other
ffffffff813aa620 T try_to_wake_up
ffffffff813aa620 T alias
ffffffff813aa900 t next
ffffffff82000000 T __sched_text_start
ffffffff82001000 T __sched_text_end
ffffffff82209988 T _etext
ffffffff83000000 T asm_sysvec_after_the_text
"[..];
        let found = WaitSymbols::read(symbols);
        let base = 0xffff_ffff_8100_0000;
        let interrupts = [0xd40..0xd60, 0xdf0..0xe10, 0xe10..0xe30];
        let interrupts = interrupts.map(|it| base + it.start..base + it.end);
        assert_eq!(found.interrupts, interrupts);
        assert_eq!(found.waking, 0xffff_ffff_813a_a620..0xffff_ffff_813a_a900);
        assert_eq!(found.scheduler, 0xffff_ffff_8200_0000..0xffff_ffff_8200_1000);
        let hidden = &b"0000000000000000 T asm_common_interrupt\n0000000000000000 T x\n"[..];
        assert_eq!(WaitSymbols::read(hidden), WaitSymbols::default());
    }

    #[test]
    fn text_has_start_and_end() {
        assert_eq!(start_of_text(SYMBOLS), Some(RuntimeAddress(0xffff_ffff_8100_0000)));
        assert_eq!(KernelSymbols::read(SYMBOLS).text_end, Some(0xffff_ffff_8220_9988));
        let hidden = &b"0000000000000000 T _stext\n0000000000000000 T _etext\n\
                        0000000000000000 t bpf_prog_1\t[bpf]\n"[..];
        assert_eq!(
            (start_of_text(hidden), KernelSymbols::read(hidden)),
            (None, KernelSymbols::default())
        );
        assert_eq!(
            (start_of_text(&b""[..]), KernelSymbols::read(&b""[..])),
            (None, KernelSymbols::default())
        );
    }

    #[test]
    fn generated_code_ends_at_next_symbol() {
        let generated = KernelSymbols::read(SYMBOLS).generated;
        let generated: Vec<_> = generated
            .iter()
            .map(|(start, size, name)| (start & 0xff_ffff, *size, std::str::from_utf8(name)))
            .collect();
        let expected = [
            (0x10_0040, 0x40, Ok("bpf_prog_6deef7357e7b4530_drop")),
            (0x20_1000, 0xf_f000, Ok("ftrace_trampoline")),
            (0x30_0000, SIZE_MAX, Ok("bpf_trampoline_1")),
        ];
        assert_eq!(generated, expected);
    }
}
