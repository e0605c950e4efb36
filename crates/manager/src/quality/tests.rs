use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rusqlite::{Connection, params};
use schema::{FineBucket, FleetRow, TapError, TapExchange, TapOutcome, TapSide};
use units::Timestamp;

use super::*;
use schema::{TapAddress, TapRow};

/// An empty index.
pub(crate) fn index() -> Connection {
    let index = Connection::open_in_memory().unwrap();
    index.execute_batch(include_str!("../schema.sql")).unwrap();
    index
}

/// Adds an agent to the index.
pub(crate) fn agent(index: &Connection, name: &str, group: &str, seen_at_ns: u64) {
    index
        .execute(
            "INSERT INTO agents (name, \"group\", settings, first_seen_at, last_seen_at) VALUES (?1, ?2, '{}', 0, ?3)",
            params![name, group, seen_at_ns as i64],
        )
        .unwrap();
}

/// An exchange of a test; other fields follow from these.
#[derive(Clone, Debug)]
pub(crate) struct TestExchange {
    pub agent: &'static str,
    pub program: &'static str,
    pub peer: u8,
    pub side: TapSide,
    pub at_s: u64,
    pub outcome: TapOutcome,
    pub response_ns: u64,
    pub share: f64,
}

pub(crate) const TEST_EXCHANGE: TestExchange = TestExchange {
    agent: "a",
    program: "curl",
    peer: 1,
    side: TapSide::Client,
    at_s: MIDNIGHT,
    outcome: TapOutcome::Succeeded,
    response_ns: 20_000_000,
    share: 1.0,
};

/// 2026-11-23 00:00 UTC.
pub(crate) const MIDNIGHT: u64 = 1_795_392_000;

impl TestExchange {
    pub(crate) fn row(&self) -> FleetRow {
        let zero_ns = (self.at_s - 1000) * 1_000_000_000;
        let end_ns = 1_000_000_000_000;
        let at = |before_end: u64| Some(Timestamp::from_nanos(end_ns - before_end));
        let whole = self.response_ns.min(900_000_000_000);
        let (sent, received) = ((at(whole), at(whole - whole / 4)), (at(whole / 4), at(0)));
        let (sent, received) = if self.side == TapSide::Client { (sent, received) } else { (received, sent) };
        let exchange = TapExchange {
            connection: Some(1),
            exchange: Some(0),
            last: true,
            program: (!self.program.is_empty()).then(|| self.program.into()),
            side: self.side,
            peer: Some(([192, 0, 2, self.peer], 80).into()),
            sent_first_at: sent.0,
            sent_last_at: sent.1,
            received_first_at: received.0,
            received_last_at: received.1,
            sent_bytes: 100,
            received_bytes: 1000 + u64::from(self.peer),
            outcome: self.outcome,
            error: (self.outcome == TapOutcome::Failed).then_some(TapError::Errno(104)),
            closed_at: at(0),
            ..TapExchange::BLANK
        };
        FleetRow {
            agent: self.agent.to_owned(),
            group: String::new(),
            stream: "0".repeat(32),
            sequence: 1,
            number: 0,
            at_unix_ns: self.at_s * 1_000_000_000,
            opened_at_unix_ns: zero_ns,
            zero_unix_ns: zero_ns,
            clock_offset_ns: Some(0),
            share: self.share,
            row: TapRow::of(&exchange, &|ip| TapAddress::Plain(ip)),
        }
    }
}

/// Folds rows as `days` does.
pub(crate) fn fold_batch(index: &mut Connection, exchanges: &[TestExchange]) {
    let rows: Vec<FleetRow> = exchanges.iter().map(TestExchange::row).collect();
    let change = index.transaction().unwrap();
    fold(&change, &rows).unwrap();
    change.commit().unwrap();
}

