//! Benchmark of the workload model: drawing a request, writing an identity, generating and comparing a body.
//!
//! `cargo run --release -p polymix --example workload_cost`
//!
//! An arrival is one request and those for the objects that its page embeds: 2.75 requests in PolyMix-2 to 4. Targets:
//! less than 0.5 us to draw a request, and comparison at memory bandwidth, above 5 GB/s.
#![allow(clippy::disallowed_methods, reason = "an example that measures reads the clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polymix::{CacheWorkload, Checker, DrawnRequest, Object, RequestId, ResponseIdentity, Stream, Variant, World};

const ROUNDS: usize = 5;

fn main() {
    for name in CacheWorkload::NAMES {
        let world = world(name);
        report(name, 1_000_000, "arrival", || requests(&world, 1_000_000));
    }
    let world = world("modern");
    report("version of an object", 1_000_000, "version", || {
        (0..1_000_000).map(|number| u64::from(world.version(Object { kind: 1, number }, 1_700_000_000).number)).sum()
    });
    report("identity written and read", 1_000_000, "identity", || (0..1_000_000).map(identity).sum());
    for (what, kind, variant) in
        [("image", 3, Variant::Plain), ("script", 1, Variant::Plain), ("script in gzip", 1, Variant::Gzip)]
    {
        report(&format!("body made: {what}"), 100_000, "body", || {
            (0..100_000).map(|number| world.body(Object { kind, number }, version(), variant).length()).sum()
        });
        compare(&world, what, kind, variant);
    }
}

fn world(name: &str) -> Arc<World> {
    Arc::new(World::new(Arc::new(CacheWorkload::named(name).expect("a known workload")), 7, 1))
}

fn version() -> polymix::Version {
    polymix::Version { number: 3, ..polymix::Version::default() }
}

fn requests(world: &World, count: u64) -> u64 {
    let mut stream = Stream::new(world);
    let mut sum = 0;
    for number in 0..count {
        let request = stream.next(Duration::from_micros(number));
        sum += request.object.number + stream.embedded(&request).len() as u64;
    }
    sum
}

fn identity(number: u64) -> u64 {
    let request_id = Some(RequestId { run: 7, sequence: number });
    let object = Object { kind: 1, number };
    let generated_unix_ms = 1_700_000_000_000;
    let identity = ResponseIdentity {
        world: 1,
        object,
        version: 3,
        variant: Variant::Plain,
        request_id,
        renewed: false,
        generated_unix_ms,
    };
    let mut bytes = Vec::with_capacity(96);
    identity.write(&mut bytes);
    ResponseIdentity::read(black_box(&bytes)).expect("it reads back").object.number
}

/// Checks responses of one kind, in reads of 16 KiB.
fn compare(world: &Arc<World>, what: &str, kind: u8, variant: Variant) {
    let replies: Vec<(Vec<u8>, Vec<u8>)> = (0..500)
        .map(|number| {
            let object = Object { kind, number };
            let body = world.body(object, version(), variant);
            let mut bytes = Vec::new();
            while !body.piece(bytes.len() as u64).is_empty() {
                bytes.extend_from_slice(body.piece(bytes.len() as u64));
            }
            let identity = ResponseIdentity {
                world: 1,
                object,
                version: 3,
                variant,
                request_id: None,
                renewed: false,
                generated_unix_ms: 0,
            };
            let mut head = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nServer: x\r\nX-Yamabiko: ".to_vec();
            identity.write(&mut head);
            if variant == Variant::Gzip {
                head.extend_from_slice(b"\r\nContent-Encoding: gzip");
            }
            head.extend_from_slice(b"\r\n\r\n");
            (head, bytes)
        })
        .collect();
    let request: DrawnRequest = Stream::new(world).next(Duration::ZERO);
    let bytes: usize = replies.iter().map(|(_, body)| body.len()).sum();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            for (head, body) in &replies {
                let mut checker = Checker::new(Arc::clone(world), request, RequestId::default(), 0);
                checker.head(head);
                body.chunks(16 << 10).for_each(|piece| _ = checker.body(piece));
                assert_eq!(black_box(checker.end()).content, polymix::Content::Right);
            }
            began.elapsed()
        })
        .collect();
    times.sort();
    let seconds = times[ROUNDS / 2].as_secs_f64();
    println!(
        "{:<32} {:>8.2} GB/s, {:.2} us per reply of {} bytes",
        format!("{what}, compared"),
        bytes as f64 / seconds / 1e9,
        seconds * 1e6 / replies.len() as f64,
        bytes / replies.len()
    );
}

fn report(what: &str, count: u64, unit: &str, run: impl Fn() -> u64) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            black_box(run());
            began.elapsed()
        })
        .collect();
    times.sort();
    println!("{what:<32} {:>8.0} ns per {unit}", times[ROUNDS / 2].as_nanos() as f64 / count as f64);
}
