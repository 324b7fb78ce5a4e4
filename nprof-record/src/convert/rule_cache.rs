//! The unwind rules of addresses that samples have met, for any process: a look-up of the mapping, of the
//! image and of its table takes several times as long. Pure.

use std::rc::Rc;

use nprof_object::RuntimeAddress;

use crate::arch::rule::UnwindRule;

/// The number of rules, as a power of two.
const RULES_LOG: u32 = 12;

/// A rule at an address, in one state of an address space.
#[derive(Clone, Debug)]
struct CachedRule {
    /// The number of that state, see [`crate::convert::stack_cache::LatestStack`].
    space: u64,
    address: RuntimeAddress,
    rule: Rc<UnwindRule>,
}

/// The rules, by a hash; one replaces another.
#[derive(Debug)]
pub(crate) struct RuleCache(Vec<Option<CachedRule>>);

impl Default for RuleCache {
    fn default() -> Self {
        Self(vec![None; 1 << RULES_LOG])
    }
}

impl RuleCache {
    /// Returns the rule at an address. None if it is not cached.
    pub(crate) fn get(&self, space: u64, address: RuntimeAddress) -> Option<Rc<UnwindRule>> {
        let cached = self.0[index(space, address)].as_ref()?;
        ((cached.space, cached.address) == (space, address)).then(|| cached.rule.clone())
    }

    /// Adds the rule at an address.
    pub(crate) fn insert(&mut self, space: u64, address: RuntimeAddress, rule: Rc<UnwindRule>) {
        self.0[index(space, address)] = Some(CachedRule { space, address, rule });
    }
}

fn index(space: u64, RuntimeAddress(address): RuntimeAddress) -> usize {
    // Fibonacci hashing: the upper bits depend on all bits of the key.
    let key = (address ^ space.rotate_right(12)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> (u64::BITS - RULES_LOG)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::arch::rule::{Cfa, RegisterRule};

    fn rule(offset: i64) -> Rc<UnwindRule> {
        let cfa = Cfa::Register(arch::SP, offset);
        let return_address = RegisterRule::AtCfaOffset(-8);
        Rc::new(UnwindRule { cfa, return_address, registers: [].into(), signal: false })
    }

    #[test]
    fn rule_is_that_of_the_address_in_this_space() {
        let mut cache = RuleCache::default();
        let address = RuntimeAddress;
        assert_eq!(cache.get(1, address(0x1000)), None);
        for at in 0..1 << (RULES_LOG + 1) {
            cache.insert(1, address(at), rule(at as i64));
        }
        let found =
            (0..1 << (RULES_LOG + 1)).filter_map(|at| Some((at, cache.get(1, address(at))?)));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|(at, found)| *found == rule(*at as i64)));
        assert!(found.len() > 1000, "{}", found.len());
        assert_eq!(cache.get(2, address(found[0].0)), None, "another space");
    }
}
