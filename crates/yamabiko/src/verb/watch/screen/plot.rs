//! Draws the bars of a graph with a resolution of an eighth of a cell.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Draws one bar a column, from the left. Heights are shares of the area's height, clamped to 0..=1. A height above 0
/// is at least an eighth of a cell.
pub fn bars(buffer: &mut Buffer, area: Rect, heights: impl Iterator<Item = f64>, style: Style, unicode: bool) {
    for (x, height) in (area.x..area.right()).zip(heights) {
        let height = if height.is_finite() { height.clamp(0.0, 1.0) } else { 0.0 };
        let mut eighths = (height * f64::from(area.height) * 8.0).round() as u32;
        if height > 0.0 {
            eighths = eighths.max(1);
        }
        for y in (area.y..area.bottom()).rev() {
            if eighths == 0 {
                break;
            }
            let part = eighths.min(8);
            eighths -= part;
            let symbol = match (unicode, part) {
                (true, _) => EIGHTHS[part as usize - 1],
                (false, 4..) => "#",
                (false, _) => ".",
            };
            if let Some(cell) = buffer.cell_mut((x, y)) {
                cell.set_symbol(symbol).set_style(style);
            }
        }
    }
}

/// The smallest of 1, 2, 3, 5 times a power of ten that is not below `value`; at least 1.
pub fn nice_top(value: f64) -> f64 {
    let mut decade = 1.0;
    for _ in 0..20 {
        for step in [1.0, 2.0, 3.0, 5.0] {
            if value <= step * decade {
                return step * decade;
            }
        }
        decade *= 10.0;
    }
    value
}

const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_in_eighths() {
        let area = Rect::new(0, 0, 5, 2);
        let mut buffer = Buffer::empty(area);
        bars(&mut buffer, area, [0.0, 0.001, 0.5, 0.75, 7.0].into_iter(), Style::new(), true);
        assert_eq!(buffer, Buffer::with_lines(["   ▄█", " ▁███"]));
        let mut buffer = Buffer::empty(area);
        bars(&mut buffer, area, [0.0, 0.001, 0.5, 0.75, f64::NAN].into_iter(), Style::new(), false);
        assert_eq!(buffer, Buffer::with_lines(["   # ", " .## "]));
    }

    #[test]
    fn axis_maximum_is_a_round_number() {
        assert_eq!([0.0, 1.0, 1.1, 2.4, 4.0, 23.0, 51.0].map(nice_top), [1.0, 1.0, 2.0, 3.0, 5.0, 30.0, 100.0]);
    }
}
