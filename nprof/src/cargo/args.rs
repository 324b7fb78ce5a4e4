//! The command line of `cargo nprof`: the names of cargo's options, and some options of nprof-record.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Parser};

/// Build a program with cargo, record it, print its profile, keep the recording
///
/// Builds with the release profile, and with debug symbols if the profile has none. Exits with the
/// status of the program as nprof run does; with 125 if it cannot be built or recorded.
#[derive(Debug, Default, Parser)]
#[command(
    name = "cargo-nprof",
    version,
    override_usage = "cargo nprof [options] [-- args of the program]",
    group = ArgGroup::new("target"),
    group = ArgGroup::new("of-profile")
)]
pub(super) struct CargoArgs {
    /// Profile this binary [default: the only one, or default-run of the package]
    #[arg(long, value_name = "NAME", group = "target")]
    pub(super) bin: Option<String>,

    /// Profile this example
    #[arg(long, value_name = "NAME", group = "target")]
    pub(super) example: Option<String>,

    /// Profile this integration test
    #[arg(long, value_name = "NAME", group = "target")]
    pub(super) test: Option<String>,

    /// Profile the unit tests of the library
    #[arg(long, group = "target")]
    pub(super) lib: bool,

    /// Profile this benchmark
    #[arg(long, value_name = "NAME", group = "target")]
    pub(super) bench: Option<String>,

    /// Package of the target
    #[arg(short, long, value_name = "SPEC")]
    pub(super) package: Option<String>,

    /// Build with the release profile; this is the default, except for --bench
    #[arg(long, group = "of-profile")]
    pub(super) release: bool,

    /// Build with the dev profile
    #[arg(long, group = "of-profile")]
    pub(super) dev: bool,

    /// Build with this profile
    #[arg(long, value_name = "NAME", group = "of-profile")]
    pub(super) profile: Option<String>,

    /// Features of the package, separated by commas; can be repeated
    #[arg(long, value_name = "LIST")]
    pub(super) features: Vec<String>,

    /// Build with all features
    #[arg(long)]
    pub(super) all_features: bool,

    /// Build without the default features
    #[arg(long)]
    pub(super) no_default_features: bool,

    /// Path of Cargo.toml
    #[arg(long, value_name = "FILE")]
    pub(super) manifest_path: Option<PathBuf>,

    /// Keep the recording in FILE [default: nprof-NAME-DATE-TIME.nprof]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Samples per second, as of nprof-record
    #[arg(short = 'F', value_name = "HZ")]
    pub(super) frequency: Option<String>,

    /// Sample by this event, as of nprof-record; can be repeated
    #[arg(short, value_name = "NAME[:PERIOD][/u][k]")]
    pub(super) event: Vec<String>,

    /// Arguments of the program
    #[arg(last = true, value_name = "args")]
    pub(super) args: Vec<OsString>,
}

/// The kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bin,
    Example,
    Test,
    /// The unit tests of a library.
    Lib,
    Bench,
}

impl Kind {
    /// Returns the name that cargo has for it, in options and messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Bin => "bin",
            Kind::Example => "example",
            Kind::Test => "test",
            Kind::Lib => "lib",
            Kind::Bench => "bench",
        }
    }

    /// True if cargo runs it in the directory of its package.
    pub(super) fn runs_in_package(self) -> bool {
        matches!(self, Kind::Test | Kind::Lib | Kind::Bench)
    }
}

impl CargoArgs {
    /// Returns the kind of the target, and its name. Binaries may have no name, libraries have none.
    pub(super) fn target(&self) -> (Kind, Option<&str>) {
        let Self { bin, example, test, bench, .. } = self;
        if self.lib {
            return (Kind::Lib, None);
        }
        let named = [(Kind::Example, example), (Kind::Test, test), (Kind::Bench, bench)];
        let named = named.into_iter().find_map(|(kind, name)| Some((kind, name.as_deref()?)));
        named.map_or((Kind::Bin, bin.as_deref()), |(kind, name)| (kind, Some(name)))
    }

