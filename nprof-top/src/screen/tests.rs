//! Screens of fixed streams.

use super::draw::draw;
use super::state::{Answer, State};
use crate::model::live::Live;
use nprof_stream::Reader;
use nprof_tests::{assert_golden, odd_names, waits};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Returns a model of a stream that has ended.
fn live(stream: &[u8]) -> Live {
    let mut live = Live::new(5_000_000_000);
    live.begin("test");
    let mut reader = Reader::new(stream);
    while let Some(record) = reader.next().unwrap() {
        live.take(&record, 0);
    }
    live.end(&reader);
    live.finish();
    live
}

/// Returns the stream [`waits`] with ten milliseconds in the place of each nanosecond between its samples.
fn slow_waits() -> Vec<u8> {
    let stream = String::from_utf8(waits()).unwrap().replace("run=0x2\t", "run=0x2\ttime=0\t");
    let line = |line: &str| match line.strip_prefix("S\t") {
        None => format!("{line}\n"),
        Some(sample) => format!("S\t{}\n", sample.replacen('\t', "0000000\t", 1)),
    };
    stream.lines().map(line).collect::<String>().into_bytes()
}

/// Returns the state after these keys; `\r` is Enter.
fn pressed(live: &mut Live, keys: &str) -> State {
    let mut state = State::default();
    assert!(state.refresh(live, 0));
    for key in keys.chars() {
        let code = if key == '\r' { KeyCode::Enter } else { KeyCode::Char(key) };
        let answer = state.key(KeyEvent::new(code, KeyModifiers::NONE), live, 0);
        assert_eq!(answer, Answer::Draw);
    }
    state
}

/// Returns the lines of a screen.
fn screen(state: &State, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..rows).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn screens_are_as_before() {
    let [mut waits, mut odd] = [live(&slow_waits()), live(&odd_names())];
    let mut text = String::new();
    for (is_odd, keys, columns, rows) in [
        (false, "", 80, 10),
        (false, "o", 60, 10),
        (false, "t", 80, 8),
        (false, "w", 80, 8),
        (false, "we", 80, 8),
        (false, "wea/futex\r", 80, 8),
        (false, "/cr", 80, 6),
        (false, "t", 40, 5),
        (false, "", 20, 5),
        (false, "", 12, 2),
        (true, "", 80, 8),
        (true, "e ", 80, 7),
        (true, "w", 80, 7),
        (true, "?", 72, 20),
    ] {
        let live = if is_odd { &mut odd } else { &mut waits };
        text += &format!("keys {keys:?}, {columns} x {rows}:\n");
        text += &screen(&pressed(live, keys), columns, rows);
    }
    assert_golden("top.txt", &text);
}

#[test]
fn paused_tables_stay_while_the_stream_goes_on() {
    let stream = slow_waits();
    let mut live = Live::new(5_000_000_000);
    live.begin("test");
    let mut reader = Reader::new(&stream[..]);
    let mut state = State::default();
    let mut paused = String::new();
    while let Some(record) = reader.next().unwrap() {
        live.take(&record, 0);
        // Three samples of 29 records.
        if live.records() == 27 {
            state.refresh(&mut live, 0);
            state.key(KeyEvent::new(KeyCode::Char(' '), KeyModifiers::NONE), &mut live, 0);
            paused = screen(&state, 80, 10);
        }
    }
    assert!(!state.refresh(&mut live, 0));
    assert_eq!(screen(&state, 80, 10), paused);
    assert!(paused.contains("[paused]"), "{paused}");
    state.key(KeyEvent::new(KeyCode::Char(' '), KeyModifiers::NONE), &mut live, 0);
    assert!(state.refresh(&mut live, 0));
    assert_ne!(screen(&state, 80, 10), paused);
}

#[test]
fn unchanged_recording_is_not_drawn_again() {
    let mut live = live(&slow_waits());
    let mut state = pressed(&mut live, "");
    assert!(!state.refresh(&mut live, 1_000_000_000));
}

#[test]
fn scrolling_ends_at_the_last_row() {
    let mut live = live(&slow_waits());
    let last = screen(&pressed(&mut live, "G"), 80, 8);
    assert_eq!(screen(&pressed(&mut live, &"j".repeat(100)), 80, 8), last);
    let first = screen(&pressed(&mut live, "Gg"), 80, 8);
    assert_eq!(first, screen(&pressed(&mut live, ""), 80, 8));
    assert_ne!(first, last);
}

/// A key that a user can press.
fn any_key() -> impl Strategy<Value = KeyEvent> {
    let letter = prop::sample::select("q?h /ftw123aoejkgGuc(.x".chars().collect::<Vec<_>>());
    let code = prop_oneof![
        6 => letter.prop_map(KeyCode::Char),
        1 => any::<char>().prop_map(KeyCode::Char),
        2 => prop::sample::select(vec![
            KeyCode::Esc, KeyCode::Enter, KeyCode::Backspace, KeyCode::Tab, KeyCode::BackTab,
            KeyCode::PageDown, KeyCode::End, KeyCode::Home, KeyCode::Up, KeyCode::F(1),
        ]),
    ];
    let modifiers = prop::sample::select(vec![KeyModifiers::NONE, KeyModifiers::CONTROL]);
    (code, modifiers).prop_map(|(code, modifiers)| KeyEvent::new(code, modifiers))
}

proptest! {
    #[test]
    fn no_key_and_no_size_breaks_the_screen(
        keys in prop::collection::vec(any_key(), 0..30), columns in 1..100u16, rows in 1..30u16,
    ) {
        let mut live = live(&slow_waits());
        let mut state = pressed(&mut live, "");
        for key in keys {
            state.key(key, &mut live, 0);
            screen(&state, columns, rows);
        }
    }
}
