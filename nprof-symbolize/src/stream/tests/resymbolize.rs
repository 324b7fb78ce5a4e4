//! A stream that was symbolized before: its annotations stay, in any order.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::dwarf::detail::Detail;
use crate::find::{Finder, SearchPaths};
use crate::lookup::image_catalog::ImageCatalog;
use crate::stream::filter::Filter;
use nprof_stream::{Encoding, Reader, Step, Writer};
use proptest::prelude::*;

const HEAD: &str = "@nprof\t1.1\trun=0x1\n@step\ttool=me\tversion=1\tnaming_options=full\n\
                    I\t1\telf\t-\t/nowhere\n";

/// Returns the filtered stream as text; input and output are binary if `is_binary`.
fn filtered(text: &str, is_binary: bool) -> String {
    let detail = Detail { inlines: true, lines: true, debug: true };
    let catalog = ImageCatalog::new(Rc::new(Finder::new(SearchPaths::default(), detail)));
    let [tool, version, naming_options] = ["me", "1", "full"].map(|word| word.as_bytes().to_vec());
    let step = Step { tool, version, naming_options, ..Step::default() };
    let encoding = if is_binary { Encoding::Binary } else { Encoding::Text };
    let writer = Writer::new(Vec::new(), encoding);
    let mut filter = Filter::new(writer, catalog, step, Duration::ZERO);
    let input = reencoded(text.as_bytes(), encoding);
    let mut reader = Reader::new(&input[..]);
    while let Some(record) = reader.next().unwrap() {
        filter.process(&record).unwrap();
        drop(record);
        filter.copy_plain(&mut reader).unwrap();
    }
    filter.write_step().and_then(|()| filter.flush_pending_frames()).unwrap();
    let written = filter.writer.finish().unwrap();
    String::from_utf8(reencoded(&written, Encoding::Text)).unwrap()
}

fn reencoded(stream: &[u8], encoding: Encoding) -> Vec<u8> {
    let (mut reader, mut writer) = (Reader::new(stream), Writer::new(Vec::new(), encoding));
    while let Some(record) = reader.next().unwrap() {
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns the lines of records, without metadata and comments.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with(['#', '@'])).collect()
}

/// Returns the final location of each frame: its status, and its lines with their names. None if it
/// has no location. The last location counts; if `may_reuse`, a location that replaces the lookup
/// counts until another such one follows.
fn locations(text: &str, may_reuse: bool) -> HashMap<&str, Option<String>> {
    let (mut names, mut frames) = (HashMap::new(), HashMap::new());
    // Frames of the current stack, and frames with a reused location: it has a file and follows
    // its frame.
    let (mut fresh, mut reused) = (Vec::new(), Vec::new());
    for line in lines(text) {
        let fields: Vec<&str> = line.split('\t').collect();
        let id = fields[1];
        match fields[0] {
            "U" | "D" => drop(names.insert(format!("{}{id}", fields[0]), fields[2..].join(" "))),
            "F" => {
                frames.insert(id, None);
                fresh.push(id);
                reused.retain(|&other| other != id);
            }
            "Y" => {
                let has_file = |line: &&str| line.split(',').nth(1) != Some("0");
                let is_whole = fields[2] == "named" && fields[3..].iter().any(has_file);
                if is_whole && may_reuse && fresh.contains(&id) {
                    reused.push(id);
                }
                let shown = |ids: &str| {
                    let ids: Vec<&str> = ids.split(',').collect();
                    let name = |kind: &str, id: &str| {
                        let name = names.get(&format!("{kind}{id}"));
                        name.map_or("", String::as_str)
                    };
                    format!("{}, {}, {}", name("U", ids[0]), name("D", ids[1]), ids[2])
                };
                if let Some(frame) =
                    frames.get_mut(id).filter(|_| is_whole || !reused.contains(&id))
                {
                    let lines = fields[3..].iter().map(|ids| shown(ids));
                    *frame =
                        Some([vec![fields[2].to_owned()], lines.collect()].concat().join("; "));
                }
            }
            _ => fresh.clear(),
        }
    }
    frames
}

/// A record of a stream.
fn record() -> impl Strategy<Value = String> {
    let line =
        (0..7_u32, 0..5_u32, 0..3_u32).prop_map(|(u, d, line)| format!("\t{u},{d},{line},0"));
    let lines = prop::collection::vec(line, 0..3).prop_map(|lines| lines.concat());
    let status = prop_oneof![4 => Just("named"), 1 => Just("no-symbol")];
    prop_oneof![
        4 => (1..5_u32).prop_map(|id| format!("F\t{id}\t1\t{id:#x}\tu\n")),
        6 => (1..5_u32, status, lines).prop_map(|(id, status, lines)| format!("Y\t{id}\t{status}{lines}\n")),
        2 => (1..7_u32, 0..4_u32).prop_map(|(id, name)| format!("U\t{id}\tf{name}\t-\n")),
        2 => (1..5_u32, 0..3_u32).prop_map(|(id, name)| format!("D\t{id}\t/{name}\n")),
        3 => Just("N\t1\t0\t1\nS\t5\t0\t0\t0\t1\t1\t1\n".to_owned()),
    ]
}

