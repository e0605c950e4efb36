//! Random paths with all kinds of effects.

use std::sync::Arc;
use std::time::Duration;

use path::{
    Between, Bottleneck, Change, ChangeKind, ChangedLinks, ClientPath, CoDel, DelayOverTime, DeliveryTrace, Discipline,
    EffectSpec, Factor, GilbertElliott, LinkSpec, PathSpec, Pie, Propagation, Queue, QueueLimit, RateSpec, Reorder,
    SharedSpec,
};
use proptest::prelude::*;
use units::{BitRate, Bytes, Probability};

/// Times of up to `maximum_us` microseconds.
fn time(maximum_us: u64) -> impl Strategy<Value = Duration> {
    (0..=maximum_us * 1000).prop_map(Duration::from_nanos)
}

fn chance() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..0.3, Just(1.0)].prop_map(|value| Probability::new(value).unwrap())
}

fn burst() -> impl Strategy<Value = EffectSpec> {
    (chance(), chance(), chance(), chance()).prop_map(|(to_bad, to_good, loss_good, loss_bad)| {
        EffectSpec::GilbertElliott(GilbertElliott { to_bad, to_good, loss_good, loss_bad })
    })
}

fn rate() -> impl Strategy<Value = RateSpec> {
    let constant = (200_000u64..200_000_000).prop_map(|bits| BitRate::from_bits_per_second(bits).unwrap());
    let trace = prop::collection::vec(0u64..5, 1..20).prop_map(|steps| {
        let mut now = 1;
        let times = steps.into_iter().map(|step| {
            now += step;
            now
        });
        Arc::new(DeliveryTrace::new(times.collect()).unwrap())
    });
    prop_oneof![3 => constant.prop_map(RateSpec::Constant), 1 => trace.prop_map(RateSpec::Trace)]
}

fn bottleneck() -> impl Strategy<Value = EffectSpec> {
    let limit = prop_oneof![
        (0u64..100_000).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (0u32..60).prop_map(QueueLimit::Packets),
        time(300_000).prop_map(QueueLimit::Time),
    ];
    let discipline = prop_oneof![
        2 => Just(Discipline::DropTail),
        1 => (time(5_000), time(50_000)).prop_map(|(target, interval)| {
            Discipline::CoDel(CoDel { target, interval: interval.max(Duration::from_nanos(1)) })
        }),
        1 => (time(20_000), time(20_000)).prop_map(|(target, update)| Discipline::Pie(Pie { target, update })),
    ];
    (rate(), limit, discipline).prop_map(|(rate, limit, discipline)| {
        EffectSpec::Bottleneck(Bottleneck { rate, queue: Queue { limit, discipline } })
    })
}

fn effect() -> impl Strategy<Value = EffectSpec> {
    prop_oneof![
        chance().prop_map(EffectSpec::Loss),
        burst(),
        chance().prop_map(EffectSpec::Corrupt),
        chance().prop_map(EffectSpec::Duplicate),
        bottleneck(),
        bottleneck(),
        (chance(), time(20_000)).prop_map(|(probability, by)| EffectSpec::Reorder(Reorder { probability, by })),
        time(5_000).prop_map(EffectSpec::Jitter),
        time(10_000).prop_map(EffectSpec::Delay),
    ]
}

fn effects(maximum: usize) -> impl Strategy<Value = Vec<EffectSpec>> {
    prop::collection::vec(effect(), 0..=maximum)
}

fn propagation() -> impl Strategy<Value = Propagation> {
    let series = (time(50_000), time(50_000), any::<bool>(), any::<bool>()).prop_map(|(one, other, lines, repeats)| {
        let ms = Duration::from_millis;
        let between = if lines { Between::Lines } else { Between::Steps };
        let points = vec![(ms(0), one), (ms(40), other), (ms(90), one)];
        Propagation::OverTime(Arc::new(DelayOverTime::new(points, between, repeats).unwrap()))
    });
    prop_oneof![3 => time(100_000).prop_map(Propagation::Constant), 1 => series]
}

/// A link with any effects.
pub fn link() -> impl Strategy<Value = LinkSpec> {
    (propagation(), effects(4)).prop_map(|(propagation, effects)| LinkSpec { propagation, effects })
}

/// Up to five clients with any links.
pub fn clients() -> impl Strategy<Value = Vec<ClientPath>> {
    prop::collection::vec((link(), link()).prop_map(|(up, down)| ClientPath { up, down }), 1..6)
}

fn change(shared: usize) -> impl Strategy<Value = Change> {
    let factor = (0.1f64..5.0).prop_map(|value| Factor::new(value).unwrap());
    let kind = prop_oneof![
        Just(ChangeKind::Outage),
        factor.clone().prop_map(ChangeKind::Delay),
        factor.prop_map(ChangeKind::Rate),
        chance().prop_map(ChangeKind::Loss),
    ];
    let place = (any::<bool>(), 0u32..3, 1u32..6, 0..shared.max(1)).prop_map(move |(ours, from, count, number)| {
        if ours || shared == 0 { ChangedLinks::Clients(from..from + count) } else { ChangedLinks::Shared(number) }
    });
    (time(200_000), prop::option::of(time(100_000)), place, kind).prop_map(|(at, duration, place, kind)| Change {
        at,
        duration,
        place,
        kind,
    })
}

/// Any path.
pub fn path() -> impl Strategy<Value = PathSpec> {
    let shared = (0u32..4, 1u32..6, effects(3), effects(3)).prop_map(|(from, count, up, down)| SharedSpec {
        members: from..from + count,
        up,
        down,
    });
    (clients(), prop::collection::vec(shared, 0..4)).prop_flat_map(|(clients, shared)| {
        prop::collection::vec(change(shared.len()), 0..4).prop_map(move |changes| PathSpec {
            clients: clients.clone(),
            shared: shared.clone(),
            changes,
        })
    })
}
