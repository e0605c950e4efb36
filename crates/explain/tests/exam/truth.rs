//! The true limit of a simulated response, by counterfactuals: the response is simulated again without one cause.
//!
//! A delay (queue, loss, pause ..) is worth the time that is gained when it alone is absent. A cause that costs round
//! trips (handshake, window) is worth the round trips that are gained when it alone is absent, on the path as it is
//! without queues, losses, reordering and delayed ACKs: how long these made a round trip is their own gain. Distance
//! is worth what remains when every cause is absent. Nothing of this looks at packets.

use explain::{Cause, Limit};

use crate::sim::simulate;
use crate::world::{Tls, UNLIMITED, World};

/// A cause that a simulation can do without.
type Removal = (Limit, fn(&mut World));

/// Delays, each gained alone.
const DELAYS: &[Removal] = &[
    (Limit::Of(Cause::SendLag), |world| world.send_lag = 0),
    (Limit::Of(Cause::ConnectionWait), |world| world.connection_wait = 0),
    (Limit::Of(Cause::ReceiveLag), |world| world.receive_lag = 0),
    (Limit::Of(Cause::ServerPause), |world| world.pause = 0),
    (Limit::Of(Cause::CpuThrottling), |world| world.processing += without_cpu_limit(world)),
    (Limit::Of(Cause::BottleneckRate), |world| world.rate = None),
    (Limit::Of(Cause::SharedQueue), |world| world.shared_queue = 0),
    (Limit::Loss, |world| (world.loss, world.lose_last) = (0.0, false)),
    (Limit::Of(Cause::Reordering), |world| world.reordering = 0.0),
    (Limit::Of(Cause::AckDelay), |world| world.ack_delay = 0),
];

/// Causes of round trips, each gained alone on the path without added delays.
const ROUND_TRIPS: &[Removal] = &[
    (Limit::Of(Cause::TcpHandshake), |world| world.new_connection = false),
    (Limit::Of(Cause::TlsHandshake), |world| world.tls = Tls::None),
    (Limit::Of(Cause::CongestionWindow), |world| world.initial_window = None),
    (Limit::Of(Cause::ReceiveWindow), |world| world.receive_buffer = UNLIMITED),
    (Limit::Of(Cause::SendBuffer), |world| world.send_buffer = UNLIMITED),
    (Limit::Of(Cause::Http2StreamWindow), |world| world.stream_window = None),
    (Limit::Of(Cause::Http2ConnectionWindow), |world| world.connection_window = None),
];

/// Without its CPU limit the server computes as long as the work takes.
fn without_cpu_limit(world: &mut World) -> u64 {
    let limited = std::mem::replace(&mut world.cpu_percent, 100) < 100;
    if limited { crate::sim::CPU_WORK } else { 0 }
}

/// Gains of the causes of a response, nanoseconds, the largest first.
pub fn gains(world: &World) -> Vec<(Limit, u64)> {
    let time = |world: &World| simulate(world).response_time();
    let without = |world: &World, remove: fn(&mut World)| {
        let mut world = world.clone();
        remove(&mut world);
        time(&world)
    };
    let mut gains = Vec::new();
    let whole = time(world);
    for (limit, remove) in DELAYS {
        gains.push((*limit, whole.saturating_sub(without(world, *remove))));
    }
    let mut bare = world.clone();
    (bare.shared_queue, bare.loss, bare.lose_last, bare.reordering, bare.ack_delay) = (0, 0.0, false, 0.0, 0);
    let bare_time = time(&bare);
    for (limit, remove) in ROUND_TRIPS {
        // Without the new connection the TLS handshake would be absent, too. The TCP handshake's own gain is therefore
        // measured between two simulations without TLS.
        let gain = match limit {
            Limit::Of(Cause::TcpHandshake) => {
                let mut plain = bare.clone();
                plain.tls = Tls::None;
                time(&plain).saturating_sub(without(&plain, *remove))
            }
            _ => bare_time.saturating_sub(without(&bare, *remove)),
        };
        gains.push((*limit, gain));
    }
    let mut nothing = bare;
    DELAYS.iter().chain(ROUND_TRIPS).for_each(|(_, remove)| remove(&mut nothing));
    let processing = std::mem::take(&mut nothing.processing);
    gains.push((Limit::Of(Cause::ServerProcessing), processing));
    gains.push((Limit::Of(Cause::Propagation), time(&nothing)));
    gains.sort_by_key(|(_, gain)| std::cmp::Reverse(*gain));
    gains
}

/// Gains of each cause alone, nanoseconds, the largest first: a queue then counts for the window that needs its round
/// trips, and the window for the queue. Distance is what remains without any cause.
pub fn gains_alone(world: &World) -> Vec<(Limit, u64)> {
    let whole = simulate(world).response_time();
    let mut nothing = world.clone();
    let mut gains = Vec::new();
    for (limit, remove) in DELAYS.iter().chain(ROUND_TRIPS) {
        let mut without = world.clone();
        remove(&mut without);
        gains.push((*limit, whole.saturating_sub(simulate(&without).response_time())));
        remove(&mut nothing);
    }
    gains.push((Limit::Of(Cause::ServerProcessing), std::mem::take(&mut nothing.processing)));
    gains.push((Limit::Of(Cause::Propagation), simulate(&nothing).response_time()));
    gains.sort_by_key(|(_, gain)| std::cmp::Reverse(*gain));
    gains
}

/// The limits that are the largest within a tenth: any of them is right.
pub fn right_answers(gains: &[(Limit, u64)]) -> Vec<Limit> {
    let largest = gains.first().map_or(0, |(_, gain)| *gain);
    gains.iter().filter(|(_, gain)| *gain * 10 >= largest * 9).map(|(limit, _)| *limit).collect()
}
