//! The layout of tables: columns in terminal widths, numbers right-aligned, names left-aligned and
//! shortened to fit the screen; weights in readable units; CSV fields that no spreadsheet executes.

use std::borrow::Cow;
use std::ops::Range;

use nprof_stream::escape::escaped;
use nprof_stream::{Event, Measure};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::profile::summary::EventSummary;

/// Widest padding of a column of names, so that one very long name does not push the columns to its
/// right out of sight in all rows.
const PADDED: usize = 40;

/// Narrowest column of names on a terminal.
const NARROWEST: usize = 6;

/// Lays out lines of cells; the first line has the names of the columns. The first `numbers` cells of
/// a line are right-aligned, the rest are names. A column named `±` is one space from the column
/// before it, others two. Names are shortened only if there is a `width` to fit.
pub fn lines(cells: &[Vec<String>], numbers: usize, width: Option<usize>) -> String {
    grouped(cells, numbers, width, &[])
}

/// Lays out lines like [`lines`], with a line above that names groups of columns.
pub fn grouped(
    cells: &[Vec<String>],
    numbers: usize,
    width: Option<usize>,
    groups: &[(Range<usize>, String)],
) -> String {
    let widths = widths(cells, numbers, width);
    let mut out = group_line(cells, &widths, groups);
    for line in cells {
        let start = out.len();
        for (i, (cell, &column)) in line.iter().zip(&widths).enumerate() {
            out.push_str(&"  "[..gap(cells, i)]);
            let cell =
                if width.is_some() && i >= numbers { cut(cell, column) } else { cell.clone() };
            let padding = " ".repeat(column.saturating_sub(cell.width()));
            let (before, after) = if i < numbers { (&padding[..], "") } else { ("", &padding[..]) };
            out.push_str(before);
            out.push_str(&cell);
            out.push_str(after);
        }
        // Padding of the last column would wrap on a narrow terminal.
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    }
    out
}

/// Returns a line with the name of each group centred above its columns; empty without groups.
fn group_line(
    cells: &[Vec<String>],
    widths: &[usize],
    groups: &[(Range<usize>, String)],
) -> String {
    let mut out = String::new();
    let end = |column: usize| (0..column).map(|i| gap(cells, i) + widths[i]).sum::<usize>();
    for (columns, name) in groups {
        let start = end(columns.start) + gap(cells, columns.start);
        let room = end(columns.end).saturating_sub(start);
        // The columns of a group can be narrower than its name.
        let name = cut_middle(name, room);
        let before = start + (room - name.width().min(room)) / 2;
        out.push_str(&" ".repeat(before.saturating_sub(out.width())));
        out.push_str(&name);
    }
    if !groups.is_empty() {
        out.push('\n');
    }
    out
}

/// Returns the number of spaces before a column.
fn gap(cells: &[Vec<String>], column: usize) -> usize {
    match column {
        0 => 0,
        // A margin belongs to the share before it.
        _ if cells[0][column] == "±" => 1,
        _ => 2,
    }
}

fn widths(cells: &[Vec<String>], numbers: usize, width: Option<usize>) -> Vec<usize> {
    let count = cells.first().map_or(0, Vec::len);
    let widest = |i: usize| cells.iter().map(|line| line[i].width()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count).map(widest).collect();
    // In a file longer names are complete; they only move the columns of their own line.
    let Some(width) = width else {
        widths[numbers.min(count)..].iter_mut().for_each(|width| *width = PADDED.min(*width));
        return widths;
    };
    let gaps: usize = (0..count).map(|i| gap(cells, i)).sum();
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    // Narrow the widest column of names by one until the line fits: equally long names then stay
    // equally long.
    while excess > 0 {
        let names = widths[numbers.min(count)..].iter_mut();
        let Some(widest) = names.max().filter(|width| **width > NARROWEST) else {
            break;
        };
        *widest -= 1;
        excess -= 1;
    }
    widths
}

