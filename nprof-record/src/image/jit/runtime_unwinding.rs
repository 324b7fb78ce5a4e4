//! Unwind tables of functions generated at run time, from their jitdump file. Pure.

use std::rc::Rc;

use gimli::UnwindContext;
use nprof_unwind::arch::Machine;
use nprof_unwind::arch::rule::UnwindRule;
use nprof_unwind::image::cfi::{UnwindSection, rule_in_section};
use rustc_hash::FxHashMap;

/// The most cached rules; the cache is cleared when it is full.
const MEMO_MAX: usize = 1 << 14;

/// The most bytes of tables that cached rules refer to: they stay in memory after their function, so
/// that the limit of functions does not count them. Most tables have less than a kilobyte.
const MEMO_MAX_BYTES: usize = 32 << 20;

/// The address at which functions are assumed: tables are relative to themselves.
const ASSUMED_START: u64 = 1 << 20;

/// The alignment of the table after the code of its function (tools/perf/util/genelf.c).
const TABLE_ALIGNMENT: u64 = 8;

/// The unwind table of a function.
#[derive(Debug)]
pub(crate) struct RuntimeUnwinding {
    eh_frame: UnwindSection,
    code_bytes: u64,
}

impl RuntimeUnwinding {
    /// Creates the table of a function with `code_bytes` of code. None if there is no table.
    ///
    /// Its references are relative to their place, which is right after the code.
    pub(crate) fn new(eh_frame: Option<Rc<[u8]>>, code_bytes: u64) -> Option<Self> {
        let offset = code_bytes.checked_next_multiple_of(TABLE_ALIGNMENT)?;
        let address = ASSUMED_START.checked_add(offset)?;
        Some(Self { eh_frame: UnwindSection { address, bytes: eh_frame? }, code_bytes })
    }

    /// Returns the memory of the table.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.eh_frame.bytes.len()
    }
}

/// The rules of all functions.
#[derive(Debug, Default)]
pub(crate) struct RuntimeRules {
    context: Box<UnwindContext<usize>>,
    /// The rules by the address of the table in our memory, and the offset in the function. None
    /// where no table covers it. The reference keeps the address from being used again.
    memo: FxHashMap<(*const RuntimeUnwinding, u64), CachedRule>,
    /// The bytes of their tables, once for each rule.
    memo_bytes: usize,
}

#[derive(Debug)]
struct CachedRule {
    _unwinding: Rc<RuntimeUnwinding>,
    rule: Option<Rc<UnwindRule>>,
}

impl RuntimeRules {
    /// Returns the rule at an offset in a function. None if its table does not cover it.
    pub(crate) fn rule(
        &mut self,
        unwinding: &Rc<RuntimeUnwinding>,
        offset: u64,
    ) -> Option<Rc<UnwindRule>> {
        let key = (Rc::as_ptr(unwinding), offset);
        if let Some(cached) = self.memo.get(&key) {
            return cached.rule.clone();
        }
        let range = ASSUMED_START..ASSUMED_START.saturating_add(unwinding.code_bytes);
        let address = ASSUMED_START.saturating_add(offset);
        let rule = rule_in_section(
            &unwinding.eh_frame,
            &mut self.context,
            &range,
            address,
            Machine::NATIVE,
        );
        let rule = rule.map(Rc::new);
        if self.memo.len() >= MEMO_MAX || self.memo_bytes >= MEMO_MAX_BYTES {
            self.memo.clear();
            self.memo_bytes = 0;
        }
        self.memo_bytes += unwinding.bytes();
        self.memo.insert(key, CachedRule { _unwinding: unwinding.clone(), rule: rule.clone() });
        rule
    }
}

#[cfg(test)]
mod tests {
    use nprof_unwind::arch;
    use nprof_unwind::arch::rule::Cfa;

    use super::*;

    /// Returns the .eh_frame of a function of 16 bytes: push %rbp; mov %rsp,%rbp; ...; the CFA is
    /// rsp + 8 at its start, rsp + 16 from 1 on, and rbp + 16 from 4 on. `start` is the reference to
    /// the function.
    fn eh_frame(start: i32) -> Vec<u8> {
        // Version 1, "zR", code alignment 1, data alignment -8, return address 16, pointers relative
        // and signed (DW_EH_PE_pcrel | DW_EH_PE_sdata4); def_cfa rsp + 8; return address at -8.
        let cie = [&[0; 4][..], &[1], b"zR\0", &[1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0]];
        let cie = cie.concat();
        let code = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0, 0, 0];
        let id = cie.len() as u32 + 8;
        let fde = [&id.to_le_bytes()[..], &start.to_le_bytes(), &16u32.to_le_bytes(), &[0], &code];
        let mut bytes = Vec::new();
        for entry in [cie, fde.concat()] {
            bytes.extend((entry.len() as u32).to_le_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    /// Returns the CFA at each of these offsets in a function of `code_bytes`.
    fn cfas(eh_frame: Vec<u8>, code_bytes: u64, offsets: &[u64]) -> Vec<Option<Cfa>> {
        let unwinding = RuntimeUnwinding::new(Some(eh_frame.into()), code_bytes).expect("a table");
        let (unwinding, mut rules) = (Rc::new(unwinding), RuntimeRules::default());
        let mut cfa = |&at: &u64| Some(rules.rule(&unwinding, at)?.cfa.clone());
        // Once more from the cache.
        let first: Vec<_> = offsets.iter().map(&mut cfa).collect();
        assert_eq!(offsets.iter().map(&mut cfa).collect::<Vec<_>>(), first);
        first
    }

    #[test]
    fn table_after_code_gives_rules() {
        let [push, frame] = [8, 16].map(|bytes| Some(Cfa::Register(arch::SP, bytes)));
        let kept = Some(Cfa::Register(arch::FP, 16));
        // The reference is 32 bytes into the table, and the table 16 bytes after the start.
        let expected = [push, frame.clone(), frame, kept.clone(), kept, None];
        let offsets = [0, 1, 3, 4, 15, 16];
        assert_eq!(cfas(eh_frame(-48), 16, &offsets), expected);
        // With padding between code and table; the table covers the end of the code.
        assert_eq!(cfas(eh_frame(-48), 13, &offsets), expected);
        // The only entry is that of the function, wherever it refers to.
        assert_eq!(cfas(eh_frame(0x7000_0000), 16, &offsets), expected);
    }

    #[test]
    fn damaged_table_gives_no_rules() {
        let whole = eh_frame(-48);
        for length in 0..whole.len() {
            assert!(cfas(whole[..length].to_vec(), 16, &[4])[0].is_none() || length > 40);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            cfas(damaged, 16, &[0, 4]);
        }
        assert!(RuntimeUnwinding::new(None, 16).is_none());
        assert!(RuntimeUnwinding::new(Some(whole.into()), u64::MAX - 7).is_none());
    }
}
