//! The environment of a command that loads the library.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nprof_preload::protocol::{Settings, VARIABLE};

/// The variable with the libraries that the loader loads before all others.
const PRELOAD: &str = "LD_PRELOAD";

/// Returns the environment `variables` with the library, before those that they name, and its settings.
pub(crate) fn with_library(
    variables: impl Iterator<Item = (OsString, OsString)>,
    library: &Path,
    settings: &Settings<'_>,
) -> Vec<CString> {
    let mut libraries = library.as_os_str().to_owned();
    let mut own = Vec::new();
    for (name, value) in variables {
        if name == PRELOAD {
            if !value.is_empty() {
                libraries.push(":");
                libraries.push(value);
            }
        } else if name != VARIABLE {
            own.extend(variable(&name, &value));
        }
    }
    own.extend(variable(OsStr::new(PRELOAD), &libraries));
    own.extend(variable(OsStr::new(VARIABLE), OsStr::new(&settings.to_string())));
    own
}

/// Returns a variable as execve(2) takes it.
fn variable(name: &OsStr, value: &OsStr) -> Option<CString> {
    let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
    // Variables have no NUL: they come from C strings.
    CString::new(OsString::from_vec(text).into_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_comes_before_those_of_the_user() {
        let settings = Settings {
            socket: "name",
            secret: 7,
            heap_period: 5,
            call_period: 0,
            stack_bytes: 8192,
            ring_bytes: 1 << 20,
            memos: false,
            descriptors: true,
            wait: false,
            acknowledge: false,
        };
        let with = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            let library = Path::new("/tmp/lib.so");
            let environment = with_library(variables, library, &settings).into_iter();
            environment.map(|it| it.into_string().expect("UTF-8")).collect::<Vec<_>>()
        };
        let set = format!("{VARIABLE}={settings}");
        assert_eq!(
            with(&[("A", "b=c"), ("LD_PRELOAD", "x.so:y.so"), (VARIABLE, "of a recorder around")]),
            ["A=b=c", "LD_PRELOAD=/tmp/lib.so:x.so:y.so", &set]
        );
        assert_eq!(with(&[("LD_PRELOAD", "")]), ["LD_PRELOAD=/tmp/lib.so", &set]);
    }
}
