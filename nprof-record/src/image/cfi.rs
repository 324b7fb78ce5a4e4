//! The unwind tables of an image: for an address, the rule that finds the caller's registers.
//!
//! gimli reads DWARF's call frame information; this module keeps the rules it has read. They are
//! kept by image address, so that all processes that map an image share them, whatever is
//! mapped or unmapped beside it. An image has few distinct rules, so each is kept once.

use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Pointer, UnwindContext, UnwindExpression,
    UnwindSection as FrameSection,
};
use nprof_object::ImageAddress;
use rustc_hash::FxHashMap;

use crate::arch;
use crate::arch::Plt;
use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};

/// Addresses whose rule is remembered, per image; beyond that all are forgotten.
const MEMO_MAX: usize = 1 << 18;

/// What the working memory of a table's reader takes, and about what a rule does, bytes.
const CONTEXT_BYTES: usize = 32 << 10;
const ROW_BYTES: usize = 256;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A section with an unwind table.
#[derive(Clone, Debug)]
pub struct UnwindSection {
    /// Its image address.
    pub address: u64,
    pub bytes: Rc<[u8]>,
}

impl UnwindSection {
    fn slice(&self) -> Slice<'_> {
        EndianSlice::new(&self.bytes, LittleEndian)
    }

    /// Of `.eh_frame_hdr`: the image address of `.eh_frame`.
    pub fn eh_frame_address(&self) -> Option<u64> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.address);
        match EhFrameHdr::from(self.slice()).parse(&bases, 8).ok()?.eh_frame_ptr() {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        }
    }
}

/// The sections unwind tables may be in.
#[derive(Clone, Debug, Default)]
pub struct UnwindSections {
    /// The image address of `.text`.
    pub text: u64,
    /// The image address of `.got`.
    pub got: u64,
    pub eh_frame: Option<UnwindSection>,
    pub eh_frame_hdr: Option<UnwindSection>,
    pub debug_frame: Option<UnwindSection>,
    /// For what no other table covers.
    pub plts: Vec<Plt>,
}

/// Where the entry for an address is found.
#[derive(Debug)]
enum FdeIndex {
    /// By the linker's sorted table `.eh_frame_hdr`.
    Header(UnwindSection),
    /// By our own: start, end, and offset in the section, sorted.
    Own(Vec<(u64, u64, usize)>),
}

/// Which of the two forms of call frame information a section has.
#[derive(Debug)]
enum TableSection {
    Eh(UnwindSection),
    Debug(UnwindSection),
}

/// The unwind tables of one image.
#[derive(Debug)]
pub struct UnwindTables {
    parts: Vec<(TableSection, FdeIndex)>,
    plts: Vec<Plt>,
    bases: BaseAddresses,
    context: Box<UnwindContext<usize>>,
    memo: FxHashMap<ImageAddress, Option<Rc<UnwindRule>>>,
    rows: FxHashMap<Rc<UnwindRule>, ()>,
    /// What the sections and their indices take, bytes.
    fixed: usize,
}

impl UnwindTables {
    /// Takes the sections of an image; `None` when there is no table in them.
    pub fn new(tables: UnwindSections) -> Option<Self> {
        let mut bases = BaseAddresses::default().set_text(tables.text).set_got(tables.got);
        let mut parts = Vec::new();
        if let Some(frames) = tables.eh_frame {
            bases = bases.set_eh_frame(frames.address);
            let header = tables.eh_frame_hdr.filter(has_search_table);
            let index = match header {
                Some(header) => {
                    bases = bases.set_eh_frame_hdr(header.address);
                    FdeIndex::Header(header)
                }
                None => FdeIndex::Own(index(&EhFrame::from(frames.slice()), &bases)),
            };
            parts.push((TableSection::Eh(frames), index));
        }
        if let Some(frames) = tables.debug_frame {
            let own = index(&debug_frame(&frames), &bases);
            parts.push((TableSection::Debug(frames), FdeIndex::Own(own)));
        }
        if parts.is_empty() {
            return None;
        }
        let bytes = |(section, index): &(TableSection, FdeIndex)| section.bytes() + index.bytes();
        let fixed = CONTEXT_BYTES + parts.iter().map(bytes).sum::<usize>();
        let (memo, rows) = (FxHashMap::default(), FxHashMap::default());
        Some(Self { parts, plts: tables.plts, bases, context: Box::default(), memo, rows, fixed })
    }

    /// What it takes, bytes, about: it grows with the rules it has read.
    pub fn bytes(&self) -> usize {
        let memo = self.memo.capacity() * size_of::<(u64, Option<Rc<UnwindRule>>, u8)>();
        self.fixed + memo + self.rows.capacity() * ROW_BYTES
    }

    /// The rule at an image address; `None` when no table covers it.
    pub fn row(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        if let Some(row) = self.memo.get(&address) {
            return row.clone();
        }
        if self.memo.len() >= MEMO_MAX {
            self.memo.clear();
            self.rows.clear();
        }
        let row = self.read(address.0);
        let row = row.or_else(|| self.plts.iter().find_map(|plt| plt.row(address)));
        let row = row.map(|row| self.unique(row));
        self.memo.insert(address, row.clone());
        row
    }

    fn unique(&mut self, row: UnwindRule) -> Rc<UnwindRule> {
        if let Some((row, ())) = self.rows.get_key_value(&row) {
            return row.clone();
        }
        let row = Rc::new(row);
        self.rows.insert(row.clone(), ());
        row
    }

