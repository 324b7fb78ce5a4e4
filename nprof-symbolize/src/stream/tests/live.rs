//! A live stream with background lookups that finish late.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nprof_object::ImageOffset;
use nprof_stream::{Encoding, Reader, Status, Step, Writer};

use crate::dwarf::Call;
use crate::dwarf::detail::Detail;
use crate::find::{Finder, SearchPaths};
use crate::image::opened::Symbolized;
use crate::lookup::background::{BackgroundLookup, LookupResult};
use crate::lookup::image_cache::ImageCache;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::lookup_key::LookupKey;
use crate::stream::filter::Filter;

/// Output that can be read while more is written.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Returns the lines written since the last call that begin with one of these words.
    fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.borrow_mut())).unwrap();
        let lines = text.lines().filter(|line| words.contains(&line.split('\t').next().unwrap()));
        lines.map(str::to_owned).collect()
    }
}

/// A filter; the test answers its background lookups.
struct LiveFilter {
    filter: Filter<Shared>,
    out: Shared,
    results: Sender<LookupResult>,
    /// The path of this program, the image of the frames.
    exe: String,
}

/// Creates a filter that never waits.
fn live_filter() -> LiveFilter {
    let detail = Detail { inlines: true, lines: true, debug: true };
    let symbols_only = Detail { inlines: false, lines: false, debug: false };
    let finder = |detail| Rc::new(Finder::new(SearchPaths::default(), detail));
    let (background, results) = BackgroundLookup::by_hand();
    let catalog =
        ImageCatalog::new(finder(detail)).live(ImageCache::new(finder(symbols_only)), background);
    let out = Shared::default();
    let writer = Writer::new(out.clone(), Encoding::Text);
    let filter = Filter::new(writer, catalog, Step::default(), Duration::ZERO);
    let exe = std::env::current_exe().unwrap();
    let exe = String::from_utf8(exe.as_os_str().as_bytes().to_vec()).unwrap();
    LiveFilter { filter, out, results, exe }
}

fn feed(filter: &mut Filter<Shared>, text: &str) {
    let mut reader = Reader::new(text.as_bytes());
    while let Some(record) = reader.next().unwrap() {
        filter.process(&record).unwrap();
    }
    filter.flush().unwrap();
}

/// A result with two calls.
fn result(offset: u64) -> LookupResult {
    let call = |function: &str, line| Call {
        function: Some(function.as_bytes().into()),
        file: Some(b"/a.c"[..].into()),
        line,
        ..Call::default()
    };
    let key = LookupKey { image: 0, offset: ImageOffset(offset), code: false };
    let calls = vec![call("inner", 3), call("outer", 5)];
    let status = Status::Named;
    let symbolized = Symbolized { status, calls, problem: None, unnamed: None };
    LookupResult { key, symbolized, code: None, findings: None }
}

/// Returns the file offset of this program's `main`.
fn main_offset(exe: &str) -> u64 {
    use object::{Object, ObjectSegment, ObjectSymbol};
    let data = std::fs::read(exe).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap().address();
    let mut segments = file.segments();
    let holds =
        |at: &object::Segment<'_, '_>| (at.address()..at.address() + at.size()).contains(&main);
    let segment = segments.find(holds).unwrap();
    main - segment.address() + segment.file_range().0
}

const HEAD: &str = "@nprof\t1.1\trun=0x1\n";
const NODE: &str = "N\t1\t0\t1\nS\t1\t0\t0\t0\t1\t1\t1\n";

#[test]
fn stream_continues_with_symbols_and_lines_follow() {
    let LiveFilter { mut filter, out, results, exe } = live_filter();
    let offset = main_offset(&exe);
    let frame = format!("I\t1\telf\t-\t{exe}\nF\t1\t1\t{offset:#x}\tu\n");
    feed(&mut filter, &format!("{HEAD}{frame}{NODE}"));
    // No lookup has finished, and all records are written.
    assert_eq!(out.lines(&["U", "Y", "S"])[..2], ["U\t1\tmain\t-", "Y\t1\tnamed\t1,0,0,0"]);
    let mut ready = [true, false].into_iter();
    let ready = RefCell::new(move || ready.next().unwrap_or(true));
    filter.write_until_ready(|| (ready.borrow_mut())()).unwrap();
    assert_eq!(out.lines(&["Y"]), [] as [&str; 0], "the input comes first");
    results.send(result(offset)).unwrap();
    filter.write_until_ready(|| (ready.borrow_mut())()).unwrap();
    assert_eq!(out.lines(&["Y"]), ["Y\t1\tnamed\t2,1,3,0\t3,1,5,0"]);
    feed(&mut filter, NODE);
    filter.finish().unwrap();
    let written = out.lines(&["Y", "S", "@naming"]);
    assert!(written[1].contains("\tnamed=1\tunnamed=0"), "counted once: {written:?}");
}

