//! Arrows for the jumps within a function, left of its instructions. Pure.

/// The most jumps next to each other; further ones have no arrow.
const LANES: usize = 6;

/// The most jumps that are drawn in a function: placing them takes time by their number times lanes.
const MAX_JUMPS: usize = 1 << 14;

/// A jump between lines, and its lane, 0 next to the instructions.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    from: usize,
    to: usize,
    lane: usize,
}

impl Arrow {
    fn top(self) -> usize {
        self.from.min(self.to)
    }

    fn bottom(self) -> usize {
        self.from.max(self.to)
    }
}

/// Returns the arrows beside each of `lines` lines, for jumps from a line to another. All have the same
/// width.
pub(crate) fn arrows(lines: usize, jumps: &[(usize, usize)]) -> Vec<String> {
    let placed = place(jumps);
    let lanes = placed.iter().map(|arrow| arrow.lane + 1).max().unwrap_or(0);
    // A lane is one column; the column next to the instructions has the tips.
    let width = lanes + usize::from(lanes > 0);
    let mut canvas = vec![vec![' '; width]; lines];
    // The outermost first: ends of inner arrows are drawn over them.
    let mut outer_first = placed;
    // The order of jumps does not matter: those of one lane do not overlap.
    outer_first.sort_by_key(|arrow| std::cmp::Reverse(arrow.lane));
    for arrow in &outer_first {
        let column = lanes - 1 - arrow.lane;
        for line in &mut canvas[arrow.top() + 1..arrow.bottom()] {
            line[column] = '│';
        }
    }
    for arrow in &outer_first {
        let column = lanes - 1 - arrow.lane;
        for (line, corner) in [(arrow.top(), '┌'), (arrow.bottom(), '└')] {
            canvas[line][column] = match canvas[line][column] {
                ' ' => corner,
                _ => '├',
            };
            for cell in &mut canvas[line][column + 1..lanes] {
                *cell = match *cell {
                    '│' => '┼',
                    ' ' => '─',
                    other => other,
                };
            }
            // A line may be the target of several jumps, and jump itself: the tip wins.
            let tip = if line == arrow.to { '>' } else { '─' };
            if canvas[line][lanes] != '>' {
                canvas[line][lanes] = tip;
            }
        }
    }
    canvas.into_iter().map(|line| line.into_iter().collect()).collect()
}

/// Gives each jump the innermost lane that is free over its length; short jumps come first.
fn place(jumps: &[(usize, usize)]) -> Vec<Arrow> {
    let mut order: Vec<(usize, usize)> =
        jumps.iter().copied().filter(|(from, to)| from != to).take(MAX_JUMPS).collect();
    order.sort_by_key(|&(from, to)| (from.abs_diff(to), from, to));
    let mut placed: Vec<Arrow> = Vec::new();
    // By lane, the lines that are taken: intervals that do not overlap, by their first line.
    let mut taken = vec![std::collections::BTreeMap::<usize, usize>::new(); LANES];
    for (from, to) in order {
        let (top, bottom) = (from.min(to), from.max(to));
        let is_free = |lane: &std::collections::BTreeMap<usize, usize>| {
            lane.range(..=bottom).next_back().is_none_or(|(_, &end)| end < top)
        };
        // Without a free lane there is no arrow; the instruction still has the address.
        if let Some(lane) = taken.iter().position(is_free) {
            taken[lane].insert(top, bottom);
            placed.push(Arrow { from, to, lane });
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nested_jumps_have_lanes_of_their_own() {
        let drawn = arrows(6, &[(4, 1), (2, 5), (3, 3)]);
        assert_eq!(drawn, ["   ", "┌─>", "│┌─", "││ ", "└┼─", " └>"]);
        assert_eq!(arrows(2, &[]), ["", ""]);
    }

    proptest! {
        #[test]
        fn any_jumps_are_drawn_in_equal_widths(
            jumps in prop::collection::vec((0..30_usize, 0..30_usize), 0..60),
        ) {
            let drawn = arrows(30, &jumps);
            let width = drawn[0].chars().count();
            prop_assert!(width <= LANES + 1);
            prop_assert!(drawn.iter().all(|line| line.chars().count() == width));
        }
    }
}
