//! The messages of cargo in JSON: the executables that it built. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo::args::Kind;

/// The kinds of libraries, as cargo names them.
const LIBRARIES: [&str; 6] = ["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"];

/// An executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Executable {
    /// The name of its target.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The directory of its package.
    pub(super) package: PathBuf,
    pub(super) package_id: String,
}

/// The results of a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Built {
    /// The executables of one kind.
    pub(super) executables: Vec<Executable>,
    /// The directories with libraries that build scripts have made.
    pub(super) library_paths: Vec<PathBuf>,
    /// The directories of the shared libraries that cargo built.
    pub(super) shared_libraries: BTreeSet<PathBuf>,
}

impl Built {
    /// Reads the output of cargo, a message on each line.
    pub(super) fn parse(output: &str, kind: Kind) -> Self {
        let mut built = Self::default();
        // Other lines are of programs that cargo runs.
        let messages = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for message in messages {
            match message["reason"].as_str() {
                Some("compiler-artifact") => {
                    built.executables.extend(executable(&message, kind));
                    built.shared_libraries.extend(shared_libraries(&message));
                }
                Some("build-script-executed") => {
                    let paths = message["linked_paths"].as_array().into_iter().flatten();
                    built.library_paths.extend(paths.filter_map(Value::as_str).map(library_path));
                }
                _ => {}
            }
        }
        // cargo reports them as they are finished.
        built.executables.sort_by(|a, b| (&a.name, &a.package_id).cmp(&(&b.name, &b.package_id)));
        built
    }

    /// Returns the directories of libraries that were made for an executable, as cargo passes them on:
    /// those of build scripts, of its profile, and of dependencies; no directories of the system.
    pub(super) fn library_paths_of(&self, executable: &Executable) -> Vec<PathBuf> {
        // PROFILE/NAME, PROFILE/deps/NAME or PROFILE/examples/NAME, and PROFILE/build/PACKAGE/out.
        let directory = executable.path.parent().unwrap_or(Path::new(""));
        let is_below = directory.ends_with("deps") || directory.ends_with("examples");
        let profile = directory.parent().filter(|_| is_below).unwrap_or(directory);
        // By its last names only: cargo's `build-dir` may be another directory than that of programs.
        let scripts = Path::new(profile.file_name().unwrap_or_default()).join("build");
        let is_own = |path: &&PathBuf| path.ancestors().any(|part| part.ends_with(&scripts));
        let mut paths: Vec<PathBuf> = self.library_paths.iter().filter(is_own).cloned().collect();
        let own = [profile.to_owned(), profile.join("deps")];
        let others = self.shared_libraries.iter().filter(|path| !own.contains(path)).cloned();
        paths.extend(own.iter().cloned().chain(others));
        paths
    }
}

fn executable(message: &Value, kind: Kind) -> Option<Executable> {
    let kinds = message["target"]["kind"].as_array()?;
    // `cargo test` also builds the binaries that a test may run.
    let is_wanted = kinds.iter().filter_map(Value::as_str).any(|word| match kind {
        // With an executable, that of its tests.
        Kind::Lib => LIBRARIES.contains(&word),
        kind => word == kind.name(),
    });
    let path = message["executable"].as_str().filter(|_| is_wanted)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Executable {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: path.into(),
        package: manifest.parent()?.to_owned(),
        package_id: message["package_id"].as_str()?.to_owned(),
    })
}

/// Returns the directories of a shared library. Those of macros are for the compiler.
fn shared_libraries(message: &Value) -> impl Iterator<Item = PathBuf> {
    let kinds = message["target"]["kind"].as_array().into_iter().flatten();
    let is_shared = kinds.filter_map(Value::as_str).any(|kind| kind == "dylib" || kind == "cdylib");
    let files = message["filenames"].as_array().into_iter().flatten().filter(move |_| is_shared);
    files.filter_map(|file| Some(Path::new(file.as_str()?).parent()?.to_owned()))
}

/// Returns a path without its kind, as in `native=/path`.
fn library_path(word: &str) -> PathBuf {
    const KINDS: [&str; 5] = ["dependency", "crate", "native", "framework", "all"];
    match word.split_once('=') {
        Some((kind, path)) if KINDS.contains(&kind) => path.into(),
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///p#lib@0.1.0","manifest_path":"/p/Cargo.toml","target":{"kind":["lib"],"name":"lib"},"executable":null}
{"reason":"build-script-executed","linked_libs":[],"linked_paths":["native=/p/target/release/build/lib-1/out","/usr/lib"]}
{"reason":"compiler-artifact","package_id":"path+file:///p#prog@0.1.0","manifest_path":"/p/prog/Cargo.toml","target":{"kind":["bin"],"name":"prog"},"executable":"/p/target/release/prog"}
{"reason":"compiler-artifact","package_id":"path+file:///p#prog@0.1.0","manifest_path":"/p/prog/Cargo.toml","target":{"kind":["test"],"name":"it"},"executable":"/p/target/release/deps/it-1"}
not JSON
{"reason":"compiler-artifact","package_id":"path+file:///p#prog@0.1.0","manifest_path":"/p/prog/Cargo.toml","target":{"kind":["rlib","cdylib"],"name":"own"},"executable":"/p/target/release/deps/own-1"}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn executables_of_one_kind_are_found() {
        for (kind, name, path) in [
            (Kind::Bin, "prog", "/p/target/release/prog"),
            (Kind::Test, "it", "/p/target/release/deps/it-1"),
            (Kind::Lib, "own", "/p/target/release/deps/own-1"),
        ] {
            let built = Built::parse(OUTPUT, kind);
            let expected = Executable {
                name: name.into(),
                path: path.into(),
                package: "/p/prog".into(),
                package_id: "path+file:///p#prog@0.1.0".into(),
            };
            assert_eq!(built.executables, [expected]);
            let libraries = built.library_paths_of(&built.executables[0]);
            let expected = ["build/lib-1/out", "", "deps"];
            assert_eq!(libraries, expected.map(|path| Path::new("/p/target/release").join(path)));
        }
        assert_eq!(Built::parse(OUTPUT, Kind::Bench).executables, []);
    }

    #[test]
    fn libraries_of_another_build_directory_are_found() {
        let output = r#"{"reason":"compiler-artifact","target":{"kind":["dylib"],"name":"dy"},"filenames":["/b/release/deps/libdy.so"],"executable":null}
{"reason":"compiler-artifact","target":{"kind":["proc-macro"],"name":"mac"},"filenames":["/b/debug/deps/libmac.so"],"executable":null}
"#;
        let output =
            output.to_owned() + &OUTPUT.replace("/p/target/release/build", "/b/release/build");
        let built = Built::parse(&output, Kind::Bin);
        let libraries = built.library_paths_of(&built.executables[0]);
        let expected = [
            "/b/release/build/lib-1/out",
            "/p/target/release",
            "/p/target/release/deps",
            "/b/release/deps",
        ];
        assert_eq!(libraries, expected.map(Path::new));
    }
}
