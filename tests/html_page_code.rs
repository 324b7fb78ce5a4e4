//! The code in pages: its numbers in Chromium are those of nprof-annotate.

use std::fmt::Write as _;

use nprof_tests::browser::{cell, document, markup};
use nprof_tests::{Row, Shell, have, rows};

/// A name with markup, a new line and an override of the direction, as text streams escape it.
const HOSTILE: &str = "f</script><img src=x onerror=document.title='injected'>\\n\u{202e}gnp";

/// A loop of three instructions, a call and a return. The second instruction is of an inlined call.
const CODE: &str = "4801d84883e90175f7e800000000c3";

/// Returns a text stream with the code of one function, samples of two events in two threads at its
/// instructions, below its call, and in a function without code.
fn recording() -> String {
    let mut text = format!(
        "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=./prog\n\
         @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=997\n\
         @event\tid=2\tname=blocked\tunit=ns\tmeasure=wait-time\tperiod=1\n\
         I\t1\telf\t-\t/bin/prog\nT\t1\t0\t7\t7\t0\tmain\nT\t2\t1\t7\t8\t0\tworker\n\
         U\t1\t{HOSTILE}\t-\nU\t2\tinlined\t-\nU\t3\t{HOSTILE}callee\t-\nU\t4\tplain\t-\n\
         D\t1\t/src/{HOSTILE}.c\nD\t2\t/src/in<line>.h\n"
    );
    // Offset, calls from the inlined one to the function, whether it is a return address.
    let frames = [
        (0x100, "1,1,10,0", "u"),
        (0x103, "2,2,5,0\t1,1,11,0", "u"),
        (0x107, "1,1,10,0", "u"),
        (0x10e, "1,1,12,0", "u,ra"),
        (0x200, "3,0,0,0", "u"),
        (0x300, "4,0,0,0", "u"),
    ];
    for (id, (offset, calls, flags)) in (1..).zip(frames) {
        let _ = writeln!(text, "F\t{id}\t1\t{offset:#x}\t{flags}\nY\t{id}\tnamed\t{calls}");
    }
    let lines = "0,1,1,10,0;3,2,2,5,0;3,1,1,11,0;7,1,1,10,0;9,1,1,12,0";
    let _ = writeln!(text, "C\t1\t0x100\tx86_64\t{CODE}\t{lines}\t9,3,0,0,0");
    text += "N\t1\t0\t1\nN\t2\t0\t2\nN\t3\t0\t3\nN\t4\t0\t4\nN\t5\t4\t5\nN\t6\t0\t6\n";
    let (mut samples, mut time) = (0, 1000);
    for number in 0..500_u64 {
        time += 1_003_009;
        let (task, node) = match number {
            0..250 => (1, [1, 2, 2, 3, 6][number as usize % 5]),
            _ => (2, [2, 5, 3, 3][number as usize % 4]),
        };
        let _ = writeln!(text, "S\t{time}\t1\t{task}\t0\t{node}\t1003009\t1");
        if number % 5 == 0 {
            let weight = 1000 + number * number * 31;
            let _ = writeln!(text, "S\t{time}\t2\t{task}\t0\t{node}\t{weight}\t1");
            samples += 1;
        }
        samples += 1;
    }
    let records = 2 + 1 + 2 + 6 + 6 + samples;
    let _ =
        writeln!(text, "@end\treason=exit\tstatus=0\tsamples={samples}\trecords={records}\tlost=0");
    text
}

/// Returns the texts of a column of a list, as they are in the document, with numbers as nprof-annotate has
/// them: share and margin, or nothing without samples.
fn shown(document: &str, list: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let begin = document.find(&format!("id=\"code-{list}\"")).expect(document);
    let end = document[begin..].find("</section>").map_or(document.len(), |end| begin + end);
    // The list of lines is before the one of instructions.
    let part = document[begin..end].split("id=\"code-instructions\"");
    let part = if list == "lines" { part.clone().next() } else { part.clone().last() };
    let mut found = Vec::new();
    let rows = part.expect("a list").split("<div class=\"line").skip(1);
    for row in rows.filter(|row| row.starts_with(['"', ' '])) {
        let numbers = cell(row, "self").split_once("</i>").map_or("", |(_, numbers)| numbers);
        let mut cells = vec![
            numbers.replace("<small>", " ").replace("</small>", ""),
            cell(row, "samples").to_owned(),
        ];
        cells.extend(columns.iter().map(|column| cell(row, column).to_owned()));
        found.push(cells);
    }
    found
}

