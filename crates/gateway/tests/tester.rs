//! Both ends of the gateway's tester on loopback. Counts must be exact even on a busy machine.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gateway::tester::{Secret, ServerEvent, ServerSpec, Session, Test, TesterError, serve};
use sys::signal::Wake;

const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A server in its own thread, which ends with the test.
struct Server {
    at: SocketAddr,
    events: Receiver<ServerEvent>,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(secret: &Secret, listen: &str) -> Server {
        let (event_sender, events) = channel();
        let stop = Arc::new(Wake::new().unwrap());
        let stopped = Arc::clone(&stop);
        let spec = ServerSpec { listen: listen.parse().unwrap(), secret: secret.clone(), sessions: None, lasts: None };
        let thread = std::thread::spawn(move || {
            // The test may end before the server reports the end of its session.
            serve(&spec, stopped.as_fd(), &mut |what| drop(event_sender.send(what))).unwrap();
        });
        let ServerEvent::Listening { at } = events.recv_timeout(EVENT_TIMEOUT).unwrap() else {
            panic!("not listening")
        };
        Server { at, events, stop, thread: Some(thread) }
    }

    /// Waits for the end of a session and returns how it ended.
    fn ended(&self) -> String {
        loop {
            if let ServerEvent::Ended { how, .. } = self.events.recv_timeout(EVENT_TIMEOUT).unwrap() {
                return how;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.wake();
        let outcome = self.thread.take().unwrap().join();
        assert!(outcome.is_ok() || std::thread::panicking());
    }
}

fn packets(up: bool, ip_bytes: u16, per_second: f64) -> Test {
    Test::Packets { up, ip_bytes, per_second, lasts_ms: 300, settle_ms: 5000, probes: true }
}

#[test]
fn trial_counts_all_packets_and_probe_responses() {
    let (secret, _) = Secret::fresh();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::start(&secret, listen);
        let mut session = Session::open(server.at, &secret, None).unwrap();
        assert!(session.server().cores > 0 && session.server().version == env!("CARGO_PKG_VERSION"));
        for (up, ip_bytes) in [(true, 80), (false, 80), (true, 1500), (false, 1500)] {
            let seen = session.run(&packets(up, ip_bytes, 2000.0)).unwrap();
            let sent = seen.sender().sent.as_ref().unwrap();
            let arrivals = seen.receiver().arrivals.unwrap();
            assert_eq!((sent.planned, sent.sent, sent.lag_ns.count), (600, 600, 600), "{seen:?}");
            // Loopback drops packets only if a buffer is full.
            assert_eq!(arrivals.lost, seen.receiver().overflowed, "{seen:?}");
            assert_eq!(arrivals.received + arrivals.lost, 600);
            assert_eq!(seen.receiver().bytes, arrivals.received * u64::from(ip_bytes));
            assert!(seen.sender().arrivals.is_none() && seen.receiver().sent.is_none());
            // No packet is sent early: the scheduled time of the last is 299.5 ms after the first.
            assert!(sent.to_ns - sent.from_ns > 290_000_000 && sent.per_second() < 2070.0, "{sent:?}");
            let rtt = seen.rtt.as_ref().unwrap();
            assert_eq!(rtt.sent, 15);
            assert!(rtt.received > 0 && rtt.ns.count == rtt.received && rtt.ns.min > 0, "{rtt:?}");
            assert!(seen.client.cpu_s > 0.0 && seen.server.cpu_s > 0.0 && seen.client.busiest > 0.0);
        }
        if server.at.is_ipv6() {
            assert!(matches!(session.run(&packets(true, 71, 1.0)), Err(TesterError::Refused(_))));
            assert!(session.run(&packets(true, 72, 100.0)).is_ok(), "a refusal does not end the session");
        } else {
            assert!(matches!(session.run(&packets(true, 51, 1.0)), Err(TesterError::Refused(_))));
            assert!(session.run(&packets(true, 52, 100.0)).is_ok(), "a refusal does not end the session");
        }
        drop(session);
        assert_eq!(server.ended(), "closed by the client");
    }
}

#[test]
fn stream_trial_measures_throughput_and_receiver_buffers() {
    let server = Server::start(&Secret::none(), "127.0.0.1:0");
    let mut session = Session::open(server.at, &Secret::none(), None).unwrap();
    for (up, streams, socket_bytes, probes) in
        [(true, 1, Some(16_384), true), (false, 1, Some(16_384), false), (true, 3, None, false), (false, 3, None, true)]
    {
        let test =
            Test::Stream { up, streams, socket_bytes, message_bytes: 16_384, lasts_ms: 300, omit_ms: 100, probes };
        let seen = session.run(&test).unwrap();
        let receiver = seen.receiver();
        assert_eq!(receiver.to_ns - receiver.from_ns, 200_000_000);
        assert_eq!((receiver.stream_bytes.len(), receiver.broken), (usize::from(streams), 0), "{seen:?}");
        assert_eq!(receiver.stream_bytes.iter().sum::<u64>(), receiver.bytes);
        assert!(receiver.stream_bytes.iter().all(|bytes| *bytes > 0), "{seen:?}");
        assert_eq!((seen.sender().bytes, seen.sender().stream_bytes.len()), (0, 0));
        assert_eq!(seen.bits_per_s(), receiver.bytes as f64 * 8.0 / 0.2);
        for end in [&seen.client, &seen.server] {
            let [send, receive] = end.socket_bytes_actual.unwrap();
            assert_eq!(socket_bytes.is_some(), (send, receive) == (32_768, 32_768), "{send} {receive}");
            assert!(end.cpu_s > 0.0);
        }
        assert_eq!(seen.rtt.is_some(), probes);
    }
}

#[test]
fn trials_count_transactions_and_connections() {
    let server = Server::start(&Secret::none(), "127.0.0.1:0");
    let mut session = Session::open(server.at, &Secret::none(), None).unwrap();
    for (request, response) in [(1, 1), (200_000, 70_000)] {
        let seen = session.run(&Test::Transactions { request, response, lasts_ms: 250 }).unwrap();
        let exchanges = seen.exchanges.unwrap();
        assert!(exchanges.done > 0 && exchanges.failures() == 0, "{exchanges:?}");
        assert_eq!(exchanges.times_ns.count, exchanges.done);
        assert_eq!(exchanges.by_slice.iter().map(|&count| u64::from(count)).sum::<u64>(), exchanges.done);
        assert_eq!((exchanges.by_slice.len(), exchanges.per_second), (3, exchanges.done as f64 / 0.25));
    }
    let seen = session.run(&Test::Connections { parallel: 8, lasts_ms: 250 }).unwrap();
    let exchanges = seen.exchanges.unwrap();
    assert!(exchanges.done > 0 && exchanges.failures() == 0, "{exchanges:?}");
    assert!(seen.server.cpu_s > 0.0 && seen.server.busiest > 0.0, "CPU time of the listener thread: {:?}", seen.server);
    let seen = session.run(&Test::Probes { lasts_ms: 200 }).unwrap();
    let rtt = seen.rtt.unwrap();
    assert!(rtt.sent == 10 && rtt.received > 0, "{rtt:?}");
}

#[test]
fn interrupted_trial_ends_early() {
    let server = Server::start(&Secret::none(), "127.0.0.1:0");
    let mut session = Session::open(server.at, &Secret::none(), None).unwrap();
    for up in [true, false] {
        let long = [
            Test::Packets { up, ip_bytes: 512, per_second: 1000.0, lasts_ms: 100_000, settle_ms: 100, probes: true },
            Test::Stream {
                up,
                streams: 2,
                socket_bytes: None,
                message_bytes: 1000,
                lasts_ms: 100_000,
                omit_ms: 0,
                probes: false,
            },
        ];
        for test in long {
            let calls = AtomicU32::new(0);
            let seen = session.run_while(&test, &|| calls.fetch_add(1, Ordering::Relaxed) < 3).unwrap();
            assert!(seen.cut_short && seen.receiver().bytes > 0, "{seen:?}");
            let receiver = seen.receiver();
            assert!(receiver.to_ns - receiver.from_ns < 20_000_000_000, "{seen:?}");
        }
    }
    let seen = session.run(&packets(true, 64, 500.0)).unwrap();
    assert!(!seen.cut_short, "the session continues after an interrupted trial");
}

/// A server can be stopped even while responses arrive so fast that no read waits.
#[test]
fn stopped_server_ends_a_running_trial() {
    for test in [
        Test::Transactions { request: 1, response: 1, lasts_ms: 60_000 },
        Test::Stream {
            up: false,
            streams: 1,
            socket_bytes: None,
            message_bytes: 16_384,
            lasts_ms: 60_000,
            omit_ms: 0,
            probes: false,
        },
    ] {
        let server = Server::start(&Secret::none(), "127.0.0.1:0");
        let at = server.at;
        let (poll_sender, polls) = channel();
        let client = std::thread::spawn(move || {
            let mut session = Session::open(at, &Secret::none(), None)?;
            session.run_while(&test, &|| poll_sender.send(()).is_ok())
        });
        // Wait until the trial is in progress.
        (0..10).for_each(|_| polls.recv_timeout(EVENT_TIMEOUT).expect("the trial is in progress"));
        server.stop.wake();
        // The session must end before the trial does.
        server.ended();
        let lost = client.join().unwrap().unwrap_err();
        assert!(matches!(lost, TesterError::Lost { at, .. } if at < Duration::from_secs(45)), "{lost}");
    }
}

#[test]
fn server_serves_one_session_at_a_time() {
    let (secret, token) = Secret::fresh();
    let server = Server::start(&secret, "127.0.0.1:0");
    let first = Session::open(server.at, &Secret::new(token.as_bytes()), None).unwrap();
    let busy = Session::open(server.at, &secret, None).err().unwrap();
    assert!(matches!(&busy, TesterError::Busy { by } if by.starts_with("127.0.0.1:")), "{busy}");
    drop(first);
    assert_eq!(server.ended(), "closed by the client");
    Session::open(server.at, &secret, None).unwrap();
}

#[test]
fn closed_port_and_foreign_server_are_reported() {
    let (secret, _) = Secret::fresh();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Session::open(free, &secret, None).err().unwrap();
    assert!(matches!(error, TesterError::Unreachable { .. }), "{error}");
    // A server that sends the greeting of a mail server and waits.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap();
    let greeter = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP ready, and glad to hear from you\r\n").unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap_or(0);
        received
    });
    let error = Session::open(at, &secret, None).err().unwrap();
    assert!(matches!(error, TesterError::NotAServer { .. }), "{error}");
    assert_eq!(greeter.join().unwrap(), b"YBKGATE1\0", "the client sends no proof to another server");
    let server = Server::start(&secret, "127.0.0.1:0");
    let error = Session::open(server.at, &Secret::new(b"not that secret at all"), None).err().unwrap();
    assert!(matches!(error, TesterError::WrongSecret { .. }), "{error}");
    // Other addresses than loopback require a secret.
    let spec = ServerSpec { listen: "0.0.0.0:0".parse().unwrap(), secret: Secret::none(), sessions: None, lasts: None };
    let stop = Wake::new().unwrap();
    let refused = serve(&spec, stop.as_fd(), &mut |_| {}).err().unwrap();
    assert!(refused.to_string().contains("needs a token"), "{refused}");
}
