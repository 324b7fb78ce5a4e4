//! New files and directories with the time in their names.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::anyhow;
use nprof_cli::date;

/// Creates `STEM-DATE-TIME` with an extension, which includes its dot; with a number before that if such
/// a name exists. `create` creates what must not exist.
///
/// # Errors
///
/// If it cannot be created.
pub(crate) fn create<T>(
    stem: &str,
    extension: &str,
    create: impl Fn(&Path) -> io::Result<T>,
) -> anyhow::Result<(PathBuf, T)> {
    create_at(&now(), stem, extension, create)
}

fn create_at<T>(
    time: &str,
    stem: &str,
    extension: &str,
    create: impl Fn(&Path) -> io::Result<T>,
) -> anyhow::Result<(PathBuf, T)> {
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = PathBuf::from(format!("{stem}-{time}{suffix}{extension}"));
        match create(&path) {
            // Another one of the same program in the same second.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(refused(&path, &error)),
            Ok(created) => return Ok((path, created)),
        }
    }
}

/// Returns the error about a file or directory that cannot be created.
pub(crate) fn refused(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot create {}: {error}; name another place with -o", path.display())
}

/// Returns the current time as `YYYYmmdd-HHMMSS`, in UTC: names sort by time, also where clocks are
/// changed in spring and autumn.
fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    compact(&date::utc(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

/// Turns `YYYY-mm-dd HH:MM:SS` into `YYYYmmdd-HHMMSS`.
fn compact(date: &str) -> String {
    date.replace(['-', ':'], "").replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_names_are_left_alone() {
        let taken = ["a-T.x", "a-T-2.x"];
        let created = create_at("T", "a", ".x", |path| match path.to_str() {
            Some(path) if taken.contains(&path) => Err(io::ErrorKind::AlreadyExists.into()),
            _ => Ok(()),
        });
        assert_eq!(created.expect("created").0, Path::new("a-T-3.x"));
        let denied = create_at::<()>("T", "a", "", |_| Err(io::ErrorKind::PermissionDenied.into()));
        let message = format!("{:#}", denied.expect_err("denied"));
        assert!(message.contains("cannot create a-T: "), "{message}");
    }

    #[test]
    fn date_is_part_of_a_file_name() {
        assert_eq!(compact("2026-11-21 09:44:05"), "20261121-094405");
    }
}
