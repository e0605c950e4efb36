//! The limits that are built on purpose, and the evidence of each.

use explain::{Evidence, Http2Windows, Protocol};

use crate::sim::Recording;
use crate::world::{MS, Tls, World};

/// A limit: its name, how the world differs, and how many seeds it has.
pub type Case = (&'static str, u64, fn(&mut World));

/// Every limit.
pub const CASES: &[Case] = &[
    ("distance only", 1, |_| {}),
    ("initcwnd 2", 1, |world| world.initial_window = Some(2)),
    ("initcwnd 10, paced", 1, |world| world.pacing = true),
    ("receive buffer 32 KB", 1, |world| world.receive_buffer = 32 << 10),
    ("send buffer 16 KB", 1, |world| world.send_buffer = 16 << 10),
    ("HTTP/2 stream window 64 KB", 1, |world| world.stream_window = Some(65_535)),
    ("HTTP/2 connection window 64 KB", 1, |world| world.connection_window = Some(65_535)),
    ("server thinks 100 ms", 1, |world| world.processing = 100 * MS),
    ("server pauses 2 s in mid-body", 1, |world| world.pause = 2_000 * MS),
    ("1 Mbit/s", 1, |world| world.rate = Some(1_000_000)),
    ("200 ms queue of cross traffic", 1, |world| world.shared_queue = 200 * MS),
    ("2 % loss", 10, |world| world.loss = 0.02),
    ("loss of the last packet", 1, |world| world.lose_last = true),
    ("10 % of a CPU", 1, |world| world.cpu_percent = 10),
    ("generator 500 ms late", 1, |world| world.send_lag = 500 * MS),
    ("500 ms wait for a connection", 1, |world| world.connection_wait = 500 * MS),
    ("new connection", 1, |world| world.new_connection = true),
    ("TLS full", 1, |world| (world.new_connection, world.tls) = (true, Tls::Full)),
    ("TLS resumed", 1, |world| (world.new_connection, world.tls) = (true, Tls::Resumed)),
    ("reordering", 5, |world| (world.reordering, world.reordering_delay) = (0.05, world.rtt / 2 + 20 * MS)),
    ("ACKs delayed 200 ms", 1, |world| (world.ack_delay, world.initial_window) = (200 * MS, Some(1))),
];

/// Round-trip times of the exam, milliseconds.
pub const RTTS: [u64; 3] = [10, 60, 200];
/// Sizes of the responses, bytes.
pub const SIZES: [u64; 2] = [10_000, 1_000_000];

/// Which inputs the evidence has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// All.
    All,
    /// Packets of both ends and load times.
    BothEnds,
    /// Packets of the client's end and load times.
    Client,
    /// Packets of the client's end, load times, and the configured round-trip time.
    ClientAndRtt,
    /// Packets of the server's end and load times.
    Server,
    /// Load times.
    Load,
    /// What a run of load keeps: load times, packets of both ends, and the configured path.
    Run,
}

impl Inputs {
    /// As the table of docs/concepts/explain.md names them.
    pub const fn name(self) -> &'static str {
        match self {
            Inputs::All => "all",
            Inputs::BothEnds => "packets of both ends",
            Inputs::Client => "packets of the client",
            Inputs::ClientAndRtt => "packets of the client, known RTT",
            Inputs::Server => "packets of the server",
            Inputs::Load => "load times",
            Inputs::Run => "a run of load",
        }
    }
}

/// What the instruments of a recording saw.
pub fn evidence(world: &World, recording: Recording, inputs: Inputs) -> Evidence {
    if inputs == Inputs::Run {
        return crate::runs::evidence(world, &recording);
    }
    let all = inputs == Inputs::All;
    let protocol = if world.is_http2() { Protocol::Http2 } else { Protocol::Http1 };
    let windows = Http2Windows {
        stream: 1,
        stream_window: world.stream_window.unwrap_or(1 << 30),
        connection_window: world.connection_window.unwrap_or(1 << 30),
        connection_size: None,
        updates: recording.updates,
        frames: recording.frames,
    };
    Evidence {
        load: recording.load,
        client_packets: (all || matches!(inputs, Inputs::BothEnds | Inputs::Client | Inputs::ClientAndRtt))
            .then_some(recording.client),
        server_packets: (all || matches!(inputs, Inputs::BothEnds | Inputs::Server)).then_some(recording.server),
        capture_lost_packets: false,
        path: all.then_some(recording.path),
        client_tcp: None,
        server_tcp: all.then_some(recording.samples),
        quic: None,
        http2: (all && world.is_http2()).then_some(windows),
        server_cpu: all.then_some(recording.cpu),
        protocol: all.then_some(protocol),
        request: None,
        response: None,
        configured_rtt_ns: (all || inputs == Inputs::ClientAndRtt).then_some(world.rtt),
    }
}

/// Every case at every distance and size: name, world.
pub fn worlds(noise: bool) -> Vec<(&'static str, World)> {
    let mut worlds = Vec::new();
    for (name, seeds, change) in CASES {
        for rtt in RTTS {
            for size in SIZES {
                for seed in 1..=*seeds {
                    let mut world = World::plain(rtt, size);
                    (world.seed, world.noise) = (seed, noise);
                    change(&mut world);
                    worlds.push((*name, world));
                }
            }
        }
    }
    worlds
}
