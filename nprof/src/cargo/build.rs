//! Runs cargo: builds the target, and finds its executable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;
use toml_edit::DocumentMut;

use crate::cargo::args::{CargoArgs, Kind};
use crate::cargo::debug_info;
use crate::cargo::messages::{Built, Executable};

/// The message if cargo fails at anything but a build.
const NOT_DONE: &str = "cargo did not succeed";

/// Builds the target, and returns what was built.
///
/// # Errors
///
/// If cargo fails; it reports why itself.
pub(super) fn build(args: &CargoArgs) -> anyhow::Result<Built> {
    let mut cargo = cargo();
    cargo.args(args.build_words());
    let is_set = |name: &str| std::env::var_os(name).is_some();
    // Variables have precedence over Cargo.toml, which belongs to the user.
    let manifest = root_manifest(args)?;
    cargo.envs(debug_info::variables(&manifest, args.profile_name(), is_set));
    let messages = output(cargo, "cargo could not build the program")?;
    Ok(Built::parse(&messages, args.target().0))
}

/// Returns the directory of the standard library, of which programs may need the shared one. None if the
/// compiler does not name it.
pub(super) fn standard_library() -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir"]).stdin(Stdio::null());
    let path = output(rustc, "rustc did not succeed").ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n'))).filter(|path| path.is_dir())
}

/// Returns the executable to profile.
///
/// # Errors
///
/// If there is none, or if there are several and none of them is the default.
pub(super) fn choose<'a>(args: &CargoArgs, built: &'a Built) -> anyhow::Result<&'a Executable> {
    match &built.executables[..] {
        [] => {
            bail!(
                "cargo built no binary; choose a target with --bin, --example, --test, --lib or --bench"
            )
        }
        [executable] => Ok(executable),
        several => {
            // The messages of a build do not have default-run.
            let metadata = metadata(args)?;
            let mut defaults = several.iter().filter(|one| is_default(one, &metadata));
            if let (Some(executable), None) = (defaults.next(), defaults.next()) {
                return Ok(executable);
            }
            let (kind, name) = args.target();
            // Packages of a workspace may have targets of the same name.
            let option = if kind == Kind::Bin && name.is_none() { "--bin" } else { "--package" };
            let names: Vec<&str> = several.iter().map(|one| &one.name[..]).collect();
            bail!(
                "cargo built several: {} {}; choose one with {option}",
                kind.name(),
                names.join(", ")
            )
        }
    }
}

/// True for the binary that `cargo run` of its package runs.
fn is_default(executable: &Executable, metadata: &Value) -> bool {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.into_iter().any(|package| {
        package["id"] == executable.package_id[..] && package["default_run"] == executable.name[..]
    })
}

fn metadata(args: &CargoArgs) -> anyhow::Result<Value> {
    let mut cargo = cargo();
    cargo.args(["metadata", "--no-deps", "--format-version=1"]).args(args.manifest_words());
    serde_json::from_str(&output(cargo, NOT_DONE)?).context("cargo metadata")
}

/// Returns the Cargo.toml of the workspace, which has the profiles.
fn root_manifest(args: &CargoArgs) -> anyhow::Result<DocumentMut> {
    let mut cargo = cargo();
    cargo.args(["locate-project", "--workspace", "--message-format=plain"]);
    cargo.args(args.manifest_words());
    let path = output(cargo, NOT_DONE)?;
    let path = Path::new(path.trim_end_matches('\n'));
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

/// Returns the output of a command; `failure` begins the message if it does not succeed.
fn output(mut command: Command, failure: &str) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().context(program)?;
    if !output.status.success() {
        bail!("{failure}: {}", output.status);
    }
    // Messages of cargo are JSON; programs that it runs may print anything.
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the cargo that runs this program, or that in PATH.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The input is that of the program.
    cargo.stdin(Stdio::null());
    cargo
}
