//! The filter on samples and calls: `--match` and `--exclude` with `KEY=REGEX`.

use std::str::FromStr;

use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, Tables};
use regex::bytes::Regex;

use crate::profile::group::GroupKey;
use crate::profile::key::Key;
use crate::profile::near_names::NearNames;
use crate::profile::sample_label::sample_label;
use crate::profile::stack_sums::{Context, GroupBy};
use crate::profile::time::TimeSplit;

/// One rule: a key, and a regular expression for its name.
#[derive(Clone, Debug)]
pub struct Rule {
    key: Key,
    regex: Regex,
    text: String,
    /// The names that the rule has not matched. None after its first match.
    near: Option<NearNames>,
    /// True if the rule has been applied to a name.
    applied: bool,
}

impl Rule {
    /// True if programs have few names of its key, such as threads, so that a list of them helps.
    fn has_few_names(&self) -> bool {
        matches!(
            self.key,
            Key::Event
                | Key::Process
                | Key::Thread
                | Key::Cpu
                | Key::Run
                | Key::Command
                | Key::Call(CallKey::Image | CallKey::ImageName)
        )
    }

    /// Applies the rule to the name or names of one thing.
    fn is_match<'a>(&mut self, names: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
        self.applied = true;
        let matches = names.clone().any(|name| self.regex.is_match(name));
        if matches {
            self.near = None;
        } else if let Some(near) = &mut self.near {
            names.for_each(|name| near.see(name));
        }
        matches
    }
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
        let near = Some(NearNames::new(pattern));
        let regex = pattern_of(pattern)?;
        Ok(Self { key, regex, text: text.to_owned(), near, applied: false })
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
    /// The event that rules about events keep.
    event: Option<Vec<u8>>,
}

impl Filter {
    /// Creates a filter that keeps samples and calls that all rules of `matching` and no rule of
    /// `exclude` match.
    pub fn new(matching: &[Rule], exclude: &[Rule]) -> Self {
        Self { matching: matching.to_vec(), exclude: exclude.to_vec(), event: None }
    }

    /// Keeps the samples of this event in spite of rules about events: others are divided by it.
    #[must_use]
    pub fn with_event(mut self, name: Option<&str>) -> Self {
        self.event = name.map(|name| name.as_bytes().to_vec());
        self
    }

    /// Returns the rules as the user spelled them: those about calls, or those about samples.
    pub fn spelled(&self, of_calls: bool) -> Vec<String> {
        let matching = spelled("--match", &self.matching, of_calls);
        [matching, spelled("--exclude", &self.exclude, of_calls)].concat()
    }

    /// Returns the `--match` rules about calls as the user spelled them.
    pub fn spelled_matches_of_calls(&self) -> Vec<String> {
        spelled("--match", &self.matching, true)
    }

    /// Returns the `--exclude` rules about calls as the user spelled them.
    pub fn spelled_excludes_of_calls(&self) -> Vec<String> {
        spelled("--exclude", &self.exclude, true)
    }

    /// Returns a message for each `--match` rule that has matched nothing, if there are similar names, or
    /// few names.
    pub fn notes(&self) -> Vec<String> {
        let rules = self.matching.iter().filter(|rule| rule.applied);
        let unmatched = rules.filter_map(|rule| Some((rule, rule.near.as_ref()?)));
        let note = |(rule, near): (&Rule, &NearNames)| {
            let option = format!("--match {}", rule.text);
            no_match(&option, near).or_else(|| rule.has_few_names().then(|| present(&option, near)))
        };
        unmatched.filter_map(note).collect()
    }

    /// True if there are rules about calls.
    pub fn is_about_calls(&self) -> bool {
        self.rules().any(|rule| matches!(rule.key, Key::Call(_)))
    }

    /// True if there are `--exclude` rules about calls.
    pub fn excludes_by_call(&self) -> bool {
        self.exclude.iter().any(|rule| matches!(rule.key, Key::Call(_)))
    }

    /// True if the rules keep all samples of a thread with one function at the leaf, or none of them.
    pub fn keeps_leaves_whole(&self) -> bool {
        let is_of_part =
            |rule: &Rule| matches!(rule.key, Key::Cpu | Key::Command | Key::Extra(_) | Key::Path);
        !self.excludes_by_call() && !self.rules().any(is_of_part)
    }

    /// Returns the number of `--match` rules about calls.
    pub fn matches_wanted(&self) -> usize {
        self.matching.iter().filter(|rule| matches!(rule.key, Key::Call(_))).count()
    }

    /// Returns the properties by which the profile must separate samples for the rules.
    pub fn group_by(&self) -> GroupBy {
        // Samples of one sum are indistinguishable later, so a rule must see them apart.
        let mut group_by = GroupBy::default();
        self.rules().for_each(|rule| group_by.add_key(rule.key));
        group_by
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.matching.iter().chain(&self.exclude)
    }

