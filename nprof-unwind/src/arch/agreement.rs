//! The agreement of the ends of a code analysis.

use crate::arch::rule::{RegisterRule, UnwindRule};

/// The agreement of the ends found so far.
#[derive(Debug)]
pub(crate) enum Agreement {
    None,
    Rule(UnwindRule),
    /// The ends disagree.
    Split,
}

impl Agreement {
    /// Adds the rule of an end. A register of `preserved` on which the ends disagree is lost.
    pub(crate) fn add(&mut self, row: UnwindRule, preserved: &[u16]) {
        *self = match std::mem::replace(self, Self::Split) {
            Self::None => Self::Rule(row),
            Self::Rule(other)
                if other.cfa == row.cfa && other.return_address == row.return_address =>
            {
                Self::Rule(common(&other, &row, preserved))
            }
            _ => Self::Split,
        };
    }
}

/// Merges two rules with the same CFA.
fn common(one: &UnwindRule, other: &UnwindRule, preserved: &[u16]) -> UnwindRule {
    let saved = |row: &UnwindRule, register| {
        let found = row.registers.iter().find(|(other, _)| *other == register);
        found.map_or(RegisterRule::SameValue, |(_, saved)| saved.clone())
    };
    let both = |&register: &u16| {
        let (one, other) = (saved(one, register), saved(other, register));
        let saved = if one == other { one } else { RegisterRule::Undefined };
        (saved != RegisterRule::SameValue).then_some((register, saved))
    };
    let registers = preserved.iter().filter_map(both).collect();
    UnwindRule { registers, ..one.clone() }
}
