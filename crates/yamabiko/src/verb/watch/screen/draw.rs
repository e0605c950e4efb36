//! Draws a view into the cells of a screen, independent of a real terminal.
//!
//! ```text
//!   title                                          time
//!   figures of the last second, and means                  one column, or two on a wide screen
//!   concurrent connections, the last minutes               from 9 lines up
//!   handshake RTT, all                                     from 19 lines up, or next to the graph
//!   remark, keys
//! ```

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use report::figures::{bit_rate, bytes, count, duration, level, plain, rate as per_second, share};

use super::plot::{bars, nice_top};
use crate::verb::watch::view::{Point, RttBuckets, View, rate};

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Colours may be used.
    pub color: bool,
    /// Characters beyond ASCII may be used.
    pub unicode: bool,
}

/// The content of the screen: one of several captures, and messages.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The figures of the shown capture; `None` while there are none.
    pub view: Option<&'a View>,
    /// Number of the shown capture, from 1, and number of captures.
    pub position: (usize, usize),
    /// The latest message.
    pub note: &'a str,
    /// What the program waits for, shown while there is no view.
    pub waiting: &'a str,
}

/// Draws the screen into an area of any size.
pub fn draw(frame: &mut Frame<'_>, picture: &Picture<'_>, capabilities: Capabilities) {
    let area = frame.area();
    let styles = Styles(capabilities);
    let Some(view) = picture.view else {
        let text = if picture.note.is_empty() { picture.waiting.to_owned() } else { plain(picture.note) };
        let lines = vec![
            Line::styled("yamabiko watch", styles.strong()),
            Line::raw(text),
            Line::styled("q ends", styles.dim()),
        ];
        return frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
    };
    let plots = Plots::fitting(area);
    let [title, numbers, plot, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(numbers_height(area, plots)),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height > 4)),
    ])
    .areas(area);
    draw_title(frame, title, picture, view, styles);
    draw_numbers(frame, numbers, view, styles);
    match plots {
        Plots::None => {}
        Plots::Graph => draw_graph(frame, plot, view, styles),
        Plots::Stacked => {
            let [above, below] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(plot);
            draw_graph(frame, above, view, styles);
            draw_rtt(frame, below, view, styles);
        }
        Plots::SideBySide => {
            let parts = [Constraint::Fill(3), Constraint::Length(2), Constraint::Fill(2)];
            let [left, _, right] = Layout::horizontal(parts).areas(plot);
            draw_graph(frame, left, view, styles);
            draw_rtt(frame, right, view, styles);
        }
    }
    draw_foot(frame, foot, picture, view, styles);
}

/// Which plots fit into an area, and how they are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plots {
    None,
    Graph,
    Stacked,
    SideBySide,
}

impl Plots {
    fn fitting(area: Rect) -> Plots {
        match (area.width, area.height) {
            (_, ..9) | (..16, _) => Plots::None,
            (120.., 13..) => Plots::SideBySide,
            (_, 19..) if is_wide(area) => Plots::Stacked,
            (_, 26..) => Plots::Stacked,
            _ => Plots::Graph,
        }
    }
}

/// Whether the figures have two columns.
fn is_wide(area: Rect) -> bool {
    area.width >= 78
}

/// Number of lines for the figures, including their heading.
fn numbers_height(area: Rect, plots: Plots) -> u16 {
    let all = if is_wide(area) { 7 } else { 13 };
    let available = match plots {
        Plots::None => area.height.saturating_sub(2),
        Plots::Graph | Plots::SideBySide => area.height.saturating_sub(6),
        Plots::Stacked => area.height.saturating_sub(12),
    };
    available.min(all)
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>, view: &View, styles: Styles) {
    let totals = &view.totals;
    let mut source = plain(&totals.source);
    if let Some(host) = &view.host {
        source = format!("{}: {source}", plain(host));
    }
    if picture.position.1 > 1 {
        source = format!("{source} ({} of {})", picture.position.0, picture.position.1);
    }
    let point = match totals.capture_point.as_str() {
        "client" => ", at the client",
        "between" => ", between client and server",
        _ => ", at the server",
    };
    let time = clock(view.elapsed_s);
    let name = if area.width >= 60 { "yamabiko watch  " } else { "" };
    let title = Line::from(vec![
        Span::styled(name, styles.dim()),
        Span::styled(source, styles.strong()),
        Span::styled(if area.width >= 60 { point } else { "" }, styles.dim()),
    ]);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(time.len() as u16 + 1)]).areas(area);
    frame.render_widget(Paragraph::new(title), left);
    frame.render_widget(Paragraph::new(time).right_aligned(), right);
}

