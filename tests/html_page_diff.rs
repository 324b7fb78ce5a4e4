//! Pages of comparisons in a browser: Chromium runs the script, then prints the document. Its numbers are
//! those of the table of nprof-diff.

use std::fmt::Write as _;

use nprof_tests::browser::{cell, document, markup};
use nprof_tests::{Row, Shell, have, rows};

/// Names with the markup of HTML and the ends of scripts; the second one as text streams escape controls.
const HOSTILE: [&str; 3] = [
    "</script><script>document.title='injected'</script>",
    "f<img src=x onerror=document.title='injected'>(\\x1b[31m)",
    "<!--\"'&amp;`${1}\\\\",
];

/// Returns the text stream of a run of `main`, which calls `walk` and the hostile functions; `walk` calls
/// itself, `leaf`, and one function that is on one side only.
fn run(id: u64, leaf: u64, only: &str) -> String {
    let mut text = format!(
        "@nprof\t1.1\trun={id:#x}\tclock=monotonic\tcommand=./</script> & co\n\
         @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=1000\n\
         I\t1\telf\t-\t/bin/prog\nI\t2\telf\t-\t/lib/lib<b>hot.so\nD\t1\t/src/<i>prog.c\n"
    );
    let names = ["main", "walk(node*)", "leaf", only].into_iter().chain(HOSTILE);
    for (number, name) in (1..).zip(names) {
        let image = if number == 3 { 2 } else { 1 };
        let _ =
            writeln!(text, "U\t{number}\t{name}\t-\nF\t{number}\t{image}\t{:#x}\tu", number * 16);
        let _ = writeln!(text, "Y\t{number}\tnamed\t{number},1,{number},0");
    }
    text += "N\t1\t0\t1\t2\t2\t3\nN\t5\t2\t4\nN\t6\t1\t5\nN\t7\t1\t6\nN\t8\t1\t7\n";
    // Runs of a side differ a little.
    let noise = id % 3;
    let counts = [
        (2, 300 + noise),
        (3, 200),
        (4, leaf + noise),
        (5, 150),
        (6, 120),
        (7, 90 - noise),
        (8, 60),
    ];
    for (node, samples) in counts {
        let _ = writeln!(text, "S\t5\t1\t0\t0\t{node}\t{}\t{samples}", samples * 1_000_000);
    }
    let records = 3 + 7 + 5 + counts.len();
    let _ = writeln!(
        text,
        "@end\treason=exit\tstatus=0\tsamples={}\trecords={records}\tlost=0",
        counts.len()
    );
    text
}

const SIDES: &str = "--base base0 base1 base2 --new new0 new1 new2";

fn page() -> Option<Shell> {
    if !have(&["chromium"]) {
        return None;
    }
    let shell = Shell::new();
    for number in 0..3 {
        shell.write(&format!("base{number}"), run(1 + number, 400, "old"));
        shell.write(&format!("new{number}"), run(11 + number, 900, "young"));
    }
    shell.run(&format!("nprof-diff --format html -o x.html {SIDES}")).quiet();
    Some(shell)
}

/// Returns the rows of a comparison as nprof-diff has them.
fn compared(shell: &Shell, options: &str) -> Vec<Row> {
    rows(&shell.run(&format!("nprof-diff --format tsv {options} {SIDES} 2>/dev/null")).out)
}

fn percent(row: &Row, column: &str) -> String {
    format!("{:.2}", row.number(column))
}

fn points(row: &Row, column: &str) -> String {
    let text = format!("{:+.2}", row.number(column));
    if text == "-0.00" { "+0.00".to_owned() } else { text }
}

fn interval(row: &Row, metric: &str) -> String {
    let [low, high] = ["low", "high"].map(|end| points(row, &format!("{metric}_{end}")));
    format!("{low} .. {high}")
}

fn q(row: &Row, metric: &str) -> String {
    let q = row.number(&format!("{metric}_corrected_q"));
    if q < 0.0001 { "<0.0001".to_owned() } else { format!("{q:.4}") }
}

