//! What a stream of NATS and a manager that reads it take: batches of simulated agents are published one after another,
//! then a manager reads them all.
//!
//! `cargo run --release -p manager --example stream_rate -- nats://127.0.0.1:4222/RATE DATA AGENTS BATCHES ROWS`
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use broker::{Kind, Limits, Publisher, Reader, ReaderPlan, Start, StreamAddress, Subject};
use flate2::Compression;
use flate2::read::GzEncoder;
use manager::from_stream::StreamPlan;
use manager::start::{Plan, Running};
use schema::{TapAddress, TapExchange, TapPeer, TapRow};
use sys::clock::realtime_ns;
use tap_protocol::{Batch, Gauges, Losses, log};

const UP_NS: u64 = 86_400_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, data, agents, batches, rows] = &words[..] else {
        return Err("expected: nats://HOST/STREAM DATA AGENTS BATCHES ROWS".into());
    };
    let address: StreamAddress = address.parse()?;
    let (agents, batches, rows): (u64, u64, u64) = (agents.parse()?, batches.parse()?, rows.parse()?);
    let limits =
        Limits { bytes: 10_000_000_000, age: Duration::from_secs(86_400), replicas: 1, message_bytes: 2 << 20 };
    let plan = ReaderPlan { address: address.clone(), client: "rate".into(), kind: None, consumer: None, limits };
    Reader::new(plan, Start::New)?.connect()?;

    let bodies: Vec<Arc<Vec<u8>>> = (0..batches).map(|number| Arc::new(body(number + 1, rows))).collect();
    let bytes: usize = bodies.iter().map(|body| gzip(body).len()).sum();
    println!("{:.1} bytes a row in a batch of {rows}", bytes as f64 / (batches * rows) as f64);
    let began = Instant::now();
    let threads: Vec<_> = (0..agents)
        .map(|agent| {
            let (address, bodies) = (address.clone(), bodies.clone());
            thread::spawn(move || publish(address, agent, &bodies, rows))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a publisher panicked")??;
    }
    let took_s = began.elapsed().as_secs_f64();
    let all = (agents * batches) as f64;
    println!(
        "published by {agents}: {:.0} batches/s, {:.0} rows/s, {:.1} MB/s",
        all / took_s,
        all * rows as f64 / took_s,
        bytes as f64 * agents as f64 / took_s / 1e6
    );

    let mut plan = Plan::new(PathBuf::from(data), ([127, 0, 0, 1], 0).into());
    plan.from = Some(StreamPlan { address, bytes: limits.bytes, age: limits.age, replicas: 1 });
    let began = Instant::now();
    let running = Running::start(&plan, Arc::new(|line| eprintln!("{line}")))?;
    let expected = agents * batches * rows;
    loop {
        let stored: i64 = running
            .data()
            .read(|index| index.query_row("SELECT coalesce(sum(rows), 0) FROM agents", [], |row| row.get(0)))?;
        if stored.unsigned_abs() >= expected {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let stored_s = began.elapsed().as_secs_f64();
    running.stop();
    let placed_s = began.elapsed().as_secs_f64();
    println!(
        "a manager stored {:.0} rows/s; with the day files {:.0} rows/s",
        expected as f64 / stored_s,
        expected as f64 / placed_s
    );
    Ok(())
}

fn publish(address: StreamAddress, agent: u64, bodies: &[Arc<Vec<u8>>], rows: u64) -> Result<(), String> {
    let stream = address.stream().to_owned();
    let id = format!("{agent:032x}");
    let subject = Subject { kind: Kind::Tap, name: format!("a{agent}"), id: id.clone() }.text(&stream);
    let mut publisher =
        Publisher::new(address, format!("rate {agent}"), 1_000_000).map_err(|error| error.to_string())?;
    publisher.open(&subject).map_err(|error| error.to_string())?;
    let mut after = publisher.last(&subject).map_err(|error| error.to_string())?.map_or(0, |last| last.sequence);
    for (number, body) in (1_u64..).zip(bodies) {
        // The stream's name is a part of a batch: of the same length in all.
        let body = with_stream(body, &id);
        let numbers = [number, (number - 1) * rows, number * rows].map(|number| number.to_string());
        let headers =
            [(log::SEQUENCE, &*numbers[0]), (log::ROWS_BEFORE, &*numbers[1]), (log::ROWS_AFTER, &*numbers[2])];
        let message = format!("{id}.{number}");
        after =
            publisher.publish(&subject, Some(after), &message, &headers, body).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The batch with another stream's name, in gzip: packing is a part of an agent's work.
fn with_stream(json: &[u8], id: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(json).replacen(&"0".repeat(32), id, 1);
    gzip(text.as_bytes())
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    GzEncoder::new(text, Compression::fast()).read_to_end(&mut packed).expect("memory can be read");
    packed
}

fn body(sequence: u64, rows: u64) -> Vec<u8> {
    let mut state = sequence;
    let mut draw = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let rows = (0..rows).map(|row| {
        let began = UP_NS - 5_000_000_000 + row * 1_000_000 + draw(900_000);
        let peer = TapPeer { address: TapAddress::Plain([192, 0, 2, 1 + draw(20) as u8].into()), port: 443 };
        TapRow {
            connection: Some(sequence * 1_000_000 + row),
            exchange: Some(0),
            last: true,
            pid: 1000 + draw(4) as u32,
            program: Some("shop".to_owned()),
            peer: Some(peer.clone()),
            local: Some(TapPeer { port: 32_768 + draw(28_000) as u16, ..peer }),
            opened_at_ns: began,
            setup_ns: Some(100_000 + draw(900_000)),
            sent_first_at_ns: Some(began + 1_000_000),
            sent_last_at_ns: Some(began + 1_010_000 + draw(5_000)),
            received_first_at_ns: Some(began + 3_000_000 + draw(9_000_000)),
            received_last_at_ns: Some(began + 13_000_000 + draw(90_000_000)),
            sent_bytes: 300 + draw(200),
            received_bytes: 2_000 + draw(60_000),
            calls: 3 + draw(5),
            blocked_ns: 2_000_000 + draw(9_000_000),
            closed_at_ns: Some(began + 120_000_000),
            connection_bytes: Some(70_000),
            ..TapRow::of(&TapExchange::BLANK, &|address| TapAddress::Plain(address))
        }
    });
    let batch = Batch {
        stream: "0".repeat(32),
        sequence,
        boot: "boot".into(),
        zero_own_unix_ns: realtime_ns() - UP_NS - 1_000_000_000,
        sealed_at_ns: UP_NS,
        settings: 0,
        share: 1.0,
        gauges: Gauges::default(),
        losses: Losses::default(),
        programs: Vec::new(),
        rows: rows.collect(),
    };
    serde_json::to_vec(&batch).expect("text and numbers")
}
