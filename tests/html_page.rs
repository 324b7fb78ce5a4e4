//! Pages in a browser: Chromium runs the script of the page, then prints the document. Its numbers are
//! those of nprof-flat.

use std::fmt::Write as _;

use nprof_tests::browser::{self, markup};
use nprof_tests::{Shell, have, rows};

/// Names with the markup of HTML and the ends of scripts; the second one as text streams escape controls.
const HOSTILE: [&str; 3] = [
    "</script><script>document.title='injected'</script>",
    "f<img src=x onerror=document.title='injected'>(\\x1b[31m)",
    "<!--\"'&amp;`${1}\\\\",
];

/// Returns a text stream with two threads, recursion, samples of two weights, and hostile names.
fn recording() -> String {
    let mut text = "@nprof | 1.1 | run=0x1 | clock=monotonic | command=./</script> & co\n\
        @event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=997\n\
        @event | id=2 | name=blocked | unit=ns | measure=wait-time | period=1\n\
        I | 1 | elf | - | /bin/prog\nI | 2 | elf | - | /lib/libhot.so\n\
        T | 1 | 0 | 7 | 7 | 0 | main</td>\nT | 2 | 1 | 7 | 8 | 0 | worker\n"
        .to_owned();
    let names = ["main", "walk(node*)", "leaf"].into_iter().chain(HOSTILE);
    for (number, name) in (1..).zip(names) {
        let image = if number == 3 { 2 } else { 1 };
        let _ = writeln!(text, "U | {number} | {name} | -");
        let _ = writeln!(text, "F | {number} | {image} | {:#x} | u", number * 16);
        let _ = writeln!(text, "Y | {number} | named | {number},0,0,0");
    }
    // main calls walk, which calls itself and leaf; main calls each hostile function.
    text += "N | 1 | 0 | 1 | 2 | 2 | 3\nN | 5 | 1 | 4\nN | 6 | 1 | 5\nN | 7 | 1 | 6\n";
    let (mut samples, mut time) = (0, 1000);
    for number in 0..600_u64 {
        time += 1_003_009;
        // The first half of the time is that of the first thread, mostly in leaf.
        let (task, node) = match number {
            0..300 => (1, [4, 4, 3, 2, 5][number as usize % 5]),
            _ => (2, [6, 7, 4, 6][number as usize % 4]),
        };
        let _ = writeln!(text, "S | {time} | 1 | {task} | 0 | {node} | 1003009 | 1");
        if number % 7 == 0 {
            let weight = 1000 + number * number * 31;
            let _ = writeln!(text, "S | {time} | 2 | {task} | 0 | {node} | {weight} | 1");
            samples += 1;
        }
        samples += 1;
    }
    let records = 2 + 2 + 2 + 6 + 4 + samples;
    let _ = writeln!(
        text,
        "@end | reason=exit | status=0 | samples={samples} | records={records} | lost=0"
    );
    text.replace(" | ", "\t")
}

/// Returns the document of the page of [`page`], with a selection in the address.
fn document(shell: &Shell, selection: &str) -> String {
    browser::document(shell, "x.html", selection)
}

/// A row of the table: cells as in the document, and as nprof-flat has them.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    function: String,
    image: String,
    samples: String,
    /// Share and margin, in per cent.
    self_: [String; 2],
    total: [String; 2],
}

/// Returns the rows of the table in a document.
fn shown(document: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let rows = document.split("<div class=\"row").skip(1);
    // Not the element that has all rows.
    for row in rows.filter(|row| row.starts_with(['"', ' '])) {
        let cell = |name: &str| browser::cell(row, name).to_owned();
        let pair = |name: &str| {
            let cell = cell(name);
            let numbers = cell.split_once("</i>").expect(&cell).1;
            let (share, margin) = numbers.split_once("<small>").expect(&cell);
            [share.to_owned(), margin.replace("</small>", "")]
        };
        shown.push(Shown {
            function: cell("function"),
            image: cell("image"),
            samples: cell("samples").replace(',', ""),
            self_: pair("self"),
            total: pair("total"),
        });
    }
    shown
}

