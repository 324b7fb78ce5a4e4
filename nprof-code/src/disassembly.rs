//! Instructions: their addresses, text and jumps. Addresses are offsets in the image.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter};

use crate::function::Function;

/// The place where an instruction continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction; also after a call.
    Next,
    /// The target, or the next instruction.
    Branch(Option<u32>),
    /// The target only.
    Jump(Option<u32>),
    /// Elsewhere: it returns, or the target is in a register.
    End,
}

/// An instruction of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The distance of its first byte from the function's.
    pub offset: u32,
    /// Its text, with the name of the function that it calls.
    pub text: String,
    /// Targets are distances from the function's first byte; None if they are outside of it.
    pub flow: Flow,
    /// True if it calls an address in a register or memory.
    pub is_indirect_call: bool,
}

/// Returns the instructions of a function in order. They cover all of its bytes.
pub fn instructions(function: &Function) -> Vec<Decoded> {
    let bits = match &*function.arch {
        b"x86_64" => 64,
        b"x86" => 32,
        _ => return undecoded(function),
    };
    let bytes = &function.bytes;
    let mut decoder = Decoder::with_ip(bits, bytes, function.start, DecoderOptions::NONE);
    let mut formatter = formatter();
    let (mut instruction, mut decoded) = (Instruction::default(), Vec::new());
    while decoder.can_decode() {
        let offset = decoder.position() as u32;
        decoder.decode_out(&mut instruction);
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        if let Some(callee) = function.callee(offset) {
            // The name says more than the address, which is last: prefixes such as bnd are words, too.
            let end = text.rfind(' ').unwrap_or(text.len());
            text.truncate(end);
            text.extend([" ", &**callee]);
        }
        let is_indirect_call = instruction.flow_control() == FlowControl::IndirectCall;
        decoded.push(Decoded {
            offset,
            text,
            flow: flow(function, &instruction),
            is_indirect_call,
        });
    }
    decoded
}

/// Returns all bytes as one instruction: there is no decoder for their architecture.
fn undecoded(function: &Function) -> Vec<Decoded> {
    let arch = nprof_stream::escape::escaped(&function.arch);
    let text = format!("({} bytes of the architecture {arch})", function.bytes.len());
    vec![Decoded { offset: 0, text, flow: Flow::End, is_indirect_call: false }]
}

fn flow(function: &Function, instruction: &Instruction) -> Flow {
    let target = || {
        let distance = instruction.near_branch_target().checked_sub(function.start)?;
        u32::try_from(distance).ok().filter(|&at| (at as usize) < function.bytes.len())
    };
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Flow::Branch(target()),
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception => Flow::End,
        _ => Flow::Next,
    }
}

fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    // Data is at addresses of the image, as far as these are its offsets.
    options.set_rip_relative_addresses(true);
    // The length of a jump says nothing about time.
    options.set_show_branch_size(false);
    options.set_space_after_operand_separator(true);
    formatter
}