/// Returns the rows of nprof-annotate for a selection, as the page shows them.
fn expected(shell: &Shell, by: &str, options: &str, column: &str) -> Vec<Vec<String>> {
    let command = format!("nprof-annotate --rebase --format tsv --by {by} {options} x.nprof");
    let tsv = shell.run(&command).quiet();
    let number = |row: &Row, column: &str| match row.number(column) {
        0.0 => String::new(),
        number => format!("{number}"),
    };
    let shown = |row: &Row| {
        let mut numbers = String::new();
        if row.number("self_samples") > 0.0 {
            let (share, margin) = (row.number("self_percent"), row.number("self_margin"));
            numbers = format!("{share:.2} {margin:.2}");
        }
        let last = match by {
            "line" => number(row, "inlined_samples"),
            _ => markup(row.text(column)),
        };
        vec![numbers, number(row, "self_samples"), last]
    };
    rows(&tsv).iter().map(shown).collect()
}

fn page(options: &str) -> Option<Shell> {
    if !have(&["chromium"]) {
        return None;
    }
    let shell = Shell::new();
    shell.write("x.nprof", recording());
    shell.run(&format!("nprof-paths --format html {options} -o x.html x.nprof")).quiet();
    Some(shell)
}

#[test]
fn numbers_of_code_are_those_of_nprof_annotate() {
    let Some(shell) = page("") else { return };
    // Slices are 1 ms long, from the first sample on.
    for (selection, options) in [
        ("", "--match event=cpu-clock"),
        ("&event=1", "--match event=blocked"),
        ("&time=0.1..0.35", "--match event=cpu-clock --time 100ms..350ms"),
        ("&event=1&time=0.2..0.4", "--match event=blocked --time 200ms..400ms"),
        ("&threads=1", "--match event=cpu-clock --match thread=worker"),
    ] {
        let document = document(&shell, "x.html", &format!("tab=code{selection}"));
        for (column, cells) in [("instruction", "text"), ("address", "address")] {
            let expected = expected(&shell, "instruction", options, column);
            assert_eq!(expected.len(), 5, "{options}: {expected:?}");
            assert_eq!(shown(&document, "instructions", &[cells]), expected, "{options}");
        }
        let expected = expected(&shell, "line", options, "");
        assert_eq!(expected.len(), 3, "{options}: {expected:?}");
        assert_eq!(shown(&document, "lines", &["inlined"]), expected, "{options}");
    }
}

#[test]
fn hostile_code_stays_text() {
    let Some(shell) = page("--source-dir .") else { return };
    let document = document(&shell, "x.html", "tab=code");
    assert!(!document.contains("<img") && !document.contains("'injected'</script>"), "{document}");
    assert!(document.contains("<title>nprof: ./prog</title>"), "{document}");
    // The call has the name as text; neither the line nor the direction ends there.
    let call = &shown(&document, "instructions", &["text", "line"])[3];
    assert!(call[2].starts_with("call f&lt;/script&gt;&lt;img src=x"), "{call:?}");
    assert!(call[2].contains("\\x0agnp") || call[2].contains("\\n\\xe2\\x80\\xaegnp"), "{call:?}");
    assert!(call[3].contains("script&gt;&lt;img") && call[3].ends_with(".c:12"), "{call:?}");
}

#[test]
fn source_text_is_that_of_the_files() {
    let Some(shell) = page("") else { return };
    let name = "plain.c";
    shell.write("x.nprof", recording().replace(&format!("{HOSTILE}.c"), name));
    let text: String =
        (1..=12).map(|line| format!("line {line} </script><b>&amp; \u{202e}\n")).collect();
    shell.write(name, text);
    shell.run("nprof-paths --format html --source-dir . -o x.html x.nprof").quiet();
    let lines = shown(&document(&shell, "x.html", "tab=code"), "lines", &["line", "text"]);
    let texts: Vec<[&str; 2]> = lines.iter().map(|line| [&line[2][..], &line[3]]).collect();
    let text = |line: u32| format!("line {line} &lt;/script&gt;&lt;b&gt;&amp;amp; \\xe2\\x80\\xae");
    let expected = [10, 11, 12].map(|line| [format!("plain.c:{line}"), text(line)]);
    assert_eq!(texts, expected.each_ref().map(|[line, text]| [&line[..], text]));
    let refused = shell.run("nprof-paths --source-dir . x.nprof");
    assert_eq!(refused.status, 2, "{}", refused.err);
}