/// Returns the rows of nprof-flat for a selection, as the page shows them.
fn expected(shell: &Shell, options: &str) -> Vec<Shown> {
    let tsv = shell.run(&format!("nprof-flat --rebase --format tsv {options} x.nprof")).quiet();
    let percent = |number: f64| format!("{number:.2}");
    rows(&tsv)
        .iter()
        .map(|row| Shown {
            function: markup(row.text("function")),
            image: markup(row.text("image")),
            samples: row.text("self_samples").to_owned(),
            self_: ["self_percent", "self_margin"].map(|column| percent(row.number(column))),
            total: ["total_percent", "total_margin"].map(|column| percent(row.number(column))),
        })
        .collect()
}

fn sorted(mut rows: Vec<Shown>) -> Vec<Shown> {
    rows.sort_by(|a, b| a.function.cmp(&b.function));
    rows
}

fn page() -> Option<Shell> {
    if !have(&["chromium"]) {
        return None;
    }
    let shell = Shell::new();
    shell.write("x.nprof", recording());
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    Some(shell)
}

#[test]
fn labels_have_no_parameters_and_types() {
    let Some(shell) = page() else { return };
    let names = [
        ("walk(node*)", "walk"),
        ("void std::sort<A, B>(A, B)", "std::sort"),
        ("std::map<int, int>::find(int const&) const", "std::map::find"),
        ("bool std::operator< <int>(int, int)", "std::operator<"),
        ("void (anonymous namespace)::k<int>(int)", "(anonymous namespace)::k"),
        ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"),
        ("<a::B<u8> as c::D<u16>>::e::<f::G>", "<a::B as c::D>::e"),
        ("libc.so.6+0x3d1f0 (after mrand48_r)", "libc.so.6+0x3d1f0 (after mrand48_r)"),
    ];
    let (long, short): (Vec<&str>, Vec<&str>) = names.into_iter().unzip();
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    // Functions of the page are in a function.
    let script = format!("\nbegin();\ndocument.title = {long:?}.map(short_name).join('|');\n");
    shell.write("labels.html", page.replace("\nbegin();\n", &script));
    let document = browser::document(&shell, "labels.html", "");
    assert!(
        document.contains(&format!("<title>{}</title>", markup(&short.join("|")))),
        "{document}"
    );
}

#[test]
fn amounts_round_to_the_next_unit() {
    if !have(&["chromium"]) {
        return;
    }
    let shell = Shell::new();
    for (unit, measure, weight, expected) in [
        ("ns", "cpu-time", 999_700_000, "1.00 s"),
        ("ns", "cpu-time", 99_960, "100 µs"),
        ("bytes", "bytes", 1_048_200, "1.00 MiB"),
        ("bytes", "bytes", 20_000, "19.5 KiB"),
    ] {
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=e\tunit={unit}\tmeasure={measure}\n\
             S\t1\t1\t0\t0\t0\t{weight}\t1\n@end\tsamples=1\trecords=2\tlost=0\n"
        );
        shell.write("x.nprof", stream);
        // A message says that the stream has no names.
        assert_eq!(shell.run("nprof-paths --format html -o x.html x.nprof").status, 0);
        let document = document(&shell, "");
        let counted = document.split("id=\"counted\">").nth(1).expect("an element");
        assert_eq!(counted.split('<').next(), Some(&format!("1 samples · {expected}")[..]));
    }
}

#[test]
fn heads_state_the_order_of_their_column() {
    let Some(shell) = page() else { return };
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    for (column, order) in [("total", "descending"), ("image", "ascending")] {
        let script =
            format!("<script>document.querySelector('.head .c-{column} button').click();</script>");
        shell.write("sorted.html", page.replace("</body>", &(script + "</body>")));
        let document = browser::document(&shell, "sorted.html", "tab=functions");
        let sorted = format!("data-key=\"{column}\" aria-sort=\"{order}\"");
        assert!(document.contains(&sorted), "{document}");
    }
}

