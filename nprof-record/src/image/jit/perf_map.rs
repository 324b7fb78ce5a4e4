//! The map of run-time code a process writes for profilers, `/tmp/perf-PID.map`: a line for each
//! function, `start size name`, both numbers hexadecimal. It has no times, and is appended to
//! while we read. Pure over its bytes.

/// Reads the lines of a piece of a map that ends where the map does for now, or was cut because
/// there is `more`. Gives how many bytes were used up: what is left is a line that is not whole
/// yet. A line longer than the whole piece is taken by its front, and the rest of it skipped, for
/// which `in_line` says that the next piece begins within a line.
pub(crate) fn read(
    piece: &[u8],
    more: bool,
    in_line: &mut bool,
    mut take: impl FnMut(u64, u64, &[u8]),
) -> usize {
    let mut used = 0;
    while let Some(length) = memchr::memchr(b'\n', &piece[used..]) {
        let line = &piece[used..used + length];
        used += length + 1;
        if !std::mem::take(in_line)
            && let Some((start, size, name)) = entry(line)
        {
            take(start, size, name);
        }
    }
    if used > 0 || !more {
        return used;
    }
    if !std::mem::replace(in_line, true)
        && let Some((start, size, name)) = entry(piece)
    {
        take(start, size, name);
    }
    piece.len()
}

/// The start, size and name of a line.
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    let name = name.strip_suffix(b"\r").unwrap_or(name);
    Some((hexadecimal(start)?, hexadecimal(size)?, name))
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..length], &text[length + 1..]))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    // A sign is no digit, but from_str_radix() takes one.
    let is_number = digits.first().is_some_and(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(piece: &[u8], more: bool, in_line: &mut bool) -> (Vec<(u64, u64, Vec<u8>)>, usize) {
        let mut entries = Vec::new();
        let take = |start, size, name: &[u8]| entries.push((start, size, name.to_vec()));
        let used = read(piece, more, in_line, take);
        (entries, used)
    }

    #[test]
    fn names_are_the_rest_of_the_line() {
        let map = b"7f00 10 fib\n0x8000 0xff JS:*f g /a b.js:1:2\r\n9000 1 \xff\x1b[0m\0\n";
        let (found, used) = entries(map, false, &mut false);
        let expected: [(u64, u64, &[u8]); 3] = [
            (0x7f00, 0x10, b"fib"),
            (0x8000, 0xff, b"JS:*f g /a b.js:1:2"),
            (0x9000, 1, b"\xff\x1b[0m\0"),
        ];
        assert_eq!(found, expected.map(|(start, size, name)| (start, size, name.to_vec())));
        assert_eq!(used, map.len());
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let map = b"\n \n10\n10 20\nx 1 f\n+1 2 f\n10 -2 f\n11111111111111111 1 f\n0x 1 f\n \xff 1 f\n1 2 f\n";
        assert_eq!(entries(map, false, &mut false), (vec![(1, 2, b"f".to_vec())], map.len()));
    }

    #[test]
    fn a_line_is_read_when_it_is_whole() {
        let map = b"10 1 first\n20 1 sec";
        assert_eq!(entries(map, false, &mut false), (vec![(0x10, 1, b"first".to_vec())], 11));
        assert_eq!(entries(&map[11..], false, &mut false), (vec![], 0));
        assert_eq!(entries(b"", false, &mut false), (vec![], 0));
    }

    #[test]
    fn a_map_reads_the_same_however_it_grows() {
        let map = b"10 1 first\nnone\n20 2 \xff\x00\n\n30 3 third\n40 4 cut";
        let (whole, used) = entries(map, false, &mut false);
        assert_eq!((whole.len(), used), (3, map.len() - 8));
        for step in 1..map.len() {
            let (mut found, mut at, mut in_line) = (Vec::new(), 0, false);
            for end in (step..map.len() + step).step_by(step).map(|end| end.min(map.len())) {
                let (new, used) = entries(&map[at..end], false, &mut in_line);
                found.extend(new);
                at += used;
            }
            assert_eq!((&found, at, in_line), (&whole, used, false), "{step}");
        }
    }

    #[test]
    fn a_line_longer_than_all_that_is_read_at_once_has_the_front_of_its_name() {
        let mut in_line = false;
        assert_eq!(entries(b"10 1 lo", true, &mut in_line), (vec![(0x10, 1, b"lo".to_vec())], 7));
        assert!(in_line);
        assert_eq!(entries(b"ng 1 ng", true, &mut in_line), (vec![], 7));
        let rest = b"1 1 ng\n20 2 next\n";
        assert_eq!(entries(rest, false, &mut in_line), (vec![(0x20, 2, b"next".to_vec())], 17));
        assert!(!in_line);
    }
}