    /// Returns the name of the profile.
    pub(super) fn profile_name(&self) -> &str {
        match &self.profile {
            Some(name) => name,
            None if self.dev => "dev",
            // As of `cargo bench`; it inherits the settings of `release`.
            None if self.bench.is_some() && !self.release => "bench",
            None => "release",
        }
    }

    /// Returns the words after `cargo` of the command that builds the target and runs nothing.
    pub(super) fn build_words(&self) -> Vec<OsString> {
        let (kind, name) = self.target();
        let mut words: Vec<OsString> = match kind {
            // Only `test` and `bench` build with the dependencies of tests.
            Kind::Bin | Kind::Example => vec!["build".into()],
            Kind::Test | Kind::Lib => vec!["test".into(), "--no-run".into()],
            Kind::Bench => vec!["bench".into(), "--no-run".into()],
        };
        match name {
            None if kind == Kind::Lib => words.push("--lib".into()),
            Some(name) => words.extend([format!("--{}", kind.name()).into(), name.into()]),
            // Not the libraries of a workspace that no binary needs.
            None => words.push("--bins".into()),
        }
        words.extend(["--profile".into(), self.profile_name().into()]);
        if let Some(package) = &self.package {
            words.extend(["--package".into(), package.into()]);
        }
        for features in &self.features {
            words.extend(["--features".into(), features.into()]);
        }
        if self.all_features {
            words.push("--all-features".into());
        }
        if self.no_default_features {
            words.push("--no-default-features".into());
        }
        words.extend(self.manifest_words());
        // Warnings and errors go to standard error as usual.
        words.push("--message-format=json-render-diagnostics".into());
        words
    }

    /// Returns the option that names the project. Empty for that of the current directory.
    pub(super) fn manifest_words(&self) -> Vec<OsString> {
        let words = |path: &PathBuf| vec!["--manifest-path".into(), path.into()];
        self.manifest_path.as_ref().map(words).unwrap_or_default()
    }

    /// Returns the options of nprof-record.
    pub(super) fn record_words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some(frequency) = &self.frequency {
            words.extend(["-F".into(), frequency.into()]);
        }
        for event in &self.event {
            words.extend(["-e".into(), event.into()]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> CargoArgs {
        CargoArgs::parse_from(["cargo-nprof"].into_iter().chain(line.split_whitespace()))
    }

    fn build(line: &str) -> String {
        let words = args(line).build_words();
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into()).collect();
        words.join(" ").replace(" --message-format=json-render-diagnostics", "")
    }

    #[test]
    fn each_target_is_built_and_not_run() {
        assert_eq!(build(""), "build --bins --profile release");
        assert_eq!(
            build("--bin a --dev -p b -- --bench c"),
            "build --bin a --profile dev --package b"
        );
        assert_eq!(
            build("--example a --features x,y --features z --no-default-features"),
            "build --example a --profile release --features x,y --features z --no-default-features"
        );
        assert_eq!(
            build("--test a --all-features"),
            "test --no-run --test a --profile release --all-features"
        );
        assert_eq!(build("--lib -p a"), "test --no-run --lib --profile release --package a");
        assert_eq!(build("--bench a"), "bench --no-run --bench a --profile bench");
        assert_eq!(
            build("--bench a --release --manifest-path d/Cargo.toml"),
            "bench --no-run --bench a --profile release --manifest-path d/Cargo.toml"
        );
    }

    #[test]
    fn two_targets_or_profiles_are_refused() {
        for line in
            ["--bin a --test b", "--lib --bench a", "--release --dev", "--profile x --dev", "arg"]
        {
            let words = ["cargo-nprof"].into_iter().chain(line.split_whitespace());
            assert!(CargoArgs::try_parse_from(words).is_err(), "{line}");
        }
    }
}
