//! The unwind tables of an image: DWARF call frame information (DWARF 5, section 6.4).
//!
//! gimli evaluates it; this module caches the rules by image address, so that all processes that
//! map an image share them. An image has few distinct rules: each is stored once.

use std::ops::Range;
use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Pointer, UnwindContext, UnwindExpression,
    UnwindSection as FrameSection,
};
use nprof_object::ImageAddress;
use rustc_hash::FxHashMap;

use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};
use crate::arch::{Machine, Plt};
use crate::image::go_table::GoTable;

/// The most addresses with a cached rule per image; the cache is cleared when it is full.
const MEMO_MAX: usize = 1 << 18;

/// The size of gimli's [`UnwindContext`].
const CONTEXT_BYTES: usize = 32 << 10;

/// The approximate size of a rule.
const RULE_BYTES: usize = 256;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A section with an unwind table.
#[derive(Clone, Debug)]
pub struct UnwindSection {
    /// The image address.
    pub address: u64,
    /// The contents.
    pub bytes: Rc<[u8]>,
}

impl UnwindSection {
    /// Returns the bytes for gimli.
    fn slice(&self) -> Slice<'_> {
        EndianSlice::new(&self.bytes, LittleEndian)
    }

    /// Returns the image address of `.eh_frame`, if this section is `.eh_frame_hdr`.
    pub fn eh_frame_address(&self) -> Option<u64> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.address);
        match EhFrameHdr::from(self.slice()).parse(&bases, 8).ok()?.eh_frame_ptr() {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        }
    }
}

/// The sections of a file for unwinding.
#[derive(Clone, Debug)]
pub struct UnwindSections {
    /// The architecture of the code.
    pub machine: Machine,
    /// The image address of `.text`.
    pub text: u64,
    /// The image address of `.got`.
    pub got: u64,
    /// `.eh_frame`: call frame information for exceptions.
    pub eh_frame: Option<UnwindSection>,
    /// `.eh_frame_hdr`: the sorted table of its entries.
    pub eh_frame_hdr: Option<UnwindSection>,
    /// `.debug_frame`: call frame information for debuggers.
    pub debug_frame: Option<UnwindSection>,
    /// Procedure linkage tables, for addresses that no table covers.
    pub plts: Vec<Plt>,
    /// The table of a Go program, of which the DWARF tables only cover code in other languages.
    pub go: Option<GoTable>,
}

impl UnwindSections {
    /// Returns no sections.
    pub fn new(machine: Machine) -> Self {
        let (eh_frame, eh_frame_hdr, debug_frame) = (None, None, None);
        let (plts, go) = (Vec::new(), None);
        Self { machine, text: 0, got: 0, eh_frame, eh_frame_hdr, debug_frame, plts, go }
    }
}

/// The index from addresses to frame description entries (FDE).
#[derive(Debug)]
enum FdeIndex {
    /// The linker's sorted table `.eh_frame_hdr`.
    Header(UnwindSection),
    /// An index built by this module: start, end, and offset in the section, sorted.
    Own(Vec<(u64, u64, usize)>),
}

/// A section by the form of its call frame information.
#[derive(Debug)]
enum TableSection {
    Eh(UnwindSection),
    Debug(UnwindSection),
}

/// The rule of an entry for a range of addresses.
#[derive(Debug)]
struct Row {
    addresses: Range<u64>,
    rule: Rc<UnwindRule>,
}

/// The unwind tables of one image.
#[derive(Debug)]
pub struct UnwindTables {
    go: Option<GoTable>,
    parts: Vec<(TableSection, FdeIndex)>,
    plts: Vec<Plt>,
    machine: Machine,
    bases: BaseAddresses,
    context: Box<UnwindContext<usize>>,
    /// The rules by address. None where no table covers it.
    memo: FxHashMap<ImageAddress, Option<Rc<UnwindRule>>>,
    /// The rows that were evaluated, by the number of the part and the offset of the entry there: most
    /// addresses of a function have the row of another.
    rows: FxHashMap<(usize, usize), Vec<Row>>,
    /// The distinct rules.
    rules: FxHashMap<Rc<UnwindRule>, ()>,
    /// The memory of the sections and their indices.
    fixed_bytes: usize,
}