/// Returns the smallest width of lines in which no column of names is narrower than `roomy`.
pub fn least_width(cells: &[Vec<String>], numbers: usize, roomy: usize) -> usize {
    let count = cells.first().map_or(0, Vec::len);
    let width = |i: usize| {
        let widest = cells.iter().map(|line| line[i].width()).max().unwrap_or(0);
        gap(cells, i) + if i < numbers { widest } else { widest.min(roomy) }
    };
    (0..count).map(width).sum()
}

/// Shortens a name to fit. In C++ and Rust names the template arguments are replaced first, then the
/// parameters, then the return type; a name that is still too long is cut in the middle, because
/// both its beginning and its end carry information. In `image+0x20 (after name)`, code without a name,
/// the function before it is cut, then left out.
pub fn cut(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    if let Some((address, before)) = unnamed(name) {
        const WORDS: usize = " (after )".len();
        let room = width.saturating_sub(address.width() + WORDS);
        if room < NARROWEST {
            return cut_middle(address, width);
        }
        return format!("{address} (after {})", cut_middle(before, room));
    }
    let plain = elide(name, '<', '>').unwrap_or_else(|| name.to_owned());
    if plain.width() <= width {
        return plain;
    }
    let plain = elide(&plain, '(', ')').unwrap_or(plain);
    if plain.width() <= width {
        return plain;
    }
    cut_middle(without_type(&plain), width)
}

/// Splits the name of code without a name, `image+0x20 (after name)`, into its address and the name of
/// the function before it. None for other names.
fn unnamed(name: &str) -> Option<(&str, &str)> {
    let (address, before) = name.strip_suffix(')')?.split_once(" (after ")?;
    let (_, offset) = address.rsplit_once("+0x")?;
    let is_offset = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_offset.then_some((address, before))
}

/// Returns the name of a function without its return type, which the Itanium C++ ABI encodes for
/// instances of templates (5.1.5.3).
pub(crate) fn without_type(name: &str) -> &str {
    let mut depth = 0;
    let mut parameters = None;
    let mut blanks = Vec::new();
    for (at, character) in name.char_indices() {
        match character {
            '(' if depth == 0 => {
                parameters = Some(at);
                depth += 1;
            }
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            ' ' if depth == 0 => blanks.push(at),
            _ => {}
        }
    }
    // `operator< <...>` and `operator new` have blanks in the name itself.
    let end = name.find("operator").or(parameters).unwrap_or(0);
    let begin = blanks.into_iter().rfind(|&blank| blank < end).map_or(0, |blank| blank + 1);
    // A path with blanks is not a function with a return type.
    if name.contains('/') { name } else { &name[begin..] }
}

/// Fits a name and its suffix into `width` columns of a terminal, at least 12. The suffix gets half of
/// them, or the columns that the name leaves.
pub fn fit(name: &str, suffix: &str, width: usize) -> String {
    let width = width.max(NARROWEST * 2);
    let suffix = cut_middle(suffix, (width / 2).max(width.saturating_sub(name.width())));
    cut(name, width - suffix.width()) + &suffix
}

/// Shortens a text to fit; keeps its beginning and its end.
pub fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    // One column is the ellipsis.
    let head = fitting(text.chars(), room.div_ceil(2));
    let tail = fitting(text.chars().rev(), room / 2);
    let tail: String = tail.chars().rev().collect();
    // The cut may be next to an ellipsis that replaced template arguments: one is enough.
    format!("{}…{}", head.trim_end_matches('…'), tail.trim_start_matches('…'))
}

/// Replaces the text between the outermost brackets of a kind by `…`. None if they do not pair. The
/// brackets of Rust's `<T as Trait>::f` stay.
pub(crate) fn elide(name: &str, open: char, close: char) -> Option<String> {
    let mut out = String::new();
    let mut depth = 0;
    let mut inside = 0;
    for (at, character) in name.char_indices() {
        let before = &name[..at];
        // The brackets of operator<, operator<< and operator() are part of the name.
        let is_operator = before.ends_with("operator") || before.ends_with("operator<");
        // A list of arguments follows a name: `f<`, `f::<`, `operator< <`.
        let is_list = depth > 0
            || character != '<'
            || before.ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | ':'))
            || before.ends_with(' ') && before.contains("operator");
        if character == open && !is_operator && is_list {
            if depth == 0 {
                inside = at + open.len_utf8();
                out.push(open);
            }
            depth += 1;
        } else if character == close && depth > 0 && !before.ends_with('-') {
            depth -= 1;
            if depth == 0 {
                // Empty parameters and anonymous namespaces are short and distinguish functions.
                let inside = &name[inside..at];
                let keep = inside.is_empty() || inside == "anonymous namespace";
                out.push_str(if keep { inside } else { "…" });
                out.push(close);
            }
        } else if depth == 0 {
            out.push(character);
        }
    }
    (depth == 0).then_some(out)
}

