//! Tests of the screen at several sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use schema::WatchSecond;
use schema::document::Quantiles;
use stats::Histogram;

use super::*;

/// A capture of `seconds` seconds: connections rise to 40 within 40 s, most clients are 48 ms away.
fn view(seconds: u64) -> View {
    let mut view = View { elapsed_s: seconds as f64, ..View::default() };
    for second in 0..seconds {
        view.second_passed(&WatchSecond {
            second: 1_795_167_005 + second,
            watched_ns: 1_000_000_000,
            packets: 1234,
            bytes: 1_108_750,
            data_packets: 800,
            retransmitted_packets: 2,
            connections_opened: 110,
            connections_mean: second.min(40) as f64,
            sessions_mean: 22.0,
            requests: 110,
            responses: 109,
            in_flight_mean: 5.5,
            handshakes: 110,
            handshake_rtt_p50_ns: 48_000_000,
            handshake_rtt_p99_ns: 1_200_000_000,
            ..WatchSecond::default()
        });
    }
    let mut rtt = Histogram::new();
    for (millis, count) in [(2, 3), (10, 20), (30, 90), (48, 200), (90, 120), (200, 60), (800, 12), (2500, 1)] {
        rtt.record_n(millis * 1_000_000, count);
    }
    view.rtt = RttBuckets::of(&rtt);
    view.totals.source = "eth0".into();
    view.totals.capture_point = "server".into();
    view.totals.packets = 1234 * seconds;
    view.totals.bytes = 1_108_750 * seconds;
    view.totals.request_rate_per_s = 109.8;
    view.totals.connections.mean = 23.4;
    view.totals.handshake_rtt_ns = Quantiles { count: 506, p50: 48_000_000, p99: 800_000_000, ..rtt.quantiles() };
    view
}

const PLAIN: Capabilities = Capabilities { color: false, unicode: true };

fn shown(width: u16, height: u16, picture: &Picture<'_>, capabilities: Capabilities) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, picture, capabilities)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height)
        .map(|y| (0..width).map(|x| buffer.cell((x, y)).unwrap().symbol()).collect::<String>().trim_end().to_owned())
        .collect()
}

fn picture(view: &View) -> Picture<'_> {
    Picture { view: Some(view), position: (1, 1), note: "", waiting: "" }
}

#[test]
fn watch_screen_fits_80_by_24() {
    let view = view(60);
    let lines = shown(80, 24, &picture(&view), PLAIN);
    let page = lines.join("\n");
    for words in [
        "yamabiko watch  eth0, at the server",
        "0:01:00",
        "concurrent",
        "40.0",
        "110.0/s",
        "48.0 ms",
        "8.87 Mbit/s",
        "0.25 %",
        "concurrent connections, last 60 s",
        "handshake RTT, all 506",
        "10ms",
        "100ms",
        "q ends",
    ] {
        assert!(page.contains(words), "{words} in\n{page}");
    }
    assert!(page.contains('█'), "{page}");
    assert!(lines.last().unwrap().contains("q ends"));
}

#[test]
fn watch_screen_of_any_size_shows_main_figures() {
    let view = view(700);
    for (width, height) in [(40, 10), (40, 24), (60, 15), (80, 24), (80, 50), (120, 30), (200, 60)] {
        let page = shown(width, height, &picture(&view), PLAIN).join("\n");
        for words in ["eth0", "concurrent", "40.0", "110.0/s"] {
            assert!(page.contains(words), "{width}x{height}: {words} in\n{page}");
        }
    }
    for width in [1, 2, 5, 9, 16, 17, 35, 36, 41, 77, 78, 119, 120, 300] {
        for height in 1..40 {
            shown(width, height, &picture(&view), PLAIN);
            shown(width, height, &picture(&View::default()), Capabilities { color: true, unicode: false });
            shown(width, height, &Picture { view: None, ..picture(&view) }, PLAIN);
        }
    }
}

#[test]
fn watch_screen_respects_ascii_and_no_color() {
    let view = view(60);
    let capabilities = Capabilities { color: false, unicode: false };
    let page = shown(100, 30, &picture(&view), capabilities).join("\n");
    assert!(page.is_ascii(), "{page}");
    assert!(page.contains('#'));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &picture(&view), PLAIN)).unwrap();
    let cells = &terminal.backend().buffer().content;
    assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn watch_screen_shows_warnings_and_escapes_text() {
    let mut view = view(5);
    view.host = Some("edge\u{1b}[2J".into());
    view.totals.capture_drops = 1234;
    (view.remark, view.has_problem) = ("http://h:1 away for 4 s".into(), true);
    let lines =
        shown(80, 24, &Picture { position: (2, 3), ..picture(&view) }, Capabilities { color: true, unicode: true });
    let page = lines.join("\n");
    assert!(page.contains("edge\\u{1b}[2J: eth0 (2 of 3)"), "{page}");
    assert!(page.contains("1,234") && page.contains("away for 4 s") && page.contains("Tab next host"), "{page}");
    let lines = shown(80, 24, &Picture { note: "the disk is full", ..picture(&view) }, PLAIN);
    assert!(lines.last().unwrap().starts_with("the disk is full"), "{lines:?}");
}

#[test]
fn watch_graph_covers_five_minutes() {
    let history = |seconds: std::ops::Range<u64>| -> std::collections::VecDeque<Point> {
        seconds.map(|second| Point { second, connections_mean: second as f64 }).collect()
    };
    let (means, seconds) = columns_of(&history(100..110), 20);
    assert_eq!(seconds, 10);
    assert_eq!(&means[10..], [100., 101., 102., 103., 104., 105., 106., 107., 108., 109.]);
    assert_eq!(&means[..10], [0.0; 10]);
    // 300 s in 74 columns: five seconds each, ending at multiples of five.
    let (means, seconds) = columns_of(&history(0..600), 74);
    assert_eq!((seconds, means[73], means[72]), (300, 597.0, 592.0));
    let (moved, _) = columns_of(&history(0..601), 74);
    assert_eq!((moved[73], moved[72], moved[71]), (600.0, 597.0, 592.0));
    assert_eq!(columns_of(&history(0..0), 74), (Vec::new(), 0));
    // A jump of the clock does not create a column for each second of it.
    let (means, _) = columns_of(&[Point::default(), Point { second: u64::MAX - 1, connections_mean: 1.0 }].into(), 10);
    assert_eq!(means.len(), 10);
}
