use std::slice::from_ref;
use std::time::{Duration, SystemTime};

use schema::document::Recorded;
use schema::{CompareDocument, CompareVerdict, RequestRecord, Verdict};
use stats::Rng;
use tempfile::TempDir;
use units::Timestamp;

use super::*;
use crate::compare::FailIf;
use crate::compare::sample::{document, invalid};

struct RunStoreFixture {
    _dir: TempDir,
    run_store: RunStore,
    stored: u64,
}

const PLAN: &str = "[load]\nurl = \"http://server/\"\nrate = \"100/s\"\nduration = \"5s\"\n[path]\nrtt = \"0ms\"\n[server]\ncommand = \"one\"";

impl RunStoreFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        RunStoreFixture { run_store: RunStore::at(dir.path()), _dir: dir, stored: 0 }
    }

    /// A stored run of that plan, one second after the previous one.
    fn keep(&mut self, plan: &str, mut document: Document, requests: &[RequestRecord]) -> PathBuf {
        self.stored += 1;
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(self.stored);
        let folder = self.run_store.create("run", at, self.stored).unwrap();
        document.run.id = folder.id().to_owned();
        folder.write_plan(plan).unwrap();
        if !requests.is_empty() {
            let mut writer = folder.requests();
            writer.push(requests).unwrap();
            writer.finish().unwrap();
            let rows = requests.len() as u64;
            document.run.recorded = Some(Recorded { requests: rows, of: rows, one_in: 1, measured_from_ns: 0 });
        }
        folder.write_summary(&document).unwrap();
        folder.path().to_owned()
    }

    fn compare(
        &self,
        a: &[PathBuf],
        b: &[PathBuf],
        more: impl FnOnce(&mut StoredRunsPlan, &mut CompareOptions),
    ) -> Result<CompareDocument, String> {
        let mut plan = StoredRunsPlan { a: a.to_vec(), b: b.to_vec(), different_plans: false };
        let mut question = CompareOptions { by: None, confidence: 0.95, fail_if: Vec::new() };
        more(&mut plan, &mut question);
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(9999);
        let order = Order { program: "/x".into(), seed: 1, command: "c".into(), started };
        super::compare(&plan, &question, &order, &self.run_store)
            .map(|done| done.document)
            .map_err(|error| error.to_string())
    }
}

/// Requests of `seconds` at 100/s after a warm-up of one second; response times are `times` of a draw from 0 to 1,
/// correlated within seconds.
fn requests(seconds: u64, seed: u64, times: impl Fn(f64) -> f64) -> Vec<RequestRecord> {
    let mut rng = Rng::new(seed, 0);
    let mut mood = 1.0;
    (0..(seconds + 1) * 100)
        .map(|sequence| {
            if sequence % 100 == 0 {
                mood = 0.98 + 0.04 * rng.uniform();
            }
            let intended = 50_000_000 + sequence * 10_000_000;
            RequestRecord {
                sequence,
                client: 0,
                connection: Some(0),
                session: None,
                url: 0,
                stream: None,
                scheduled_at: Timestamp::from_nanos(intended),
                started_at: Some(Timestamp::from_nanos(intended)),
                connected_at: None,
                secured_at: None,
                sent_at: None,
                first_byte_at: None,
                done_at: Timestamp::from_nanos(intended + (1e6 * mood * times(rng.uniform())) as u64),
                status: 200,
                bytes_received: 100,
                head_bytes: 50,
                keep_alive: true,
                bytes_sent: 10,
                attempts: 1,
                early_response: false,
                queued: false,
                failure: None,
            }
        })
        .collect()
}

/// The matching document.
fn summed(requests: &[RequestRecord], seconds: u64) -> Document {
    let times: Vec<u64> = requests[100..].iter().map(RequestRecord::response_time_ns).collect();
    let mut document = document(1.0, 100.0);
    document.load.as_mut().unwrap().response_time_ns = stats::quantiles_of(&times);
    document.run.duration_s = seconds as f64;
    document.run.warmup_s = 1.0;
    document
}

fn metric<'a>(document: &'a CompareDocument, short: &str) -> &'a schema::compare_part::ComparedMetric {
    document.compare.metrics.iter().find(|metric| metric.short == short).unwrap()
}

