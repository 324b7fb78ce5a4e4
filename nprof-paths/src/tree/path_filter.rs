//! Call path refinement (Hall 1995, as csprof, section 5, tells of it): options that choose paths
//! by what is on them, and cut them to the part that is asked about. Each works on what the one
//! before it left.

use std::str::FromStr;

use nprof_report::filter::pattern_of;
use regex::bytes::Regex;

use crate::tree::call_tree::{At, Growing, LeafLines, Tree};

/// What is done with the paths that hold a pattern, and with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Paths that hold the pattern begin where it first ends; the others are left out.
    Focus,
    /// Paths that hold the pattern stay; the others are left out.
    Through,
    /// Paths that hold the pattern end where it first ends; the others stay.
    Until,
}

impl Kind {
    /// The option.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Kind::Focus => "focus",
            Kind::Through => "through",
            Kind::Until => "until",
        }
    }
}

/// A pattern of calls, callers first: one regular expression for each.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    steps: Vec<Step>,
    text: String,
}

#[derive(Clone, Debug)]
struct Step {
    regex: Regex,
    /// Whether other calls may stand between the step before and this one.
    after_gap: bool,
}

/// What stands in a pattern for any number of calls.
const GAP: &str = "...";

/// A pattern has no more steps: they are bits of a word.
const STEPS: usize = 63;

impl FromStr for Pattern {
    type Err = String;

    /// Reads `REGEX;...;REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut after_gap = false;
        for part in text.split(';') {
            if part == GAP {
                after_gap = true;
                continue;
            }
            steps.push(Step { regex: pattern_of(part)?, after_gap });
            after_gap = false;
        }
        match steps.len() {
            _ if after_gap => Err(format!("ends in {GAP}: which call is meant?")),
            count if count > STEPS => Err(format!("has more than {STEPS} calls")),
            _ => Ok(Self { steps, text: text.to_owned() }),
        }
    }
}

/// An option with its pattern.
#[derive(Clone, Debug)]
pub(crate) struct Refinement {
    pub(crate) kind: Kind,
    pub(crate) pattern: Pattern,
}

impl Refinement {
    /// The option as the user spelled it.
    pub(crate) fn spelled(&self) -> String {
        format!("--{} {}", self.kind.option(), self.pattern.text)
    }
}

/// The steps of a pattern that may come next: bit 0 is the first step, which always may.
type Ready = u64;

/// A pattern, and which functions its steps hold for.
struct Matcher<'a> {
    steps: &'a [Step],
    /// By step and function.
    holds: Vec<Vec<bool>>,
}

impl<'a> Matcher<'a> {
    fn new(pattern: &'a Pattern, tree: &Tree) -> Self {
        let of_step = |step: &Step| {
            tree.functions.iter().map(|function| step.regex.is_match(&function.bytes)).collect()
        };
        Self { steps: &pattern.steps, holds: pattern.steps.iter().map(of_step).collect() }
    }

    /// What may come after a call of this function, and whether the pattern ends with it.
    fn step(&self, ready: Ready, function: usize) -> (Ready, bool) {
        let mut next: Ready = 1;
        let mut ends = false;
        for (i, step) in self.steps.iter().enumerate().filter(|(i, _)| ready >> i & 1 == 1) {
            if step.after_gap {
                next |= 1 << i;
            }
            if self.holds[i][function] {
                ends |= i + 1 == self.steps.len();
                next |= 1 << (i + 1);
            }
        }
        (next, ends)
    }
}

/// What is known of a path down to a node.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ready: Ready,
    /// Whether the pattern has ended here or further up.
    ended: bool,
    /// The refined tree's top, and node if the path has one there.
    top: At,
    place: Option<At>,
}

/// The tree of the paths that are left, cut as asked.
pub(crate) fn refine(tree: &Tree, refinements: &[Refinement]) -> Option<Tree> {
    let (first, rest) = refinements.split_first()?;
    let mut refined = apply(tree, first);
    for refinement in rest {
        refined = apply(&refined, refinement);
    }
    Some(refined)
}

fn apply(tree: &Tree, refinement: &Refinement) -> Tree {
    let matcher = Matcher::new(&refinement.pattern, tree);
    let kind = refinement.kind;
    let mut growing = Growing::default();
    let mut lines = LeafLines::default();
    let mut seen: Vec<Seen> = Vec::with_capacity(tree.nodes.len());
    let mut events = vec![0; tree.nodes.len()];
    tree.tops.iter().for_each(|top| events[top.node] = top.event);
    for (at, node) in tree.nodes.iter().enumerate() {
        let Some(parent) = node.parent else {
            let top = growing.top(events[at], node.function);
            seen.push(Seen { ready: 1, ended: false, top, place: Some(top) });
            continue;
        };
        let above = seen[parent];
        let (ready, ends) = matcher.step(above.ready, node.function);
        let ended = above.ended || ends;
        let place = match kind {
            Kind::Focus if !ended => None,
            Kind::Focus if !above.ended => Some(growing.child(above.top, node.function)),
            Kind::Until if above.ended => above.place,
            _ => above.place.map(|place| growing.child(place, node.function)),
        };
        seen.push(Seen { ready, ended, top: above.top, place });
        let Some(place) = place.filter(|_| ended || kind != Kind::Through) else {
            continue;
        };
        growing.add(place, node.own);
        // What a path was cut at has samples that are on none of its own lines.
        if kind != Kind::Until || !ended {
            merge_lines(&mut lines, place, tree.lines.get(&at));
        }
    }
    growing.finish(tree.functions.clone(), lines)
}

fn merge_lines(
    lines: &mut LeafLines,
    at: At,
    more: Option<&Vec<(String, nprof_report::profile::Sum)>>,
) {
    let Some(more) = more else {
        return;
    };
    let lines = lines.entry(at).or_default();
    for (name, sum) in more {
        match lines.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => all.add(*sum),
            None => lines.push((name.clone(), *sum)),
        }
    }
}