fn exchange() -> impl Strategy<Value = TestExchange> {
    let agent = prop_oneof![Just("a"), Just("b"), Just("c")];
    let program = prop_oneof![Just("curl"), Just("wget"), Just("")];
    let side = prop_oneof![4 => Just(TapSide::Client), 1 => Just(TapSide::Server)];
    let outcome = prop_oneof![
        6 => Just(TapOutcome::Succeeded),
        3 => Just(TapOutcome::Failed),
        1 => Just(TapOutcome::Cut),
        1 => Just(TapOutcome::Unused),
    ];
    // Three days, with some dense minutes.
    let at_s = prop_oneof![0_u64..3 * 86_400, 40_000_u64..40_300];
    let response_ns = prop_oneof![0_u64..1000, 1_000_000_u64..9_000_000_000];
    (agent, program, 1_u8..5, side, at_s, outcome, response_ns, prop_oneof![4 => Just(1.0), 1 => Just(0.25)]).prop_map(
        |(agent, program, peer, side, at_s, outcome, response_ns, share)| TestExchange {
            agent,
            program,
            peer,
            side,
            at_s: MIDNIGHT + at_s,
            outcome,
            response_ns,
            share,
        },
    )
}

/// The expected result, computed from all rows together.
#[derive(Default)]
struct ExpectedFigures {
    attempts: u64,
    failed: u64,
    estimated: f64,
    received: u64,
    connections: u64,
    tried: BTreeSet<(&'static str, u64)>,
    succeeded: BTreeSet<(&'static str, u64)>,
    times: Vec<u64>,
}

impl ExpectedFigures {
    fn add(&mut self, exchange: &TestExchange) {
        self.connections += 1;
        self.received += 1000 + u64::from(exchange.peer);
        if !exchange.outcome.is_attempt() {
            return;
        }
        let window = (exchange.agent, exchange.at_s / 10);
        self.attempts += 1;
        self.estimated += 1.0 / exchange.share;
        self.tried.insert(window);
        if exchange.outcome == TapOutcome::Succeeded {
            self.succeeded.insert(window);
            self.times.push(exchange.response_ns);
        } else {
            self.failed += 1;
        }
    }

    fn assert_equals(&mut self, figures: &Figures) {
        assert_eq!((figures.attempts, figures.failed), (self.attempts, self.failed));
        assert_eq!((figures.received_bytes, figures.connections), (self.received, self.connections));
        let estimated = figures.attempts_estimated.unwrap_or(self.attempts as f64);
        assert!((estimated - self.estimated).abs() < 1e-6, "{estimated} {}", self.estimated);
        let ratio = (self.attempts > 0).then(|| self.failed as f64 / self.attempts as f64);
        assert_eq!(figures.error_ratio, ratio);
        assert_eq!(figures.causes.values().sum::<u64>(), self.failed);
        match figures.availability {
            None => assert_eq!(self.attempts, 0),
            Some(found) => {
                assert_eq!(found.windows_tried, self.tried.len() as u64);
                assert_eq!(found.windows, self.succeeded.len() as f64 / self.tried.len() as f64);
            }
        }
        self.times.sort_unstable();
        let Some(found) = figures.response_ns else {
            assert!(self.times.is_empty());
            return;
        };
        assert_eq!((found.count, found.max), (self.times.len() as u64, *self.times.last().unwrap()));
        for (q, found) in [(0.5, found.p50), (0.9, found.p90), (0.99, found.p99), (0.999, found.p99_9)] {
            let exact = self.times[((q * self.times.len() as f64).ceil() as usize).max(1) - 1];
            assert!(found >= exact && found as f64 <= exact as f64 * (1.0 + FineBucket::WIDTH), "{q}: {found} {exact}");
        }
    }
}

const GROUPS: [(&str, &str); 3] = [("a", "north"), ("b", "north"), ("c", "")];

fn key_of(by: By, exchange: &TestExchange) -> Option<String> {
    let name = match by {
        By::None => return None,
        By::Agent => exchange.agent.to_owned(),
        By::Group => GROUPS.iter().find(|(agent, _)| *agent == exchange.agent).unwrap().1.to_owned(),
        By::Program => exchange.program.to_owned(),
        By::Peer => format!("192.0.2.{}", exchange.peer),
        By::Side => exchange.side.as_str().to_owned(),
    };
    Some(name).filter(|name| !name.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Rows in any order and in any batches give the same result, at every resolution and grouping.
    #[test]
    fn quality_queries_match_figures_of_all_rows(
        rows in prop::collection::vec(exchange(), 1..120).prop_shuffle(),
        cuts in prop::collection::vec(1_usize..40, 1..20),
        resolution in prop_oneof![Just(Resolution::Minute), Just(Resolution::Hour), Just(Resolution::Day), Just(Resolution::Month)],
        by in prop_oneof![Just(By::None), Just(By::Agent), Just(By::Group), Just(By::Program), Just(By::Peer), Just(By::Side)],
        side in prop_oneof![Just(Sides::Client), Just(Sides::Server), Just(Sides::Both)],
        only in 0_u8..6,
    ) {
        let mut index = index();
        GROUPS.iter().for_each(|(name, group)| agent(&index, name, group, 0));
        let (mut rest, mut cut) = (&rows[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(rest.len().min(*cut.next().unwrap()));
            fold_batch(&mut index, batch);
            rest = after;
        }
        // The minutes of three days exceed the maximum of a result.
        let (from_s, until_s) = match resolution {
            Resolution::Minute => (MIDNIGHT + 39_000, MIDNIGHT + 42_000),
            Resolution::Hour => (MIDNIGHT + 3600, MIDNIGHT + 3 * 86_400),
            _ => (MIDNIGHT, MIDNIGHT + 3 * 86_400),
        };
        let mut request =
            Query { from_s: Some(from_s), until_s: Some(until_s), resolution, by, side, ..Query::default() };
        match only {
            1 => request.agent = Some("b".to_owned()),
            2 => request.program = Some("curl".to_owned()),
            3 => request.peer = Some("192.0.2.2".to_owned()),
            4 => request.group = Some("north".to_owned()),
            5 => request.program = Some(String::new()),
            _ => {}
        }
        let result = query(&index, &request, u64::MAX).unwrap();
        let length = |at_s: u64| match resolution {
            Resolution::Minute => at_s / 60 * 60,
            Resolution::Hour => at_s / 3600 * 3600,
            Resolution::Day => at_s / 86_400 * 86_400,
            // The first of November.
            _ => MIDNIGHT - 22 * 86_400,
        };
        let mut expected: BTreeMap<Option<String>, (ExpectedFigures, BTreeMap<u64, ExpectedFigures>)> = BTreeMap::new();
        let matching = rows.iter().filter(|exchange| {
            (from_s..until_s).contains(&exchange.at_s)
                && side.has(exchange.side.as_str())
                && match only {
                    1 => exchange.agent == "b",
                    2 => exchange.program == "curl",
                    3 => exchange.peer == 2,
                    4 => exchange.agent != "c",
                    5 => exchange.program.is_empty(),
                    _ => true,
                }
        });
        for exchange in matching {
            let (whole, spans) = expected.entry(key_of(by, exchange)).or_default();
            whole.add(exchange);
            spans.entry(length(exchange.at_s)).or_default().add(exchange);
        }
        prop_assert_eq!(result.groups.len(), expected.len());
        prop_assert_eq!((result.groups_left_out, result.attempts_unlisted), (0, 0));
        for group in &result.groups {
            let (whole, spans) = expected.get_mut(&group.key).unwrap();
            whole.assert_equals(&group.whole);
            prop_assert_eq!(group.spans.len(), spans.len());
            for span in &group.spans {
                spans.get_mut(&span.begin_s).unwrap().assert_equals(&span.figures);
            }
        }
    }
}

/// Beyond the limits no attempt is lost: other peers count for their program, and programs beyond 50 together.
#[test]
fn series_beyond_the_limit_are_counted_as_others() {
    let mut index = index();
    let names: Vec<&'static str> = (0..70).map(|at| &*Box::leak(format!("p{at:02}").into_boxed_str())).collect();
    // 150 peers of one program, then 69 programs of 5 peers each: 495 series.
    let first = (0..150).map(|peer| TestExchange { peer, program: names[0], ..TEST_EXCHANGE });
    fold_batch(&mut index, &first.collect::<Vec<_>>());
    let more =
        names[1..].iter().flat_map(|name| (0..5).map(|peer| TestExchange { peer, program: name, ..TEST_EXCHANGE }));
    fold_batch(&mut index, &more.collect::<Vec<_>>());
    let query_of = |by| Query { from_s: Some(MIDNIGHT), until_s: Some(MIDNIGHT + 60), by, ..Query::default() };
    let run_query = |query: &Query| super::query(&index, query, MIDNIGHT + 60).unwrap();
    let count = |sql: &str| index.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM quality WHERE span_s = 60 AND whole = 0"), 200 + 50 + 1);
    assert_eq!(run_query(&query_of(By::None)).groups[0].whole.attempts, 495);
    let programs = run_query(&query_of(By::Program));
    assert_eq!(programs.groups.iter().map(|group| group.whole.attempts).sum::<u64>(), 495);
    // Ten programs had all their peers among the 200; 50 more are separate; nine are merged.
    let named = programs.groups.iter().filter(|group| !group.others);
    assert_eq!(named.clone().count(), 61);
    assert!(named.skip(1).all(|group| group.whole.attempts == 5));
    assert_eq!(programs.groups.last().map(|group| (group.others, group.whole.attempts)), Some((true, 45)));
    let peers = run_query(&query_of(By::Peer));
    assert_eq!(peers.groups.iter().map(|group| group.whole.attempts).sum::<u64>(), 495);
    let one = run_query(&Query { peer: Some("192.0.2.3".to_owned()), ..query_of(By::None) });
    assert_eq!((one.groups[0].whole.attempts, one.attempts_unlisted), (11, 295));
    let program = run_query(&Query { program: Some(names[30].to_owned()), ..query_of(By::None) });
    assert_eq!((program.groups[0].whole.attempts, program.attempts_unlisted), (5, 45));
    // Existing series continue.
    fold_batch(&mut index, &[TestExchange { peer: 0, program: names[0], ..TEST_EXCHANGE }]);
    let again = Query { peer: Some("192.0.2.0".to_owned()), program: Some(names[0].to_owned()), ..query_of(By::None) };
    assert_eq!(super::query(&index, &again, MIDNIGHT + 60).unwrap().groups[0].whole.attempts, 2);
}

/// Every client of a server is its peer: unknown clients must not fill the index.
#[test]
fn peers_of_servers_are_limited() {
    let mut index = index();
    let rows: Vec<TestExchange> =
        (0..100).map(|peer| TestExchange { peer, side: TapSide::Server, ..TEST_EXCHANGE }).collect();
    rows.chunks(30).for_each(|rows| fold_batch(&mut index, rows));
    fold_batch(&mut index, &rows);
    let request = Query {
        from_s: Some(MIDNIGHT),
        until_s: Some(MIDNIGHT + 60),
        by: By::Peer,
        side: Sides::Server,
        ..Query::default()
    };
    let result = query(&index, &request, MIDNIGHT + 60).unwrap();
    assert_eq!(result.groups.len(), 21);
    assert_eq!(result.groups.last().map(|group| (group.others, group.whole.attempts)), Some((true, 160)));
    let by_program = query(&index, &Query { by: By::Program, ..request }, MIDNIGHT + 60).unwrap();
    assert_eq!((by_program.groups.len(), by_program.groups[0].whole.attempts), (1, 200));
}

#[test]
fn a_quality_response_is_limited_and_merges_the_rest() {
    let mut index = index();
    let agents: Vec<&'static str> = (0..600).map(|at| &*Box::leak(format!("agent-{at:03}").into_boxed_str())).collect();
    // Later exchanges take longer.
    let rows = |at: usize| vec![TestExchange { agent: agents[at], ..TEST_EXCHANGE }; 1 + at / 300];
    fold_batch(&mut index, &(0..600).flat_map(rows).collect::<Vec<_>>());
    let request = Query { from_s: Some(MIDNIGHT), until_s: Some(MIDNIGHT + 60), by: By::Agent, ..Query::default() };
    let result = query(&index, &request, MIDNIGHT + 30).unwrap();
    assert_eq!((result.groups.len(), result.groups_left_out), (501, 100));
    assert_eq!(result.groups[0].key.as_deref(), Some("agent-300"));
    let last = result.groups.last().unwrap();
    assert!(last.others && last.key.is_none());
    assert_eq!((last.whole.attempts, last.whole.availability.unwrap().windows_tried), (100, 100));
    // 30 s of the minute have passed.
    assert_eq!(result.groups[0].whole.received_bytes_per_s, Some(2002.0 / 30.0));
    let long = Query {
        from_s: Some(MIDNIGHT - 86_400),
        until_s: Some(MIDNIGHT + 60),
        resolution: Resolution::Hour,
        ..request
    };
    let result = query(&index, &long, MIDNIGHT + 30).unwrap();
    assert_eq!(result.groups.len(), 501);
    let too_long = Query { from_s: Some(0), resolution: Resolution::Minute, ..long };
    assert!(matches!(query(&index, &too_long, MIDNIGHT), Err(QualityError::InvalidQuery(_))));
}

#[test]
fn automatic_resolution_fits_the_time_and_the_stored_spans() {
    let mut index = index();
    let days: Vec<TestExchange> =
        (0..60).map(|day| TestExchange { at_s: MIDNIGHT - day * 86_400, ..TEST_EXCHANGE }).collect();
    fold_batch(&mut index, &days);
    let now_s = MIDNIGHT + 600;
    let resolution = |from_s: u64| {
        let request = Query { from_s: Some(from_s), ..Query::default() };
        query(&index, &request, now_s).unwrap().resolution
    };
    assert_eq!(resolution(now_s - 3600), Resolution::Minute);
    assert_eq!(resolution(now_s - 86_400), Resolution::Hour);
    assert_eq!(resolution(now_s - 60 * 86_400), Resolution::Day);
    assert_eq!(resolution(0), Resolution::Month);
    // Before the first stored span a coarse resolution has no use.
    assert_eq!(query(&super::tests::index(), &Query::default(), now_s).unwrap().resolution, Resolution::Minute);
    // A clock set a century ahead removes nothing.
    let change = index.unchecked_transaction().unwrap();
    let year_s = 400 * 86_400;
    let long = StoredSpans { minutes_s: year_s, hours_s: year_s, days_s: Some(year_s) };
    assert!(!remove_expired_spans(&change, now_s + 100 * year_s, &long).unwrap());
    change.commit().unwrap();
    assert_eq!(index.query_row("SELECT count(*) FROM quality", [], |row| row.get::<_, i64>(0)).unwrap(), 60 * 3 * 2);
    let kept = StoredSpans { minutes_s: 86_400, hours_s: 10 * 86_400, days_s: Some(30 * 86_400) };
    let change = index.unchecked_transaction().unwrap();
    let mut rounds = 1;
    while remove_expired_spans(&change, now_s, &kept).unwrap() {
        rounds += 1;
    }
    change.commit().unwrap();
    assert!(rounds > 1, "spans are removed in limited steps");
    let count = |span: u64| {
        index.query_row("SELECT count(*) FROM quality WHERE span_s = ?1 AND whole = 1", [span as i64], |row| {
            row.get::<_, i64>(0)
        })
    };
    assert_eq!((count(60).unwrap(), count(3600).unwrap(), count(86_400).unwrap()), (1, 11, 31));
    let request =
        Query { from_s: Some(MIDNIGHT - 5 * 86_400), until_s: Some(MIDNIGHT - 5 * 86_400 + 3600), ..Query::default() };
    let result = query(&index, &request, now_s).unwrap();
    assert_eq!((result.resolution, result.groups[0].whole.attempts), (Resolution::Hour, 1));
}

#[test]
fn invalid_quality_queries_are_rejected() {
    let index = index();
    for request in [
        Query { from_s: Some(100), until_s: Some(100), ..Query::default() },
        Query { until_s: Some(u64::MAX), ..Query::default() },
        Query { from_s: Some(0), resolution: Resolution::Minute, ..Query::default() },
    ] {
        assert!(matches!(query(&index, &request, MIDNIGHT), Err(QualityError::InvalidQuery(_))), "{request:?}");
    }
    let strange: Result<Query, _> = serde_json::from_str(r#"{"by":"agent","sql":"x"}"#);
    assert!(strange.is_err());
    let set = ComparedSet::default();
    for (a, b, confidence) in [
        (set.clone(), set.clone(), 0.95),
        (set.clone(), ComparedSet { agent: Some("a".into()), ..set.clone() }, 1.0),
        (
            ComparedSet { from_s: Some(MIDNIGHT - 600), ..set.clone() },
            ComparedSet { agent: Some("a".into()), ..set.clone() },
            0.95,
        ),
    ] {
        let request = Comparison { a, b, confidence };
        assert!(matches!(compare(&index, &request, MIDNIGHT), Err(QualityError::InvalidQuery(_))), "{request:?}");
    }
}

/// Two groups in the same hour, through the index: one is slower and fails more often.
#[test]
fn two_groups_over_an_hour_are_compared() {
    let mut index = index();
    agent(&index, "a", "north", 0);
    agent(&index, "b", "south", 0);
    let mut rng = stats::Rng::new(7, 7);
    let mut rows = Vec::new();
    for at in 0..7200 {
        for (agent, slower, fails) in [("a", 1.0, 0.01), ("b", 1.5, 0.20)] {
            let outcome = if rng.uniform() < fails { TapOutcome::Failed } else { TapOutcome::Succeeded };
            let response_ns = ((1.0 + rng.exponential()) * 10e6 * slower) as u64;
            rows.push(TestExchange { agent, outcome, response_ns, at_s: MIDNIGHT + at / 2, ..TEST_EXCHANGE });
        }
    }
    fold_batch(&mut index, &rows);
    let set = |group: &str| ComparedSet { group: Some(group.to_owned()), ..ComparedSet::default() };
    let request = Comparison { a: set("north"), b: set("south"), confidence: 0.95 };
    let found = compare(&index, &request, MIDNIGHT + 3600).unwrap();
    assert_eq!((found.paired, found.block_s, found.a.blocks, found.b.blocks), (true, 120, 30, 30));
    assert_eq!((found.a.figures.attempts, found.b.figures.attempts), (7200, 7200));
    let metric = |name: &str| found.metrics.iter().find(|metric| metric.name == name).unwrap();
    let [low, high] = metric("response_p50").interval.unwrap();
    assert!(low > 0.4 && high < 0.6, "{low} {high}");
    assert!(metric("error_ratio").shown == Some(true) && metric("error_ratio").said.contains("higher"), "{found:?}");
    assert_eq!(compare(&index, &request, MIDNIGHT + 3600).unwrap(), found, "the result is the same each time");
    // Two times of one agent.
    let time = |from_s: u64| ComparedSet {
        agent: Some("a".into()),
        from_s: Some(from_s),
        until_s: Some(from_s + 1800),
        ..ComparedSet::default()
    };
    let times = Comparison { a: time(MIDNIGHT), b: time(MIDNIGHT + 1800), confidence: 0.95 };
    let found = compare(&index, &times, MIDNIGHT + 3600).unwrap();
    assert!(!found.paired && found.notes[0].contains("different times"));
    assert!(found.metrics.iter().all(|metric| metric.shown != Some(true)), "{found:?}");
}

#[test]
fn sparklines_cover_the_last_hour_of_every_agent() {
    let mut index = index();
    let now_s = MIDNIGHT + 7230;
    fold_batch(
        &mut index,
        &[
            TestExchange { at_s: now_s, ..TEST_EXCHANGE },
            TestExchange { at_s: now_s - 60, outcome: TapOutcome::Failed, ..TEST_EXCHANGE },
            TestExchange { at_s: now_s - 3540, agent: "b", ..TEST_EXCHANGE },
            TestExchange { at_s: now_s - 3600, agent: "c", ..TEST_EXCHANGE },
        ],
    );
    let found = read_sparklines(&index, now_s, Sides::Client).unwrap();
    assert_eq!((found.from_s, found.agents.len()), (MIDNIGHT + 3660, 2));
    let a = &found.agents["a"];
    assert_eq!((a.attempts[59], a.failed[58], a.attempts[0], a.attempts.len()), (1, 1, 0, 60));
    assert_eq!((a.response_p99_ns[59], a.response_p50_ns[58]), (Some(20_000_000), None));
    assert_eq!(found.agents["b"].attempts[0], 1);
}
