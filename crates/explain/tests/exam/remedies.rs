//! Predictions against simulations in which the remedy was applied.

use explain::{Remedy, what_if};

use crate::cases::{Inputs, RTTS, SIZES, evidence};
use crate::sim::simulate;
use crate::world::{MS, Tls, World};

/// A limit, its remedy, and the world with the remedy.
type Trial = (&'static str, fn(&mut World), Remedy, fn(&mut World));

const MB: u64 = 1 << 20;

const TRIALS: &[Trial] = &[
    ("initcwnd 2 to 10", |w| w.initial_window = Some(2), Remedy::InitialWindow(10), |w| w.initial_window = Some(10)),
    ("initcwnd 10 to 32", |_| {}, Remedy::InitialWindow(32), |w| w.initial_window = Some(32)),
    (
        "receive buffer 32 KB to 1 MB",
        |w| w.receive_buffer = 32 << 10,
        Remedy::ReceiveWindow(MB),
        |w| w.receive_buffer = MB,
    ),
    ("send buffer 16 KB to 1 MB", |w| w.send_buffer = 16 << 10, Remedy::SendBuffer(MB), |w| w.send_buffer = MB),
    (
        "stream window 64 KB to 1 MB",
        |w| w.stream_window = Some(65_535),
        Remedy::StreamWindow(MB),
        |w| {
            w.stream_window = Some(MB);
        },
    ),
    ("new to open connection", |w| w.new_connection = true, Remedy::KeepAlive, |w| w.new_connection = false),
    (
        "TLS full to resumed",
        |w| (w.new_connection, w.tls) = (true, Tls::Full),
        Remedy::TlsResumption,
        |w| w.tls = Tls::Resumed,
    ),
    ("round trip of 30 ms on a new connection", |w| w.new_connection = true, Remedy::Rtt(30 * MS), |w| w.rtt = 30 * MS),
    (
        "initcwnd 2 to 10 at 5 Mbit/s",
        |w| (w.initial_window, w.rate) = (Some(2), Some(5_000_000)),
        Remedy::InitialWindow(10),
        |w| w.initial_window = Some(10),
    ),
];

/// Predicted within a tenth and two milliseconds of what the simulation with the remedy takes.
#[test]
fn remedies_gain_what_was_predicted() {
    let mut wrong = Vec::new();
    let mut total = 0;
    for (name, limit, remedy, apply) in TRIALS {
        for rtt in RTTS {
            for size in SIZES {
                for noise in [false, true] {
                    let mut world = World::plain(rtt, size);
                    world.noise = noise;
                    limit(&mut world);
                    let explanation = explain::explain(&evidence(&world, simulate(&world), Inputs::All));
                    let predicted = what_if(&explanation, *remedy).expect("packets were seen").response_time_ns;
                    apply(&mut world);
                    let truth = simulate(&world).response_time();
                    total += 1;
                    if predicted.abs_diff(truth) > truth / 10 + 2 * MS {
                        let measured = explanation.response_time_ns();
                        wrong.push((*name, rtt, size, noise, measured / MS, predicted / MS, truth / MS));
                    }
                }
            }
        }
    }
    println!("{} of {total} predictions are off: {wrong:#?}", wrong.len());
    assert!(wrong.len() * 20 <= total, "{wrong:#?}");
}