#[test]
fn text_of_another_version_is_left_out() {
    let shell = Shell::new();
    let text = "int plain;\n".repeat(12);
    shell.write("plain.c", &text);
    shell.run("md5sum plain.c > sum").quiet();
    let sum = String::from_utf8(shell.read("sum")).expect("text");
    let sum = sum.split(' ').next().expect("a sum");
    let page = |md5: &str| {
        let file = format!("{HOSTILE}.c");
        let recording = recording().replace(&file, &format!("plain.c\tmd5={md5}"));
        shell.write("x.nprof", recording);
        shell.run("nprof-paths --format html --source-dir . -o x.html x.nprof").quiet();
        String::from_utf8(shell.read("x.html")).expect("text")
    };
    let note = "plain.c: another version, not shown";
    let same = page(sum);
    assert!(same.contains("int plain;") && !same.contains(note));
    let changed = page(&"0".repeat(32));
    assert!(!changed.contains("int plain;") && changed.contains(note));
}

/// Returns the document after keys were pressed, each in the element of a selector.
fn pressed(shell: &Shell, selection: &str, keys: &[(&str, &str)]) -> String {
    let press: String = keys
        .iter()
        .map(|(at, key)| {
            format!(
                "document.querySelector('{at}').dispatchEvent(new KeyboardEvent('keydown', \
                 {{ key: '{key}', bubbles: true, cancelable: true }}));\n"
            )
        })
        .collect();
    after_script(shell, selection, &press)
}

/// Returns the document after a script was executed when the page was loaded.
fn after_script(shell: &Shell, selection: &str, script: &str) -> String {
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    let script = format!("<script>addEventListener('load', () => {{\n{script}}});</script></body>");
    shell.write("script.html", page.replace("</body>", &script));
    document(shell, "script.html", selection)
}

#[test]
fn keys_lead_from_a_function_to_its_lines() {
    let Some(shell) = page("") else { return };
    let [list, other] = ["#code-instructions", "#code-lines"];
    // From the flame graph: the command, then its heaviest call.
    let graph = "#flame canvas";
    let keys = [(graph, "ArrowDown"), (graph, "ArrowDown"), (graph, "s")];
    let document = pressed(&shell, "", &keys);
    assert!(document.contains("id=\"tab-code\" data-tab=\"code\" aria-selected=\"true\""));
    assert_eq!(shown(&document, "instructions", &[]).len(), 5, "{document}");
    // The target of the jump, and the line of that instruction.
    let down = (list, "ArrowDown");
    let document = pressed(&shell, "tab=code", &[down, down, down, (list, "Enter")]);
    let chosen: Vec<&str> = document.split("class=\"line chosen\"").skip(1).collect();
    let [line, instruction] = chosen[..] else { panic!("{document}") };
    assert!(cell(line, "line").ends_with(".c:10"), "{line}");
    assert_eq!(cell(instruction, "text"), "add rax, rbx");
    // A line marks its instructions.
    let document = pressed(&shell, "tab=code", &[(other, "ArrowDown")]);
    assert_eq!(document.matches("class=\"line marked\"").count(), 2, "{document}");
}

