//! The choices of the user, and the tables that are shown.

use std::collections::BTreeMap;

use nprof_report::filter::pattern_of;
use nprof_report::rows::flat::FlatRow;
use nprof_stream::escape::escaped;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use regex::bytes::Regex;

use crate::model::facts::Facts;
use crate::model::live::Live;
use crate::model::view::{Span, Table, View};

/// The longest regular expression that can be typed: more does not fit on a line.
const MAX_PATTERN: usize = 256;

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// The largest self first.
    #[default]
    Self_,
    /// The largest total first.
    Total,
    /// By name.
    Name,
}

/// The result of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The screen may have changed.
    Draw,
    /// The user wants to leave.
    Quit,
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) view: View,
    pub(super) span: Span,
    pub(super) order: Order,
    /// The event that the user chose, if the view shows it.
    chosen_event: Option<usize>,
    /// The number of rows above the first one on the screen.
    pub(super) scroll: usize,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The regular expression that is being typed.
    pub(super) prompt: Option<String>,
    pub(super) filter: Option<Regex>,
    /// A message about the last key.
    pub(super) message: Option<String>,
    /// The tables as of the last refresh, those that were shown since.
    tables: BTreeMap<(View, Span), Table>,
    pub(super) facts: Facts,
    pub(super) has_ended: bool,
    /// The error that ended the recording.
    pub(super) failure: Option<String>,
    /// The number of records of the last refresh.
    records: Option<u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            view: View::Functions,
            span: Span::Window,
            order: Order::default(),
            chosen_event: None,
            scroll: 0,
            is_paused: false,
            shows_help: false,
            prompt: None,
            filter: None,
            message: None,
            tables: BTreeMap::new(),
            facts: Facts::default(),
            has_ended: false,
            failure: None,
            records: None,
        }
    }
}

impl State {
    /// Takes the present table from the model. False if nothing on the screen can have changed.
    pub(crate) fn refresh(&mut self, live: &mut Live, at_ns: u64) -> bool {
        let has_ended = std::mem::replace(&mut self.has_ended, live.has_ended());
        let is_over = has_ended != self.has_ended;
        let is_new = self.records != Some(live.records());
        if self.is_paused || !(is_new || is_over || live.passes(self.span)) {
            return is_over;
        }
        self.records = Some(live.records());
        self.facts = live.facts();
        self.tables.clear();
        self.complete(live, at_ns);
        true
    }

    /// Takes the table that a key asked for from the model. While it is paused, all tables are those of
    /// one moment.
    pub(crate) fn complete(&mut self, live: &mut Live, at_ns: u64) {
        if self.is_paused {
            return;
        }
        let shown = (self.view, self.span);
        self.tables.entry(shown).or_insert_with(|| live.table(shown.0, shown.1, at_ns));
    }

    /// Notes the error that ended the recording.
    pub(crate) fn fail(&mut self, failure: Option<String>) {
        // Paths and names in it may have terminal commands.
        self.failure = failure.map(|failure| escaped(failure.as_bytes()));
    }

