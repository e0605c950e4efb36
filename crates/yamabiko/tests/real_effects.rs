//! Effects of the path, measured by real sockets through real devices and the kernel's UDP and TCP.
#![allow(clippy::disallowed_methods, reason = "tests of real time wait for it")]

mod support {
    #![allow(dead_code, reason = "each test uses what it needs")]
    pub mod load_monitor;
    pub mod two_ends;
    pub mod workspace;
}

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schema::DropCause;
use sys::clock::monotonic_ns;
use testbed::topology::SERVER;

use support::load_monitor::LoadMonitor;
use support::two_ends::{TwoEnds, assert_conserved, client_address};
use support::workspace::{Workspace, str_of};

const PORT: u16 = 9000;

/// Sends numbered datagrams from the client at least `gap` apart, for `duration`. Returns the time at which each was
/// sent, and at which it arrived, if it did.
fn probes(ends: &TwoEnds, gap: Duration, duration: Duration) -> Vec<(u64, Option<u64>)> {
    let (client, server) = (ends.client(PORT), ends.server(PORT));
    client.connect((SERVER, PORT)).unwrap();
    let sent_all = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut arrived = Vec::new();
            let mut buffer = [0; 100];
            // The first datagram may have a long delay or be lost in an outage. Receiving ends when the sender has
            // finished and no more datagrams arrive.
            let mut remaining_timeouts = 4;
            while remaining_timeouts > 0 {
                let sending = !sent_all.load(Ordering::SeqCst);
                match server.recv(&mut buffer) {
                    Ok(4) => arrived.push((u32::from_be_bytes(buffer[..4].try_into().unwrap()), monotonic_ns())),
                    Ok(_) => {}
                    Err(_) if sending => {}
                    Err(_) => remaining_timeouts -= 1,
                }
            }
            arrived
        });
        let end = monotonic_ns() + duration.as_nanos() as u64;
        let mut sent = Vec::new();
        while monotonic_ns() < end {
            sent.push((monotonic_ns(), None));
            client.send(&(sent.len() as u32 - 1).to_be_bytes()).unwrap();
            std::thread::sleep(gap);
        }
        sent_all.store(true, Ordering::SeqCst);
        for (number, at) in receiver.join().unwrap() {
            sent[number as usize].1.get_or_insert(at);
        }
        sent
    })
}

#[test]
fn gilbert_elliott_loss_comes_in_bursts() {
    let ends = TwoEnds::new("rtt = \"2ms\"\nloss = \"ge:2%,25%\"");
    let seen = probes(&ends, Duration::from_micros(300), Duration::from_secs(3));
    let runs: Vec<usize> =
        seen.chunk_by(|a, b| a.1.is_none() == b.1.is_none()).filter(|run| run[0].1.is_none()).map(<[_]>::len).collect();
    let lost: usize = runs.iter().sum();
    assert!(runs.len() >= 40, "{} runs among {}", runs.len(), seen.len());
    // Runs are geometric with mean 1 / 0.25; five standard deviations of their mean.
    let (mean, deviation) = (lost as f64 / runs.len() as f64, 3.5 / (runs.len() as f64).sqrt());
    assert!((mean - 4.0).abs() < 5.0 * deviation, "mean run {mean} of {}", runs.len());
    // Independent loss with the same share would have a mean run of 1.08.
    assert!(mean > 2.0, "{mean}");
    let counters = ends.end();
    assert_conserved(&counters);
    assert_eq!(counters[0].dropped(DropCause::Loss), lost as u64);
}

