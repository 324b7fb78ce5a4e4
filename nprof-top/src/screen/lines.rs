//! The lines of the screen.

use nprof_report::layout;

use crate::model::view::{Span, View};
use crate::screen::cells::cells;
use crate::screen::state::{Order, State};

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) role: Role,
    pub(super) text: String,
}

/// The purpose of a line, which decides on its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The view, its event and time.
    Title,
    /// The command, and facts without which a reader may misjudge the table.
    Facts,
    /// The names of the columns.
    Header,
    /// A row, or a line of the help.
    Row,
    /// The keys, the filter, a message.
    Footer,
}

/// The lines of the help.
const HELP: [&str; 15] = [
    "q, Ctrl-C    quit",
    "?            show these keys; any key returns",
    "space        pause and go on; the recording continues",
    "/            show only rows that match a regular expression",
    "Esc          show all rows again",
    "Tab          next table; Shift-Tab: the one before it",
    "f, 1         functions",
    "t, 2         threads: per cent of one CPU, of the time waiting",
    "w, 3         waits, by system call and object",
    "a            the last seconds, or all time since the start",
    "e            next event",
    "o            order by self, by total, or by name",
    "arrows       scroll; also j and k, PgUp, PgDn, Home, End",
    "",
    "± is the margin of error at 95 % confidence",
];

const KEYS: &str = "q quit  ? help  space pause  / filter  Tab table  a all time  e event  o order";

impl State {
    /// Returns the lines of a screen of this size, at most `height`.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let line = |role, text: String| Line { role, text };
        let mut lines = Vec::new();
        // A small screen keeps the rows.
        let has_footer = height >= 5 || self.prompt.is_some() || self.message.is_some();
        // One line has a row, two the names of its columns, too.
        if height >= 3 {
            lines.push(line(Role::Title, self.title()));
        }
        if height >= 6 {
            lines.push(line(Role::Facts, self.facts_line()));
        }
        let room = height.saturating_sub(lines.len() + usize::from(has_footer));
        if self.shows_help {
            lines.extend(HELP.iter().take(room).map(|&text| line(Role::Row, text.to_owned())));
        } else {
            lines.extend(self.table_lines(width, room));
        }
        if has_footer {
            lines.resize(height.saturating_sub(1), line(Role::Row, String::new()));
            lines.push(line(Role::Footer, self.footer()));
        }
        lines.truncate(height);
        lines
    }

    fn title(&self) -> String {
        let mut title = self.view.name().to_owned();
        if self.is_paused {
            title.push_str("  [paused]");
        }
        if self.has_ended {
            title.push_str("  [recording ended]");
        }
        if let Some(event) = self.event() {
            title.push_str(&format!("  {}", self.facts.events[event].title));
            let table = self.table();
            let seconds = table.map_or(0.0, |table| table.length_ns as f64 / 1e9);
            let samples = table.map_or(0, |table| table.whole(event).samples);
            let span = match self.span {
                Span::Window => "last",
                Span::SinceStart => "all",
            };
            title.push_str(&format!("  {span} {seconds:.1} s  {samples} samples"));
        }
        match self.order {
            Order::Self_ => {}
            Order::Total => title.push_str("  by total"),
            Order::Name => title.push_str("  by name"),
        }
        title
    }

    fn facts_line(&self) -> String {
        let failure = self.failure.iter().chain(&self.facts.problems);
        let problems: Vec<&str> = failure.map(String::as_str).collect();
        // Problems first: the line may be cut.
        match (&problems[..], &self.facts.command[..]) {
            ([], command) => command.to_owned(),
            (problems, "") => problems.join("; "),
            (problems, command) => format!("{}; {command}", problems.join("; ")),
        }
    }

    fn table_lines(&self, width: usize, height: usize) -> Vec<Line> {
        let text = |text: &str| vec![Line { role: Role::Row, text: text.to_owned() }];
        let (Some(table), Some(event)) = (self.table(), self.event()) else {
            return text(match self.view {
                _ if self.has_ended => "the recording has no such samples",
                View::Waits if self.facts.events.iter().any(|event| event.has_samples) => {
                    "no waits so far; nprof-record -e wall records them"
                }
                _ => "no samples so far",
            });
        };
        let rows = self.rows();
        let header_lines = usize::from(height >= 2);
        let first = self.scroll.min(rows.len().saturating_sub(1));
        let last = rows.len().min(first + height.saturating_sub(header_lines));
        // Only rows on the screen decide on the widths of columns.
        let shown = cells(self.view, table, &self.facts, event, &rows[first..last], width);
        let laid_out = layout::lines(&shown.lines, shown.numbers, Some(width));
        let lines = laid_out.lines().enumerate().map(|(index, text)| {
            let role = if index == 0 { Role::Header } else { Role::Row };
            Line { role, text: text.to_owned() }
        });
        lines.skip(1 - header_lines).collect()
    }

    fn footer(&self) -> String {
        if let Some(pattern) = &self.prompt {
            return format!("/{pattern}_");
        }
        if let Some(message) = &self.message {
            return message.clone();
        }
        // Without a filter there is room for the keys.
        match &self.filter {
            None => KEYS.to_owned(),
            Some(regex) => format!("/{regex}  {} rows match; Esc shows all", self.rows().len()),
        }
    }
}
