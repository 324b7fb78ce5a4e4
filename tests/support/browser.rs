//! Pages in a browser.

use crate::Shell;

/// Returns the document of a page in a shell's directory after its script has run in Chromium, with a
/// selection in the address.
///
/// # Panics
///
/// If the script fails, or loads something.
pub fn document(shell: &Shell, page: &str, selection: &str) -> String {
    let run = shell.run(&format!(
        "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
         --disable-background-networking --disable-component-update --disable-sync \
         --enable-logging=stderr \
         --user-data-dir=profile --window-size=1200,900 --virtual-time-budget=5000 --dump-dom \
         \"file://$PWD/{page}#{selection}\" 2> chromium.log"
    ));
    let log = String::from_utf8_lossy(&shell.read("chromium.log")).into_owned();
    assert_eq!(run.status, 0, "{log}");
    assert!(!log.contains("Uncaught") && !log.contains("Content Security Policy"), "{log}");
    run.out
}

/// Returns the text of the element of a class in a part of a document, with the markup in it.
///
/// # Panics
///
/// If there is none.
pub fn cell<'a>(part: &'a str, class: &str) -> &'a str {
    let begin = part.find(&format!("cell c-{class}")).expect(part);
    let cell = &part[begin..];
    let cell = &cell[cell.find('>').expect(cell) + 1..];
    &cell[..cell.find("</div>").expect(cell)]
}

/// Returns a text as it is in a document.
pub fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