/// Packets leave at the times of the trace, to within a millisecond.
#[test]
fn a_rate_trace_delivers_packets_at_its_times() {
    let folder = std::env::temp_dir().join(format!("yamabiko-trace-{}", std::process::id()));
    std::fs::write(&folder, "7\n20\n60\n61\n100\n").unwrap();
    let ends = TwoEnds::new(&format!("rtt = \"10ms\"\nup = \"trace:{}\"\nqueue = \"1MB\"", folder.display()));
    std::fs::remove_file(&folder).unwrap();
    let (client, server) = (ends.client(PORT), ends.server(PORT));
    client.connect((SERVER, PORT)).unwrap();
    // IP packets of 1500 bytes: each uses one complete transmission opportunity.
    for _ in 0..100 {
        client.send(&[0; 1472]).unwrap();
    }
    let mut buffer = [0; 2000];
    let arrived: Vec<f64> = (0..100)
        .map(|_| {
            server.recv(&mut buffer).expect("all packets arrive: the queue is long enough");
            // Half of the RTT is after the bottleneck.
            (monotonic_ns() - ends.start_ns) as f64 / 1e6 - 5.0
        })
        .collect();
    // The first packet was sent at the latest opportunity of the trace for which no packet is early. All others follow
    // from it.
    let opportunity_ms = |number: usize| [7.0, 20.0, 60.0, 61.0, 100.0][number % 5] + 100.0 * (number / 5) as f64;
    let late = |first: usize| arrived.iter().enumerate().map(move |(index, at)| at - opportunity_ms(first + index));
    let first = (0..100).rev().find(|&first| late(first).all(|late| late > -0.1)).expect("one that none is early for");
    let mut late: Vec<f64> = late(first).collect();
    late.sort_by(f64::total_cmp);
    // The gaps of the trace are 1 to 40 ms: another trace would be off by tens of milliseconds in most packets.
    // `cargo xtask bench path` measures how exact the times are on a quiet machine.
    assert!(late[50] < 6.0, "median {} ms late: {late:?}", late[50]);
    assert_conserved(&ends.end());
}

/// The outage is at least as long as from the first lost packet to the last, and at most as from the last packet before
/// to the first after.
#[test]
fn an_outage_begins_and_ends_at_its_configured_times() {
    let ends = TwoEnds::new("rtt = \"10ms\"\nchanges = [{ at = \"1s\", for = \"500ms\", outage = true }]");
    let start_ns = ends.start_ns;
    let seen = probes(&ends, Duration::from_micros(300), Duration::from_secs(2));
    let lost: Vec<usize> = (0..seen.len()).filter(|&number| seen[number].1.is_none()).collect();
    let (&first, &last) = (lost.first().expect("an outage"), lost.last().unwrap());
    assert_eq!(lost.len(), last - first + 1, "one outage, without gaps");
    let ms = |number: usize| (seen[number].0 - start_ns) as f64 / 1e6;
    // A packet sent just before the outage may wait at the device until the path reads it.
    let (begins, ends_at) = (1000.0, 1500.0);
    assert!(ms(first - 1) < begins + 0.1 && ms(first) > begins - 1.0 - READ_MS, "{} {}", ms(first - 1), ms(first));
    assert!(ms(last) < ends_at + 0.1 && ms(last + 1) > ends_at - 1.0 - READ_MS, "{} {}", ms(last), ms(last + 1));
    let counters = ends.end();
    assert_conserved(&counters);
    assert_eq!(counters[0].dropped(DropCause::Outage), lost.len() as u64);
}

/// Time that a packet may wait at a device on a busy machine.
const READ_MS: f64 = 4.0;

#[test]
fn a_handover_doubles_the_measured_rtt() {
    let ends = TwoEnds::new("rtt = \"20ms\"\nchanges = [{ at = \"1s\", rtt = \"x2\" }]");
    let start_ns = ends.start_ns;
    let seen = probes(&ends, Duration::from_millis(2), Duration::from_secs(2));
    let lower_decile = |from_ms: f64, to_ms: f64| {
        let mut delays: Vec<f64> = seen
            .iter()
            .filter(|(sent, _)| (from_ms..to_ms).contains(&((sent - start_ns) as f64 / 1e6)))
            .map(|(sent, arrived)| (arrived.expect("no packet is lost") - sent) as f64 / 1e6)
            .collect();
        delays.sort_by(f64::total_cmp);
        delays[delays.len() / 10]
    };
    // One way: half of the RTT. A busy machine delays many packets, but not nine in ten by milliseconds.
    let (before, after) = (lower_decile(0.0, 990.0), lower_decile(1010.0, 2000.0));
    assert!(before >= 10.0 && after >= 20.0, "{before} {after}");
    assert!(before < 14.0 && after < 24.0, "{before} {after}");
    assert_conserved(&ends.end());
}

