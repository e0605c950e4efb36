//! The lab as a picture: places from the clients to the server, with their figures on them.
//!
//! ```text
//!   wide    [clients] ──110.0/s──> [path] ──> [wire] ──> [server]        on a phone the same from above to below
//!                     <─109.8/s──         <──        <──
//! ```

use super::draw::TITLE;
use super::legend::fitting;
use super::svg::{Anchor, Svg, text_width};
use super::{Quantity, Width};

/// Places in the order in which a request comes to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What it shows, in words.
    pub title: String,
    /// One sentence more; may be empty.
    pub about: String,
    /// From the clients to the server.
    pub places: Vec<Place>,
    /// What goes from each place to the next, and what comes back: short, such as `110.0/s`. May be fewer than the gaps.
    pub between: Vec<[String; 2]>,
}

/// A place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// Its name: `clients`.
    pub name: String,
    /// Of what kind it is: a profile's name, a command; may be empty.
    pub about: String,
    /// Figures with their names.
    pub lines: Vec<[String; 2]>,
}

impl Place {
    /// A place without figures.
    pub fn new(name: impl Into<String>, about: impl Into<String>) -> Self {
        Place { name: name.into(), about: about.into(), lines: Vec::new() }
    }

    /// Adds a figure; one without a value adds nothing.
    pub fn line(mut self, name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.lines.push([name.to_owned(), value]);
        }
        self
    }

    fn height(&self) -> f64 {
        let about = if self.about.is_empty() { 0.0 } else { LINE };
        2.0 * PAD + HEAD + about + self.lines.len() as f64 * LINE
    }
}

impl Picture {
    /// No places yet.
    pub fn new(title: impl Into<String>) -> Self {
        Picture { title: title.into(), ..Picture::default() }
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a place.
    pub fn place(mut self, place: Place) -> Self {
        self.places.push(place);
        self
    }

    /// Whether no place has a figure.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(|place| place.lines.is_empty())
    }
}

/// Draws it.
pub(super) fn picture(picture: &Picture, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let title = if standalone { TITLE } else { 0.0 };
    // A phone, or half a page, has no room for boxes side by side.
    if width == Width::Full { beside(picture, across, title) } else { below(picture, across, title) }
}

fn beside(picture: &Picture, across: f64, title: f64) -> String {
    let count = picture.places.len().max(1) as f64;
    let tallest = picture.places.iter().map(Place::height).fold(0.0, f64::max);
    let box_width = ((across - EDGE * 2.0 - (count - 1.0) * GAP_WIDE) / count).min(BOX_MAX);
    let used = count * box_width + (count - 1.0) * GAP_WIDE;
    let mut svg = begun(picture, across, title + tallest + 2.0 * EDGE, title);
    let mut left = (across - used) / 2.0;
    for (at, place) in picture.places.iter().enumerate() {
        put(&mut svg, place, [left, title + EDGE], [box_width, tallest]);
        left += box_width;
        if at + 1 < picture.places.len() {
            let middle = title + EDGE + tallest / 2.0;
            let [there, back] = words(picture, at);
            let (from, to) = (left + 5.0, left + GAP_WIDE - 5.0);
            arrow(&mut svg, [from, middle - 7.0], [to, middle - 7.0]);
            arrow(&mut svg, [to, middle + 7.0], [from, middle + 7.0]);
            let room = GAP_WIDE + 2.0;
            let centre = left + GAP_WIDE / 2.0;
            svg.words("tick", [centre, middle - 15.0], Anchor::Middle, &fitting(there, room));
            svg.words("tick", [centre, middle + 24.0], Anchor::Middle, &fitting(back, room));
            left += GAP_WIDE;
        }
    }
    svg.into_text()
}

fn below(picture: &Picture, across: f64, title: f64) -> String {
    let gaps = picture.places.len().saturating_sub(1) as f64 * GAP_HIGH;
    let height: f64 = picture.places.iter().map(Place::height).sum::<f64>() + gaps + 2.0 * EDGE + title;
    let mut svg = begun(picture, across, height, title);
    let mut top = title + EDGE;
    for (at, place) in picture.places.iter().enumerate() {
        put(&mut svg, place, [EDGE, top], [across - 2.0 * EDGE, place.height()]);
        top += place.height();
        if at + 1 < picture.places.len() {
            let middle = across / 2.0;
            let [there, back] = words(picture, at);
            arrow(&mut svg, [middle - 7.0, top + 4.0], [middle - 7.0, top + GAP_HIGH - 4.0]);
            arrow(&mut svg, [middle + 7.0, top + GAP_HIGH - 4.0], [middle + 7.0, top + 4.0]);
            let y = top + GAP_HIGH / 2.0 + 4.0;
            svg.words("tick", [middle - 16.0, y], Anchor::End, &fitting(there, middle - 20.0));
            svg.words("tick", [middle + 16.0, y], Anchor::Start, &fitting(back, middle - 20.0));
            top += GAP_HIGH;
        }
    }
    svg.into_text()
}