#[test]
fn numbers_of_page_are_those_of_nprof_flat() {
    let Some(shell) = page() else { return };
    // Slices are 1 ms long, from the first sample on.
    for (selection, options) in [
        ("", "--match event=cpu-clock"),
        ("&event=1", "--match event=blocked"),
        ("&time=0.1..0.35", "--match event=cpu-clock --time 100ms..350ms"),
        ("&event=1&time=0.2..0.5", "--match event=blocked --time 200ms..500ms"),
        ("&threads=1", "--match event=cpu-clock --match thread=worker"),
    ] {
        let expected = sorted(expected(&shell, options));
        assert!(expected.len() >= 3, "{options}: {expected:?}");
        let document = document(&shell, &format!("tab=functions{selection}"));
        assert_eq!(sorted(shown(&document)), expected, "{options}");
    }
}

/// Returns the document after a script has used the page, with a frame for each change.
fn used(shell: &Shell, selection: &str, script: &str) -> String {
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    let frames = "<script>window.requestAnimationFrame = (draw) => { draw(); return 0; };</script>";
    let page = page
        .replace("<style>", &format!("{frames}<style>"))
        .replace("</body>", &format!("<script>{script}</script></body>"));
    shell.write("used.html", page);
    browser::document(shell, "used.html", selection)
}

/// Returns the document after the timeline was brushed to places in pixels.
fn brushed(shell: &Shell, selection: &str, places: &[u32]) -> String {
    let mut script = "const canvas = document.querySelector('#timeline canvas');\n".to_owned();
    for (place, target) in places.iter().zip(["canvas"].into_iter().chain(["window"].repeat(99))) {
        let kind = if target == "canvas" { "mousedown" } else { "mousemove" };
        let event = format!("'{kind}', {{ clientX: {place}, clientY: 75, bubbles: true }}");
        let _ = writeln!(script, "{target}.dispatchEvent(new MouseEvent({event}));");
    }
    script += "dispatchEvent(new MouseEvent('mouseup'));";
    used(shell, selection, &script)
}

/// Returns the document after keys were pressed where the focus is, from the element that a selector names.
fn after_keys(shell: &Shell, selection: &str, focused: &str, keys: &str) -> String {
    let script = format!(
        "document.querySelector('{focused}').focus();\n\
         for (const key of '{keys}'.split(' ')) {{\n\
           const [name, shiftKey] = [key.replace('+', ''), key.startsWith('+')];\n\
           document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: name, shiftKey, bubbles: true }}));\n\
         }}"
    );
    used(shell, selection, &script)
}

/// Returns the options of nprof-flat for the time that a document shows as selected.
fn selected_time(document: &str) -> String {
    let chip = document.split("class=\"chip\">").nth(1).expect("a time");
    let chip = chip.split("</button>").next().expect("a time");
    let time: Vec<String> = chip
        .split(" – ")
        .map(|time| time.trim_end_matches(" s").parse::<f64>().expect("seconds"))
        .map(|seconds| format!("{:.0}ms", 1000.0 * seconds))
        .collect();
    format!("--time {}", time.join(".."))
}

