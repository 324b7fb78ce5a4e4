//! Copies of stacks of 64-bit ARM: unwound on any machine, by a file that is built here byte by byte.

use std::io::Write;

use nprof_stream::{Encoding, Step, Writer};

use super::import::{Imported, import};
use super::tests::Recording;
use crate::unwind::ImageFiles;

/// The registers in samples: x0 to x30, sp and pc.
const REGISTERS: u64 = (1 << 33) - 1;

/// Fields of samples: IP, TID, TIME, CPU, PERIOD, CALLCHAIN, REGS_USER, STACK_USER, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 128 | 256 | 32 | 1 << 12 | 1 << 13 | 1 << 16;

/// The stack pointer of samples.
const STACK: u64 = 0x7fff_0000;

/// Returns a program with three functions: at 0x1000 one that has not saved its return address, at 0x1100 one
/// with a frame of 32 bytes, at 0x1200 one without a caller.
fn program() -> Vec<u8> {
    let mut frames = Vec::new();
    let mut entry = |bytes: &[u8]| {
        let length = (bytes.len() as u32).next_multiple_of(4);
        frames.extend(length.to_le_bytes());
        frames.extend(bytes);
        frames.resize(frames.len().next_multiple_of(4), 0);
    };
    // A CIE: version 1, code in units of 4 bytes, data in units of -8, the return address in x30, the CFA is sp.
    entry(&[0, 0, 0, 0, 1, 0, 4, 0x78, 30, 0x0c, 31, 0]);
    // The CIE begins 20 bytes before the second field of the first FDE.
    let mut cie = 20_u32;
    // def_cfa_offset 32, x29 at CFA-32, x30 at CFA-24; undefined x30.
    for (start, rules) in
        [(0x1000_u64, &[][..]), (0x1100, &[0x0e, 32, 0x9d, 4, 0x9e, 3]), (0x1200, &[7, 30])]
    {
        let bytes = [&cie.to_le_bytes()[..], &start.to_le_bytes(), &0x100_u64.to_le_bytes(), rules]
            .concat();
        cie += 4 + (bytes.len() as u32).next_multiple_of(4);
        entry(&bytes);
    }
    frames.extend([0; 4]);
    let names = b"\0.eh_frame\0.shstrtab\0";
    let (at, names_at) = (0x2000, 0x2000 + frames.len().next_multiple_of(8));
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_DYN, EM_AARCH64.
    file.extend([3_u16, 183].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend([0, 64, sections_at as u64].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    file.extend([64_u16, 56, 1, 64, 3, 2].iter().flat_map(|half| half.to_le_bytes()));
    // PT_LOAD, readable and executable.
    file.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    let segment = [0_u64, 0, 0, 0x3000, 0x3000, 0x1000];
    file.extend(segment.iter().flat_map(|word| word.to_le_bytes()));
    file.resize(at, 0);
    file.extend(&frames);
    file.resize(names_at, 0);
    file.extend(names);
    file.resize(sections_at + 64, 0);
    for (name, kind, flags, start, size) in
        [(1_u32, 1_u32, 2_u64, at, frames.len()), (11, 3, 0, names_at, names.len())]
    {
        file.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
        let address = if flags > 0 { start as u64 } else { 0 };
        let words = [flags, address, start as u64, size as u64, 0, 1, 0];
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    file.resize(0x3000, 0);
    file
}

/// Returns a recording of a machine with a sample in the first function, which the second has called.
fn recording(machine: &[u8], stack: &[u64]) -> Recording {
    let mut recording = Recording::without_events();
    let words = [(8, 0), (24, SAMPLE_TYPE), (80, REGISTERS), (88, 64)];
    recording.attribute_with(1, 7, &words);
    // The feature 6 is the name of the architecture, with its length.
    let name = [&(machine.len() as u32).to_le_bytes()[..], machine].concat();
    recording.record(80, 0, &[&6_u64.to_le_bytes()[..], &name].concat());
    recording.mmap(7, 0x40_0000, 0x3000, 0, b"/bin/prog");
    let mut registers = [0; 33];
    // The return address has a signature.
    (registers[29], registers[30]) = (STACK, 0x2a_0000_0040_1105);
    (registers[31], registers[32]) = (STACK, 0x40_1010);
    let mut body = vec![7, 0x40_1010, 7 | 7 << 32, 20, 3, 1000, 0, 2];
    body.extend(registers);
    body.extend([stack.len() as u64 * 8].iter().chain(stack));
    body.push(stack.len() as u64 * 8);
    let body: Vec<u8> = body.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    recording.record(9, 2, &body);
    recording
}

/// Imports a recording as text, with files below a root.
fn imported(recording: &Recording, root: &std::path::Path) -> (Imported, String) {
    let mut out = Vec::new();
    let writer = Writer::new(&mut out as &mut dyn Write, Encoding::Text);
    let files = ImageFiles::new(Some(root.to_owned()));
    let (imported, writer) =
        import(&*recording.0, None, files, Step::default(), writer).expect("it is valid");
    drop(writer);
    (imported, String::from_utf8(out).expect("text is UTF-8"))
}

fn frames(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("F\t")).collect()
}

#[test]
fn copy_of_another_architecture_is_unwound_by_its_rules() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("bin")).expect("created");
    std::fs::write(root.path().join("bin/prog"), program()).expect("written");
    let stack = [STACK + 32, 0x15_0000_0040_1209, 0, 0];
    let (result, text) = imported(&recording(b"aarch64", &stack), root.path());
    assert!(result.lacking.is_empty() && result.unknown_machine.is_none(), "{result:?}");
    let expected = ["F\t1\t1\t0x1209\tu,ra", "F\t2\t1\t0x1105\tu,ra", "F\t3\t1\t0x1010\tu"];
    assert_eq!(frames(&text), expected, "{text}");
    assert!(!text.contains("incomplete="), "{text}");

    let (_, text) = imported(&recording(b"aarch64", &stack[..1]), root.path());
    assert_eq!(frames(&text)[0], "F\t1\t0\t0x0\tu,stack-truncated", "{text}");
}

#[test]
fn copy_without_a_file_or_of_an_unknown_architecture_is_marked() {
    let root = tempfile::tempdir().expect("a directory");
    let stack = [STACK + 32, 0x40_1209, 0, 0];
    let (result, text) = imported(&recording(b"aarch64", &stack), root.path());
    assert_eq!(result.lacking.len(), 1);
    assert_eq!(frames(&text)[0], "F\t1\t0\t0x0\tu,no-unwind-info", "{text}");
    let (result, text) = imported(&recording(b"riscv64", &stack), root.path());
    assert_eq!(result.unknown_machine.as_deref(), Some(&b"riscv64"[..]));
    assert_eq!(frames(&text)[0], "F\t1\t0\t0x0\tu,no-stack", "{text}");
    assert_eq!(frames(&text).len(), 2, "{text}");
}
