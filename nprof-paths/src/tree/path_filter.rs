//! Call path refinement (Hall 1995; csprof, section 5): options that select paths by the calls on
//! them and cut the paths to the part of interest. Each filter works on the paths that the
//! previous one left.

use std::str::FromStr;

use nprof_report::filter::{no_match, pattern_of};
use nprof_report::near_names::NearNames;
use regex::bytes::Regex;

use crate::tree::builder::TreeBuilder;
use crate::tree::call_tree::{LineSum, NodeIndex, Tree};

/// The effect of a filter on the paths that match its pattern, and on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFilterKind {
    /// Matching paths begin where the match first ends; the others are dropped.
    Focus,
    /// Matching paths stay; the others are dropped.
    Through,
    /// Matching paths end where the match first ends; the others stay.
    Until,
}

impl PathFilterKind {
    /// Returns the name of the option, without dashes.
    pub fn option(self) -> &'static str {
        match self {
            PathFilterKind::Focus => "focus",
            PathFilterKind::Through => "through",
            PathFilterKind::Until => "until",
        }
    }
}

/// A pattern of calls, callers first: one regular expression per call.
#[derive(Clone, Debug)]
pub struct PathPattern {
    steps: Vec<PatternStep>,
    text: String,
}

#[derive(Clone, Debug)]
struct PatternStep {
    regex: Regex,
    text: String,
    /// True if other calls may come between the previous step and this one.
    after_gap: bool,
}

/// Spelling of any number of calls in a pattern.
const GAP: &str = "...";

/// The maximum number of steps: [`ReadySteps`] has a bit for each, and one for the end.
const MAX_STEPS: usize = 63;

impl FromStr for PathPattern {
    type Err = String;

    /// Parses `REGEX;...;REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut after_gap = false;
        for part in text.split(';') {
            if part == GAP {
                after_gap = true;
                continue;
            }
            steps.push(PatternStep { regex: pattern_of(part)?, text: part.to_owned(), after_gap });
            after_gap = false;
        }
        // A filter cuts paths at the last call of its pattern, so there must be one.
        if after_gap {
            return Err(format!("must end in a function name, not in {GAP:?}"));
        }
        if steps.len() > MAX_STEPS {
            return Err(format!("has more than {MAX_STEPS} calls"));
        }
        Ok(Self { steps, text: text.to_owned() })
    }
}

/// A filter of paths: `--focus`, `--through` or `--until`, with its pattern.
#[derive(Clone, Debug)]
pub struct PathFilter {
    /// The effect of the filter.
    pub kind: PathFilterKind,
    /// The pattern to look for on each path.
    pub pattern: PathPattern,
}

impl PathFilter {
    /// Returns the option as the user spelled it.
    pub fn spelled(&self) -> String {
        format!("--{} {}", self.kind.option(), self.pattern.text)
    }

    /// Returns a message with similar names if one of the expressions matches none of the names of
    /// functions. None if each matches one, or if no name is similar.
    pub fn note<'a>(&self, mut names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<String> {
        let is_unmatched =
            |step: &&PatternStep| !names.clone().any(|name| step.regex.is_match(name));
        let step = self.pattern.steps.iter().find(is_unmatched)?;
        let mut near = NearNames::new(&step.text);
        names.by_ref().for_each(|name| near.see(name));
        no_match(&format!("--{} {}", self.kind.option(), step.text), &near)
    }
}

/// The steps of a pattern that may match the next call, one bit per step. Bit 0 is always set: a
/// match can begin at any call.
type ReadySteps = u64;

/// A pattern, matched against all functions of a tree in advance.
struct PatternMatcher<'a> {
    steps: &'a [PatternStep],
    /// By step and function.
    matches: Vec<Vec<bool>>,
}

impl<'a> PatternMatcher<'a> {
    fn new(pattern: &'a PathPattern, tree: &Tree) -> Self {
        // A function is on many paths; its name is matched once.
        let matches = pattern.steps.iter().map(|step| {
            tree.functions.iter().map(|function| step.regex.is_match(&function.raw_name)).collect()
        });
        Self { steps: &pattern.steps, matches: matches.collect() }
    }

    /// Advances by a call of `function`: returns the steps that may match the next call, and
    /// whether a match ends with this call.
    fn advance(&self, ready: ReadySteps, function: usize) -> (ReadySteps, bool) {
        let mut next: ReadySteps = 1;
        let mut ends = false;
        for (i, step) in self.steps.iter().enumerate().filter(|(i, _)| ready >> i & 1 == 1) {
            // A gap can extend over this call, whether or not the step matches it.
            if step.after_gap {
                next |= 1 << i;
            }
            if self.matches[i][function] {
                ends |= i + 1 == self.steps.len();
                next |= 1 << (i + 1);
            }
        }
        (next, ends)
    }
}

/// The state of a match at a node of the old tree, and the node's place in the new tree.
#[derive(Clone, Copy, Debug)]
struct NodeState {
    ready: ReadySteps,
    /// True if a match ended at this node or above it.
    matched: bool,
    new_root: NodeIndex,
    /// None if the path is not in the new tree, or not yet.
    new_node: Option<NodeIndex>,
}

/// Returns the tree of the paths that the filters leave, applied in order.
pub fn apply_filters(tree: Tree, filters: &[PathFilter]) -> Tree {
    filters.iter().fold(tree, |tree, filter| apply_filter(&tree, filter))
}

fn apply_filter(tree: &Tree, filter: &PathFilter) -> Tree {
    let matcher = PatternMatcher::new(&filter.pattern, tree);
    let kind = filter.kind;
    let mut builder = TreeBuilder::default();
    let mut lines: Vec<LineSum> = Vec::new();
    let mut states: Vec<NodeState> = Vec::with_capacity(tree.nodes.len());
    let mut events = vec![0; tree.nodes.len()];
    tree.roots.iter().for_each(|root| events[root.node] = root.event);
    // Parents come before their children, so a parent's state is always known.
    for (index, node) in tree.nodes.iter().enumerate() {
        let Some(parent) = tree.parent(index) else {
            let root = builder.root(events[index], node.function);
            states.push(NodeState {
                ready: 1,
                matched: false,
                new_root: root,
                new_node: Some(root),
            });
            continue;
        };
        let above = states[parent];
        let (ready, ends) = matcher.advance(above.ready, node.function);
        let matched = above.matched || ends;
        let new_node = match kind {
            PathFilterKind::Focus if !matched => None,
            // The match ends here first: this call becomes an outermost function.
            PathFilterKind::Focus if !above.matched => {
                Some(builder.child(above.new_root, node.function))
            }
            // The match ended above: samples go to the call at which it ended.
            PathFilterKind::Until if above.matched => above.new_node,
            _ => above.new_node.map(|parent| builder.child(parent, node.function)),
        };
        states.push(NodeState { ready, matched, new_root: above.new_root, new_node });
        // `Through` builds all paths, as a match may come later, but counts only matching ones.
        let Some(new_node) = new_node.filter(|_| matched || kind != PathFilterKind::Through) else {
            continue;
        };
        builder.add(new_node, node.self_);
        // Samples of calls that were cut off are on no line of the function at the cut.
        if kind != PathFilterKind::Until || !matched {
            let old = tree.lines(index).iter();
            lines.extend(old.map(|line| LineSum { leaf: new_node, ..line.clone() }));
        }
    }
    builder.finish(tree.functions.clone(), lines, tree.bounds.clone())
}