    /// Pauses, or goes on.
    fn pause(&mut self, live: &mut Live, at_ns: u64) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            // The next refresh shows the present table, even if no record came.
            self.records = None;
            return;
        }
        self.facts = live.facts();
        self.tables.clear();
        for view in View::ALL {
            for span in [Span::Window, Span::SinceStart] {
                self.tables.insert((view, span), live.table(view, span, at_ns));
            }
        }
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent, live: &mut Live, at_ns: u64) -> Answer {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && key.code == KeyCode::Char('c') {
            return Answer::Quit;
        }
        // A message is about the key before this one.
        self.message = None;
        if let Some(pattern) = self.prompt.take() {
            self.type_key(pattern, key.code, has_control);
            return Answer::Draw;
        }
        if std::mem::take(&mut self.shows_help) && key.code != KeyCode::Char('q') {
            // Any key leaves the help.
            return Answer::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Answer::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char(' ') => self.pause(live, at_ns),
            KeyCode::Char('/') => self.prompt = Some(String::new()),
            KeyCode::Esc => self.filter = None,
            KeyCode::Char('f' | '1') => self.show(View::Functions),
            KeyCode::Char('t' | '2') => self.show(View::Threads),
            KeyCode::Char('w' | '3') => self.show(View::Waits),
            KeyCode::Tab => self.show(View::ALL[(self.view as usize + 1) % View::ALL.len()]),
            KeyCode::BackTab => {
                self.show(View::ALL[(self.view as usize + View::ALL.len() - 1) % View::ALL.len()]);
            }
            KeyCode::Char('a') => {
                self.span = match self.span {
                    Span::Window => Span::SinceStart,
                    Span::SinceStart => Span::Window,
                };
            }
            KeyCode::Char('o') => {
                self.order = match self.order {
                    Order::Self_ => Order::Total,
                    Order::Total => Order::Name,
                    Order::Name => Order::Self_,
                };
            }
            KeyCode::Char('e') => self.chosen_event = self.next_event(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => self.scroll = 0,
            // The drawing limits it to the last row.
            KeyCode::End | KeyCode::Char('G') => self.scroll = usize::MAX,
            _ => {}
        }
        self.complete(live, at_ns);
        self.scroll = self.scroll.min(self.rows().len().saturating_sub(1));
        Answer::Draw
    }

    fn show(&mut self, view: View) {
        // The rows of another table have nothing to do with the place in this one.
        self.view = view;
        self.scroll = 0;
    }

    /// Handles a key of a regular expression that is being typed.
    fn type_key(&mut self, mut pattern: String, code: KeyCode, has_control: bool) {
        match code {
            // The filter stays as it was.
            KeyCode::Esc => return,
            KeyCode::Enter => {
                self.scroll = 0;
                match pattern_of(&pattern) {
                    _ if pattern.is_empty() => self.filter = None,
                    Ok(regex) => self.filter = Some(regex),
                    Err(error) => self.message = Some(format!("/{pattern}: {error}")),
                }
                return;
            }
            KeyCode::Backspace if pattern.pop().is_none() => return,
            KeyCode::Char('u') if has_control => pattern.clear(),
            KeyCode::Char(typed) if !has_control && pattern.len() < MAX_PATTERN => {
                pattern.push(typed);
            }
            _ => {}
        }
        self.prompt = Some(pattern);
    }

    /// Returns the events that the view shows.
    fn events(&self) -> impl Iterator<Item = usize> {
        let is_shown = |&index: &usize| {
            let event = &self.facts.events[index];
            event.has_samples && self.view.shows(&event.measure)
        };
        (0..self.facts.events.len()).filter(is_shown)
    }

    /// Returns the event of the shares. None if no event of the view has samples.
    pub(super) fn event(&self) -> Option<usize> {
        let chosen = self.events().find(|&event| Some(event) == self.chosen_event);
        chosen.or(self.events().next())
    }

    fn next_event(&self) -> Option<usize> {
        let present = self.event();
        // After the last event comes the first.
        self.events().find(|&event| Some(event) > present).or(self.events().next())
    }

    /// Returns the table that is shown.
    pub(super) fn table(&self) -> Option<&Table> {
        self.tables.get(&(self.view, self.span))
    }

    /// Returns the rows that match the filter, in their order.
    pub(super) fn rows(&self) -> Vec<&FlatRow> {
        let (Some(table), Some(event)) = (self.table(), self.event()) else { return Vec::new() };
        let is_shown = |row: &&FlatRow| {
            // A thread that was on no CPU may have waited.
            let counts = self.view == View::Threads || row.tally(event).total.samples > 0;
            let matches =
                |regex: &Regex| row.names.iter().any(|name| regex.is_match(name.as_bytes()));
            counts && self.filter.as_ref().is_none_or(matches)
        };
        let mut rows: Vec<&FlatRow> = table.rows.iter().filter(is_shown).collect();
        let weight = |row: &FlatRow| {
            let tally = row.tally(event);
            match self.order {
                Order::Self_ => (tally.self_.weight, tally.total.weight),
                Order::Total => (tally.total.weight, tally.self_.weight),
                Order::Name => (0, 0),
            }
        };
        // Equal weights by name, so that rows do not change places.
        rows.sort_unstable_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.names.cmp(&b.names)));
        rows
    }
}
