//! Which samples and which calls a report counts: `--match` and `--exclude` with `KEY=REGEX`.

use std::str::FromStr;

use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, Tables};
use regex::bytes::Regex;

use crate::profile::cell::Cell;
use crate::profile::key::{Key, sample_label};
use crate::profile::stack_sums::{Context, Split};
use crate::profile::time::TimeSplit;

/// One rule: a key, and what its name must hold somewhere.
#[derive(Clone, Debug)]
pub struct Rule {
    key: Key,
    regex: Regex,
    text: String,
}

impl FromStr for Rule {
    type Err = String;

    /// Reads `KEY=REGEX`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, pattern) =
            text.split_once('=').ok_or("expected KEY=REGEX, such as function=^std::")?;
        let key = match Key::named(name)? {
            Key::Slice => return Err("slices are chosen by --time FROM..TO".to_owned()),
            key => key,
        };
        Ok(Self { key, regex: pattern_of(pattern)?, text: text.to_owned() })
    }
}

/// A regular expression over names as bytes.
///
/// # Errors
///
/// What is wrong with it, in one line.
pub fn pattern_of(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        // The library draws a picture of several lines; what is wrong stands in the last one.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("not a regular expression: {}", last.trim_start_matches("error: "))
    })
}

/// All rules of a report.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    matching: Vec<Rule>,
    exclude: Vec<Rule>,
}

impl Filter {
    /// Keeps what every rule of `matching` and none of `exclude` holds for.
    pub fn new(matching: &[Rule], exclude: &[Rule]) -> Self {
        Self { matching: matching.to_vec(), exclude: exclude.to_vec() }
    }

    /// The rules as the user spelled them, those about calls and those about samples.
    pub fn spelled(&self, of_calls: bool) -> Vec<String> {
        let spell = |option: &'static str| move |rule: &Rule| format!("{option} {}", rule.text);
        let wanted = |rule: &&Rule| matches!(rule.key, Key::Call(_)) == of_calls;
        let matching = self.matching.iter().filter(wanted).map(spell("--match"));
        matching.chain(self.exclude.iter().filter(wanted).map(spell("--exclude"))).collect()
    }

    /// Whether there are rules about calls.
    pub fn is_about_calls(&self) -> bool {
        self.rules().any(|rule| matches!(rule.key, Key::Call(_)))
    }

    /// How many rules of `--match` are about calls.
    pub fn matches_wanted(&self) -> usize {
        self.matching.iter().filter(|rule| matches!(rule.key, Key::Call(_))).count()
    }

    /// What the profile must keep apart for the rules.
    pub fn split(&self) -> Split {
        let any = |what: fn(Key) -> bool| self.rules().any(|rule| what(rule.key));
        Split { task: any(Key::needs_task), cpu: any(|key| key == Key::Cpu), ..Split::default() }
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.matching.iter().chain(&self.exclude)
    }

    /// Whether the samples of a cell count: they lie in the time that was asked for, and the rules
    /// about samples hold.
    pub fn keeps_samples(&self, context: &Context<'_>, cell: &Cell) -> bool {
        let holds = |rule: &Rule| {
            rule.regex.is_match(&sample_label(context, cell, rule.key, TimeSplit::default()))
        };
        let of_samples = |rule: &&Rule| !matches!(rule.key, Key::Call(_));
        cell.slice.is_some()
            && self.matching.iter().filter(of_samples).all(holds)
            && !self.exclude.iter().filter(of_samples).any(holds)
    }

    /// Whether a call counts by itself: the rules about calls hold for it. `None` is what a sample
    /// without a stack has in place of a call.
    pub fn keeps_call(&self, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> bool {
        self.matches_of(labels, tables, call).into_iter().all(|holds| holds)
            && !self.excludes_call(labels, tables, call)
    }

    /// For every rule of `--match` about calls, whether it holds for a call.
    pub fn matches_of(
        &self,
        labels: &mut Labels,
        tables: &Tables,
        call: Option<Call>,
    ) -> Vec<bool> {
        let rules = self.matching.iter();
        rules.filter_map(|rule| holds(rule, labels, tables, call)).collect()
    }

    /// Whether a rule of `--exclude` about calls holds for a call.
    pub fn excludes_call(&self, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> bool {
        self.exclude.iter().any(|rule| holds(rule, labels, tables, call) == Some(true))
    }
}

/// Whether a rule about calls holds for one; `None` for a rule about samples.
fn holds(rule: &Rule, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> Option<bool> {
    let Key::Call(key) = rule.key else {
        return None;
    };
    let mut name = |key| match call {
        Some(call) => labels.label(tables, call, key),
        None => labels.no_stack(),
    };
    let ids = match key {
        // The base name is what tables show.
        CallKey::Image => vec![name(CallKey::Image), name(CallKey::ImageName)],
        key => vec![name(key)],
    };
    Some(ids.into_iter().any(|id| rule.regex.is_match(labels.names.get(id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_key_and_a_regular_expression() {
        let rule: Rule = "function=a=b|c".parse().unwrap();
        assert_eq!(rule.key, Key::Call(CallKey::Function));
        assert!(rule.regex.is_match(b"xa=b\xff") && !rule.regex.is_match(b"a"));
        for wrong in ["function", "colour=x", "function=(", "slice=1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
        let error = "function=a(".parse::<Rule>().unwrap_err();
        assert!(!error.contains('\n') && error.contains("unclosed group"), "{error}");
    }

    #[test]
    fn the_profile_keeps_apart_what_rules_ask_for() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        let split = |rules: &[Rule]| Filter::new(rules, &[]).split();
        assert!(split(&[rule("thread=x")]).task && !split(&[rule("thread=x")]).cpu);
        assert!(split(&[rule("cpu=1")]).cpu);
        assert!(!split(&[rule("line=x")]).task);
        let filter = Filter::new(&[rule("cpu=1")], &[rule("line=x")]);
        assert_eq!(filter.spelled(true), ["--exclude line=x"]);
        assert_eq!(filter.spelled(false), ["--match cpu=1"]);
    }
}
