//! A sweep against a cache, on the terminal and as a page.

#[path = "support/markup.rs"]
mod markup;

use report::{Style, cache_page, terminal};
use schema::document::{Quantiles, Run, SCHEMA};
use schema::{
    CacheFigures, CachePart, CachePoint, ClientsSupported, Document, OriginTraffic, Ratio, Validity, WrongExample,
};

fn quantiles(mean_ms: f64) -> Quantiles {
    let ns = (mean_ms * 1e6) as u64;
    Quantiles { count: 900, mean: mean_ms * 1e6, p50: ns, p99: 2 * ns, max: 3 * ns, ..Quantiles::default() }
}

fn point(rate: f64, error_ratio: f64) -> CachePoint {
    let ratio = |offered, measured| Ratio {
        offered: Some(offered),
        ideal: Some(offered - 0.002),
        ideal_lru: None,
        measured: Some(measured),
    };
    let failed = (error_ratio * 1000.0) as u64;
    CachePoint {
        run: format!("20261122-120000-cache-{rate}-abcd"),
        offered_rate_per_s: rate,
        achieved_rate_per_s: rate * (1.0 - error_ratio),
        duration_s: 54.0,
        ended_early: error_ratio > 0.5,
        figures: CacheFigures {
            requests: 1000,
            answered: 1000 - failed,
            errors: (failed > 0).then(|| ("response_timeout".to_owned(), failed)).into_iter().collect(),
            error_ratio: Some(error_ratio),
            hit_ratio: ratio(0.55, 0.55 - error_ratio / 2.0),
            byte_hit_ratio: ratio(0.54, 0.53),
            basic_requests: 980,
            offered: 540,
            repeats: 560,
            offered_while_fetching: 12,
            response_time_ns: quantiles(1400.0),
            hits_response_time_ns: quantiles(2.0),
            misses_response_time_ns: quantiles(3010.0),
            ..CacheFigures::default()
        },
        origin: Some(OriginTraffic { requests: 460, bytes: 6_000_000, saved_requests: 540, saved_bytes: 7_000_000 }),
        ..CachePoint::default()
    }
}

fn document(points: Vec<CachePoint>) -> Document {
    Document {
        schema: SCHEMA.into(),
        run: Run { id: "20261122-120000-cache-abcd".into(), command: "yamabiko cache ..".into(), ..Run::default() },
        validity: Validity::from_checks(Vec::new()),
        load: None,
        path: None,
        watch: None,
        tap: None,
        server: None,
        slo: None,
        cache: Some(CachePart {
            workload: "polymix-1".into(),
            proxy: "forward 127.0.0.1:3128".into(),
            target_hit_ratio: Some(0.55),
            points,
            clients_supported: Some(ClientsSupported {
                clients: 40,
                rate_per_client_per_s: 1.0,
                unsustained_rate_per_s: Some(50.0),
                not_counted: Vec::new(),
                rule: "fewer than 1 % failed".into(),
            }),
            notes: vec!["Nothing was filled.".into()],
        }),
    }
}

#[test]
fn cache_screen_has_a_line_for_every_rate() {
    let document = document(vec![point(20.0, 0.0), point(40.0, 0.0), point(50.0, 0.6)]);
    let text = terminal::cache(&document, Style::PLAIN);
    let expected = [
        "40 clients supported at one request per second each; 50.0/s was not sustained.",
        "No response was wrong.",
        "response timeout 600",
        "early",
        "54.0 %",
        "of 55.0 % offered (53.9 % without collapsing of requests)",
        "20 repeats that no cache could have stored; 12 repeats sent during the first fetch",
        "forward 127.0.0.1:3128; workload polymix-1, target hit ratio 55.0 %",
        "Nothing was filled.",
    ];
    // A line may break anywhere between words.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in expected {
        assert!(flat.contains(expected), "{expected}\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");

    let page = cache_page(&document, "[cache]");
    let titles: Vec<&str> = page.figures().iter().map(|figure| figure.title()).collect();
    let expected = [
        "Responses",
        "Mean response time",
        "Hit ratio",
        "Error ratio",
        "Byte hit ratio",
        "Requests saved at the origin",
    ];
    assert_eq!(titles, expected, "the four plots of the paper first");
    let html = page.into_html();
    markup::elements(&html);
    assert!(html.contains("20261122-120000-cache-50-abcd"), "each point's own run is named");
}

#[test]
fn wrong_responses_are_shown_with_their_request() {
    let mut bad = point(20.0, 0.0);
    bad.figures.wrong = [("wrong_object".to_owned(), 7), ("false_miss".to_owned(), 3)].into();
    bad.figures.examples = vec![WrongExample {
        kind: "wrong_object".into(),
        request: "GET /y/1f/A2b7 <basic>".into(),
        sequence: 17,
        why: "A2b8 came".into(),
    }];
    let line = terminal::cache_point(&bad);
    assert!(line.contains("7 WRONG RESPONSES: wrong object 7"), "{line}");
    let document = document(vec![bad]);
    let text = terminal::cache(&document, Style::PLAIN);
    assert!(text.contains("GET /y/1f/A2b7 <basic>: A2b8 came"), "{text}");
    assert!(text.contains("3 false misses") && !text.contains("false miss at"), "{text}");
    let html = cache_page(&document, "").into_html();
    markup::elements(&html);
    assert!(html.contains("GET /y/1f/A2b7 &lt;basic&gt;"));
}

#[test]
fn phases_of_a_cache_schedule_are_separate_series() {
    let phase = |rate, phase: &str| CachePoint { phase: phase.into(), ..point(rate, 0.0) };
    let document = document(vec![phase(50.0, "top1"), phase(50.0, "top2")]);
    assert!(terminal::cache(&document, Style::PLAIN).contains("50.0/s top2"));
    let page = cache_page(&document, "");
    let svg = page.figures()[0].standalone();
    assert!(svg.contains("achieved, top1") && svg.contains("achieved, top2"), "{svg}");
    // A single rate is one visible point with a label.
    assert!(svg.contains("<title>achieved, top1 at 50.0/s: 50.0/s</title></circle>"), "{svg}");
    // Each phase has its own offered hit ratio, and every name in the legend has a line.
    for figure in [2, 4] {
        let svg = page.figures()[figure].standalone();
        assert!(svg.contains("offered, top1") && svg.contains("offered, top2"), "{svg}");
    }
}
