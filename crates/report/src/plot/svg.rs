//! SVG as text. Every coordinate and every text is written here, so that no coordinate is NaN and no text is markup.

use std::fmt::Write;

/// Text escaped for elements and quoted attributes of HTML and SVG. Control characters, which neither format allows,
/// and characters that change the writing direction are shown as their code.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push_str(&crate::figures::plain(c.encode_utf8(&mut [0; 4]))),
        }
    }
    safe
}

/// A coordinate or length: one decimal, never NaN.
pub(super) fn number(value: f64) -> String {
    let text = format!("{:.1}", if value.is_finite() { value } else { 0.0 });
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Estimated width of a text, without a font. The estimate is on the wide side (DejaVu Sans at 12 px), so that texts
/// neither overlap nor leave the figure.
pub(super) fn text_width(text: &str) -> f64 {
    let advance = |c: char| match c {
        ' ' | ',' | '.' | ':' | 'i' | 'j' | 'l' | 'I' | '|' | '\'' => 4.0,
        '-' | 'f' | 'r' | 't' | '(' | ')' | '/' => 4.9,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 11.6,
        c if c.is_ascii_uppercase() => 8.6,
        c if c.is_ascii() => 7.7,
        // Han and kana characters are square.
        _ => 12.0,
    };
    text.chars().map(advance).sum()
}

/// Alignment of a text at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG element being written.
pub(super) struct Svg {
    text: String,
}

impl Svg {
    /// Opens an image with its title and description.
    pub(super) fn new(width: f64, height: f64, title: &str, about: &str, standalone: bool) -> Self {
        // A standalone file has a margin; on a page the page has one.
        let margin = if standalone { MARGIN } else { 0.0 };
        let [left, across, down] = [-margin, width + 2.0 * margin, height + 2.0 * margin].map(number);
        let size = match standalone {
            true => format!(" xmlns=\"http://www.w3.org/2000/svg\" width=\"{across}\" height=\"{down}\""),
            false => String::new(),
        };
        let mut text = format!(
            "<svg class=\"plot\"{size} viewBox=\"{left} {left} {across} {down}\" role=\"img\"><title>{}</title>",
            escape(title)
        );
        if !about.is_empty() {
            let _ = write!(text, "<desc>{}</desc>", escape(about));
        }
        if standalone {
            let _ = write!(
                text,
                "<style>{COLORS}{STYLE}{FRAME}</style><rect class=\"paper\" x=\"{left}\" y=\"{left}\" width=\"{across}\" \
                 height=\"{down}\"/>"
            );
        }
        Svg { text }
    }

    pub(super) fn into_text(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }

    pub(super) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let [x1, y1] = from.map(number);
        let [x2, y2] = to.map(number);
        let _ = write!(self.text, "<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>");
    }

    pub(super) fn rect(&mut self, class: &str, at: [f64; 2], size: [f64; 2], hint: &str) {
        let [x, y] = at.map(number);
        let [width, height] = size.map(|length| number(length.max(0.0)));
        let open = format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        let _ = match hint {
            "" => write!(self.text, "{open}/>"),
            hint => write!(self.text, "{open}><title>{}</title></rect>", escape(hint)),
        };
    }

    /// Many rectangles in one path: `[left, top, width, height]` each.
    pub(super) fn blocks(&mut self, class: &str, blocks: &[[f64; 4]]) {
        let mut data = String::new();
        for block in blocks {
            let [x, y, width, height] = block.map(number);
            let _ = write!(data, "M{x} {y}h{width}v{height}h-{width}z");
        }
        if !data.is_empty() {
            let _ = write!(self.text, "<path class=\"{class}\" d=\"{data}\"/>");
        }
    }

    pub(super) fn dot(&mut self, class: &str, at: [f64; 2], hint: &str) {
        let [x, y] = at.map(number);
        let hint = escape(hint);
        let _ =
            write!(self.text, "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"5\"><title>{hint}</title></circle>");
    }

    /// A path with a new start for each run of points.
    pub(super) fn path(&mut self, class: &str, runs: &[Vec<[f64; 2]>], close_at: Option<f64>) {
        let mut data = String::new();
        for run in runs {
            let Some(first) = run.first() else { continue };
            let mut before = first.map(number);
            let _ = write!(data, "M{} {}", before[0], before[1]);
            if run.len() == 1 {
                // A single point is a line of length zero, which round caps draw as a dot.
                let _ = write!(data, "h0");
            }
            for point in &run[1..] {
                let [x, y] = point.map(number);
                if x == before[0] && y != before[1] {
                    let _ = write!(data, "V{y}");
                } else if y == before[1] && x != before[0] {
                    let _ = write!(data, "H{x}");
                } else if [&x, &y] != [&before[0], &before[1]] {
                    let _ = write!(data, "L{x} {y}");
                }
                before = [x, y];
            }
            if let Some(floor) = close_at {
                let _ = write!(data, "V{}H{}Z", number(floor), number(first[0]));
            }
        }
        if !data.is_empty() {
            let _ = write!(self.text, "<path class=\"{class}\" d=\"{data}\"/>");
        }
    }

    pub(super) fn text(&mut self, class: &str, at: [f64; 2], anchor: Anchor, words: &str) {
        if words.is_empty() {
            return;
        }
        let [x, y] = at.map(number);
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let _ = write!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", escape(words));
    }
}

/// Margin of a standalone file.
const MARGIN: f64 = 14.0;
/// The colours, for light and dark. They differ in lightness as well as hue (after Okabe and Ito, 2002).
pub(crate) const COLORS: &str = include_str!("../../assets/colors.css");
/// Style of the parts of a plot.
pub(crate) const STYLE: &str = include_str!("../../assets/plot.css");
/// Additional style of a standalone file.
const FRAME: &str = ".paper{fill:var(--paper)}text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_text_is_escaped() {
        assert_eq!(
            escape("</script><img src=x onerror='a(\"b\")'>&"),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;"
        );
        assert_eq!(escape("a\u{0}b\u{202e}\nc"), "a\\u{0}b\\u{202e}\nc");
        assert_eq!(escape("甲子園"), "甲子園");
    }

    #[test]
    fn svg_numbers_are_short_and_finite() {
        assert_eq!([1.0, 0.25, -0.01, f64::NAN, f64::INFINITY].map(number), ["1", "0.2", "0", "0", "0"]);
    }

    #[test]
    fn series_of_one_point_is_a_dot() {
        let mut svg = Svg::new(10.0, 10.0, "t", "", false);
        svg.path("s0", &[vec![[1.0, 2.0]], vec![[3.0, 3.0], [4.0, 3.0], [4.0, 5.0]]], None);
        assert!(svg.into_text().contains("d=\"M1 2h0M3 3H4V5\""));
    }
}