impl UnwindTables {
    /// Creates the tables of an image from its sections. None if they have no table.
    pub fn new(tables: UnwindSections) -> Option<Self> {
        let mut bases = BaseAddresses::default().set_text(tables.text).set_got(tables.got);
        let mut parts = Vec::new();
        if let Some(frames) = tables.eh_frame {
            bases = bases.set_eh_frame(frames.address);
            // Linkers can omit the sorted table: the section is then indexed here.
            let header = tables.eh_frame_hdr.filter(has_search_table);
            let index = match header {
                Some(header) => {
                    bases = bases.set_eh_frame_hdr(header.address);
                    FdeIndex::Header(header)
                }
                None => FdeIndex::Own(index(&eh_frame(&frames, tables.machine), &bases)),
            };
            parts.push((TableSection::Eh(frames), index));
        }
        if let Some(frames) = tables.debug_frame {
            let own = index(&debug_frame(&frames, tables.machine), &bases);
            parts.push((TableSection::Debug(frames), FdeIndex::Own(own)));
        }
        if parts.is_empty() && tables.go.is_none() {
            return None;
        }
        let sizes = parts.iter().map(|(section, index)| section.bytes() + index.bytes());
        let go_bytes = tables.go.as_ref().map_or(0, GoTable::bytes);
        Some(Self {
            fixed_bytes: CONTEXT_BYTES + go_bytes + sizes.sum::<usize>(),
            go: tables.go,
            parts,
            plts: tables.plts,
            machine: tables.machine,
            bases,
            context: Box::default(),
            memo: FxHashMap::default(),
            rows: FxHashMap::default(),
            rules: FxHashMap::default(),
        })
    }

    /// Returns the approximate memory. It grows with the cached rules.
    pub fn bytes(&self) -> usize {
        let memo = self.memo.capacity() * size_of::<(u64, Option<Rc<UnwindRule>>, u8)>();
        // Each row has at least one address in the memo.
        let rows = self.rows.capacity() * size_of::<(usize, usize, Vec<Row>, u8)>()
            + self.memo.len() * size_of::<Row>();
        self.fixed_bytes + memo + rows + self.rules.capacity() * RULE_BYTES
    }

    /// Returns the rule at an image address. None if no table covers it.
    pub fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        if let Some(rule) = self.memo.get(&address) {
            return rule.clone();
        }
        if self.memo.len() >= MEMO_MAX {
            self.memo.clear();
            self.rows.clear();
            self.rules.clear();
        }
        let rule = self.read(address).or_else(|| {
            let rule = self.plts.iter().find_map(|plt| plt.rule(address, self.machine));
            rule.map(|rule| self.unique(rule))
        });
        self.memo.insert(address, rule.clone());
        rule
    }

    /// Returns the stored rule that equals `rule`.
    fn unique(&mut self, rule: UnwindRule) -> Rc<UnwindRule> {
        if let Some((rule, ())) = self.rules.get_key_value(&rule) {
            return rule.clone();
        }
        let rule = Rc::new(rule);
        self.rules.insert(rule.clone(), ());
        rule
    }

    /// Returns the rule of the first table that covers an address.
    fn read(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        let of_go = self.go.as_ref().and_then(|go| go.rule(address));
        if let Some(rule) = of_go {
            return Some(self.unique(rule));
        }
        (0..self.parts.len()).find_map(|part| self.read_part(part, address.0))
    }

    /// Returns the rule of a part at an address. None if it does not cover it.
    fn read_part(&mut self, part: usize, address: u64) -> Option<Rc<UnwindRule>> {
        let (section, index) = self.parts.get(part)?;
        let (bases, context, machine) = (&self.bases, &mut *self.context, self.machine);
        let at = index.find(address, bases)?;
        let known = self.rows.get(&(part, at)).map_or(&[][..], Vec::as_slice);
        if let Some(row) = known.iter().find(|row| row.addresses.contains(&address)) {
            return Some(row.rule.clone());
        }
        let (rule, addresses) = match section {
            TableSection::Eh(table) => {
                rule_of_fde(&eh_frame(table, machine), at, bases, context, address, machine)
            }
            TableSection::Debug(table) => {
                rule_of_fde(&debug_frame(table, machine), at, bases, context, address, machine)
            }
        }?;
        let rule = self.unique(rule);
        self.rows.entry((part, at)).or_default().push(Row { addresses, rule: rule.clone() });
        Some(rule)
    }
}