fn words(picture: &Picture, gap: usize) -> [&str; 2] {
    picture.between.get(gap).map_or(["", ""], |[there, back]| [there, back])
}

fn put(svg: &mut Svg, place: &Place, [left, top]: [f64; 2], size: [f64; 2]) {
    svg.rect("place", [left, top], size, "");
    let (inner, right) = (left + PAD, left + size[0] - PAD);
    let room = right - inner;
    let mut y = top + PAD + 12.0;
    svg.words("head", [inner, y], Anchor::Start, &fitting(&place.name, room * 0.92));
    y += HEAD - 12.0 + 10.0;
    if !place.about.is_empty() {
        svg.words("tick", [inner, y], Anchor::Start, &fitting(&place.about, room));
        y += LINE;
    }
    for [name, value] in &place.lines {
        let value = fitting(value, room * 0.7);
        let left_over = room - text_width(&value) - 6.0;
        svg.words("tick", [inner, y], Anchor::Start, &fitting(name, left_over));
        svg.words("value", [right, y], Anchor::End, &value);
        y += LINE;
    }
}

fn arrow(svg: &mut Svg, from: [f64; 2], to: [f64; 2]) {
    svg.line("arrow", from, to);
    // The sign, and 0 of 0: `signum` makes 1 of it.
    let along = [to[0] - from[0], to[1] - from[1]].map(|way| if way == 0.0 { 0.0 } else { way.signum() });
    let back = [to[0] - along[0] * 5.0, to[1] - along[1] * 5.0];
    for side in [-3.5, 3.5] {
        svg.line("arrow", to, [back[0] + along[1] * side, back[1] + along[0] * side]);
    }
}

fn begun(picture: &Picture, across: f64, height: f64, title: f64) -> Svg {
    let standalone = title > 0.0;
    let mut svg = Svg::new(across, height, &picture.title, &description(picture), standalone);
    if standalone {
        svg.words("title", [2.0, TITLE - 10.0], Anchor::Start, &fitting(&picture.title, across * 0.75));
    }
    svg
}

fn description(picture: &Picture) -> String {
    let places = picture.places.iter().map(|place| {
        let lines: Vec<String> = place.lines.iter().map(|[name, value]| format!("{name} {value}")).collect();
        match (place.about.as_str(), &lines[..]) {
            ("", []) => format!("{}.", place.name),
            ("", lines) => format!("{}: {}.", place.name, lines.join(", ")),
            (about, lines) => format!("{} ({about}): {}.", place.name, lines.join(", ")),
        }
    });
    places.collect::<Vec<_>>().join(" ")
}

/// A share of one core or of many, as a place shows it; nothing of what is no number.
pub(crate) fn cores(used: f64) -> String {
    if !used.is_finite() {
        return String::new();
    }
    if used < 1.0 { format!("{} of a core", Quantity::Share.text(used)) } else { format!("{used:.2} cores") }
}

const EDGE: f64 = 2.0;
const PAD: f64 = 10.0;
const HEAD: f64 = 20.0;
const LINE: f64 = 18.0;
/// Between boxes side by side.
const GAP_WIDE: f64 = 50.0;
/// Between boxes one below the other.
const GAP_HIGH: f64 = 34.0;
/// Wider boxes part names from their figures.
const BOX_MAX: f64 = 290.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Picture {
        let mut picture = Picture::new("The lab")
            .place(Place::new("clients", "100 of them").line("offered", "110.0/s").line("nothing", ""))
            .place(Place::new("path", "<script>".repeat(30)).line("RTT".repeat(40).as_str(), "48.0 ms".repeat(20)))
            .place(Place::new("server", ""));
        picture.between = vec![["110.0/s".into(), "109.8/s".into()]];
        picture
    }

    #[test]
    fn everything_stays_inside_and_nothing_is_markup() {
        for width in [Width::Full, Width::Half, Width::Narrow] {
            let svg = picture(&lab(), width, false);
            assert!(!svg.contains("<script") && !svg.contains("NaN"), "{svg}");
            assert_eq!(svg.matches("class=\"place\"").count(), 3);
            assert_eq!(svg.matches("nothing").count(), 0);
        }
    }

    #[test]
    fn what_cannot_be_seen_is_said() {
        let svg = picture(&lab(), Width::Full, false);
        assert!(svg.contains("<desc>clients (100 of them): offered 110.0/s."), "{svg}");
        assert!(Picture::new("x").place(Place::new("a", "b")).is_empty() && !lab().is_empty());
        assert_eq!([0.45, 1.5].map(cores), ["45.0 % of a core", "1.50 cores"]);
    }
}
