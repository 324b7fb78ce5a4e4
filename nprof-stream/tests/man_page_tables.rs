//! The specification and the code say the same: the tables of nprof-format(5) against those of
//! the library.

use nprof_stream::kind::KINDS;
use nprof_stream::{
    Cause, ChangeKind, End, Epoch, Event, Head, ImageKind, Mark, Naming, Status, Step, limits,
};

const PAGE: &str = include_str!("../../man/nprof-format.5");

/// The page without macros: words separated by single spaces.
fn words(roff: &str) -> String {
    let is_macro = |word: &&str| !["Li", "No", "Ar", "Ns", "Ta", ".Li", ".Ql", "Ql"].contains(word);
    roff.split_whitespace().filter(is_macro).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_kind_has_its_number_word_name_and_fields() {
    for kind in KINDS {
        let fields = match kind.fields {
            // The pairs have tables of their own.
            fields if fields.contains("key=value") => "",
            fields => fields,
        };
        let wanted = format!("{} {} {} {fields}", kind.number, kind.word, kind.name);
        let wanted = wanted.trim_end();
        let found = PAGE
            .lines()
            .filter_map(|line| line.strip_prefix(".It "))
            .map(|line| words(line).replace(" , ", ","))
            .any(|line| line == wanted);
        assert!(found, "the page does not have: {wanted}");
    }
}

/// The part of the page on one kind of record.
fn section(word: &str) -> &'static str {
    let at = PAGE
        .match_indices(".It ")
        .map(|(at, _)| &PAGE[at..])
        .find(|rest| words(rest.lines().next().unwrap_or("")).split(' ').nth(2) == Some(word));
    let rest = at.unwrap_or_else(|| panic!("the page does not describe {word}"));
    // Up to the next kind: an item that begins with a number.
    let end = rest[4..]
        .match_indices("\n.It ")
        .map(|(at, _)| at)
        .find(|&at| rest[4 + at + 5..].starts_with(|first: char| first.is_ascii_digit()));
    &rest[..end.map_or(rest.len(), |end| end + 4)]
}

fn has_values(record: &str, values: &[(u8, String)]) {
    let section = section(record);
    for (number, word) in values.iter().filter(|(_, word)| word != "none") {
        let in_table =
            section.lines().any(|line| line.starts_with(&format!(".It Li {word} Ta {number} Ta")));
        let text = words(section);
        let in_text = text.contains(&format!("{word} ({number}:"));
        assert!(in_table || in_text, "{record}: the page does not have {word} = {number}");
    }
}

macro_rules! values {
    ($type:ty) => {
        <$type>::ALL.iter().map(|value| (value.number(), value.to_string())).collect::<Vec<_>>()
    };
}

#[test]
fn every_value_of_an_enumeration_has_its_number_and_word() {
    has_values("I", &values!(ImageKind));
    has_values("F", &values!(Mark));
    has_values("X", &values!(ChangeKind));
    has_values("L", &values!(Cause));
    has_values("Y", &values!(Status));
}

fn has_keys(record: &str, keys: &[&str]) {
    let found: Vec<&str> = section(record)
        .lines()
        .filter_map(|line| line.strip_prefix(".It Li "))
        .filter_map(|line| line.split(' ').next())
        .map(|key| key.trim_end_matches('*'))
        .collect();
    assert_eq!(found, keys, "{record}: the keys in the order they are written");
}

#[test]
fn the_rare_records_have_their_keys_in_order() {
    has_keys("@nprof", Head::KEYS);
    has_keys("@event", Event::KEYS);
    has_keys("@epoch", Epoch::KEYS);
    has_keys("@end", End::KEYS);
    has_keys("@step", Step::KEYS);
    has_keys("@naming", Naming::KEYS);
}

#[test]
fn the_limits_are_the_limits() {
    let page = words(PAGE);
    let has = |what: String| assert!(page.contains(&what), "the page lacks: {what}");
    has(format!("Payload of a block {} MiB", limits::PAYLOAD >> 20));
    has(format!("string {} KiB", limits::STRING >> 10));
    has(format!("build ID {} bytes", limits::BUILD_ID));
    has(format!("depth of a stack {}", limits::DEPTH));
    has(format!("groups of a location {}", limits::LINES));
    has(format!("line of text {} MiB", limits::LINE >> 20));
    has(format!("id 2^{}", limits::ID.trailing_zeros()));
    has(format!("Major version, {}", nprof_stream::MAJOR).to_lowercase());
}
