//! A load divided among machines, each with its own number of loops: together they make what one makes, and the sums of
//! what they stored are the figures of one.

use std::sync::Arc;
use std::time::Duration;

use load::arrivals::{Bursts, RateOverTime, SelfSimilar, Spacing, Stretch};
use load::replay::LoggedArrival;
use load::workload::{Choice, Think, When};
use load::{
    Arrivals, Ending, LoadSpec, Logged, PhaseSpan, RequestSpec, Reuse, SampleLog, Shard, SummedSamples, Tally, Target,
    Workload,
};
use proptest::prelude::*;
use units::RequestRate;

use crate::sessions::{session, step};
use crate::world::*;

/// Every loop of every machine; machine m has `loops[m]` of them.
fn shards(loops: &[u32]) -> Vec<Shard> {
    let machines = loops.len() as u32;
    let of_machine = |(machine, &count): (usize, &u32)| {
        (0..count).map(move |inner| Shard::nested(Shard::new(machine as u32, machines), Shard::new(inner, count)))
    };
    loops.iter().enumerate().flat_map(of_machine).collect()
}

/// A server whose response time depends on the time at which it received the request alone, and not on other requests:
/// it is the same for any division of the load.
fn by_time() -> impl Server {
    Site(|received: &ReceivedRequest| {
        let hash = received.at.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let service = Duration::from_nanos(hash * hash / 4_000);
        vec![(service, response(if hash.is_multiple_of(50) { 500 } else { 200 }, &[], "x"))]
    })
}

fn made_by(spec: &LoadSpec, loops: &[u32]) -> Vec<World<impl Server + use<>>> {
    shards(loops)
        .into_iter()
        .map(|shard| {
            let connections_max = shard.share(u64::from(spec.connections_max)) as u32;
            World::new(LoadSpec { shard, connections_max, ..spec.clone() }, by_time()).run()
        })
        .collect()
}

/// The rows of all loops as bytes, in the order of the numbers. Requests of sessions are numbered as they follow from
/// responses: their session has the number of its arrival.
fn rows<S: Server>(worlds: &[World<S>], are_sessions: bool) -> Vec<u8> {
    let mut rows: Vec<[u64; 4]> = worlds
        .iter()
        .flat_map(|world| &world.records)
        .map(|record| {
            let number = if are_sessions { record.session.unwrap() } else { record.sequence };
            [number, record.scheduled_at.as_nanos(), u64::from(record.client), u64::from(record.url)]
        })
        .collect();
    rows.sort_unstable();
    rows.concat().into_iter().flat_map(u64::to_le_bytes).collect()
}

fn rate(per_second: f64) -> RateOverTime {
    RateOverTime::constant(RequestRate::from_per_second(per_second).unwrap())
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let open = |spacing: Spacing| Arrivals::Open { spacing, rate: rate(200.0) };
    let bursts = Bursts::new(4.0, ms(100), ms(500)).unwrap();
    let sources = SelfSimilar::new(20, 1.4, ms(50), ms(100)).unwrap();
    // A ramp, a jump, a pause.
    let stretch = |lasts, from_per_s, to_per_s| Stretch { lasts: ms(lasts), from_per_s, to_per_s };
    let phases =
        RateOverTime::new(&[stretch(500, 0.0, 300.0), stretch(300, 50.0, 50.0), stretch(200, 0.0, 0.0)]).unwrap();
    let logged = prop::collection::vec((0u64..2_000_000, 0u32..3, 0u32..3), 1..40).prop_map(|mut arrivals| {
        arrivals.sort_unstable();
        let arrivals = arrivals
            .into_iter()
            .map(|(offset_us, client, request)| LoggedArrival { offset_ns: offset_us * 1_000, client, request })
            .collect();
        Arrivals::Logged(Arc::new(Logged { arrivals, round: Duration::from_secs(2), rounds: Some(2) }))
    });
    prop_oneof![
        Just(open(Spacing::Constant)),
        Just(open(Spacing::Poisson)),
        Just(open(Spacing::Bursts(bursts))),
        Just(open(Spacing::SelfSimilar(sources))),
        Just(Arrivals::Open { spacing: Spacing::Poisson, rate: phases.clone() }),
        Just(Arrivals::Open { spacing: Spacing::Constant, rate: phases }),
        logged,
    ]
}