/// A duration as hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.max(0.0) as u64 } else { 0 };
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// One figure: its name, its value in the last second and since the start.
struct Figure {
    /// The name for a narrow and for a wide column.
    names: [&'static str; 2],
    last: String,
    all: String,
    /// Style of the value of the last second.
    style: Style,
}

fn draw_numbers(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    let figures = all_figures(view, styles);
    if !is_wide(frame.area()) {
        return draw_column(frame, area, &figures.iter().collect::<Vec<_>>(), styles);
    }
    let [left, _, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(3), Constraint::Fill(1)]).areas(area);
    draw_column(frame, left, &WEB.map(|at| &figures[at]), styles);
    draw_column(frame, right, &WIRE.map(|at| &figures[at]), styles);
}

/// Indices of the figures of the two columns of a wide screen: connections and requests, and packets.
const WEB: [usize; 6] = [0, 1, 2, 3, 6, 7];
const WIRE: [usize; 6] = [8, 9, 4, 11, 10, 5];

fn draw_column(frame: &mut Frame<'_>, area: Rect, figures: &[&Figure], styles: Styles) {
    let has_means = area.width >= 36;
    let is_roomy = area.width >= 50;
    let number = Constraint::Length(if is_roomy { 14 } else { 12 });
    let widths = [Constraint::Fill(1), number, if has_means { number } else { Constraint::Length(0) }];
    let mut lines = area.rows();
    if area.height as usize > figures.len().min(4) {
        let Some(row) = lines.next() else { return };
        let [_, last, all] = Layout::horizontal(widths).areas(row);
        frame.render_widget(Line::styled("last second", styles.dim()).right_aligned(), last);
        frame.render_widget(Line::styled("so far", styles.dim()).right_aligned(), all);
    }
    for (row, figure) in lines.zip(figures) {
        let [name, last, all] = Layout::horizontal(widths).areas(row);
        frame.render_widget(Line::raw(figure.names[usize::from(is_roomy)]), name);
        frame.render_widget(Line::styled(figure.last.as_str(), figure.style).right_aligned(), last);
        if has_means {
            frame.render_widget(Line::styled(figure.all.as_str(), styles.dim()).right_aligned(), all);
        }
    }
}

/// All figures in the order of importance: a small screen shows the first ones.
fn all_figures(view: &View, styles: Styles) -> Vec<Figure> {
    let (last, totals) = (&view.last, &view.totals);
    let seconds = view.elapsed_s;
    let mean = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let figure = |names, last: String, all: String| Figure { names, last, all, style: styles.plain() };
    let rtt_of = |handshakes: u64, nanos: u64| if handshakes == 0 { "-".to_owned() } else { duration(nanos) };
    let lost = if totals.capture_drops > 0 { styles.warning() } else { styles.plain() };
    let again = if last.retransmit_share() >= 0.05 { styles.warning() } else { styles.plain() };
    let all_rtt = &totals.handshake_rtt_ns;
    vec![
        Figure {
            style: styles.headline(),
            ..figure(
                ["concurrent", "concurrent connections"],
                level(last.connections_mean),
                level(totals.connections.mean),
            )
        },
        figure(
            ["connections", "connections opened"],
            per_second(rate(last.connections_opened, last)),
            per_second(totals.connection_rate_per_s),
        ),
        figure(
            ["requests", "HTTP requests"],
            per_second(rate(last.requests, last)),
            per_second(totals.request_rate_per_s),
        ),
        figure(
            ["responses", "HTTP responses"],
            per_second(rate(last.responses, last)),
            per_second(totals.response_rate_per_s),
        ),
        figure(
            ["RTT, median", "handshake RTT, median"],
            rtt_of(last.handshakes, last.handshake_rtt_p50_ns),
            rtt_of(all_rtt.count, all_rtt.p50),
        ),
        Figure {
            style: lost,
            ..figure(
                ["capture loss", "lost by the capture"],
                per_second(rate(last.capture_drops, last)),
                count(totals.capture_drops),
            )
        },
        figure(["in progress", "transactions in progress"], level(last.in_flight_mean), level(totals.in_flight.mean)),
        figure(["sessions", "HTTP sessions"], level(last.sessions_mean), level(totals.sessions.mean)),
        figure(["packets", "packets"], per_second(rate(last.packets, last)), per_second(mean(totals.packets))),
        figure(
            ["traffic", "bits on the wire"],
            bit_rate(rate(last.bytes, last) * 8.0),
            if seconds > 0.0 { bit_rate(totals.bytes as f64 * 8.0 / seconds) } else { bytes(totals.bytes) },
        ),
        Figure {
            style: again,
            ..figure(
                ["sent again", "packets sent again"],
                share(last.retransmit_share()),
                share(totals.retransmit_share),
            )
        },
        figure(
            ["RTT, 99 %", "handshake RTT, 99 %"],
            rtt_of(last.handshakes, last.handshake_rtt_p99_ns),
            rtt_of(all_rtt.count, all_rtt.p99),
        ),
    ]
}