/// Returns the cells of a row of the table, as the page must show them.
fn expected(row: &Row, metric: &str) -> [String; 8] {
    let changed = row.text("changed").replace("none", "");
    [
        markup(row.text("name")),
        markup(row.text("image")),
        row.text("change").to_owned() + &changed,
        percent(row, &format!("{metric}_base")),
        percent(row, &format!("{metric}_new")),
        points(row, &format!("{metric}_diff")),
        interval(row, metric),
        markup(&q(row, metric)),
    ]
}

/// Returns the cells of the rows of the table of functions in a document.
fn shown(document: &str) -> Vec<[String; 8]> {
    let mut shown = Vec::new();
    let rows = document.split("<div class=\"row").skip(1);
    // Not the element that has all rows.
    for row in rows.filter(|row| row.starts_with(['"', ' '])) {
        let of = |name: &str| cell(row, name);
        let after = |text: &str, begin: &str| text.split_once(begin).expect(text).1.to_owned();
        let text = |part: &str| {
            let elements =
                part.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
            elements.collect::<String>()
        };
        let (change, interval) = of("change").split_once("<small>").expect(row);
        shown.push([
            of("function").to_owned(),
            of("image").to_owned(),
            text(of("verdict")),
            after(of("base"), "</i>"),
            after(of("new"), "</i>"),
            text(change),
            interval.replace("</small>", ""),
            of("q").to_owned(),
        ]);
    }
    shown
}

#[test]
fn numbers_of_functions_are_those_of_the_table() {
    let Some(shell) = page() else { return };
    let rows = compared(&shell, "");
    let verdicts: Vec<&str> = rows.iter().map(|row| row.text("change")).collect();
    for verdict in ["grown", "added", "removed"] {
        assert!(verdicts.contains(&verdict), "{verdicts:?}");
    }
    let expected_rows = |metric: &str| -> Vec<[String; 8]> {
        rows.iter().map(|row| expected(row, metric)).collect()
    };
    let of_self = expected_rows("self");
    assert_eq!(shown(&document(&shell, "x.html", "tab=functions")), of_self);
    // Rows of equal totals have another order on the page.
    let mut of_total = expected_rows("total");
    let mut of_page = shown(&document(&shell, "x.html", "tab=functions&metric=total"));
    of_total.sort();
    of_page.sort();
    assert_eq!(of_page, of_total);
}

#[test]
fn numbers_of_lines_are_those_of_the_table() {
    let Some(shell) = page() else { return };
    let rows = compared(&shell, "--by line");
    assert!(rows.iter().any(|row| row.text("name") == "/src/<i>prog.c:3"), "{rows:?}");
    for metric in ["self", "total"] {
        let document = document(&shell, "x.html", &format!("tab=lines&metric={metric}"));
        let (_, lines) = document.split_once("<section id=\"lines\"").expect("the view");
        // Lines have no image.
        let end = "<div class=\"cell c-q\">";
        let mut shown =
            shown(&lines.replace(end, &format!("<div class=\"cell c-image\"></div>{end}")));
        let mut expected: Vec<[String; 8]> = rows.iter().map(|row| expected(row, metric)).collect();
        // Rows of equal totals have another order on the page.
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected);
    }
    let document = document(&shell, "x.html", "tab=lines&search=prog.c:4");
    let (_, lines) = document.split_once("<section id=\"lines\"").expect("the view");
    assert_eq!(lines.matches("<div class=\"row ").count(), 1, "{lines}");
}

#[test]
fn amounts_of_the_chosen_function_are_those_of_the_table() {
    let Some(shell) = page() else { return };
    let document = document(&shell, "x.html", "tab=functions");
    let estimates = document.split("id=\"estimates\">").nth(1).expect("a table");
    let estimates = estimates.split("</table>").next().expect("a table");
    let cells: Vec<&str> = estimates
        .split("<td>")
        .skip(1)
        .map(|cell| cell.split("</td>").next().expect(estimates))
        .collect();
    // The first row is chosen. Its lines are shares and times of self, then of total.
    let row = &compared(&shell, "")[0];
    for (metric, cells) in ["self", "total"].into_iter().zip(cells.chunks(10)) {
        let samples =
            ["base", "new"].map(|side| row.text(&format!("{metric}_{side}_samples")).to_owned());
        let share = |side: &str| percent(row, &format!("{metric}_{side}")) + " %";
        assert_eq!(
            cells[..3],
            [share("base"), share("new"), points(row, &format!("{metric}_diff"))]
        );
        assert_eq!(cells[3..5], [interval(row, metric), markup(&q(row, metric))]);
        assert_eq!(cells[5].replace(',', ""), samples.join(" → "));
        let ms = |column: &str| row.number(&format!("{metric}_{column}_ns")) / 1e6;
        for (cell, column) in cells[6..9].iter().zip(["base", "new", "diff"]) {
            let (number, unit) = cell.split_once(' ').expect(cell);
            let factor = if unit == "s" { 1e3 } else { 1.0 };
            let number: f64 = number.parse().expect(cell);
            assert!(
                (number * factor - ms(column)).abs() <= 0.005 * ms(column).abs(),
                "{cell} {column}"
            );
        }
    }
}