/// Returns the records without repeated definitions and without references to undefined names.
fn in_order(records: Vec<String>) -> Vec<String> {
    let mut known = vec!["U0".to_owned(), "D0".to_owned()];
    let mut ordered = Vec::new();
    for record in records {
        let mut fields: Vec<String> = record.split('\t').map(str::to_owned).collect();
        let key = format!("{}{}", fields[0], fields[1]);
        match &*fields[0] {
            "U" | "D" if known.contains(&key) => continue,
            "U" | "D" => known.push(key),
            "Y" => {
                for line in fields.iter_mut().skip(3) {
                    let ids: Vec<&str> = line.split(',').collect();
                    let is_known = |kind, id| known.contains(&format!("{kind}{id}"));
                    let or_none = |kind, id| if is_known(kind, id) { id } else { "0" };
                    let rest = ids[2..].join(",");
                    *line = format!("{},{},{rest}", or_none("U", ids[0]), or_none("D", ids[1]));
                }
            }
            _ => {}
        }
        ordered.push(fields.join("\t"));
    }
    ordered
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn existing_locations_stay(records in prop::collection::vec(record(), 0..40)) {
        let records = in_order(records);
        // A location that does not follow its frame counts only after one that does.
        let begin = "F\t9\t1\t0x9\tu\nY\t9\tno-symbol\nN\t8\t0\t9\n";
        let text = format!("{HEAD}{begin}{}N\t9\t0\t1\n", records.concat());
        let expected = locations(&text, true);
        for is_binary in [false, true] {
            let output = filtered(&text, is_binary);
            for (frame, location) in locations(&output, false) {
                let expected = expected[frame].clone().unwrap_or("no-image".to_owned());
                prop_assert_eq!(location, Some(expected), "frame {}: {}", frame, output);
            }
        }
    }
}

#[test]
fn fully_symbolized_stream_is_unchanged() {
    // As two epochs of a live stream: names first, then lines.
    let epoch = "I\t1\telf\t-\t/nowhere\nF\t1\t1\t0x1\tu\nF\t2\t1\t0x2\tu\nU\t1\tf\t-\nD\t1\t/a\n\
                 Y\t1\tnamed\t1,1,3,0\nU\t2\tg\t_Z1gv\nY\t2\tnamed\t1,0,0,0\t2,1,5,0\nN\t1\t0\t1\t2\n\
                 S\t5\t0\t0\t0\t2\t1\t1\nF\t3\t1\t0x3\tu\nY\t3\tno-symbol\nN\t3\t0\t3\n\
                 S\t6\t0\t0\t0\t3\t1\t1\nU\t3\th\t-\nY\t1\tnamed\t3,1,4,0\nS\t7\t0\t0\t0\t1\t1\t1\n";
    let text = format!("{HEAD}{epoch}@epoch\tnumber=1\n{epoch}");
    for is_binary in [false, true] {
        let output = filtered(&text, is_binary);
        assert_eq!(lines(&output), lines(&text));
    }
}

#[test]
fn late_location_is_counted() {
    let text = format!(
        "{HEAD}F\t1\t1\t0x1\tu\nN\t1\t0\t1\nS\t5\t0\t0\t0\t1\t1\t1\nU\t1\tf\t-\nD\t1\t/a\n\
         Y\t1\tnamed\t1,1,3,0\nN\t2\t1\t1\n@end\treason=exit\tsamples=1\trecords=5\tlost=0\n"
    );
    let output = filtered(&text, false);
    assert!(output.contains("\tnamed=1\tunnamed=0"), "{output}");
}

#[test]
fn new_names_shift_later_ids() {
    // The second frame is in generated code; its name is defined between those of the input.
    let text = format!(
        "{HEAD}I\t2\tjit\t-\tmade\nU\t1\tf\t-\nD\t1\t/a\nF\t1\t1\t0x1\tu\nY\t1\tnamed\t1,1,3,0\n\
         F\t2\t2\t0x1\tu\nN\t1\t0\t2\nF\t3\t1\t0x3\tu\nU\t2\tg\t-\nY\t3\tnamed\t2,1,3,0\nN\t2\t0\t3\n"
    );
    let output = filtered(&text, true);
    assert!(output.contains("U\t2\tmade\t-\nY\t2\tnamed\t2,0,0,0\n"), "{output}");
    assert!(output.contains("U\t3\tg\t-\nY\t3\tnamed\t3,1,3,0\n"), "{output}");
}

#[test]
fn names_that_recorder_found_late_overrule_anonymous_locations() {
    let text = format!(
        "{HEAD}I\t2\tanon\t-\t[anon]\nF\t1\t2\t0x1\tu\nF\t2\t1\t0x2\tu\nN\t1\t0\t1\t2\n\
         S\t5\t0\t0\t0\t1\t1\t1\nU\t1\tmade\t-\nY\t1\tnamed\t1,0,0,0\nN\t3\t0\t1\n"
    );
    for is_binary in [false, true] {
        let once = filtered(&text, is_binary);
        assert!(once.contains("Y\t1\tanonymous\n"), "{once}");
        assert!(
            once.contains("S\t5\t0\t0\t0\t1\t1\t1\nU\t1\tmade\t-\nY\t1\tnamed\t1,0,0,0\nN"),
            "{once}"
        );
        // Another run keeps them.
        let twice = filtered(&once, is_binary);
        assert_eq!(locations(&twice, false)["1"], locations(&once, false)["1"], "{twice}");
    }
}

#[test]
fn anonymous_memory_is_counted_with_remedy() {
    let end = "@end\treason=exit\tsamples=0\trecords=6\tlost=0\n";
    let text = format!(
        "{HEAD}I\t2\tanon\t-\t[anon]\nI\t3\tanon\t-\t[anon]\tsince=5\nF\t1\t2\t0x1\tu\n\
         F\t2\t3\t0x1\tu\nN\t1\t0\t1\t2\nU\t1\tmade\t-\nY\t2\tnamed\t1,0,0,0\n{end}"
    );
    let output = filtered(&text, false);
    let naming = output.lines().find(|line| line.contains("image=[anon]")).expect("a record");
    let counts = "kind=anon\tnamed=1\tunnamed=1\tunnamed_by_status=anonymous 1";
    assert!(naming.contains(counts), "{naming}");
    assert!(naming.contains("node --perf-basic-prof"), "{naming}");
}
