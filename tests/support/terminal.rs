//! A program on a pseudo terminal of script(1), with keys and a screen.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::shell::Shell;

/// The time after which a screen that was waited for is missing. Long: machines may be busy.
const DEADLINE: Duration = Duration::from_secs(120);

/// A command on a terminal. Dropping it ends it.
#[derive(Debug)]
pub struct Terminal<'a> {
    shell: &'a Shell,
    script: Child,
    keys: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    /// All output so far.
    bytes: Vec<u8>,
}

impl<'a> Terminal<'a> {
    /// Runs a command on a terminal of this size.
    ///
    /// # Panics
    ///
    /// If script(1) cannot be started.
    pub fn new(shell: &'a Shell, columns: u16, rows: u16, command: &str) -> Self {
        shell.write(
            "on-terminal",
            format!("tty > tty\nstty cols {columns} rows {rows}\n{command}\n"),
        );
        let mut script = shell
            .command("script")
            .args(["-qefc", "sh on-terminal", "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("script(1) can be started");
        let keys = script.stdin.take();
        let mut stdout = script.stdout.take().expect("the output is a pipe");
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { shell, script, keys, output, bytes: Vec::new() }
    }

    /// Presses keys.
    ///
    /// # Panics
    ///
    /// If the terminal is closed.
    pub fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().expect("keys can be pressed until the end");
        input
            .write_all(keys.as_bytes())
            .and_then(|()| input.flush())
            .expect("a terminal takes keys");
    }

    /// Changes the size.
    ///
    /// # Panics
    ///
    /// If stty(1) fails.
    pub fn resize(&self, columns: u16, rows: u16) {
        let tty = fs::read_to_string(self.shell.path("tty")).expect("the terminal has a name");
        self.shell.run(&format!("stty -F {} cols {columns} rows {rows}", tty.trim())).quiet();
    }

    /// Waits until the screen satisfies a condition, and returns it.
    ///
    /// # Panics
    ///
    /// If it never does.
    #[track_caller]
    pub fn wait(&mut self, is_expected: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = screen(&self.bytes);
            if is_expected(&screen) {
                return screen;
            }
            let left = DEADLINE.saturating_sub(begun.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.bytes.extend(bytes),
                Err(RecvTimeoutError::Timeout) => panic!("the screen never came:\n{screen}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the program has ended:\n{screen}"),
            }
        }
    }

    /// Waits for the end of the command. Returns its exit status, and all output.
    ///
    /// # Panics
    ///
    /// If script(1) cannot be waited for.
    pub fn finish(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        while let Ok(bytes) = self.output.recv_timeout(DEADLINE.saturating_sub(begun.elapsed())) {
            self.bytes.extend(bytes);
        }
        self.keys = None;
        let status = self.script.wait().expect("script(1) ends");
        (status.code(), String::from_utf8_lossy(&self.bytes).into_owned())
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // A test that failed: the command ends by the hang-up of its terminal.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Returns the screen after this output: lines of text, of the commands that move the cursor or clear. Others
/// change colours and modes.
fn screen(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                let mut arguments = String::new();
                let mut command = characters.next();
                if command == Some('[') {
                    command = characters.next();
                    while let Some(part) = command.filter(|part| !part.is_ascii_alphabetic()) {
                        arguments.push(part);
                        command = characters.next();
                    }
                }
                let number = |index: usize| {
                    let number =
                        arguments.split(';').nth(index).and_then(|number| number.parse().ok());
                    number.unwrap_or(1).max(1) - 1
                };
                match command {
                    Some('H') => (row, column) = (number(0), number(1)),
                    Some('J') => lines.clear(),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            _ => {
                if lines.len() <= row {
                    lines.resize(row + 1, Vec::new());
                }
                if lines[row].len() <= column {
                    lines[row].resize(column + 1, ' ');
                }
                lines[row][column] = character;
                column += 1;
            }
        }
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line.into_iter().collect()).collect();
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_has_the_last_character_of_each_place() {
        let output = b"\x1b[?1049h\x1b[2J\x1b[1;1Hab\x1b[1mc\x1b[2;3Hd\r\ne\x1b[1;2HB\xc2\xb1";
        assert_eq!(screen(output), "aB\u{b1}\n  d\ne");
        assert_eq!(screen(b"gone\x1b[H\x1b[Jleft"), "left");
    }
}