/// Returns the name and the numbers of the calls that the arrow keys choose in the flame graph.
fn chosen(shell: &Shell, keys: &[&str]) -> Vec<[String; 2]> {
    let mut script = "const canvas = document.querySelector('#flame canvas'), of = (id) => \
                      document.getElementById(id).textContent;\n"
        .to_owned();
    for key in keys {
        let _ = writeln!(
            script,
            "canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}));"
        );
        script += "document.body.append('[[' + of('name') + '||' + of('numbers') + ']]');\n";
    }
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    let page = page.replace("</body>", &format!("<script>{script}</script></body>"));
    shell.write("keys.html", page);
    let document = document(shell, "keys.html", "");
    let chosen =
        document.split("[[").skip(1).filter_map(|part| part.split("]]").next()?.split_once("||"));
    // The script itself has the marks, too.
    let chosen = chosen.filter(|(name, _)| !name.contains("of("));
    chosen.map(|(name, numbers)| [name.to_owned(), numbers.to_owned()]).collect()
}

#[test]
fn numbers_of_calls_are_those_of_paths() {
    let Some(shell) = page() else { return };
    let rows = compared(&shell, "--by path");
    // Each key leads to the heaviest callee.
    let found = chosen(&shell, &["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"]);
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(found[0][0], "all samples");
    let mut path = String::new();
    for [name, numbers] in &found[1..] {
        path = if path.is_empty() { name.clone() } else { format!("{path};{name}") };
        let row = rows.iter().find(|row| row.text("name") == path).expect(&path);
        let metric = |metric: &str| {
            let [base, new] = ["base", "new"].map(|side| percent(row, &format!("{metric}_{side}")));
            let difference = points(row, &format!("{metric}_diff"));
            format!(
                "{base} % → {new} %, {difference} ({}), q {}",
                interval(row, metric),
                q(row, metric)
            )
        };
        assert!(numbers.contains(&markup(&format!("total {}", metric("total")))), "{numbers}");
        if row.number("self_base") > 0.0 {
            assert!(numbers.contains(&markup(&metric("self"))), "{numbers}");
        }
        assert!(numbers.starts_with(row.text("change")), "{numbers}");
    }
    assert_eq!(path, "main;walk(node*);walk(node*);leaf");
}

#[test]
fn heads_state_the_order_of_their_column() {
    let Some(shell) = page() else { return };
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    for (column, order) in [("new", "descending"), ("q", "ascending"), ("verdict", "other")] {
        let script =
            format!("<script>document.querySelector('.head .c-{column} button').click();</script>");
        shell.write("sorted.html", page.replace("</body>", &(script + "</body>")));
        let document = document(&shell, "sorted.html", "tab=functions");
        let sorted = format!("data-key=\"{column}\" aria-sort=\"{order}\"");
        assert!(document.contains(&sorted), "{document}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let Some(shell) = page() else { return };
    let document = document(&shell, "x.html", "tab=functions&search=IMG");
    assert!(document.contains("<title>nprof: ./&lt;/script&gt; &amp; co</title>"), "{document}");
    assert!(!document.contains("<img") && !document.contains("injected'</script>"), "{document}");
    let shown = shown(&document);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0][0].starts_with("f&lt;img src=x"), "{shown:?}");
}

