//! Flame graphs in a browser: Chromium runs the script of the picture, then prints the document.

use nprof_tests::{Shell, compile_demo, have, rows};

/// Returns the document of a picture after its script has run. Elements are as HTML, with `&lt;` for
/// `<` in names.
fn document(shell: &Shell, svg: &str) -> String {
    // A connection to another host would be refused, and its messages are on standard error.
    let run = shell.run(&format!(
        "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
         --disable-background-networking --disable-component-update --disable-sync \
         --user-data-dir=profile --window-size=1000,800 --virtual-time-budget=5000 --dump-dom \
         file://$PWD/{svg} 2> chromium.log"
    ));
    assert_eq!(run.status, 0, "{}", String::from_utf8_lossy(&shell.read("chromium.log")));
    run.out
}

/// A drawn frame: the name in the tooltip, its samples, the text in the picture.
#[derive(Debug)]
struct Frame<'a> {
    name: &'a str,
    samples: u64,
    text: &'a str,
}

/// Returns the frames of a document.
fn frames(document: &str) -> Vec<Frame<'_>> {
    let between = |text: &'_ str, from: &str, to: &str| -> Option<(usize, usize)> {
        let start = text.find(from)? + from.len();
        Some((start, start + text[start..].find(to)?))
    };
    let mut frames = Vec::new();
    for group in document.split("<g").skip(1) {
        let (Some(title), Some(text)) =
            (between(group, "<title>", "</title>"), between(group, "<text", "</text>"))
        else {
            continue;
        };
        let (title, text) = (&group[title.0..title.1], &group[text.0..text.1]);
        // `name (1,234 samples, 5.67%)`, and the attributes of the text before it.
        let Some((name, numbers)) = title.rsplit_once(" (") else { continue };
        let samples = numbers.split(' ').next().unwrap_or_default().replace(',', "");
        frames.push(Frame {
            name,
            samples: samples.parse().unwrap_or(0),
            text: text.split_once('>').map_or("", |(_, text)| text),
        });
    }
    frames
}

#[test]
fn browser_shows_name_of_hottest_function_of_demo() {
    if !have(&["chromium"]) {
        return;
    }
    let shell = Shell::new();
    compile_demo(shell.directory());
    shell.run("nprof-record -q -o - -- ./demo 2> /dev/null | nprof-symbolize > x.nprof").quiet();
    shell.run("nprof-paths --format flamegraph -o x.svg x.nprof").quiet();
    let hottest = rows(&shell.run("nprof-flat -n 8 --format tsv x.nprof").quiet());

    let document = document(&shell, "x.svg");
    let frames = frames(&document);
    // The hottest function, and another hot one: a label that shows the end of its long parameters
    // does not name it.
    let merge =
        hottest.iter().map(|row| row.text("function")).find(|name| name.starts_with("merge("));
    let merge = merge.expect("a hot function");
    assert!(merge.len() > 40, "{merge}");
    for name in [hottest[0].text("function"), merge] {
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let widest = frames.iter().filter(|frame| frame.name == escaped).max_by_key(|f| f.samples);
        let label = widest.expect("a frame").text.trim_end();
        let beginning = label.strip_suffix("..").unwrap_or(label);
        assert!(beginning.len() > 3 && name.starts_with(beginning), "{name}: {label}");
        assert!(!beginning.contains('('), "{name}: {label}");
    }
    // All samples are drawn.
    let stat = rows(&shell.run("nprof-flat --by event --format tsv x.nprof").quiet());
    let all = frames.iter().find(|frame| frame.name == "all").expect("the outermost frame");
    assert_eq!(all.samples, stat[0].number("self_samples") as u64);
}

/// Returns a text stream with a sample of a function that called itself `depth` times.
fn recursion(depth: usize) -> String {
    let frames = " | 1".repeat(depth);
    format!(
        "@nprof | 1.1 | run=0x1 | clock=monotonic | command=deep\n\
         @event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=997\n\
         I | 1 | elf | - | /bin/deep\nT | 1 | 0 | 7 | 7 | 0 | deep\nU | 1 | f(int) | -\n\
         F | 1 | 1 | 0x10 | u\nY | 1 | named | 1,0,0,0\nN | 1 | 0{frames}\n\
         S | 1 | 1 | 1 | 0 | {depth} | 1000 | 1\n\
         @end | reason=exit | status=0 | samples=1 | records=6 | lost=0\n"
    )
    .replace(" | ", "\t")
}

#[test]
fn deep_graph_opens_at_its_root() {
    if !have(&["chromium"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("deep", recursion(300));
    // Replaces the title by the part of the picture that the window shows, once it is drawn.
    let probe = "<script>setTimeout(function() { document.getElementById('title').textContent = \
                 'shows ' + scrollY + ' to ' + (scrollY + innerHeight) + ' of ' + \
                 document.documentElement.height.baseVal.value; }, 500);</script></svg>";
    for format in ["flamegraph", "icicle"] {
        let svg = shell.run(&format!("nprof-paths --format {format} deep")).quiet();
        let end = svg.rfind("</svg>").expect("the end of the picture");
        shell.write("deep.svg", format!("{}{probe}", &svg[..end]));
        let document = document(&shell, "deep.svg");
        let shown = document.split("shows ").nth(1).expect(&document);
        let numbers: Vec<f64> = shown
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .filter_map(|number| number.parse().ok())
            .take(3)
            .collect();
        let [from, to, height] = numbers[..] else { panic!("{document}") };
        assert!(height > 300.0 * 16.0 && to - from < height / 2.0, "{shown}");
        // Roots are at the lower end of a flame graph, at the upper end of an icicle graph.
        let (distance, reached) = if format == "icicle" { (from, 0.0) } else { (to, height) };
        assert!((distance - reached).abs() <= 2.0, "{format}: {numbers:?}");
    }
}