/// Returns the first characters that fit into `width` columns.
fn fitting(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    characters
        .take_while(|character| {
            let wide = character.width().unwrap_or(0);
            let fits = wide <= left;
            left = left.saturating_sub(wide);
            fits
        })
        .collect()
}

/// The unit in which the weights of an event are printed for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Its name: `ms`, `Mcycles`.
    pub unit: String,
    divisor: f64,
    /// The smaller units with their sizes, the largest first.
    smaller: Vec<(f64, String)>,
}

impl Scale {
    /// Returns the largest unit of which the event has at least ten in total: rows then have two
    /// significant digits down to a share of 1 %.
    pub fn of(event: &EventSummary) -> Self {
        let unit = escaped(&event.event.unit);
        // Each digit of a number of calls means something, and no unit is printed with it.
        if event.event.measure.word() == b"calls" {
            return Self { unit, divisor: 1.0, smaller: Vec::new() };
        }
        let fits = |(divisor, _): &(f64, String)| event.sum.weight as f64 >= 10.0 * divisor;
        let own = (1.0, unit);
        let mut units = units(&event.event).into_iter().skip_while(|unit| !fits(unit)).chain([own]);
        let (divisor, unit) = units.next().expect("an event has its own unit");
        Self { unit, divisor, smaller: units.collect() }
    }

    /// Returns a weight with its unit: a smaller one if it would be 0.00 in this one.
    pub fn print_with_unit(&self, weight: u64) -> String {
        let is_seen = |divisor: f64| weight as f64 / divisor >= 0.005;
        let smaller = self.smaller.iter().find(|(divisor, _)| is_seen(*divisor));
        match smaller.filter(|_| !is_seen(self.divisor)) {
            Some((divisor, unit)) => format!("{} {unit}", in_units(weight, *divisor)),
            None => format!("{} {}", self.print(weight), self.unit),
        }
    }

    /// Returns a weight in this unit, without the name of the unit.
    pub fn print(&self, weight: u64) -> String {
        in_units(weight, self.divisor)
    }
}

/// Returns a weight in a unit of this size.
fn in_units(weight: u64, divisor: f64) -> String {
    if divisor > 1.0 { format!("{:.2}", weight as f64 / divisor) } else { weight.to_string() }
}

/// Returns a number of bytes with about three digits and its unit.
pub fn bytes(number: f64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let (mut number, mut unit) = (number, 0);
    // From here on, rounding would reach 1024.
    while number.abs() >= 1023.5 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    match number.abs() {
        size if unit == 0 || size >= 99.95 => format!("{number:.0} {}", UNITS[unit]),
        size if size >= 9.995 => format!("{number:.1} {}", UNITS[unit]),
        _ => format!("{number:.2} {}", UNITS[unit]),
    }
}

/// Returns a duration with about three digits and its unit.
pub fn nanoseconds(number: f64) -> String {
    // From here on, rounding would reach the next unit.
    match number {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 999.5e6 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Returns the larger units of the weights of an event with their sizes, the largest first.
pub(super) fn units(event: &Event) -> [(f64, String); 3] {
    let named = |units: [(f64, &str); 3]| units.map(|(size, unit)| (size, unit.to_owned()));
    match &event.measure {
        measure if measure.is_time() => named([(1e9, "s"), (1e6, "ms"), (1e3, "µs")]),
        Measure::Bytes => {
            named([(f64::from(1 << 30), "GiB"), (f64::from(1 << 20), "MiB"), (1024.0, "KiB")])
        }
        _ => [(1e9, "G"), (1e6, "M"), (1e3, "k")]
            .map(|(size, prefix)| (size, format!("{prefix}{}", escaped(&event.unit)))),
    }
}

/// Wraps a sentence into lines of `width` columns; all but the first are indented.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.width() + 1 + word.width() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(format!("  {word}")),
        }
    }
    lines
}