    /// True if the samples of a group count: they lie within the requested time, and the rules about
    /// samples match.
    pub fn keeps_samples(&mut self, context: &Context<'_>, group: &GroupKey) -> bool {
        let events = &context.summary.events;
        let event = events.get(group.event).map(|event| &event.event.name);
        let is_divisor = self.event.is_some() && self.event.as_ref() == event;
        let holds = |rule: &mut Rule| {
            let label = sample_label(context, group, rule.key, TimeSplit::default());
            rule.is_match(std::iter::once(&label[..]))
        };
        let of_samples = |rule: &&mut Rule| match rule.key {
            Key::Call(_) => false,
            Key::Event => !is_divisor,
            _ => true,
        };
        // No slice: the sample is outside of --time.
        group.slice.is_some()
            && self.matching.iter_mut().filter(of_samples).all(holds)
            && !self.exclude.iter_mut().filter(of_samples).any(holds)
    }

    /// Returns for each `--match` rule about calls whether it matches a call. `call` is None for a
    /// sample without a stack.
    pub fn matches_of(
        &mut self,
        labels: &mut Labels,
        tables: &Tables,
        call: Option<Call>,
    ) -> Vec<bool> {
        let rules = self.matching.iter_mut();
        rules.filter_map(|rule| holds(rule, labels, tables, call)).collect()
    }

    /// True if an `--exclude` rule about calls matches a call.
    pub fn excludes_call(
        &mut self,
        labels: &mut Labels,
        tables: &Tables,
        call: Option<Call>,
    ) -> bool {
        self.exclude.iter_mut().any(|rule| holds(rule, labels, tables, call) == Some(true))
    }
}

/// Returns rules as the user spelled them, with their option: those about calls, or those about samples.
fn spelled(option: &str, rules: &[Rule], of_calls: bool) -> Vec<String> {
    let wanted = rules.iter().filter(|rule| matches!(rule.key, Key::Call(_)) == of_calls);
    wanted.map(|rule| format!("{option} {}", rule.text)).collect()
}

/// Returns whether a rule about calls matches a call. None for a rule about samples.
fn holds(
    rule: &mut Rule,
    labels: &mut Labels,
    tables: &Tables,
    call: Option<Call>,
) -> Option<bool> {
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
    Some(rule.is_match(ids.iter().map(|&id| labels.names.get(id))))
}

/// Returns the message that an option matches nothing, with the names that there are.
fn present(option: &str, near: &NearNames) -> String {
    let (first, has_others) = near.first();
    let names: Vec<String> = first.map(escaped).collect();
    let others = if has_others { " and others" } else { "" };
    let option = escaped(option.as_bytes());
    format!("{option} matches nothing; there are {}{others}", names.join(", "))
}

/// Returns the message that an option matches nothing. None without similar names: the report says
/// that nothing is counted.
pub fn no_match(option: &str, near: &NearNames) -> Option<String> {
    let names: Vec<String> = near.names().map(escaped).collect();
    let option = escaped(option.as_bytes());
    (!names.is_empty())
        .then(|| format!("{option} matches nothing; similar names: {}", names.join(", ")))
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
    fn rule_without_match_lists_similar_names() {
        let mut rule: Rule = "function=^malloc$".parse().unwrap();
        let notes = |rule: &Rule| Filter::new(std::slice::from_ref(rule), &[]).notes();
        assert!(notes(&rule).is_empty());
        assert!(!rule.is_match([&b"__libc_malloc"[..], b"fr\x1bee"].into_iter()));
        assert_eq!(
            notes(&rule),
            ["--match function=^malloc$ matches nothing; similar names: __libc_malloc"]
        );
        assert!(rule.is_match(std::iter::once(&b"malloc"[..])) && notes(&rule).is_empty());
        let mut rule: Rule = "cpu=7".parse().unwrap();
        assert!(!rule.is_match([&b"0"[..], b"1"].into_iter()));
        assert_eq!(notes(&rule), ["--match cpu=7 matches nothing; there are 0, 1"]);
    }

    #[test]
    fn split_follows_the_keys_of_the_rules() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        let split = |rules: &[Rule]| Filter::new(rules, &[]).group_by();
        assert!(split(&[rule("thread=x")]).task && !split(&[rule("thread=x")]).cpu);
        assert!(split(&[rule("cpu=1")]).cpu);
        assert_eq!(split(&[rule("on=x"), rule("call=y")]).extras, [true, false, true]);
        assert!(!split(&[rule("line=x")]).task);
        let is_whole = |matching: &[Rule], exclude: &[Rule]| {
            Filter::new(matching, exclude).keeps_leaves_whole()
        };
        assert!(is_whole(&[rule("thread=x"), rule("function=f")], &[rule("process=y")]));
        assert!(!is_whole(&[rule("cpu=1")], &[]), "a part of the samples of a thread");
        assert!(!is_whole(&[], &[rule("function=f")]), "it depends on the callers");
        let filter = Filter::new(&[rule("cpu=1")], &[rule("line=x")]);
        assert_eq!(filter.spelled(true), ["--exclude line=x"]);
        assert_eq!(filter.spelled(false), ["--match cpu=1"]);
    }
}