#[test]
fn epoch_ends_after_all_its_lines() {
    let LiveFilter { mut filter, out, results, exe } = live_filter();
    let offset = main_offset(&exe);
    let frame = format!("I\t1\telf\t-\t{exe}\nF\t1\t1\t{offset:#x}\tu\n");
    // An existing name is preferred to that of a symbol until the lookup is done.
    let existing = "U\t9\ttheirs\t-\nY\t1\tnamed\t9,0,0,0\n";
    feed(&mut filter, &format!("{HEAD}{frame}{existing}{NODE}"));
    results.send(result(offset)).unwrap();
    feed(&mut filter, &format!("@epoch\tnumber=1\n{frame}{NODE}"));
    filter.finish().unwrap();
    let written = out.lines(&["U", "Y", "@epoch", "@naming"]);
    let expected = [
        "U\t1\ttheirs\t-",
        "Y\t1\tnamed\t1,0,0,0",
        "U\t2\tinner\t-",
        "U\t3\touter\t-",
        "Y\t1\tnamed\t2,1,3,0\t3,1,5,0",
        "@epoch\tnumber=1",
        "U\t1\tinner\t-",
        "U\t2\touter\t-",
        "Y\t1\tnamed\t1,1,3,0\t2,1,5,0",
    ];
    assert_eq!(written[..9], expected);
    assert!(written[9].contains("\tnamed=2\tunnamed=0"), "{written:?}");
}

#[test]
fn redefined_frame_gets_no_lines_of_the_old_one() {
    let LiveFilter { mut filter, out, results, exe } = live_filter();
    let offset = main_offset(&exe);
    let frame = |offset: u64| format!("F\t1\t1\t{offset:#x}\tu\n");
    feed(&mut filter, &format!("{HEAD}I\t1\telf\t-\t{exe}\n{}{NODE}", frame(offset)));
    feed(&mut filter, &format!("{}{NODE}", frame(offset + 1)));
    assert_eq!(out.lines(&["Y"]).len(), 2);
    results.send(result(offset)).unwrap();
    filter.write_until_ready(|| true).unwrap();
    assert_eq!(out.lines(&["Y"]), [] as [&str; 0]);
    results.send(result(offset + 1)).unwrap();
    filter.finish().unwrap();
    assert_eq!(out.lines(&["Y"]), ["Y\t1\tnamed\t2,1,3,0\t3,1,5,0"]);
}

#[test]
fn better_existing_location_is_kept_however_late() {
    let finder = Rc::new(Finder::new(
        SearchPaths::default(),
        Detail { inlines: true, lines: true, debug: true },
    ));
    let out = Shared::default();
    let writer = Writer::new(out.clone(), Encoding::Text);
    let mut filter =
        Filter::new(writer, ImageCatalog::new(finder), Step::default(), Duration::ZERO);
    let first = "I\t1\telf\t-\t/nowhere\nF\t1\t1\t0x5\tu\nY\t1\tno-symbol\n";
    let again = "U\t9\tf\t-\nY\t1\tnamed\t9,0,0,0\n";
    feed(&mut filter, &format!("{HEAD}{first}{NODE}{again}{NODE}"));
    filter.finish().unwrap();
    let written = out.lines(&["Y", "@naming"]);
    assert_eq!(written[..2], ["Y\t1\tno-symbol", "Y\t1\tnamed\t1,0,0,0"]);
    assert!(written[2].contains("\tnamed=1\tunnamed=0"), "counted once: {written:?}");
}
