//! The time in the names of recordings.

use std::time::SystemTime;

use nprof_cli::date;

/// Returns the current time as `YYYYmmdd-HHMMSS`, in UTC: names sort by time, also where clocks are
/// changed in spring and autumn.
pub(crate) fn now() -> String {
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
    fn date_is_part_of_a_file_name() {
        assert_eq!(compact("2026-11-21 09:44:05"), "20261121-094405");
    }
}