#[test]
fn arrows_move_without_a_click_before() {
    let Some(shell) = page() else { return };
    let name = |document: &str| {
        let name = document.split("id=\"name\" class=\"mono\">").nth(1).expect("a name");
        name.split("</span>").next().expect("a name").to_owned()
    };
    // To the command, main, walk, and walk below it.
    for (keys, expected) in [
        ("ArrowDown ArrowDown", "main"),
        ("ArrowDown ArrowDown ArrowDown Enter", "walk(node*)"),
        ("ArrowDown ArrowDown ArrowDown ArrowUp", "main"),
        // Also after another view was seen.
        ("2 1 ArrowDown ArrowDown ArrowDown", "walk(node*)"),
    ] {
        let document = after_keys(&shell, "", "body", keys);
        assert_eq!(name(&document), expected, "{keys}");
    }
    let document = after_keys(&shell, "", "#tab-flame", "ArrowDown ArrowDown");
    assert_eq!(name(&document), "main");
    let document = after_keys(&shell, "tab=functions", "body", "ArrowDown");
    assert_eq!(document.matches("class=\"row chosen\"").count(), 1);
}

#[test]
fn keys_select_time_and_threads() {
    let Some(shell) = page() else { return };
    let canvas = "#timeline canvas";
    for keys in [
        "ArrowRight",
        "ArrowLeft",
        "ArrowRight ArrowRight ArrowRight +ArrowRight +ArrowRight +ArrowRight",
        "ArrowLeft ArrowRight +ArrowLeft",
    ] {
        let document = after_keys(&shell, "tab=functions", canvas, keys);
        let options = format!("--match event=cpu-clock {}", selected_time(&document));
        let expected = sorted(expected(&shell, &options));
        assert!(!expected.is_empty(), "{keys}: {options}");
        assert_eq!(sorted(shown(&document)), expected, "{keys}: {options}");
    }
    let document = after_keys(&shell, "tab=functions", canvas, "ArrowDown ArrowDown Enter");
    let expected = sorted(expected(&shell, "--match event=cpu-clock --match thread=7/8"));
    assert_eq!(sorted(shown(&document)), expected);
    let document = after_keys(&shell, "tab=functions", canvas, "ArrowRight ArrowDown Enter Escape");
    assert!(!document.contains("class=\"chip\""), "Esc shows everything");
}

#[test]
fn chosen_theme_is_kept() {
    let Some(shell) = page() else { return };
    let theme = |document: &str| {
        let theme = document.split("data-theme=\"").nth(1).expect("a theme");
        theme.split('"').next().expect("a theme").to_owned()
    };
    let before = theme(&document(&shell, ""));
    let chosen = theme(&used(&shell, "", "document.getElementById('theme').click();"));
    assert_ne!(chosen, before);
    assert_eq!(theme(&document(&shell, "")), chosen, "after it is opened again");
}

#[test]
fn brush_ends_at_the_numbers_of_its_time() {
    let Some(shell) = page() else { return };
    for (selection, event) in [("", "cpu-clock"), ("&event=1", "blocked")] {
        // It grows, shrinks, jumps to the other side, and ends in the first second.
        let places = [500, 520, 900, 610, 1100, 300, 480, 200, 330, 260];
        let document = brushed(&shell, &format!("tab=functions{selection}"), &places);
        let options = format!("--match event={event} {}", selected_time(&document));
        let expected = sorted(expected(&shell, &options));
        assert!(expected.len() >= 3, "{options}: {expected:?}");
        assert_eq!(sorted(shown(&document)), expected, "{options}");
    }
}

#[test]
fn events_without_margins_hide_only_their_own() {
    let Some(shell) = page() else { return };
    // The values of the second event are then estimates of another program.
    let estimated = recording().replace("period=1\n", "period=1\tscaled=yes\n");
    shell.write("x.nprof", estimated);
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    let rows = shown(&document(&shell, "tab=functions"));
    assert_eq!(sorted(rows), sorted(expected(&shell, "--match event=cpu-clock")));
    let rows = shown(&document(&shell, "tab=functions&event=1"));
    assert!(rows.len() >= 3, "{rows:?}");
    assert!(rows.iter().all(|row| row.self_[1].is_empty() && row.total[1].is_empty()), "{rows:?}");
}

