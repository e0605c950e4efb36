//! The testbed as a diagram: nodes from the clients to the server, with their figures on them.
//!
//! ```text
//!   wide    [clients] ──110.0/s──> [path] ──> [wire] ──> [server]        on a phone the same from above to below
//!                     <─109.8/s──         <──        <──
//! ```

use super::draw::TITLE;
use super::legend::fitting;
use super::svg::{Anchor, Svg, text_width};
use super::{Quantity, Width};

/// Nodes in the order of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagram {
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// From the clients to the server.
    pub nodes: Vec<Node>,
    /// Labels between nodes, forth and back, such as `110.0/s`. May be fewer than the gaps.
    pub between: Vec<[String; 2]>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name of the node: `clients`.
    pub name: String,
    /// Kind: name of a profile, a command; may be empty.
    pub about: String,
    /// Names and figures.
    pub lines: Vec<[String; 2]>,
}

impl Node {
    /// A node without figures.
    pub fn new(name: impl Into<String>, about: impl Into<String>) -> Self {
        Node { name: name.into(), about: about.into(), lines: Vec::new() }
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

impl Diagram {
    /// No nodes yet.
    pub fn new(title: impl Into<String>) -> Self {
        Diagram { title: title.into(), ..Diagram::default() }
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Whether no node has a figure.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.lines.is_empty())
    }
}

/// Draws it.
pub(super) fn diagram(diagram: &Diagram, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let title = if standalone { TITLE } else { 0.0 };
    // On a phone or half a page the boxes are one below the other.
    if width == Width::Full { horizontal(diagram, across, title) } else { vertical(diagram, across, title) }
}

fn horizontal(diagram: &Diagram, across: f64, title: f64) -> String {
    let count = diagram.nodes.len().max(1) as f64;
    let tallest = diagram.nodes.iter().map(Node::height).fold(0.0, f64::max);
    let box_width = ((across - EDGE * 2.0 - (count - 1.0) * GAP_ACROSS) / count).min(BOX_MAX);
    let used = count * box_width + (count - 1.0) * GAP_ACROSS;
    let mut svg = begun(diagram, across, title + tallest + 2.0 * EDGE, title);
    let mut left = (across - used) / 2.0;
    for (at, node) in diagram.nodes.iter().enumerate() {
        put(&mut svg, node, [left, title + EDGE], [box_width, tallest]);
        left += box_width;
        if at + 1 < diagram.nodes.len() {
            let middle = title + EDGE + tallest / 2.0;
            let [there, back] = words(diagram, at);
            let (from, to) = (left + 5.0, left + GAP_ACROSS - 5.0);
            arrow(&mut svg, [from, middle - 7.0], [to, middle - 7.0]);
            arrow(&mut svg, [to, middle + 7.0], [from, middle + 7.0]);
            let available = GAP_ACROSS + 2.0;
            let centre = left + GAP_ACROSS / 2.0;
            svg.text("tick", [centre, middle - 15.0], Anchor::Middle, &fitting(there, available));
            svg.text("tick", [centre, middle + 24.0], Anchor::Middle, &fitting(back, available));
            left += GAP_ACROSS;
        }
    }
    svg.into_text()
}

fn vertical(diagram: &Diagram, across: f64, title: f64) -> String {
    let gaps = diagram.nodes.len().saturating_sub(1) as f64 * GAP_DOWN;
    let height: f64 = diagram.nodes.iter().map(Node::height).sum::<f64>() + gaps + 2.0 * EDGE + title;
    let mut svg = begun(diagram, across, height, title);
    let mut top = title + EDGE;
    for (at, node) in diagram.nodes.iter().enumerate() {
        put(&mut svg, node, [EDGE, top], [across - 2.0 * EDGE, node.height()]);
        top += node.height();
        if at + 1 < diagram.nodes.len() {
            let middle = across / 2.0;
            let [there, back] = words(diagram, at);
            arrow(&mut svg, [middle - 7.0, top + 4.0], [middle - 7.0, top + GAP_DOWN - 4.0]);
            arrow(&mut svg, [middle + 7.0, top + GAP_DOWN - 4.0], [middle + 7.0, top + 4.0]);
            let y = top + GAP_DOWN / 2.0 + 4.0;
            svg.text("tick", [middle - 16.0, y], Anchor::End, &fitting(there, middle - 20.0));
            svg.text("tick", [middle + 16.0, y], Anchor::Start, &fitting(back, middle - 20.0));
            top += GAP_DOWN;
        }
    }
    svg.into_text()
}

fn words(diagram: &Diagram, gap: usize) -> [&str; 2] {
    diagram.between.get(gap).map_or(["", ""], |[there, back]| [there, back])
}

fn put(svg: &mut Svg, node: &Node, [left, top]: [f64; 2], size: [f64; 2]) {
    svg.rect("node", [left, top], size, "");
    let (inner, right) = (left + PAD, left + size[0] - PAD);
    let available = right - inner;
    let mut y = top + PAD + 12.0;
    svg.text("head", [inner, y], Anchor::Start, &fitting(&node.name, available * 0.92));
    y += HEAD - 12.0 + 10.0;
    if !node.about.is_empty() {
        svg.text("tick", [inner, y], Anchor::Start, &fitting(&node.about, available));
        y += LINE;
    }
    for [name, value] in &node.lines {
        let value = fitting(value, available * 0.7);
        let left_over = available - text_width(&value) - 6.0;
        svg.text("tick", [inner, y], Anchor::Start, &fitting(name, left_over));
        svg.text("value", [right, y], Anchor::End, &value);
        y += LINE;
    }
}

fn arrow(svg: &mut Svg, from: [f64; 2], to: [f64; 2]) {
    svg.line("arrow", from, to);
    // The sign, with 0 for 0: `signum` returns 1 for 0.
    let along = [to[0] - from[0], to[1] - from[1]].map(|way| if way == 0.0 { 0.0 } else { way.signum() });
    let back = [to[0] - along[0] * 5.0, to[1] - along[1] * 5.0];
    for side in [-3.5, 3.5] {
        svg.line("arrow", to, [back[0] + along[1] * side, back[1] + along[0] * side]);
    }
}

fn begun(diagram: &Diagram, across: f64, height: f64, title: f64) -> Svg {
    let standalone = title > 0.0;
    let mut svg = Svg::new(across, height, &diagram.title, &description(diagram), standalone);
    if standalone {
        svg.text("title", [2.0, TITLE - 10.0], Anchor::Start, &fitting(&diagram.title, across * 0.75));
    }
    svg
}

fn description(diagram: &Diagram) -> String {
    let nodes = diagram.nodes.iter().map(|node| {
        let lines: Vec<String> = node.lines.iter().map(|[name, value]| format!("{name} {value}")).collect();
        match (node.about.as_str(), &lines[..]) {
            ("", []) => format!("{}.", node.name),
            ("", lines) => format!("{}: {}.", node.name, lines.join(", ")),
            (about, lines) => format!("{} ({about}): {}.", node.name, lines.join(", ")),
        }
    });
    nodes.collect::<Vec<_>>().join(" ")
}

/// CPU usage as a share of one core or a number of cores; empty for NaN.
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
/// Gap between boxes side by side.
const GAP_ACROSS: f64 = 50.0;
/// Gap between boxes one below the other.
const GAP_DOWN: f64 = 34.0;
/// Maximum width of a box, so that figures stay near their names.
const BOX_MAX: f64 = 290.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn testbed() -> Diagram {
        let mut diagram = Diagram::new("The lab")
            .node(Node::new("clients", "100 of them").line("offered", "110.0/s").line("nothing", ""))
            .node(Node::new("path", "<script>".repeat(30)).line("RTT".repeat(40).as_str(), "48.0 ms".repeat(20)))
            .node(Node::new("server", ""));
        diagram.between = vec![["110.0/s".into(), "109.8/s".into()]];
        diagram
    }

    #[test]
    fn diagram_stays_inside_its_frame_and_escapes_text() {
        for width in [Width::Full, Width::Half, Width::Narrow] {
            let svg = diagram(&testbed(), width, false);
            assert!(!svg.contains("<script") && !svg.contains("NaN"), "{svg}");
            assert_eq!(svg.matches("class=\"node\"").count(), 3);
            assert_eq!(svg.matches("nothing").count(), 0);
        }
    }

    #[test]
    fn diagram_has_a_text_alternative() {
        let svg = diagram(&testbed(), Width::Full, false);
        assert!(svg.contains("<desc>clients (100 of them): offered 110.0/s."), "{svg}");
        assert!(Diagram::new("x").node(Node::new("a", "b")).is_empty() && !testbed().is_empty());
        assert_eq!([0.45, 1.5].map(cores), ["45.0 % of a core", "1.50 cores"]);
    }
}