#[test]
fn single_runs_are_compared_by_variation_within_the_run() {
    let mut fixture = RunStoreFixture::new();
    let mut run = |seed, times: fn(f64) -> f64| {
        let rows = requests(40, seed, times);
        fixture.keep(PLAN, summed(&rows, 40), &rows)
    };
    let (first, again, slower) =
        (run(1, |draw| 1.0 + draw), run(2, |draw| 1.0 + draw), run(3, |draw| 1.1 * (1.0 + draw)));
    let same = fixture.compare(from_ref(&first), &[again], |_, _| {}).unwrap();
    assert_eq!((same.compare.method.as_str(), same.compare.by.as_str()), ("one_run", "response_time_mean_ns"));
    let mean = same.compare.headline().unwrap();
    assert_eq!(mean.verdict, CompareVerdict::NoDifferenceShown, "{mean:?}");
    // 40 seconds that vary by 1.2 % each, and 4,000 requests that vary by 19 %: a difference of about 1 % is
    // detectable.
    assert!((0.005..0.02).contains(&mean.detectable_difference.unwrap()), "{mean:?}");
    assert!(same.compare.notes[0].contains("another start"), "{:?}", same.compare.notes);
    let other = fixture.compare(&[first], &[slower], |_, _| {}).unwrap();
    for short in ["mean", "p50", "p90", "p99"] {
        let metric = metric(&other, short);
        assert_eq!(metric.verdict, CompareVerdict::More, "{metric:?}");
        let [low, high] = metric.interval.unwrap();
        assert!(low < 0.1 && 0.1 < high && high - low < 0.08, "{metric:?}");
    }
    assert_eq!(metric(&other, "errors").verdict, CompareVerdict::NoDifferenceShown);
    assert_eq!(metric(&other, "rate").verdict, CompareVerdict::NoDifferenceShown);
    assert_eq!(other.validity.verdict, Verdict::Valid, "{:?}", other.validity);
}

#[test]
fn run_under_ten_seconds_has_no_interval_and_a_reason() {
    let mut fixture = RunStoreFixture::new();
    let mut run = |seconds: u64, seed: u64, factor: f64| {
        let rows = requests(seconds, seed, |draw| factor * (1.0 + draw));
        fixture.keep(PLAN, summed(&rows, seconds), &rows)
    };
    let (ten, slower, nine) = (run(10, 1, 1.0), run(10, 2, 1.5), run(9, 3, 1.5));
    let result = fixture.compare(from_ref(&ten), from_ref(&slower), |_, _| {}).unwrap();
    let mean = result.compare.headline().unwrap();
    let [low, high] = mean.interval.unwrap();
    assert!(mean.verdict == CompareVerdict::More && low < 0.5 && 0.5 < high, "{mean:?}");
    let result = fixture.compare(from_ref(&ten), from_ref(&nine), |_, _| {}).unwrap();
    let mean = result.compare.headline().unwrap();
    assert_eq!((mean.verdict, mean.interval), (CompareVerdict::NotKnown, None));
    assert!(result.compare.notes.iter().any(|note| note.contains("took 9.0 s, and 10 are needed")), "{result:?}");
}

#[test]
fn unequal_or_repeated_sides_are_refused() {
    let mut fixture = RunStoreFixture::new();
    let rows = requests(19, 1, |draw| 1.0 + draw);
    let short = fixture.keep(PLAN, summed(&rows, 19), &rows);
    let bare = fixture.keep(PLAN, summed(&requests(20, 1, |draw| draw), 20), &[]);
    let again = fixture.keep(PLAN, summed(&rows, 19), &rows);
    let error = fixture.compare(from_ref(&short), from_ref(&short), |_, _| {}).unwrap_err();
    assert!(error.contains("is given twice"), "{error}");
    let result = fixture.compare(from_ref(&bare), from_ref(&again), |_, _| {}).unwrap();
    assert!(result.compare.notes.iter().any(|note| note.contains("no table of requests")), "{result:?}");
    let error = fixture.compare(&[short], &[again, bare], |_, _| {}).unwrap_err();
    assert!(error.starts_with("1 and 2 runs"), "{error}");
    // A refused comparison leaves nothing in the run store.
    assert_eq!(fixture.run_store.list().unwrap().len(), 4);
}

#[test]
fn several_runs_per_side_are_compared_by_their_figures() {
    let mut fixture = RunStoreFixture::new();
    let mut runs = |means: &[f64]| -> Vec<PathBuf> {
        means.iter().map(|&mean| fixture.keep(PLAN, document(mean, 100.0), &[])).collect()
    };
    let a = runs(&[1.00e6, 1.02e6, 0.98e6, 1.01e6]);
    let b = runs(&[1.21e6, 1.19e6, 1.22e6, 1.18e6]);
    let result = fixture
        .compare(&a, &b, |_, question| question.fail_if = FailIf::several("p99 > 5%, cpu > 1%").unwrap())
        .unwrap();
    assert_eq!(result.compare.method, "runs");
    let mean = result.compare.headline().unwrap();
    assert!(mean.verdict == CompareVerdict::More && (mean.difference.unwrap() - 0.197).abs() < 0.01, "{mean:?}");
    assert_eq!((result.compare.a.counted, result.compare.b.runs.len()), (4, 4));
    let failed: Vec<Option<bool>> = result.compare.fail_if.iter().map(|term| term.failed).collect();
    assert_eq!(failed, [Some(true), None]);
    // CPU time is unknown, and a term requires it.
    assert_eq!(result.validity.verdict, Verdict::Suspect);
    let by = fixture.compare(&a, &b, |_, question| question.by = Some(Metric::P99)).unwrap();
    assert_eq!(by.compare.metrics[0].short, "p99");
}