/// Returns a CSV field that no spreadsheet executes as a formula: a field that begins like one gets an
/// apostrophe in front (OWASP, CSV injection), a negative number does not.
pub fn csv_field(field: &str) -> Cow<'_, str> {
    match field.bytes().next() {
        // A negative number is no formula.
        Some(b'-') if field.parse().is_ok_and(f64::is_finite) => field.into(),
        Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r') => format!("'{field}").into(),
        _ => field.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::group::Sum;

    fn table() -> Vec<Vec<String>> {
        let line = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        vec![
            line(&["%", "function", "image"]),
            line(&["12.50", "日本語", "a.out"]),
            line(&["0.10", "std::vector<int>::push_back(int const&)", "libx.so"]),
        ]
    }

    #[test]
    fn name_leaves_room_for_its_suffix() {
        assert_eq!(fit("main", "  (a.out)", 13), "main  (a.out)");
        assert_eq!(fit("main", "  (a.out)", 12), "main  (a…ut)");
        assert_eq!(fit("main", "", 0), "main");
        assert_eq!(cut_middle("ab<…>::f(int)", 8), "ab<…nt)");
        for width in [12, 30, 50] {
            let line = fit(&"x".repeat(90), "  ×7  (libstdc++.so.6.0.30)", width);
            assert_eq!(line.width(), width, "{line}");
        }
    }

    #[test]
    fn long_words_are_kept_whole_when_wrapping() {
        let text = format!("a {} {} b", "x".repeat(78), "y".repeat(100));
        let lines = [format!("a {}", "x".repeat(78)), format!("  {}", "y".repeat(100))];
        assert_eq!(wrapped(&text, 80), [&lines[..], &["  b".to_owned()]].concat());
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let lines = lines(&table(), 1, None);
        let column = |line: &str, what: &str| line[..line.find(what).unwrap()].width();
        let [first, second, third] = lines.lines().collect::<Vec<_>>()[..] else {
            panic!("{lines}")
        };
        assert_eq!(column(first, "image"), column(second, "a.out"));
        assert_eq!(column(first, "image"), column(third, "libx.so"));
        assert_eq!(second.find("12.50"), Some(0));
        assert_eq!(third.find("0.10"), Some(1));
    }

    #[test]
    fn lines_fit_the_terminal() {
        let lines = lines(&table(), 1, Some(40));
        assert!(lines.lines().all(|line| line.width() <= 40), "{lines}");
        assert!(lines.contains("ush_back(…)"), "{lines}");
        assert!(lines.contains("libx.so"), "{lines}");
    }

    #[test]
    fn template_arguments_and_parameters_are_cut_first() {
        let name = "std::map<int, std::less<int> >::find(int const&) const";
        assert_eq!(cut(name, 40), "std::map<…>::find(int const&) const");
        assert_eq!(cut(name, 30), "std::map<…>::find(…) const");
        assert_eq!(cut(name, 12), "std::m…const");
        let name = "std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char)";
        assert_eq!(cut(name, 40), "std::ostream& operator<< <…>(…)");
        let name = "(anonymous namespace)::f::operator()(int, int, int, int)";
        assert_eq!(cut(name, 44), "(anonymous namespace)::f::operator()(…)");
        assert_eq!(cut("a<b::operator->(x, y, z)", 20), "a<b::operator->(…)");
        assert_eq!(cut("<a::B<u8> as c::D<u16>>::e::<f::G>", 30), "<a::B<…> as c::D<…>>::e::<…>");
        let name = "decltype(auto) std::__do_visit<A, B>(A&&, B const&) const [clone .cold]";
        assert_eq!(cut(name, 45), "std::__do_visit<…>(…) const [clone .cold]");
        assert_eq!(cut("bool std::operator< <int>(int, int)", 23), "std::operator< <…>(…)");
        assert_eq!(cut("a::operator unsigned long() const", 20), "a::operato…g() const");
        assert_eq!(cut("/usr/a b/file(1).c", 12), "/usr/a…(…).c");
    }

    #[test]
    fn address_of_code_without_a_name_is_kept() {
        let name = "libc.so.6+0x3d1f0 (after std::locale::classic)";
        assert_eq!(cut(name, 46), name);
        assert_eq!(cut(name, 40), "libc.so.6+0x3d1f0 (after std::lo…lassic)");
        assert_eq!(cut(name, 30), "libc.so.6+0x3d1f0");
        assert_eq!(
            cut("libc.so.6+0x3d1f0 (after a::operator())", 36),
            "libc.so.6+0x3d1f0 (after a::op…or())"
        );
        // A function of this name does not exist; it is cut as any other.
        assert_eq!(cut("f+0xg (after recv and recvfrom)", 14), "f+0xg (…)");
    }

    #[test]
    fn cut_name_is_never_wider_than_requested() {
        for width in 0..20 {
            assert!(cut("日本語日本語日本語", width).width() <= width.max(1));
        }
        assert_eq!(cut("abcdefgh", 8), "abcdefgh");
        assert_eq!(cut("abcdefgh", 6), "abc…gh");
    }

    fn scale_of(measure: Measure, weight: u64) -> Scale {
        let mut event = EventSummary { sum: Sum::of(1, weight), ..EventSummary::default() };
        event.event.unit = measure.unit().into();
        event.event.measure = measure;
        Scale::of(&event)
    }

    fn scale(measure: Measure, weight: u64) -> (String, String) {
        let scale = scale_of(measure, weight);
        (scale.print(weight), scale.unit)
    }

    #[test]
    fn small_weight_beside_its_unit_has_a_smaller_one() {
        let bytes = scale_of(Measure::Bytes, 15 << 20);
        let cases = [(3 << 20, "3.00 MiB"), (1024, "1.00 KiB"), (5, "5 bytes"), (0, "0.00 MiB")];
        for (weight, text) in cases {
            assert_eq!(bytes.print_with_unit(weight), text);
        }
        assert_eq!(
            scale_of(Measure::CpuTime, 20_000_000_000).print_with_unit(4_000_000),
            "4.00 ms"
        );
        assert_eq!(scale_of(Measure::Bytes, 99).print_with_unit(5), "5 bytes");
    }

    #[test]
    fn weight_is_printed_in_a_readable_unit() {
        let cases = [
            (Measure::CpuTime, 25_000_000_000, "25.00", "s"),
            (Measure::WaitTime, 999_999_999, "1000.00", "ms"),
            (Measure::WallTime, 7, "7", "ns"),
            (Measure::Cycles, 31_400_000, "31.40", "Mcycles"),
            (Measure::Count, 12, "12", "count"),
            (Measure::Bytes, 10_239, "10239", "bytes"),
            (Measure::Bytes, 15 << 20, "15.00", "MiB"),
        ];
        for (measure, weight, number, shown) in cases {
            assert_eq!(scale(measure, weight), (number.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn sizes_and_ages_have_three_digits() {
        for (number, size, age) in [
            (0.0, "0 B", "0 ns"),
            (999.0, "999 B", "999 ns"),
            (1023.6, "1.00 KiB", "1.0 µs"),
            (20_000.0, "19.5 KiB", "20.0 µs"),
            (1_048_576.0, "1.00 MiB", "1.0 ms"),
            (3.5e12, "3260 GiB", "3500.00 s"),
        ] {
            assert_eq!((&bytes(number)[..], &nanoseconds(number)[..]), (size, age));
        }
    }

    #[test]
    fn csv_field_is_never_a_formula() {
        assert_eq!(csv_field("=1+2"), "'=1+2");
        assert_eq!(csv_field("-x"), "'-x");
        assert_eq!(csv_field("a=b"), "a=b");
        assert_eq!(csv_field(""), "");
    }
}