fn draw_graph(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    if area.height < 2 {
        return;
    }
    let columns = usize::from(area.width.saturating_sub(AXIS_WIDTH));
    let (means, seconds) = columns_of(&view.history, columns);
    let top = nice_top(means.iter().copied().fold(0.0, f64::max));
    let title = format!("concurrent connections, last {}", span(seconds));
    let plot = framed(frame, area, &title, &short(top), styles);
    let start = plot.width.saturating_sub(means.len() as u16);
    let bars_area = Rect { x: plot.x + start, width: plot.width - start, ..plot };
    bars(frame.buffer_mut(), bars_area, means.iter().map(|mean| mean / top), styles.graph(), styles.0.unicode);
}

/// Means of the graph's columns, the newest last, and the seconds shown. A column covers a second, or as many as are
/// needed to show the last five minutes.
fn columns_of(history: &std::collections::VecDeque<Point>, columns: usize) -> (Vec<f64>, u64) {
    let (Some(first), Some(last)) = (history.front(), history.back()) else { return (Vec::new(), 0) };
    let columns = columns.max(1) as u64;
    let seconds = (last.second.saturating_sub(first.second) + 1).min(GRAPH_SECONDS_MIN.max(columns));
    let step = seconds.div_ceil(columns);
    // Columns end at multiples of the step, so that a drawn bar keeps its height and only moves.
    let newest = last.second / step;
    let mut sums = vec![(0.0, 0u32); columns as usize];
    for point in history {
        let back = newest - (point.second / step).min(newest);
        if point.second <= last.second && back < columns {
            let (sum, count) = &mut sums[(columns - 1 - back) as usize];
            *sum += point.connections_mean;
            *count += 1;
        }
    }
    let means: Vec<f64> =
        sums.into_iter().map(|(sum, count)| if count == 0 { 0.0 } else { sum / f64::from(count) }).collect();
    (means, seconds)
}

fn draw_rtt(frame: &mut Frame<'_>, area: Rect, view: &View, styles: Styles) {
    if area.height < 3 {
        return;
    }
    let counts = view.rtt.counts();
    let all: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let title = format!("handshake RTT, all {}", count(all));
    let most = counts.iter().copied().max().unwrap_or(0);
    let [above, axis] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let share_of_most = if all == 0 { String::new() } else { format!("{:.0} %", most as f64 / all as f64 * 100.0) };
    let plot = framed(frame, above, &title, &share_of_most, styles);
    let (Some(first), Some(last)) = (counts.iter().position(|&n| n > 0), counts.iter().rposition(|&n| n > 0)) else {
        return;
    };
    // At least a decade, so that a single RTT is a narrow peak.
    let (from, to) = (first.saturating_sub(2).min(RttBuckets::COUNT - 12), (last + 3).min(RttBuckets::COUNT));
    let to = to.max((from + 12).min(RttBuckets::COUNT));
    let width = usize::from(plot.width);
    let merged = (to - from).div_ceil(width.max(1)).max(1);
    let shown: Vec<u64> = counts[from..to].chunks(merged).map(|chunk| chunk.iter().sum()).collect();
    let most = shown.iter().copied().max().unwrap_or(1).max(1);
    let cells = (width / shown.len().max(1)).clamp(1, 6);
    let gap = usize::from(cells > 2);
    let heights = shown.iter().flat_map(|&count| {
        let height = count as f64 / most as f64;
        (0..cells).map(move |cell| if cell + gap < cells { height } else { 0.0 })
    });
    bars(frame.buffer_mut(), plot, heights, styles.distribution(), styles.0.unicode);
    let mut free_from = plot.x;
    for step in from..to {
        // 1, 2, 5, 10: steps 0, 3 and 7 of a decade.
        let is_marked = if merged == 1 && cells > 1 { matches!(step % 10, 0 | 3 | 7) } else { step % 10 == 0 };
        let x = plot.x + ((step - from) / merged * cells) as u16;
        let label = round_label(step);
        if is_marked && x >= free_from && x + (label.len() as u16) <= axis.right() {
            frame.buffer_mut().set_string(x, axis.y, &label, styles.dim());
            free_from = x + label.len() as u16 + 1;
        }
    }
}