#[test]
fn time_beyond_the_end_selects_everything() {
    let Some(shell) = page() else { return };
    let expected = sorted(expected(&shell, "--match event=cpu-clock"));
    for time in ["5..9", "0..9"] {
        let document = document(&shell, &format!("tab=functions&time={time}"));
        assert_eq!(sorted(shown(&document)), expected, "{time}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let Some(shell) = page() else { return };
    let document = document(&shell, "tab=functions&search=img");
    assert!(document.contains("<title>nprof: ./&lt;/script&gt; &amp; co</title>"), "{document}");
    assert!(!document.contains("<img") && !document.contains("injected'</script>"), "{document}");
    // The search finds the function; its name in the document is text.
    let shown = shown(&document);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].function.starts_with("f&lt;img src=x"), "{shown:?}");
}

#[test]
fn page_loads_nothing() {
    let shell = Shell::new();
    shell.write("x.nprof", recording());
    let page = shell.run("nprof-paths --format html x.nprof").quiet();
    assert!(page.contains("default-src 'none'"), "{page}");
    for reference in ["http:", "https:", "src=\"", "href=", "url(", "@import", "fetch(", "import("]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    // The same input gives the same bytes.
    assert_eq!(shell.run("nprof-paths --format html x.nprof").quiet(), page);
}

#[test]
fn page_of_100000_calls_is_below_2_mb() {
    let shell = Shell::new();
    let mut text = "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=wide\n\
        @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=997\n\
        I\t1\telf\t-\t/bin/wide\nT\t1\t0\t7\t7\t0\twide\n"
        .to_owned();
    for function in 1..=400 {
        let _ = writeln!(
            text,
            "U\t{function}\tns::function_{function}(int)\t-\nF\t{function}\t1\t{function:#x}0\tu\nY\t{function}\tnamed\t{function},0,0,0"
        );
    }
    // 300 callers with 300 callees each, and a sample of each path.
    let (mut node, mut records) = (0_u64, 3 + 400);
    let mut samples = String::new();
    for caller in 1..=300 {
        node += 1;
        let parent = node;
        let _ = writeln!(text, "N\t{node}\t0\t{caller}");
        records += 1;
        for callee in 1..=300 {
            node += 1;
            let _ = writeln!(text, "N\t{node}\t{parent}\t{callee}");
            let _ = writeln!(samples, "S\t{}\t1\t1\t0\t{node}\t1003009\t1", node * 1_003_009);
            records += 2;
        }
    }
    let _ = writeln!(
        text,
        "{samples}@end\treason=exit\tstatus=0\tsamples=90000\trecords={records}\tlost=0"
    );
    shell.write("x.nprof", text);
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    let length = shell.read("x.html").len();
    assert!((200_000..2_000_000).contains(&length), "{length}");
    if have(&["chromium"]) {
        let all = document(&shell, "tab=functions");
        assert!(all.contains(">90,000 samples"), "{}", &all[..2000]);
        let reads = reads_of_layout(&shell);
        assert!(reads < 200, "{reads}");
    }
}

/// Returns how often the script reads the scrolled part of elements while it shows the flame graph: each
/// reading takes longer than drawing a call.
fn reads_of_layout(shell: &Shell) -> u32 {
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    let count = "<script>let reads = 0; const real = \
                 Object.getOwnPropertyDescriptor(Element.prototype, 'scrollTop'); \
                 Object.defineProperty(Element.prototype, 'scrollTop', { ...real, \
                 get() { reads++; return real.get.call(this); } });</script>";
    let print = "<script>document.body.append('[[' + reads + ' reads]]');</script>";
    let page = page
        .replace("<style>", &format!("{count}<style>"))
        .replace("</body>", &format!("{print}</body>"));
    shell.write("reads.html", page);
    let document = browser::document(shell, "reads.html", "tab=flame");
    let (before, _) = document.rsplit_once(" reads]]").expect("a number");
    before.rsplit_once("[[").expect("a number").1.parse().expect("a number")
}
