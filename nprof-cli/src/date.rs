//! Dates and times of runs. Pure.

/// Returns date and time, to the second, of nanoseconds since 1970-01-01 UTC.
pub fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    // A u64 of nanoseconds ends in the year 2554: at most 584 steps.
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", days + 1)
}

/// True for a leap year of the Gregorian calendar.
fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_date_command() {
        // date -u -d @N '+%F %T'
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_795_254_245, "2026-11-21 09:44:05"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
        assert_eq!(&utc(u64::MAX)[..4], "2554");
    }
}
