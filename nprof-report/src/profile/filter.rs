//! The filter on samples and calls: `--match` and `--exclude` with `KEY=REGEX`.

use std::str::FromStr;

use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, Tables};
use regex::bytes::Regex;

use crate::profile::group::GroupKey;
use crate::profile::key::{Key, sample_label};
use crate::profile::stack_sums::{Context, GroupBy};
use crate::profile::time::TimeSplit;

/// One rule: a key, and a regular expression for its name.
#[derive(Clone, Debug)]
pub struct Rule {
    key: Key,
    regex: Regex,
    text: String,
}

impl FromStr for Rule {
    type Err = String;

    /// Parses `KEY=REGEX`.
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

/// Compiles a regular expression over names, which are bytes.
///
/// # Errors
///
/// The cause, in one line.
pub fn pattern_of(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        // The crate prints the pattern with a marker below it, over several lines; the last line
        // has the cause.
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
    /// Creates a filter that keeps samples and calls that all rules of `matching` and no rule of
    /// `exclude` match.
    pub fn new(matching: &[Rule], exclude: &[Rule]) -> Self {
        Self { matching: matching.to_vec(), exclude: exclude.to_vec() }
    }

    /// Returns the rules as the user spelled them: those about calls, or those about samples.
    pub fn spelled(&self, of_calls: bool) -> Vec<String> {
        let spell = |option: &'static str| move |rule: &Rule| format!("{option} {}", rule.text);
        let wanted = |rule: &&Rule| matches!(rule.key, Key::Call(_)) == of_calls;
        let matching = self.matching.iter().filter(wanted).map(spell("--match"));
        matching.chain(self.exclude.iter().filter(wanted).map(spell("--exclude"))).collect()
    }

    /// True if there are rules about calls.
    pub fn is_about_calls(&self) -> bool {
        self.rules().any(|rule| matches!(rule.key, Key::Call(_)))
    }

    /// Returns the number of `--match` rules about calls.
    pub fn matches_wanted(&self) -> usize {
        self.matching.iter().filter(|rule| matches!(rule.key, Key::Call(_))).count()
    }

    /// Returns the properties by which the profile must separate samples for the rules.
    pub fn group_by(&self) -> GroupBy {
        // Samples of one sum are indistinguishable later, so a rule must see them apart.
        let any = |needs: fn(Key) -> bool| self.rules().any(|rule| needs(rule.key));
        GroupBy {
            task: any(Key::needs_task),
            cpu: any(|key| key == Key::Cpu),
            ..GroupBy::default()
        }
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.matching.iter().chain(&self.exclude)
    }

    /// True if the samples of a group count: they lie within the requested time, and the rules about
    /// samples match.
    pub fn keeps_samples(&self, context: &Context<'_>, group: &GroupKey) -> bool {
        let holds = |rule: &Rule| {
            rule.regex.is_match(&sample_label(context, group, rule.key, TimeSplit::default()))
        };
        let of_samples = |rule: &&Rule| !matches!(rule.key, Key::Call(_));
        // No slice: the sample is outside of --time.
        group.slice.is_some()
            && self.matching.iter().filter(of_samples).all(holds)
            && !self.exclude.iter().filter(of_samples).any(holds)
    }

    /// True if the rules about calls match a call. `call` is None for a sample without a stack.
    pub fn keeps_call(&self, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> bool {
        self.matches_of(labels, tables, call).into_iter().all(|holds| holds)
            && !self.excludes_call(labels, tables, call)
    }

    /// Returns for each `--match` rule about calls whether it matches a call.
    pub fn matches_of(
        &self,
        labels: &mut Labels,
        tables: &Tables,
        call: Option<Call>,
    ) -> Vec<bool> {
        let rules = self.matching.iter();
        rules.filter_map(|rule| holds(rule, labels, tables, call)).collect()
    }

    /// True if an `--exclude` rule about calls matches a call.
    pub fn excludes_call(&self, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> bool {
        self.exclude.iter().any(|rule| holds(rule, labels, tables, call) == Some(true))
    }
}

/// Returns whether a rule about calls matches a call. None for a rule about samples.
fn holds(rule: &Rule, labels: &mut Labels, tables: &Tables, call: Option<Call>) -> Option<bool> {
    let Key::Call(key) = rule.key else {
        return None;
    };
    let mut name = |key| match call {
        Some(call) => labels.label(tables, call, key),
        None => labels.no_stack(),
    };
    let ids = match key {
        // Tables show the base name, so users write rules for either form.
        CallKey::Image => vec![name(CallKey::Image), name(CallKey::ImageName)],
        key => vec![name(key)],
    };
    Some(ids.into_iter().any(|id| rule.regex.is_match(labels.names.get(id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_needs_a_known_key_and_a_valid_expression() {
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
    fn split_follows_the_keys_of_the_rules() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        let split = |rules: &[Rule]| Filter::new(rules, &[]).group_by();
        assert!(split(&[rule("thread=x")]).task && !split(&[rule("thread=x")]).cpu);
        assert!(split(&[rule("cpu=1")]).cpu);
        assert!(!split(&[rule("line=x")]).task);
        let filter = Filter::new(&[rule("cpu=1")], &[rule("line=x")]);
        assert_eq!(filter.spelled(true), ["--exclude line=x"]);
        assert_eq!(filter.spelled(false), ["--match cpu=1"]);
    }
}
