//! What a packet costs in the path itself: `handle_packet`, `next_due`, `poll_due` and `handle_written`, without any
//! device. Time is virtual but for the stopwatch around it all.
//!
//! 200,000 packets a second, Poisson, small ones up and full ones down, each of a random client, half an RTT of the
//! profile koshien-2001 each way: the same traffic and the same number of packets on the way for 1 client as for
//! 60,000. What differs is which link each packet belongs to. `cargo run --release -p path --example path_cost`.
#![allow(clippy::disallowed_methods, reason = "an example that measures reads the clock")]

use std::time::{Duration, Instant};

use ledger::Direction;
use path::{AddressPlan, ClientPath, Network, Override, PathSpec, Profile};
use stats::Rng;
use units::{BitRate, Probability, Timestamp};

const PACKETS_PER_SECOND: f64 = 200_000.0;
const PACKETS: u32 = 1_000_000;
const ROUNDS: usize = 7;
const CLIENTS: [u32; 4] = [1, 100, 10_000, 60_000];
const VNET: usize = 10;

fn main() {
    let rated = Override {
        down_rate: BitRate::from_bits_per_second(1_000_000_000),
        loss: Probability::new(0.001),
        variation: Some(Duration::from_micros(100)),
        ..Override::default()
    };
    let constant = Profile::constant(Duration::from_millis(48));
    let koshien = Profile::builtin("koshien-2001").expect("built in");
    let columns = |clients: u32| -> [Vec<ClientPath>; 3] {
        let spread = koshien.clients(clients);
        let mut with_effects = spread.clone();
        with_effects.iter_mut().for_each(|path| rated.apply(path));
        [constant.clients(clients), spread, with_effects]
    };
    let paths = CLIENTS.map(columns);
    // Turn and turn about, so that what the machine does meanwhile falls on all alike.
    let mut rounds = vec![[const { Vec::new() }; 3]; CLIENTS.len()];
    for _ in 0..ROUNDS {
        for (row, columns) in paths.iter().enumerate() {
            for (column, paths) in columns.iter().enumerate() {
                rounds[row][column].push(run(paths));
            }
        }
    }
    println!("ns per packet, handle and poll: median of {ROUNDS} rounds of {PACKETS} packets (fastest)");
    println!("{:>9} {:>16} {:>16} {:>24}", "clients", "24 ms for all", "koshien-2001", "+ loss, rate, variation");
    for (clients, row) in CLIENTS.iter().zip(&mut rounds) {
        let cells = row.each_mut().map(|rounds| {
            rounds.sort_by(f64::total_cmp);
            format!("{:.0} ({:.0})", rounds[ROUNDS / 2], rounds[0])
        });
        println!("{clients:>9} {:>16} {:>16} {:>24}", cells[0], cells[1], cells[2]);
    }
}

/// Nanoseconds a packet.
fn run(paths: &[ClientPath]) -> f64 {
    let clients = paths.len() as u64;
    let addresses = AddressPlan::new(paths.len() as u32).expect("at most 65,534 clients");
    let mut network = Network::new(addresses, &PathSpec::new(paths.to_vec()), 1);
    let mut rng = Rng::named(1, "cost");
    // The traffic is made beforehand, or its making would be measured too: addresses are patched into two frames.
    let traffic: Vec<(u64, u32)> = (0..PACKETS)
        .map(|_| {
            let gap = (rng.exponential() / PACKETS_PER_SECOND * 1e9) as u64;
            (gap, rng.below(clients) as u32)
        })
        .collect();
    let mut frames = [frame(62), frame(1500)];
    let mut now = Timestamp::ZERO;
    let mut written = 0u64;
    let started = Instant::now();
    for &(gap, client) in &traffic {
        now += Duration::from_nanos(gap);
        let direction = Direction::BOTH[(gap & 1) as usize];
        let frame = &mut frames[direction.index()];
        // Source going up, destination going down.
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