    fn read(&mut self, address: u64) -> Option<UnwindRule> {
        let (bases, context) = (&self.bases, &mut *self.context);
        self.parts.iter().find_map(|(section, index)| match section {
            TableSection::Eh(table) => {
                let frames = EhFrame::from(table.slice());
                let at = index.find(address, bases)?;
                row_of(&frames, at, bases, context, address)
            }
            TableSection::Debug(table) => {
                let at = index.find(address, bases)?;
                row_of(&debug_frame(table), at, bases, context, address)
            }
        })
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

    /// The offset in the section of the entry that may cover an address.
    fn find(&self, address: u64, bases: &BaseAddresses) -> Option<usize> {
        match self {
            Self::Header(table) => {
                let header = EhFrameHdr::from(table.slice()).parse(bases, 8).ok()?;
                let search = header.table()?;
                let pointer = search.lookup(address, bases).ok()?;
                Some(search.pointer_to_offset(pointer).ok()?.0)
            }
            Self::Own(entries) => {
                let behind = entries.partition_point(|&(start, _, _)| start <= address);
                let &(_, end, offset) = entries.get(behind.checked_sub(1)?)?;
                (address < end).then_some(offset)
            }
        }
    }
}

fn debug_frame(table: &UnwindSection) -> DebugFrame<Slice<'_>> {
    let mut frames = DebugFrame::from(table.slice());
    frames.set_address_size(8);
    frames
}

fn has_search_table(header: &UnwindSection) -> bool {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    EhFrameHdr::from(header.slice()).parse(&bases, 8).is_ok_and(|header| header.table().is_some())
}

/// How far below the CFA the stack pointer is, bytes; 0 where it is not what the rule goes by.
fn below_cfa(rule: &CfaRule<usize>) -> i64 {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } if register.0 == arch::SP => *offset,
        _ => 0,
    }
}

/// Sorts the entries of a section that has no index.
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

/// The rule of an entry at an address.
///
/// In an epilogue the registers are popped one by one, but compilers keep saying that they lie on
/// the stack, which is below the stack pointer by then and not copied. Where the entry had the
/// stack pointer below such a place before, the register has been taken from there again. (A
/// function that never moves the stack pointer may have saved it in the red zone, and use it.)
fn row_of<'a, S: FrameSection<Slice<'a>>>(
    section: &S,
    at: usize,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    address: u64,
) -> Option<UnwindRule> {
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
        deepest = deepest.max(below_cfa(row.cfa()));
    }
    let row = table.into_current_row()?;
    let expression = |expression: &UnwindExpression<usize>| {
        let code = expression.get(section).ok()?;
        Some(Expression { code: code.0.slice().into(), encoding })
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
        CfaRule::Expression(code) => Cfa::Expression(expression(code)?),
    };
    let here = below_cfa(row.cfa());
    let is_popped = |offset: i64| 0 < here && offset < -here && -deepest <= offset;
    let mut return_address = RegisterRule::Undefined;
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
            &register if register == column => return_address = saved,
            register if usize::from(register.0) < arch::COUNT => {
                registers.push((register.0, saved));
            }
            _ => {}
        }
    }
    registers.sort_unstable_by_key(|(register, _)| *register);
    Some(UnwindRule { cfa, return_address, registers: registers.into(), signal })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `.debug_frame` of one function at 0x1000, 0x100 bytes, with these instructions. Where it
    /// begins the CFA is rsp + 8, and the return address below it.
    fn cfi(instructions: &[u8]) -> UnwindTables {
        let cie = [&[0xff; 4][..], &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0]].concat();
        let fde = [&[0; 4][..], &0x1000u64.to_le_bytes(), &0x100u64.to_le_bytes(), instructions];
        let mut bytes = Vec::new();
        for entry in [cie, fde.concat()] {
            bytes.extend((entry.len() as u32).to_le_bytes());
            bytes.extend(entry);
        }
        let debug_frame = Some(UnwindSection { address: 0, bytes: bytes.into() });
        UnwindTables::new(UnwindSections { debug_frame, ..UnwindSections::default() })
            .expect("a table")
    }

    #[test]
    fn a_register_that_was_popped_has_its_value_again() {
        // push %rbp; push %rbx; ...; pop %rbx; pop %rbp; ret
        let code =
            [0x41, 0x0e, 16, 0x86, 2, 0x41, 0x0e, 24, 0x83, 3, 0x48, 0x0e, 16, 0x41, 0x0e, 8];
        let mut cfi = cfi(&code);
        let mut at = |address| cfi.row(ImageAddress(address)).expect("a row").registers.to_vec();
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
    fn leave_gives_back_the_frame_pointer() {
        // push %rbp; mov %rsp,%rbp; ...; leave; ret
        let mut cfi = cfi(&[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x48, 0x0c, 7, 8]);
        let mut at = |address| cfi.row(ImageAddress(address)).expect("a row").registers.to_vec();
        assert_eq!(at(0x1006), [(6, RegisterRule::AtCfaOffset(-16))]);
        assert_eq!(at(0x100c), [(6, RegisterRule::SameValue)]);
    }

    #[test]
    fn what_was_saved_in_the_red_zone_stays_there() {
        // mov %rbx,-8(%rsp); ...
        let mut cfi = cfi(&[0x45, 0x83, 2]);
        assert_eq!(
            cfi.row(ImageAddress(0x1010)).expect("a row").registers[..],
            [(3, RegisterRule::AtCfaOffset(-16))]
        );
    }
}
