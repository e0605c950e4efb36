//! Cost of one packet in the path alone: `handle_packet`, `next_due`, `poll_due` and `handle_written`, without a
//! device. Time is virtual, except for the stopwatch around the whole.
//!
//! The traffic is 200,000 packets/s, Poisson, small ones up and full ones down, each of a random client. A single
//! client has the mean RTT of all others, so that the same number of packets is in transit for 1 client as for 60,000;
//! rates are high enough for one client to carry all traffic. Columns differ in which link each packet belongs to. Run
//! it with `cargo run --release -p path --example path_cost` or `cargo xtask bench path`.
#![allow(clippy::disallowed_methods, reason = "an example that measures reads the clock")]

use std::time::{Duration, Instant};

use path::{
    AddressPlan, Bottleneck, ClientPath, CoDel, Discipline, EffectSpec, Network, PathSpec, Profile, Queue, RateSpec,
};
use schema::Direction;
use stats::Rng;
use units::{BitRate, Probability, Timestamp};

const PACKETS_PER_SECOND: f64 = 200_000.0;
/// Measured packets of one round, after the same number of packets that fill the path and its memory.
const PACKETS: u32 = 300_000;
const ROUNDS: usize = 21;
const CLIENTS: [u32; 4] = [1, 100, 10_000, 60_000];
const COLUMNS: [&str; 4] = ["24 ms for all", "koshien-2001", "+ loss, rate, jitter", "+ loss, rate with CoDel"];
const VNET: usize = 10;

fn main() {
    let paths = CLIENTS.map(columns);
    // Columns take turns within each round, so that background load on the machine affects all columns alike.
    let mut rounds = vec![[const { Vec::new() }; COLUMNS.len()]; CLIENTS.len()];
    for _ in 0..ROUNDS {
        for column in 0..COLUMNS.len() {
            for (row, paths) in paths.iter().enumerate() {
                rounds[row][column].push(run(&paths[column]));
            }
        }
    }
    rounds.iter_mut().flatten().for_each(|rounds| rounds.sort_by(f64::total_cmp));
    println!(
        "ns a packet, handle and poll: median of {ROUNDS} rounds of {PACKETS} packets, (fastest), ratio to 1 client"
    );
    print!("{:>9}", "clients");
    COLUMNS.iter().for_each(|column| print!(" {column:>26}"));
    println!();
    for (clients, row) in CLIENTS.iter().zip(&rounds) {
        print!("{clients:>9}");
        for (rounds, one) in row.iter().zip(&rounds[0]) {
            // The fastest round is the undisturbed cost; the median shows what disturbance added.
            let cell = format!(
                "{:.0} ({:.0}) {:.2} ({:.2})",
                median(rounds),
                rounds[0],
                median(rounds) / median(one),
                rounds[0] / one[0]
            );
            print!(" {cell:>26}");
        }
        println!();
    }
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn columns(clients: u32) -> [Vec<ClientPath>; COLUMNS.len()] {
    let constant = Profile::constant(Duration::from_millis(48)).clients(clients);
    let mut koshien = Profile::builtin("koshien-2001").expect("built in").clients(clients);
    if clients == 1 {
        let all = Profile::builtin("koshien-2001").expect("built in").clients(CLIENTS[CLIENTS.len() - 1]);
        koshien = vec![ClientPath::constant(all.iter().map(ClientPath::rtt).sum::<Duration>() / all.len() as u32)];
    }
    let rate = |discipline| {
        let rate = RateSpec::Constant(BitRate::from_bits_per_second(10_000_000_000).expect("a rate"));
        EffectSpec::Bottleneck(Bottleneck { rate, queue: Queue { discipline, ..Queue::default() } })
    };
    let loss = || EffectSpec::Loss(Probability::new(0.001).expect("a probability"));
    let with = |common: &dyn Fn() -> Vec<EffectSpec>, discipline: Discipline| {
        let mut paths = koshien.clone();
        for path in &mut paths {
            common().into_iter().for_each(|effect| path.up.put(effect));
            common().into_iter().for_each(|effect| path.down.put(effect));
            path.down.put(rate(discipline));
        }
        paths
    };
    let varied = with(&|| vec![loss(), EffectSpec::Jitter(Duration::from_micros(100))], Discipline::DropTail);
    let managed = with(&|| vec![loss()], Discipline::CoDel(CoDel::default()));
    [constant, koshien.clone(), varied, managed]
}

/// Nanoseconds per packet.
fn run(paths: &[ClientPath]) -> f64 {
    let clients = paths.len() as u64;
    let addresses = AddressPlan::new(paths.len() as u32).expect("at most 65,534 clients");
    let mut network = Network::new(addresses, &PathSpec::new(paths.to_vec()), 1);
    let mut rng = Rng::named(1, "cost");
    // Traffic is generated before the stopwatch starts: addresses are patched into two prepared frames.
    let traffic: Vec<(u64, u32)> = (0..2 * PACKETS)
        .map(|_| {
            let gap = (rng.exponential() / PACKETS_PER_SECOND * 1e9) as u64;
            (gap, rng.below(clients) as u32)
        })
        .collect();
    let mut frames = [frame(62), frame(1500)];
    let mut now = Timestamp::ZERO;
    let mut written = 0u64;
    let mut started = Instant::now();
    for (number, &(gap, client)) in traffic.iter().enumerate() {
        if number == PACKETS as usize {
            started = Instant::now();
        }
        now += Duration::from_nanos(gap);
        let direction = Direction::BOTH[(gap & 1) as usize];
        let frame = &mut frames[direction.index()];
        // The client is the source of a packet going up and the destination of a packet going down.
        let at = VNET + 12 + 4 * direction.index();
        frame[at..at + 4].copy_from_slice(&addresses.address(client).octets());
        network.handle_packet(now, direction, frame);
        while network.next_due().is_some_and(|due| due <= now) {
            let Some(departure) = network.poll_due(now) else { break };
            written += departure.frame.len() as u64;
            network.handle_written(now);
        }
    }
    let elapsed = started.elapsed();
    assert!(written > 0, "nothing was written");
    elapsed.as_secs_f64() * 1e9 / f64::from(PACKETS)
}

fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; VNET + length];
    frame[VNET] = 0x45;
    frame[VNET + 2..VNET + 4].copy_from_slice(&(length as u16).to_be_bytes());
    frame
}