impl TableSection {
    fn bytes(&self) -> usize {
        let (Self::Eh(table) | Self::Debug(table)) = self;
        table.bytes.len()
    }
}

impl FdeIndex {
    fn bytes(&self) -> usize {
        match self {
            Self::Header(table) => table.bytes.len(),
            Self::Own(entries) => entries.capacity() * size_of::<(u64, u64, usize)>(),
        }
    }

    /// Returns the section offset of the entry that may cover an address. None if there is none.
    fn find(&self, address: u64, bases: &BaseAddresses) -> Option<usize> {
        match self {
            Self::Header(table) => {
                let header = EhFrameHdr::from(table.slice()).parse(bases, 8).ok()?;
                // Returns the last entry that starts before the address; the row checks its end.
                let search = header.table()?;
                let pointer = search.lookup(address, bases).ok()?;
                Some(search.pointer_to_offset(pointer).ok()?.0)
            }
            Self::Own(entries) => {
                let after = entries.partition_point(|&(start, _, _)| start <= address);
                let &(_, end, offset) = entries.get(after.checked_sub(1)?)?;
                (address < end).then_some(offset)
            }
        }
    }
}

/// Returns an `.eh_frame` section for gimli.
fn eh_frame(table: &UnwindSection, machine: Machine) -> EhFrame<Slice<'_>> {
    let mut frames = EhFrame::from(table.slice());
    frames.set_vendor(machine.vendor());
    frames
}

/// Returns a `.debug_frame` section for gimli.
fn debug_frame(table: &UnwindSection, machine: Machine) -> DebugFrame<Slice<'_>> {
    let mut frames = DebugFrame::from(table.slice());
    frames.set_vendor(machine.vendor());
    // Before version 4, entries do not state the size of addresses.
    frames.set_address_size(8);
    frames
}

/// True if `.eh_frame_hdr` has the sorted table; linkers may omit it.
fn has_search_table(header: &UnwindSection) -> bool {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    EhFrameHdr::from(header.slice()).parse(&bases, 8).is_ok_and(|header| header.table().is_some())
}

/// Returns the distance in bytes from the stack pointer to the CFA; 0 if the rule does not use the
/// stack pointer.
fn below_cfa(rule: &CfaRule<usize>, machine: Machine) -> i64 {
    match rule {
        CfaRule::RegisterAndOffset { register, offset }
            if register.0 == machine.stack_pointer() =>
        {
            *offset
        }
        _ => 0,
    }
}

/// Builds an index of a section.
fn index<'a, S: FrameSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
) -> Vec<(u64, u64, usize)> {
    let mut entries = section.entries(bases);
    let mut index = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(S::cie_from_offset) else { continue };
        index.push((entry.initial_address(), entry.end_address(), entry.offset()));
    }
    index.sort_unstable();
    index
}

/// Returns the rule at an address of the function in `range`, from a section with its entry alone.
/// None if the section does not cover it.
pub fn rule_in_section(
    section: &UnwindSection,
    context: &mut UnwindContext<usize>,
    range: &Range<u64>,
    address: u64,
    machine: Machine,
) -> Option<UnwindRule> {
    let frames = eh_frame(section, machine);
    let bases = BaseAddresses::default().set_eh_frame(section.address);
    let entries = index(&frames, &bases);
    let covers = |&&(start, end, _): &&(u64, u64, usize)| (start..end).contains(&address);
    if let Some(&(_, _, at)) = entries.iter().find(covers) {
        let found = rule_of_fde(&frames, at, &bases, context, address, machine);
        return found.map(|(rule, _)| rule);
    }
    // A generator may have assumed another distance between the function and the section.
    let &[(start, _, at)] = &entries[..] else { return None };
    let address = address.checked_sub(range.start)?.checked_add(start)?;
    rule_of_fde(&frames, at, &bases, context, address, machine).map(|(rule, _)| rule)
}