#[test]
fn page_reads_a_pipe_once_and_loads_nothing() {
    let shell = Shell::new();
    shell.write("base", run(1, 400, "old"));
    shell.write("new", run(2, 900, "young"));
    let page = shell.run("cat new | nprof-diff --format html base -").quiet();
    assert!(page.contains("default-src 'none'"), "{page}");
    for reference in ["http:", "https:", "src=\"", "href=", "url(", "@import", "fetch(", "import("]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    // The pipe gives the bytes of the file.
    assert!(shell.run("nprof-diff --format html base - < new").quiet() == page, "{page}");
    let refused = shell.run("nprof-diff --format html --by file base new");
    assert_eq!((refused.status, &refused.out[..]), (2, ""));
    assert!(refused.err.contains("--by file: a page has functions"), "{}", refused.err);
}

#[test]
fn long_numbers_leave_out_functions_and_paths() {
    let shell = Shell::new();
    for (file, id) in [("base", 1_u64), ("new", 2)] {
        let mut text = format!(
            "@nprof\t1.1\trun={id:#x}\n\
             @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\nI\t1\telf\t-\t/bin/p\n"
        );
        for number in 1..=5000 {
            let _ = writeln!(
                text,
                "U\t{number}\tf{number}{}\t-\nF\t{number}\t1\t0x10\tu\nY\t{number}\tnamed\t{number},0,0,0",
                "<".repeat(30)
            );
        }
        // A chain of four functions in each stack; large counts and weights.
        for stack in 0..5000 {
            let calls: Vec<String> =
                (0..4).map(|call| (1 + (stack + 7 * call * call) % 5000).to_string()).collect();
            let _ = writeln!(text, "N\t{}\t0\t{}", 1 + 4 * stack, calls.join("\t"));
            let count = 100_000_000_000 + 700_000 * stack * id;
            for node in 1 + 4 * stack..=4 + 4 * stack {
                let _ = writeln!(text, "S\t{node}\t1\t0\t0\t{node}\t{}\t{count}", count * 100);
            }
        }
        let _ = writeln!(text, "@end\tsamples=0\trecords=0\tlost=0");
        shell.write(file, text);
    }
    let page = shell.run("nprof-diff --partial-ok --format html base new").out;
    assert!((1_000_000..2_000_000).contains(&page.len()), "{}", page.len());
    for left_out in ["further functions are not", "call paths with smaller shares are not"] {
        assert!(page.contains(left_out), "{left_out}");
    }
}

#[test]
fn long_names_are_cut_to_the_bounds_of_pages() {
    let shell = Shell::new();
    let long = |part: &str, number: u64| format!("{part}{}_{number}", "<x>".repeat(900));
    let stream = |id: u64| {
        let mut text = format!(
            "@nprof\t1.1\trun={id:#x}\tclock=monotonic\tcommand={}\n\
             @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=1000\n",
            long("cmd", id)
        );
        let mut samples = String::new();
        for number in 1..=1500 {
            let _ = writeln!(text, "I\t{number}\telf\t-\t/bin/{}", long("lib", number));
            let _ = writeln!(text, "T\t{number}\t0\t7\t{number}\t0\t{}", long("thread", number));
            let _ = writeln!(text, "U\t{number}\t{}\t-", long("ns::function", number));
            let _ = writeln!(
                text,
                "F\t{number}\t{number}\t0x10\tu\nY\t{number}\tnamed\t{number},0,0,0"
            );
            let _ = writeln!(text, "N\t{number}\t0\t{number}");
            let _ = writeln!(samples, "S\t{number}\t1\t{number}\t0\t{number}\t1000000\t1");
        }
        let records = 1 + 1500 * 5;
        let _ = writeln!(
            text,
            "{samples}@end\treason=exit\tstatus=0\tsamples=1500\trecords={records}\tlost=0"
        );
        text
    };
    shell.write("base", stream(1));
    shell.write("new", stream(2));
    // Without the bounds, both would take 16 MB.
    for command in ["nprof-diff --format html base new", "nprof-paths --format html base"] {
        let page = shell.run(command).out;
        assert!((500_000..2_000_000).contains(&page.len()), "{command}: {}", page.len());
        assert!(page.contains("long names are cut in the middle"), "{command}");
    }
}