#[test]
fn invalid_run_makes_the_comparison_invalid() {
    let mut fixture = RunStoreFixture::new();
    let good: Vec<PathBuf> = (0..3).map(|_| fixture.keep(PLAN, document(1e6, 100.0), &[])).collect();
    let bad = [invalid(document(1e6, 100.0)), document(1e6, 100.0), document(1e6, 100.0)];
    let bad = bad.map(|document| fixture.keep(PLAN, document, &[]));
    let result = fixture.compare(&good, &bad, |_, _| {}).unwrap();
    assert_eq!(result.validity.verdict, Verdict::Invalid);
    assert!(
        result
            .validity
            .checks
            .iter()
            .any(|check| check.name == "runs: generator_on_time" && check.why.contains("1 of 6"))
    );
}

#[test]
fn differing_plans_are_refused_with_their_fields() {
    let mut fixture = RunStoreFixture::new();
    let mut keep =
        |plan: &str| -> Vec<PathBuf> { (0..2).map(|_| fixture.keep(plan, document(1e6, 100.0), &[])).collect() };
    let one = keep(PLAN);
    let two = keep(&PLAN.replace("\"one\"", "\"two\""));
    let faster = keep(&PLAN.replace("100/s", "200/s").replace("\"0ms\"", "\"48ms\""));
    let result = fixture.compare(&one, &two, |_, _| {}).unwrap();
    let differ = &result.compare.plans_differ;
    assert!(differ.len() == 1 && differ[0].field == "server.command" && differ[0].subject, "{differ:?}");
    let error = fixture.compare(&one, &faster, |_, _| {}).unwrap_err();
    for words in ["load.rate (\"100/s\" and \"200/s\")", "path.rtt (\"0s\" and \"48ms\")", "--different-plans"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let result = fixture.compare(&one, &faster, |plan, _| plan.different_plans = true).unwrap();
    assert_eq!(result.compare.plans_differ.len(), 2);
    assert_eq!(result.validity.verdict, Verdict::Valid);
    let mixed = [one[0].clone(), faster[0].clone()];
    let error = fixture.compare(&mixed, &two, |plan, _| plan.different_plans = true).unwrap_err();
    assert!(error.contains("are on one side"), "{error}");
}

#[test]
fn runs_of_another_machine_make_the_comparison_suspect() {
    let mut fixture = RunStoreFixture::new();
    let mut elsewhere = document(1e6, 100.0);
    elsewhere.run.host.cores = 64;
    let a: Vec<PathBuf> = (0..2).map(|_| fixture.keep(PLAN, document(1e6, 100.0), &[])).collect();
    let b: Vec<PathBuf> = (0..2).map(|_| fixture.keep(PLAN, elsewhere.clone(), &[])).collect();
    let result = fixture.compare(&a, &b, |_, _| {}).unwrap();
    assert_eq!(result.validity.verdict, Verdict::Suspect);
}

#[test]
fn runs_are_found_by_name_prefix_folder_and_last() {
    let mut fixture = RunStoreFixture::new();
    assert!(find(&fixture.run_store, "last").is_err());
    let dirs: Vec<PathBuf> = (0..4).map(|_| fixture.keep(PLAN, document(1e6, 100.0), &[])).collect();
    let canonical = |dirs: &[PathBuf]| -> Vec<PathBuf> { dirs.iter().map(|dir| dir.canonicalize().unwrap()).collect() };
    let result = |words: &str| canonical(&find(&fixture.run_store, words).unwrap());
    assert_eq!(result("last"), canonical(&dirs[3..]));
    assert_eq!(result("last~3, last~1"), canonical(&[dirs[0].clone(), dirs[2].clone()]));
    let name = dirs[1].file_name().unwrap().to_str().unwrap();
    assert_eq!(result(name), canonical(&dirs[1..2]));
    assert_eq!(result(dirs[1].to_str().unwrap()), canonical(&dirs[1..2]));
    for wrong in ["last~4", "last~x", "lastly", ",", "nonsense"] {
        assert!(find(&fixture.run_store, wrong).is_err(), "{wrong}");
    }
    // `last` is then the comparison, as in every verb, and it has no load.
    fixture.compare(&dirs[..2], &dirs[2..], |_, _| {}).unwrap();
    assert_eq!(fixture.run_store.list().unwrap().len(), 5);
    assert_eq!(result("last~1"), canonical(&dirs[3..]));
    let error = find(&fixture.run_store, "last").unwrap_err().to_string();
    let id = |dir: &PathBuf| dir.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(error.contains(&format!("the newest of these: {}, {}", id(&dirs[3]), id(&dirs[2]))), "{error}");
    let comparison = fixture.run_store.find("last").unwrap();
    let error = fixture.compare(from_ref(&comparison), from_ref(&comparison), |_, _| {}).unwrap_err();
    assert!(error.contains("only runs with load"), "{error}");
}