/// Returns the rule of an entry at an address, and the addresses that have it. None if the entry does not cover
/// the address.
///
/// In an epilogue the registers are popped one by one, but GCC's and LLVM's tables keep stating
/// that they are saved on the stack: at places below the stack pointer, which are not copied. If an
/// earlier row of the entry had the stack pointer below such a place, the register has been
/// restored from there. (A function that never moves the stack pointer may save a register in the
/// red zone and still use it.)
fn rule_of_fde<'a, S: FrameSection<Slice<'a>>>(
    section: &S,
    at: usize,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    address: u64,
    machine: Machine,
) -> Option<(UnwindRule, Range<u64>)> {
    let entry: FrameDescriptionEntry<Slice<'a>> =
        section.fde_from_offset(bases, S::Offset::from(at), S::cie_from_offset).ok()?;
    let signal = entry.is_signal_trampoline();
    let encoding = entry.cie().encoding();
    let column = entry.cie().return_address_register();
    let mut table = entry.rows(section, bases, context).ok()?;
    let mut deepest = 0;
    loop {
        let row = table.next_row().ok()??;
        if row.contains(address) {
            break;
        }
        deepest = deepest.max(below_cfa(row.cfa(), machine));
    }
    let row = table.into_current_row()?;
    let addresses = row.start_address()..row.end_address();
    let expression = |expression: &UnwindExpression<usize>| {
        let code = expression.get(section).ok()?;
        Some(Expression { code: code.0.slice().into(), encoding })
    };
    // gimli's rows borrow the context and are reused, so all parts are copied.
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
        CfaRule::Expression(code) => Cfa::Expression(expression(code)?),
    };
    let here = below_cfa(row.cfa(), machine);
    let is_popped = |offset: i64| 0 < here && offset < -here && -deepest <= offset;
    let mut return_address = machine.return_address_without_rule();
    let mut registers = Vec::new();
    for (register, rule) in row.registers() {
        let saved = match rule {
            gimli::RegisterRule::SameValue => RegisterRule::SameValue,
            gimli::RegisterRule::Offset(offset) if is_popped(*offset) => RegisterRule::SameValue,
            gimli::RegisterRule::Offset(offset) => RegisterRule::AtCfaOffset(*offset),
            gimli::RegisterRule::ValOffset(offset) => RegisterRule::CfaPlus(*offset),
            gimli::RegisterRule::Register(other) => RegisterRule::Register(other.0),
            gimli::RegisterRule::Expression(code) => RegisterRule::AtExpression(expression(code)?),
            gimli::RegisterRule::ValExpression(code) => {
                RegisterRule::ValueExpression(expression(code)?)
            }
            _ => RegisterRule::Undefined,
        };
        match register {
            // The CIE selects the column of the return address: 16 on x86-64, the link register on aarch64.
            &register if register == column => {
                let is_kept = saved == RegisterRule::SameValue;
                return_address =
                    if is_kept { machine.return_address_without_rule() } else { saved };
            }
            // Others (vector registers) are not in samples.
            register if usize::from(register.0) < machine.registers() => {
                registers.push((register.0, saved));
            }
            _ => {}
        }
    }
    registers.sort_unstable_by_key(|(register, _)| *register);
    Some((UnwindRule { cfa, return_address, registers: registers.into(), signal }, addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tables of one function of x86-64 at 0x1000 with 0x100 bytes and these instructions.
    /// At its start the CFA is rsp + 8, with the return address below it.
    fn tables(instructions: &[u8]) -> UnwindTables {
        let cie = [0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
        debug_frame_tables(&cie, instructions, Machine::X86_64)
    }

    /// The same for 64-bit ARM: at the start of the function the CFA is sp.
    fn aarch64_tables(instructions: &[u8]) -> UnwindTables {
        let cie = [0xff, 0xff, 0xff, 0xff, 1, 0, 4, 0x78, 30, 0x0c, 31, 0, 0, 0, 0, 0];
        debug_frame_tables(&cie, instructions, Machine::Aarch64)
    }

    fn debug_frame_tables(cie: &[u8], instructions: &[u8], machine: Machine) -> UnwindTables {
        let fde = [&[0; 4][..], &0x1000u64.to_le_bytes(), &0x100u64.to_le_bytes(), instructions];
        let mut bytes = Vec::new();
        for entry in [cie, &fde.concat()] {
            bytes.extend((entry.len() as u32).to_le_bytes());
            bytes.extend(entry);
        }
        let debug_frame = Some(UnwindSection { address: 0, bytes: bytes.into() });
        UnwindTables::new(UnwindSections { debug_frame, ..UnwindSections::new(machine) })
            .expect("a table")
    }

    #[test]
    fn return_address_is_in_the_link_register_until_it_is_saved() {
        // paciasp; stp x29, x30, [sp, #-32]!; ...; ldp x29, x30, [sp], #32; autiasp; ret
        let saved = [0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3];
        let restored = [0x44, 0xde, 0xdd, 0x0e, 0, 0x41, 0x2d];
        let code = [&[0x41, 0x2d][..], &saved, &restored].concat();
        let mut tables = aarch64_tables(&code);
        let mut at = |address| {
            let rule = tables.rule(ImageAddress(address)).expect("a rule");
            (rule.return_address.clone(), rule.registers.to_vec())
        };
        let in_link = (RegisterRule::Register(30), vec![]);
        let on_stack = (RegisterRule::AtCfaOffset(-24), vec![(29, RegisterRule::AtCfaOffset(-32))]);
        assert_eq!([0x1000, 0x1004].map(&mut at), [in_link.clone(), in_link.clone()]);
        assert_eq!([0x1008, 0x1014].map(&mut at), [on_stack.clone(), on_stack]);
        assert_eq!([0x1018, 0x101c].map(at), [in_link.clone(), in_link]);
    }

    #[test]
    fn undefined_link_register_ends_the_stack() {
        // .cfi_undefined x30, as in _start and at the start of threads.
        let mut tables = aarch64_tables(&[0x07, 30]);
        assert!(tables.rule(ImageAddress(0x1010)).expect("a rule").is_end_of_stack());
    }

    #[test]
    fn popped_register_has_its_value_again() {
        // push %rbp; push %rbx; ...; pop %rbx; pop %rbp; ret
        let code =
            [0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24, 0x83, 3, 0x48, 0x0e, 16, 0x41, 0x0e, 8];
        let mut tables = tables(&code);
        let mut at =
            |address| tables.rule(ImageAddress(address)).expect("a rule").registers.to_vec();
        assert_eq!(at(0x1000), []);
        assert_eq!(at(0x1001), [(6, RegisterRule::AtCfaOffset(-16))]);
        assert_eq!(
            at(0x1005),
            [(3, RegisterRule::AtCfaOffset(-24)), (6, RegisterRule::AtCfaOffset(-16))]
        );
        assert_eq!(at(0x100a), [(3, RegisterRule::SameValue), (6, RegisterRule::AtCfaOffset(-16))]);
        assert_eq!(at(0x100b), [(3, RegisterRule::SameValue), (6, RegisterRule::SameValue)]);
    }

    #[test]
    fn rule_of_an_address_does_not_depend_on_earlier_ones() {
        // push %rbp; push %rbx; ...; pop %rbx; pop %rbp; ret
        let code =
            [0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24, 0x83, 3, 0x48, 0x0e, 16, 0x41, 0x0e, 8];
        let addresses = 0xfff..0x1102;
        let alone: Vec<_> =
            addresses.clone().map(|at| tables(&code).rule(ImageAddress(at))).collect();
        let mut ascending = tables(&code);
        let together: Vec<_> =
            addresses.clone().map(|at| ascending.rule(ImageAddress(at))).collect();
        assert_eq!(together, alone);
        let mut descending = tables(&code);
        let mut together: Vec<_> =
            addresses.rev().map(|at| descending.rule(ImageAddress(at))).collect();
        together.reverse();
        assert_eq!(together, alone);
        assert_eq!(ascending.rows.values().map(Vec::len).sum::<usize>(), 5, "each once");
    }

    #[test]
    fn leave_restores_frame_pointer() {
        // push %rbp; mov %rsp,%rbp; ...; leave; ret
        let mut tables = tables(&[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x48, 0x0c, 7, 8]);
        let mut at =
            |address| tables.rule(ImageAddress(address)).expect("a rule").registers.to_vec();
        assert_eq!(at(0x1006), [(6, RegisterRule::AtCfaOffset(-16))]);
        assert_eq!(at(0x100c), [(6, RegisterRule::SameValue)]);
    }

    #[test]
    fn register_saved_in_red_zone_stays_saved() {
        // mov %rbx,-8(%rsp); ...
        let mut tables = tables(&[0x45, 0x83, 2]);
        assert_eq!(
            tables.rule(ImageAddress(0x1010)).expect("a rule").registers[..],
            [(3, RegisterRule::AtCfaOffset(-16))]
        );
    }
}
