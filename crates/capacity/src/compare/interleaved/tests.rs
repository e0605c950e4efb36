use std::time::SystemTime;

use plan::LoadPlan;
use schema::CompareVerdict;
use stats::Rng;

use super::*;
use crate::compare::sample::{document, invalid};

fn plan(command: &str) -> Plan {
    let text = format!(
        "[load]\nurl = \"http://server/\"\nrate = \"100/s\"\nduration = \"5s\"\nwarmup = \"1s\"\n[path]\nrtt = \"0ms\"\n[server]\ncommand = \"{command}\""
    );
    Plan::from_toml(&text, "x").unwrap()
}

fn live() -> InterleavedPlan {
    InterleavedPlan {
        sides: [plan("one"), plan("two")],
        what: ["one".into(), "two".into()],
        blocks: Blocks { min: 6, max: 20, half_width: 0.02 },
        keep_runs: false,
    }
}

fn question() -> CompareOptions {
    CompareOptions { by: None, confidence: 0.95, fail_if: Vec::new() }
}

/// Simulated blocks; `of` maps block, position and side to a figure.
fn blocks(count: u64, mut of: impl FnMut(u64, usize, Side) -> Document) -> Vec<Block> {
    (0..count)
        .map(|number| {
            let sides = abba::order(1, number);
            let mut runs = Vec::new();
            for (at, side) in sides.into_iter().enumerate() {
                runs.push((of(number, at, side), String::new()));
            }
            let mut block = Block { sides, runs, why_not: String::new() };
            block.why_not = if number == 0 { "the first".to_owned() } else { why_void(&block) };
            block
        })
        .collect()
}

fn closed(blocks: Vec<Block>, ended: Option<String>) -> schema::CompareDocument {
    let (plan, question, dir) = (live(), question(), tempfile::tempdir().unwrap());
    let order = Order { program: "/x".into(), seed: 1, command: "c".into(), started: SystemTime::UNIX_EPOCH };
    let run_store = RunStore::at(dir.path());
    let record = run_store.create("compare", order.started, 1).unwrap();
    let measuring = Measuring {
        plan: &plan,
        question: &question,
        order: &order,
        run_store: &run_store,
        by: Metric::Mean,
        blocks,
        ended,
    };
    let checks = measuring.checks(false);
    let done = measuring.closing(Vec::new(), checks, false).close(&question, &order, &record).unwrap();
    // The document has the same blocks as the result.
    assert_eq!(store::read_compare(&done.folder).unwrap().as_ref(), Some(&done.document));
    done.document
}

#[test]
fn interleaved_runs_show_a_slower_server() {
    let mut rng = Rng::new(3, 3);
    let mut drift = 0.0;
    let document = closed(
        blocks(9, |_, _, side| {
            drift += 0.01;
            let slower = if side == Side::B { 1.05 } else { 1.0 };
            document(1e6 * slower * (1.0 + drift) * (1.0 + 0.01 * (rng.uniform() - 0.5)), 100.0)
        }),
        None,
    );
    let compare = &document.compare;
    let mean = compare.headline().unwrap();
    assert_eq!(mean.verdict, CompareVerdict::More);
    assert!((mean.difference.unwrap() - 0.05).abs() < 0.01, "{mean:?}");
    assert_eq!((compare.a.counted, compare.b.counted, compare.blocks.len()), (16, 16, 9));
    assert!(!compare.blocks[0].counted && compare.blocks[1].counted);
    // A URL without a server has no CPU row.
    assert!(compare.metrics.iter().all(|metric| metric.short != "cpu"));
    assert_eq!(document.validity.verdict, Verdict::Valid, "{:?}", document.validity);
}

#[test]
fn block_with_an_unreliable_run_does_not_count() {
    let document = closed(
        blocks(8, |number, at, side| {
            let base = document(if side == Side::B { 1.1e6 } else { 1e6 }, 100.0);
            if number == 4 && at == 2 { invalid(document_ten_times_as_slow(&base)) } else { base }
        }),
        None,
    );
    let void = &document.compare.blocks[4];
    assert!(!void.counted && void.why.contains("generator_on_time"), "{void:?}");
    assert_eq!(document.compare.a.counted, 12);
    assert!((document.compare.headline().unwrap().difference.unwrap() - 0.1).abs() < 1e-9);
    assert_eq!(document.validity.verdict, Verdict::Valid);
    let check = document.validity.checks.iter().find(|check| check.name == "blocks_void").unwrap();
    assert!(check.value == Some(1.0) && check.why.contains("block 4"), "{check:?}");
}

fn document_ten_times_as_slow(of: &Document) -> Document {
    document(10.0 * Metric::Mean.of(of).unwrap(), 100.0)
}

#[test]
fn comparison_with_too_many_void_blocks_is_invalid() {
    let of = |number, side| match (number, side) {
        (1 | 3 | 4 | 5, Side::B) => invalid(document(1e6, 1.0)),
        _ => document(1e6, 100.0),
    };
    let document = closed(blocks(6, |number, _, side| of(number, side)), Some("4 blocks were void".into()));
    assert_eq!(document.validity.verdict, Verdict::Invalid);
    // One block gives no variation.
    assert_eq!(document.compare.headline().unwrap().verdict, CompareVerdict::NotKnown);
}

#[test]
fn paired_runs_share_a_seed() {
    // In the order of `block`.
    for number in 0..20 {
        let mut runs_of_side = [0; 2];
        let mut seeds = [Vec::new(), Vec::new()];
        for side in abba::order(9, number) {
            seeds[side.index()].push(9_u64.wrapping_add(2 * number + runs_of_side[side.index()]));
            runs_of_side[side.index()] += 1;
        }
        assert_eq!(seeds[0], seeds[1]);
    }
}

#[test]
fn comparison_duration_depends_on_blocks_and_run_length() {
    let [least, most] = live().time();
    assert_eq!(least, (Duration::from_secs(6) + RUN_OVERHEAD) * 28);
    assert_eq!(most, (Duration::from_secs(6) + RUN_OVERHEAD) * 84);
    let fixed = InterleavedPlan { blocks: Blocks { min: 4, max: 4, half_width: 0.5 }, ..live() };
    assert_eq!(fixed.time()[0], fixed.time()[1]);
}

#[test]
fn blocks_and_precision_out_of_range_are_refused() {
    assert!(live().check().is_ok());
    for (least, half_width) in [(2, 0.02), (6, 0.0), (6, 1.0), (6, f64::NAN)] {
        let wrong = InterleavedPlan { blocks: Blocks { min: least, max: 20, half_width }, ..live() };
        assert!(matches!(wrong.check(), Err(ExperimentError::Plan(_))), "{least} {half_width}");
    }
    assert!(LoadPlan::get("http://server/").duration.is_none());
}