/// Label of a marked bucket's lower bound: `1ms`, `200us`, `5s`.
fn round_label(step: usize) -> String {
    let digit = match step % 10 {
        3 => 2,
        7 => 5,
        _ => 1,
    };
    let micros = digit * 10u64.pow((step / 10) as u32);
    match micros {
        ..1_000 => format!("{micros}us"),
        1_000..1_000_000 => format!("{}ms", micros / 1_000),
        _ => format!("{}s", micros / 1_000_000),
    }
}

/// Draws the title and vertical axis, and returns the area for the bars.
fn framed(frame: &mut Frame<'_>, area: Rect, title: &str, top: &str, styles: Styles) -> Rect {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let rule = if styles.0.unicode { "─" } else { "-" };
    let rest = usize::from(head.width).saturating_sub(title.len() + AXIS_WIDTH as usize + 1);
    let line = Line::from(vec![
        Span::raw(" ".repeat(AXIS_WIDTH as usize)),
        Span::raw(title.to_owned()),
        Span::styled(format!(" {}", rule.repeat(rest)), styles.dim()),
    ]);
    frame.render_widget(line, head);
    let [axis, plot] = Layout::horizontal([Constraint::Length(AXIS_WIDTH), Constraint::Fill(1)]).areas(body);
    let numbers = Rect { width: axis.width.saturating_sub(1), ..axis };
    frame.render_widget(Line::styled(top.to_owned(), styles.dim()).right_aligned(), numbers);
    if axis.height > 1 {
        let bottom = Rect { y: axis.bottom() - 1, height: 1, ..numbers };
        frame.render_widget(Line::styled("0", styles.dim()).right_aligned(), bottom);
    }
    plot
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>, view: &View, styles: Styles) {
    let keys = if picture.position.1 > 1 { "Tab next host  q ends" } else { "q ends" };
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(keys.len() as u16 + 1)]).areas(area);
    let (text, style) = match (picture.note, view.remark.as_str()) {
        ("", "") => (view.advice.to_owned(), styles.dim()),
        ("", remark) if view.has_problem => (plain(remark), styles.warning()),
        ("", remark) => (plain(remark), styles.dim()),
        (note, _) => (plain(note), styles.warning()),
    };
    frame.render_widget(Line::styled(text, style), left);
    frame.render_widget(Line::styled(keys, styles.dim()).right_aligned(), right);
}

/// A round number in at most four characters.
fn short(value: f64) -> String {
    match value {
        v if v < 1e4 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}

fn span(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

/// Text styles by meaning.
#[derive(Clone, Copy)]
struct Styles(Capabilities);

impl Styles {
    fn plain(self) -> Style {
        Style::new()
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn headline(self) -> Style {
        self.colored(self.strong(), Color::Cyan)
    }

    fn warning(self) -> Style {
        self.colored(self.strong(), Color::Yellow)
    }

    fn graph(self) -> Style {
        self.colored(Style::new(), Color::Cyan)
    }

    fn distribution(self) -> Style {
        self.colored(Style::new(), Color::Green)
    }

    fn colored(self, style: Style, color: Color) -> Style {
        if self.0.color { style.fg(color) } else { style }
    }
}

/// Width of the vertical axis in columns: its numbers and a space.
const AXIS_WIDTH: u16 = 6;
/// Seconds that the graph shows at least, if there are as many.
const GRAPH_SECONDS_MIN: u64 = 300;

#[cfg(test)]
mod tests;
