//! Copies the lines to the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::screen::lines::Role;
use crate::screen::state::State;

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let lines = state.lines(usize::from(area.width), usize::from(area.height));
    let buffer = frame.buffer_mut();
    for (y, line) in (area.top()..area.bottom()).zip(&lines) {
        let style = style(line.role);
        // To the end of the line, also after its text.
        buffer.set_style(Rect { y, height: 1, ..area }, style);
        buffer.set_stringn(area.x, y, &line.text, usize::from(area.width), style);
    }
}

/// Returns the style of a line: attributes that every terminal has, and no colours.
fn style(role: Role) -> Style {
    match role {
        Role::Title => Style::new().add_modifier(Modifier::BOLD),
        Role::Header => Style::new().add_modifier(Modifier::REVERSED),
        Role::Footer => Style::new().add_modifier(Modifier::DIM),
        Role::Facts | Role::Row => Style::new(),
    }
}