fn workload(choice: Choice) -> Workload {
    let weighted = |(path, weight): (&str, f64)| RequestSpec {
        weight,
        ..RequestSpec::get(Target::parse(&format!("http://server/{path}")).unwrap())
    };
    let requests = [("a", 1.0), ("b", 5.0), ("c", 0.5)].map(weighted).to_vec();
    Workload { requests, choice, ..Workload::of([]) }
}

fn choices() -> impl Strategy<Value = Choice> {
    let think = |mean| When::After(Think::Exponential { mean: ms(mean), max: ms(10 * mean) });
    let sessions = vec![session(vec![step(0, think(5)), step(1, think(20))]), session(vec![step(2, think(5))])];
    prop_oneof![Just(Choice::InTurn), Just(Choice::Drawn), Just(Choice::Sessions(sessions))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn machines_together_make_the_rows_of_one_byte_for_byte(
        seed in any::<u64>(),
        arrivals in arrivals(),
        choice in choices(),
        clients in 1u32..20,
        loops in prop::collection::vec(1u32..4, 1..9),
        requests_max in prop::option::of(50u64..400),
    ) {
        let logged = matches!(arrivals, Arrivals::Logged(_));
        let choice = if logged { Choice::InTurn } else { choice };
        let are_sessions = matches!(choice, Choice::Sessions(_));
        let spec = LoadSpec {
            seed,
            workload: workload(choice),
            clients: if logged { clients.max(3) } else { clients },
            warmup: ms(200),
            duration: Some(Duration::from_secs(2)),
            // Requests of sessions are divided by their number, which follows from responses.
            requests_max: requests_max.filter(|_| !are_sessions),
            // A new connection for each request, so that its time does not depend on other requests.
            reuse: Reuse::Close,
            ..spec(arrivals)
        };
        let (one, many) = (made_by(&spec, &[1]), made_by(&spec, &loops));
        prop_assert!(rows(&many, are_sessions) == rows(&one, are_sessions), "{:?} loops", loops);
        let measured = |worlds: &[World<_>]| worlds.iter().map(|world| world.load.live().offered_measured).sum::<u64>();
        prop_assert_eq!(measured(&many), measured(&one));
        for world in &many {
            prop_assert_eq!(world.load.measured(), one[0].load.measured());
            // Each knows how many arrivals all must make.
            prop_assert_eq!(world.load.arrivals_measured(), one[0].load.arrivals_measured());
        }
        if !are_sessions {
            prop_assert_eq!(one[0].load.arrivals_measured(), Some(measured(&one)));
        }
        // With as many clients as machines, each client is on one machine.
        if clients >= loops.len() as u32 && !logged {
            for (shard, world) in shards(&loops).iter().zip(&many) {
                let machine = shard.index % shard.machines;
                prop_assert!(world.records.iter().all(|record| record.client % shard.machines == machine));
            }
        }
    }
}

/// What the eight stored, read back and added, is what one stores: every figure of the load's part of the document, its
/// series and Little's terms, the gauges at each sampling time.
#[test]
fn sums_of_eight_machines_are_the_figures_of_one() {
    let phases = ["first", "second"].map(|name| PhaseSpan { name: name.into(), lasts: ms(2_000), is_steady: true });
    for seed in 0..4 {
        let spec = LoadSpec {
            seed,
            workload: workload(Choice::Drawn),
            clients: 20,
            warmup: ms(500),
            duration: Some(Duration::from_secs(4)),
            reuse: Reuse::Close,
            ..spec(poisson(800.0))
        };
        let rtts = || Some((0..20).map(|client| 1_000_000 * (1 + client * 7)).collect());
        let tally = |world: &mut World<_>| {
            world.phases = phases.to_vec();
            world.tally(true, rtts(), &["a", "b", "c"])
        };
        let (mut one, mut eight) = (made_by(&spec, &[1]), made_by(&spec, &[1; 8]));
        let whole = tally(&mut one[0]);
        let mut samples = SummedSamples::default();
        let mut sum: Option<Tally> = None;
        for world in &mut eight {
            let stored = serde_json::to_string(&tally(world)).unwrap();
            let read: Tally = serde_json::from_str(&stored).unwrap();
            assert!(whole.is_of_same_load(&read));
            sum = Some(match sum {
                None => read,
                Some(mut sum) => {
                    sum.merge(read);
                    sum
                }
            });
            let (mut taken, mut log) = (Vec::new(), SampleLog::default());
            world.shard_sampler.take_samples(&mut taken);
            taken.into_iter().for_each(|sample| log.push(sample));
            samples.add(&log).unwrap();
        }
        let (from, to) = one[0].load.measured();
        let measured = (from, to.unwrap());
        let offered = eight.iter().map(|world| world.load.live().offered_measured).sum();
        let levels = samples.levels(seed, at(ms(0)), measured);
        let ending = |levels| Ending { measured_end: measured.1, offered, unfinished: 0, levels };
        let merged = sum.unwrap().finish(ending(levels));
        let mut merger = load::GaugeMerger::new(seed, at(ms(0)), measured.0, 1);
        let mut taken = Vec::new();
        one[0].shard_sampler.take_samples(&mut taken);
        merger.set_measured_end(measured.1);
        merger.add(0, &taken);
        let whole = whole.finish(ending(merger.finish()));
        assert_eq!(merged.load, whole.load);
        assert_eq!(merged.little, whole.little);
        assert_eq!(
            (merged.seconds, merged.distributions, merged.spans),
            (whole.seconds, whole.distributions, whole.spans)
        );
        // The percentiles are those of the concatenated tables, to the digits of the histogram.
        let times: Vec<u64> = eight
            .iter()
            .flat_map(|world| &world.records)
            .filter(|record| record.scheduled_at >= measured.0)
            .map(|record| record.response_time_ns())
            .collect();
        let (exact, merged) = (stats::quantiles_of(&times), merged.load.response_time_ns);
        assert!(exact.count > 3_000 && exact.p99 > 2 * exact.p50, "{exact:?}");
        assert_eq!((exact.count, exact.min, exact.max), (merged.count, merged.min, merged.max));
        let pairs = [
            (exact.p50, merged.p50),
            (exact.p75, merged.p75),
            (exact.p90, merged.p90),
            (exact.p95, merged.p95),
            (exact.p99, merged.p99),
            (exact.p99_9, merged.p99_9),
            (exact.p99_99, merged.p99_99),
        ];
        for (exact, merged) in pairs {
            assert!(merged >= exact && merged as f64 <= exact as f64 * 1.001 + 1.0, "{exact} {merged}");
        }
    }
}

/// Idle open connections are opened by the machine that makes their client's requests.
#[test]
fn idle_connections_are_of_the_clients_of_their_machine() {
    for loops in [&[1, 3, 2][..], &[2, 1], &[4]] {
        let mut opened = 0;
        let machines = loops.len() as u32;
        for shard in shards(loops) {
            let spec = LoadSpec { shard, clients: 5, duration: Some(ms(100)), ..spec(constant(100.0)) };
            let mut world = World::new(spec, answering(ms(1)));
            world.load.open_first(40, 10_000, at(ms(0)));
            world.run_until(at(ms(50)));
            let own = |&(_, client): &(_, u32)| client % machines == shard.index % machines;
            assert!(world.connects.iter().all(own), "{loops:?} {shard:?}: {:?}", world.connects);
            opened += shard.share(40);
        }
        assert_eq!(opened, 40);
    }
}
