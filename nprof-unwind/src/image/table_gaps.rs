//! Code that unwind tables leave out, known by its bytes: after system calls, and at returns from signal handlers.

use std::rc::Rc;

use nprof_object::{FileOffset, ImageAddress};

use crate::arch::Machine;
use crate::arch::rule::UnwindRule;
use crate::image::cfi::UnwindTables;

/// At least the bytes of such code, and one more.
const CODE_MAX: usize = 16;

/// Returns the rule after a system call at which the table of its function ends. `read` fills a buffer from an
/// offset of the file, and returns whether it could.
///
/// glibc for x86-64 ends the table of clone and clone3 at the system call, because the new thread continues
/// there on another stack. In the parent the frame is unchanged: the rule before the call still holds.
pub fn rule_after_system_call(
    machine: Machine,
    tables: &mut UnwindTables,
    offset: FileOffset,
    address: ImageAddress,
    read: impl FnOnce(u64, &mut [u8]) -> bool,
) -> Option<Rc<UnwindRule>> {
    let call = machine.system_call();
    let rule = tables.rule(ImageAddress(address.0.checked_sub(call.len() as u64 + 1)?))?;
    let mut code = [0; CODE_MAX];
    let code = &mut code[..call.len()];
    (read(offset.0.checked_sub(call.len() as u64)?, code) && code == call).then_some(rule)
}

/// True if signal handlers return to the code at an offset (`rt_sigreturn`). The offset may be one byte
/// before it, the address for lookup of a return address; so the next byte is checked, too.
pub fn is_signal_return(
    machine: Machine,
    offset: FileOffset,
    read: impl FnOnce(u64, &mut [u8]) -> bool,
) -> bool {
    let expected = machine.signal_return();
    let mut code = [0; CODE_MAX];
    let code = &mut code[..expected.len() + 1];
    read(offset.0, code) && (code.starts_with(expected) || code.ends_with(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_return_is_found_by_its_first_instruction_and_the_byte_before() {
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let file = [&[0; 4][..], machine.signal_return(), &[0; 4]].concat();
            let is_return = |offset: u64| {
                is_signal_return(machine, FileOffset(offset), |at, buffer| {
                    let found = file.get(at as usize..).and_then(|rest| rest.get(..buffer.len()));
                    found.is_some_and(|found| {
                        buffer.copy_from_slice(found);
                        true
                    })
                })
            };
            assert_eq!([2, 3, 4, 5, 99].map(is_return), [false, true, true, false, false]);
        }
    }
}