/// The median RTT of small packets during a bulk TCP download, after it has settled.
fn rtt_during_a_bulk_stream(queue: &str) -> f64 {
    let ends = TwoEnds::new(&format!("rtt = \"20ms\"\ndown = \"5Mbit\"\n{queue}"));
    let listener = ends.at_server(|| TcpListener::bind((SERVER, PORT))).unwrap();
    let stream = ends.at_client(|| TcpStream::connect((SERVER, PORT))).unwrap();
    let (mut from, _) = listener.accept().unwrap();
    from.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut into = stream;
    into.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (client, server) = (ends.client(PORT), ends.server(PORT));
    let stop = AtomicBool::new(false);
    let mut rtts = std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = [0; 16 << 10];
            while !stop.load(Ordering::Relaxed) {
                let _ = from.write(&block);
            }
        });
        scope.spawn(|| {
            let mut block = [0; 64 << 10];
            while !stop.load(Ordering::Relaxed) {
                let _ = into.read(&mut block);
            }
        });
        scope.spawn(|| echo(&server, &stop));
        // The stream fills the queue first; CoDel takes some hundred milliseconds to find its rate of drops.
        std::thread::sleep(Duration::from_secs(3));
        let to = SocketAddr::new(SERVER.into(), PORT);
        // A busy machine needs longer for this number; 60 per second are usual.
        let rtts: Vec<f64> = (0..600u32)
            .filter_map(|number| {
                let sent = monotonic_ns();
                client.send_to(&number.to_be_bytes(), to).unwrap();
                let mut buffer = [0; 4];
                // A dropped packet, or a late older one, is not counted.
                let rtt = match client.recv(&mut buffer) {
                    Ok(4) if buffer == number.to_be_bytes() => Some((monotonic_ns() - sent) as f64 / 1e6),
                    _ => None,
                };
                std::thread::sleep(Duration::from_millis(10));
                rtt
            })
            .take(40)
            .collect();
        stop.store(true, Ordering::Relaxed);
        rtts
    });
    assert_conserved(&ends.end());
    assert!(rtts.len() >= 20, "{rtts:?}");
    rtts.sort_by(f64::total_cmp);
    rtts[rtts.len() / 2]
}

fn echo(server: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 100];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = server.recv_from(&mut buffer)
            && from.ip() == client_address()
        {
            let _ = server.send_to(&buffer[..length], from);
        }
    }
}

/// A bulk stream fills any queue; CoDel keeps the delay near its target of 5 ms.
#[test]
fn codel_keeps_the_queueing_delay_short() {
    let monitor = LoadMonitor::start();
    let drop_tail = rtt_during_a_bulk_stream("queue = \"200ms\"");
    let codel = rtt_during_a_bulk_stream("queue = \"200ms\"\naqm = \"codel\"");
    // On a busy machine the stream may not fill the queue.
    let delays = format!("{codel} ms, with the drop-tail queue {drop_tail} ms");
    assert!(drop_tail >= 20.0 && codel >= 20.0, "never less than the configured RTT: {delays}");
    assert!(monitor.disturbed() || drop_tail > 100.0 && codel < 60.0, "an RTT of 20 ms and a short queue: {delays}");
}

/// A change given as an option: times count from the start of the program, and the document names the cause.
#[test]
fn a_change_given_on_the_command_line_takes_effect() {
    let workspace = Workspace::new();
    let report = workspace.file("net.json");
    let change = "500ms for 700ms: outage";
    let net = ["net", "--rtt", "10ms", "--change", change, "--json", str_of(&report), "--"];
    let ping = "ping -n -q -c 40 -i 0.05 -W 1 server";
    let output = workspace.run(&[&net[..], &ping.split(' ').collect::<Vec<_>>()].concat());
    assert_eq!(output.code, Some(0), "some replies arrive: {output}");
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let lost = document["path"]["drops"]["outage"].as_u64().unwrap_or_else(|| panic!("no outage: {document}"));
    // One ping per 50 ms for 700 ms, and replies in transit; a slow ping program sends fewer.
    assert!((4..=18).contains(&lost), "{lost} lost: {output}");
    let name = document["path"]["profile"].as_str().unwrap();
    assert!(name.ends_with("at 500ms for 700ms: outage"), "{name}");
}
