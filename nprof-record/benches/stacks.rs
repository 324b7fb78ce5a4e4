//! The work for each sample: rules from an unwind table, the walk of a stack, its node in the
//! dictionary.

#![allow(missing_docs, clippy::unwrap_used)] // macros make public functions; a bench may panic

use std::rc::Rc;

use divan::Bencher;
use divan::counter::ItemsCount;
use nprof_stream::{Mark, NodeId, Record};
use object::{Object, ObjectSection, ObjectSymbol};

use nprof_object::{ImageAddress, ImageOffset, RuntimeAddress};
use nprof_record::convert::dictionary::{Dictionary, FrameKey, Sink};
use nprof_unwind::arch::rule::{Cfa, RegisterRule, UnwindRule};
use nprof_unwind::arch::{self, Machine};
use nprof_unwind::image::cfi::{UnwindSection, UnwindSections, UnwindTables};
use nprof_unwind::unwind::stack_copy::StackCopy;
use nprof_unwind::unwind::{
    CodeMap, CompactRule, FrameAddress, FrameState, Registers, UnwindInfo, unwind,
};

/// Frames of a stack.
const DEPTH: u64 = 40;

fn main() {
    divan::main();
}

/// Returns the unwind tables of this program, and the addresses of its functions.
fn own_tables() -> (UnwindSections, Vec<u64>) {
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let table = |name| {
        let section = file.section_by_name(name)?;
        Some(UnwindSection { address: section.address(), bytes: section.data().ok()?.into() })
    };
    let tables = UnwindSections {
        eh_frame: table(".eh_frame"),
        eh_frame_hdr: table(".eh_frame_hdr"),
        ..UnwindSections::new(Machine::NATIVE)
    };
    let functions = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    (tables, functions.map(|symbol| symbol.address()).filter(|&address| address != 0).collect())
}

/// Rules of functions, each looked up for the first time.
#[divan::bench(sample_count = 20)]
fn unwind_rules(bencher: Bencher<'_, '_>) {
    let (tables, functions) = own_tables();
    bencher
        .counter(ItemsCount::new(functions.len()))
        .with_inputs(|| UnwindTables::new(tables.clone()).unwrap())
        .bench_local_values(|mut tables| {
            let rules = functions.iter().map(|&address| tables.rule(ImageAddress(address)));
            rules.flatten().count()
        });
}

/// Code that saves its frame pointer and has frames of 32 bytes, with one cached rule.
struct Frames(Rc<UnwindRule>, Option<CompactRule>);

impl CodeMap for Frames {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        // The last return address of the stack, 0x800, is in the entry function.
        if address.0 < 0x1000 { UnwindInfo::Entry } else { UnwindInfo::Rule(Rc::clone(&self.0)) }
    }

    fn compact_rule(&mut self, address: FrameAddress) -> Option<CompactRule> {
        self.1.filter(|_| address.address_for_lookup().0 >= 0x1000)
    }

    fn is_after_call(&mut self, _: RuntimeAddress) -> Option<bool> {
        Some(true)
    }
}

/// Unwinds a stack.
#[divan::bench]
fn unwind_frames(bencher: Bencher<'_, '_>) {
    let row = UnwindRule {
        cfa: Cfa::Register(arch::SP, 32),
        return_address: RegisterRule::AtCfaOffset(-8),
        registers: [(arch::FP, RegisterRule::AtCfaOffset(-16))].into(),
        signal: false,
    };
    let returns = (1..DEPTH).map(|frame| if frame + 1 == DEPTH { 0x800 } else { 0x1000 + frame });
    let bytes: Vec<u8> = returns
        .flat_map(|address| [0, 0, 0x7000_1000, address])
        .flat_map(u64::to_le_bytes)
        .collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x2000);
    registers.set(arch::SP, 0x7000_0000);
    registers.set(arch::FP, 0x7000_1000);
    let frame = FrameState::interrupted(registers).unwrap();
    let compact = CompactRule::of(&row);
    let mut code = Frames(Rc::new(row), compact);
    let mut addresses = Vec::new();
    bencher.counter(ItemsCount::new(DEPTH)).bench_local(|| {
        addresses.clear();
        let stack = StackCopy::new(0x7000_0000, &bytes);
        let mark = unwind(frame, &stack, &mut code, 1000, &mut addresses, &mut ());
        assert_eq!((mark, addresses.len() as u64), (Mark::None, DEPTH));
    });
}

/// Counts the records instead of writing them.
struct Count(u64);

impl Sink for Count {
    fn take(&mut self, _record: &Record<'_>) {
        self.0 += 1;
    }
}

/// Looks up the nodes of known stacks.
#[divan::bench]
fn intern_stacks(bencher: Bencher<'_, '_>) {
    const STACKS: u64 = 1000;
    let mut dictionary = Dictionary::new(1 << 20);
    let mut sink = Count(0);
    let (mut frames, mut nodes) = (Vec::new(), Vec::new());
    let mut intern = move || {
        for stack in 0..STACKS {
            frames.clear();
            for depth in 0..DEPTH {
                // Half of each stack is shared by all stacks.
                let offset = depth * 64 + if depth > DEPTH / 2 { stack * 4096 } else { 0 };
                let mark = Mark::None;
                let key = FrameKey {
                    image: None,
                    offset: ImageOffset(offset),
                    kernel: false,
                    return_address: true,
                    mark,
                };
                frames.push(dictionary.frame(key, &mut sink));
            }
            nodes.clear();
            dictionary.node(NodeId::NONE, &frames, &mut nodes, &mut sink);
        }
    };
    intern();
    bencher.counter(ItemsCount::new(STACKS)).bench_local(intern);
}
