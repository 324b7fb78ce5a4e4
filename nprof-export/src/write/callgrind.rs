//! callgrind: the format of callgrind and kcachegrind, with source lines and calls.
//!
//! A sample counts once for each call on its stack. Calls of a function by itself are left out, since
//! programs add the costs of a function and of its calls. The numbers of calls are unknown; the format
//! requires some, and gets numbers of samples.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use nprof_stream::Measure;

use crate::model::{CallSite, Function, Interner, Profile, Sample};

/// Observations and weight of each event.
type Costs = Vec<u64>;

/// The costs of a function.
#[derive(Debug, Default)]
struct FunctionCosts {
    /// By line.
    own: BTreeMap<u32, Costs>,
    /// By called function and line.
    calls: BTreeMap<(u32, u32), Costs>,
}

/// Writes a profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let costs = sums(profile);
    head(profile, out)?;
    let mut names = Names::default();
    for (&number, costs) in &costs {
        let function = &profile.functions[number as usize];
        writeln!(out)?;
        names.write(profile, function, ["ob", "fl", "fn"], out)?;
        for (line, costs) in &costs.own {
            cost_line(*line, costs, out)?;
        }
        for (&(callee, line), costs) in &costs.calls {
            let callee = &profile.functions[callee as usize];
            names.write(profile, callee, ["cob", "cfi", "cfn"], out)?;
            // The first cost is a number of samples of some event.
            let samples = costs.iter().step_by(2).max().copied().unwrap_or_default();
            writeln!(out, "calls={samples} {}", callee.start_line)?;
            cost_line(line, costs, out)?;
        }
    }
    Ok(())
}

fn cost_line(line: u32, costs: &[u64], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{line}")?;
    costs.iter().try_for_each(|cost| write!(out, " {cost}"))?;
    writeln!(out)
}

fn head(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: nprof-export {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "cmd: {}", profile.facts.commands.join("; "))?;
    writeln!(out, "desc: Calls: numbers of samples, as calls were not counted")?;
    writeln!(out, "positions: line\nevents: {}", event_names(profile).join(" "))?;
    // callgrind_annotate shows shares of these.
    let mut totals = vec![0; 2 * profile.events.len()];
    for sample in &profile.samples {
        add(&mut totals, sample);
    }
    let totals: Vec<String> = totals.iter().map(u64::to_string).collect();
    writeln!(out, "summary: {}", totals.join(" "))
}

/// Returns the names of the two costs of each event. The format allows letters and digits.
fn event_names(profile: &Profile) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for event in &profile.events {
        let word = |text: &[u8]| -> String {
            let text = String::from_utf8_lossy(text);
            text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
        };
        let unit = match event.measure {
            ref time if time.is_time() => "Ns".to_owned(),
            Measure::Bytes => "Bytes".to_owned(),
            _ => "Weight".to_owned(),
        };
        let prefix = if profile.events.len() == 1 { String::new() } else { word(&event.name) };
        // A name begins with a letter.
        let prefix = prefix.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).to_owned();
        let pair =
            |number: &str| [format!("{prefix}Samples{number}"), format!("{prefix}{unit}{number}")];
        // Names that differ in other characters only, such as a:b and a-b.
        let is_free = |pair: &[String; 2]| !pair.iter().any(|name| names.contains(name));
        let numbered = (2..).map(|number| pair(&number.to_string()));
        let free = std::iter::once(pair("")).chain(numbered).find(is_free);
        names.extend(free.into_iter().flatten());
    }
    names
}

fn add(costs: &mut Costs, sample: &Sample) {
    let at = 2 * sample.event as usize;
    costs[at] = costs[at].saturating_add(sample.count);
    costs[at + 1] = costs[at + 1].saturating_add(sample.weight);
}

/// Returns the costs of all functions, by their numbers.
fn sums(profile: &Profile) -> BTreeMap<u32, FunctionCosts> {
    let mut sums: BTreeMap<u32, FunctionCosts> = BTreeMap::new();
    // Every line has a cost for each event.
    let none = || vec![0; 2 * profile.events.len()];
    let mut samples = profile.samples.clone();
    samples.sort_by_key(|sample| sample.stack);
    for group in samples.chunk_by(|a, b| a.stack == b.stack) {
        // Leaf first.
        let calls: Vec<CallSite> =
            profile.frames_of(group[0].stack).flat_map(|frame| &frame.calls).copied().collect();
        // The innermost call of the leaf has the self cost.
        let Some(leaf) = calls.first() else { continue };
        let own = sums.entry(leaf.function).or_default().own.entry(leaf.line).or_insert_with(none);
        group.iter().for_each(|sample| add(own, sample));
        let mut seen = BTreeSet::new();
        for pair in calls.windows(2) {
            let (callee, caller) = (pair[0], pair[1]);
            // An edge counts once for each sample, as functions do.
            let is_new = seen.insert((caller.function, callee.function));
            if !is_new || caller.function == callee.function {
                continue;
            }
            let calls = &mut sums.entry(caller.function).or_default().calls;
            let costs = calls.entry((callee.function, caller.line)).or_insert_with(none);
            group.iter().for_each(|sample| add(costs, sample));
        }
    }
    sums
}

/// Names that were written: later uses are numbers.
#[derive(Default)]
struct Names {
    images: Interner<String>,
    files: Interner<String>,
    functions: Interner<String>,
}

impl Names {
    /// Writes image, file and name of a function with these keys.
    fn write(
        &mut self,
        profile: &Profile,
        function: &Function,
        keys: [&str; 3],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let unknown = || "???".to_owned();
        let image = function.image.map(|image| profile.images[image as usize].path.clone());
        // callgrind's own word for an unknown name is ???.
        let file = Some(function.file.to_string()).filter(|file| !file.is_empty());
        let image = image.filter(|path| !path.is_empty()).unwrap_or_else(unknown);
        let file = file.unwrap_or_else(unknown);
        let tables = [&mut self.images, &mut self.files, &mut self.functions];
        for ((key, names), name) in
            keys.iter().zip(tables).zip([image, file, function.name.to_string()])
        {
            let count = names.len();
            let number = names.number(name.clone()) as usize;
            // The number in front also keeps a name that begins with "(" from being read as one.
            let spelled = if number == count { format!(" {name}") } else { String::new() };
            writeln!(out, "{key}=({}){spelled}", number + 1)?;
        }
        Ok(())
    }
}