#[test]
fn functions_of_one_name_can_be_chosen() {
    let Some(shell) = page("") else { return };
    let mut text = "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=twins\n\
        @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=997\n\
        I\t1\telf\t-\t/bin/twins\nT\t1\t0\t7\t7\t0\tmain\nU\t1\ttwin\t-\n"
        .to_owned();
    for (id, samples) in [(1, 3), (2, 2)] {
        let _ = writeln!(
            text,
            "F\t{id}\t1\t{id:#x}00\tu\nY\t{id}\tnamed\t1,0,0,0\nN\t{id}\t0\t{id}\n\
             C\t1\t{id:#x}00\tx86_64\tc3\t0,1,0,0,0\t-\n\
             S\t{id}000\t1\t1\t0\t{id}\t{}\t{samples}",
            samples * 1_003_009
        );
    }
    text += "@end\treason=exit\tstatus=0\tsamples=2\trecords=9\tlost=0\n";
    shell.write("x.nprof", text);
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    let place = |document: &str| {
        let place = document.split("id=\"code-place\"").nth(1).expect("a place");
        place.split(['>', '<']).nth(1).expect("its text").to_owned()
    };
    assert_eq!(place(&document(&shell, "x.html", "tab=code")), "/bin/twins+0x100");
    let choose = "const list = document.querySelector('#code-function');\n\
                  list.selectedIndex = 1;\nlist.dispatchEvent(new Event('change'));\n";
    assert_eq!(place(&after_script(&shell, "tab=code", choose)), "/bin/twins+0x200");
}

#[test]
fn inlined_function_marks_its_instructions() {
    let Some(shell) = page("") else { return };
    let index = |document: &str, name: &str| -> usize {
        let names = document.split("\"names\":[").nth(1).expect("names");
        let names = names.split("],\"images\"").next().expect("names");
        let names: Vec<&str> = names.trim_matches('"').split("\",\"").collect();
        names.iter().position(|&found| found == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
    };
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    let of = |name: &str| {
        let selection = format!("tab=code&function={}", index(&page, name));
        document(&shell, "x.html", &selection)
    };
    let document = of("inlined");
    assert!(document.contains("inlined is inlined here, at the marked instructions."));
    let marked: Vec<&str> = document.split("class=\"line marked\"").skip(1).collect();
    let [marked] = marked[..] else { panic!("{document}") };
    assert_eq!([cell(marked, "text"), cell(marked, "function")], ["sub rcx, 1", "inlined"]);
    assert_eq!(cell(marked, "line"), "in&lt;line&gt;.h:5");
    let document = of("plain");
    assert!(document.contains("plain: no code here."), "{document}");
    assert!(shown(&document, "instructions", &[]).is_empty());
}

#[test]
fn page_without_code_has_no_tab_of_it() {
    let Some(shell) = page("") else { return };
    let text = recording();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("C\t")).collect();
    shell.write("x.nprof", lines.join("\n") + "\n");
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    let document = document(&shell, "x.html", "tab=code");
    assert!(document.contains("data-tab=\"code\" hidden=\"\""), "{document}");
    assert!(document.contains("data-tab=\"flame\" aria-selected=\"true\""), "{document}");
}

#[test]
fn code_without_room_is_counted() {
    let shell = Shell::new();
    let mut text = "@nprof\t1.1\trun=0x1\tclock=monotonic\tcommand=wide\n\
        @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=997\n\
        I\t1\telf\t-\t/bin/wide\nT\t1\t0\t7\t7\t0\twide\n"
        .to_owned();
    // 60 functions of 30,000 bytes: `mov eax, NUMBER`, each with another number.
    for function in 1..=60_u32 {
        let at = function * 0x10000;
        let code: String = (0..6000).map(|at| format!("b8{:08x}", at * 61 + function)).collect();
        let _ = writeln!(
            text,
            "U\t{function}\tf{function}\t-\nF\t{function}\t1\t{at:#x}\tu\n\
             Y\t{function}\tnamed\t{function},0,0,0\nN\t{function}\t0\t{function}\n\
             C\t{function}\t{at:#x}\tx86_64\t{code}\t0,{function},0,0,0\t-\n\
             S\t{}\t1\t1\t0\t{function}\t1003009\t1",
            1000 + function * 1_003_009
        );
    }
    let _ = writeln!(text, "@end\treason=exit\tstatus=0\tsamples=60\trecords=183\tlost=0");
    shell.write("x.nprof", text);
    shell.run("nprof-paths --format html -o x.html x.nprof").quiet();
    let page = String::from_utf8(shell.read("x.html")).expect("text");
    assert!((500_000..2_000_000).contains(&page.len()), "{}", page.len());
    let without: usize = page
        .split("\"without_room\":")
        .nth(1)
        .and_then(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
        .expect("a number");
    assert!((10..60).contains(&without), "{without}");
    if have(&["chromium"]) {
        let document = document(&shell, "x.html", "tab=code");
        assert!(
            document.contains(&format!(">{without} functions with fewer samples have no room"))
        );
    }
}
