//! 10,000 unauthenticated connections, idle, in the TLS handshake or with random bytes, from one address and from
//! thousands: authenticated agents continue.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::site::{SimulatedAgent, Site};
use crate::attackers::crowd::{Crowd, Member, NextAction, crowd};
use crate::attackers::hello::client_hello;
use crate::attackers::{Tally, Target};
use crate::fleet::parties::{Agent, Programs};
use crate::fleet::process::Process;
use crate::support::workspace::{wait_until, yamabiko};

/// Behaviour, number of connections, and number of client addresses of each attack.
const ATTACKS: [(&str, usize, u16); 5] = [
    ("idle, many addresses", 5_000, 4_000),
    ("idle, one address", 1_500, 1),
    ("half a hello, many addresses", 2_000, 1_500),
    ("half a hello, one address", 1_000, 1),
    ("noise, few addresses", 500, 3),
];

fn unauthenticated_clients(site: &Site, stop: &Arc<AtomicBool>) -> Vec<(&'static str, thread::JoinHandle<Tally>)> {
    let started = ATTACKS.into_iter().map(|(what, size, sources)| {
        let target =
            Target { address: site.serving.address, small: "/".into(), big: "/".into(), sources, max_concurrent: size };
        let stop = Arc::clone(stop);
        // 2,000 new connections per second: enough to replace closed ones, and few enough that the machine has time for
        // agents.
        let of = Crowd { size, max_new: 40, interval: Duration::from_millis(100), receive_buffer: None, resets: false };
        let attack = thread::spawn(move || {
            let hello = client_hello();
            let half = &hello[..hello.len() / 2];
            crowd(&target, &stop, &of, |member: &mut Member| {
                if what.starts_with("half") && member.sent == 0 {
                    member.send(half)?;
                }
                if what.starts_with("noise") && member.sent < 4096 {
                    member.send(&[0x16, 3, 1, 0xff, 0xff, 7, 7, 7, member.number as u8])?;
                }
                member.read(4096).map(|_| NextAction::KeepOpen)
            })
        });
        (what, attack)
    });
    started.collect()
}

/// The address of the agent that reconnects for each batch. It must differ from the attackers': an unauthenticated
/// connection stays open only while the limit of its address permits it.
const RECONNECTING_ADDRESS: [u8; 4] = [127, 9, 9, 9];

/// Times until a batch is stored, by sender.
#[derive(Default)]
struct Waits(BTreeMap<&'static str, Vec<Duration>>);

impl Waits {
    fn of(&mut self, who: &'static str, work: impl FnOnce()) {
        let began = Instant::now();
        work();
        self.0.entry(who).or_default().push(began.elapsed());
    }

    fn show(&mut self) {
        for (who, waits) in &mut self.0 {
            waits.sort();
            let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
            println!(
                "{who}: {} batches, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                waits.len(),
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
}

#[test]
fn ten_thousand_unauthenticated_connections_do_not_block_agents() {
    let site = Site::start(&[]);
    let rest = |least: Duration| thread::sleep(least);
    let mut persistent = SimulatedAgent::known(&site, "persistent", "a");
    let mut reconnecting = SimulatedAgent::known(&site, "reconnecting", "b");
    let mut line = site.connect();
    let mut waits = Waits::default();
    let mut send_on_open_connection = |agent: &mut SimulatedAgent| {
        line.stream.write_all(&agent.request(5)).unwrap();
        let response = line.response().expect("the manager does not close an authenticated connection");
        assert_eq!(response.status(), 200, "{} {}", response.head, String::from_utf8_lossy(&response.body));
    };
    // If the manager closes the connection before the token arrives, the sender reconnects like an agent; the time
    // includes all attempts.
    let send_on_new_connection = |agent: &mut SimulatedAgent| {
        let request = agent.request(5);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut line = site.connect_from(RECONNECTING_ADDRESS);
            let response =
                line.stream.write_all(&request).map_err(|_| ()).and_then(|()| line.response().map_err(|_| ()));
            match response.map(|response| response.status()) {
                // 409: the batch was stored before, and the response was lost.
                Ok(200 | 409) => return,
                Ok(status) => panic!("{status}"),
                Err(()) => assert!(Instant::now() < deadline, "an authenticated agent gets through before the timeout"),
            }
        }
    };
    for _ in 0..20 {
        waits.of("quiet, a persistent connection", || send_on_open_connection(&mut persistent));
        waits.of("quiet, a new connection", || send_on_new_connection(&mut reconnecting));
    }

    // A real agent, with a program under its tap.
    let folder = site.workspace.path().join("out");
    let programs =
        Programs::make(&crate::support::readers::repository("crates/yamabiko/tests/support/fleet"), &folder).unwrap();
    let (data, rings, token) =
        (folder.join("agent"), site.workspace.path().join("rings"), folder.join("real.agent.token"));
    site.token("real", "agent");
    let agent =
        Agent { name: "real".into(), shift_s: 0, data, rings, token, log: folder.join("agent.log"), stream: None };
    let mut command = std::process::Command::new(yamabiko());
    let manager = format!("https://{}", site.serving.address);
    command.args(agent.arguments(&manager, &site.authority()));
    let process = Process::start(command, &agent.log).unwrap();
    agent.ready(&process).unwrap();
    wait_until("the agent has connected to the manager", || process.log_text().contains("connected to the manager"));

    let stop = Arc::new(AtomicBool::new(false));
    let attacks = unauthenticated_clients(&site, &stop);
    let server = programs.server(true);
    let mut command = std::process::Command::new(&server[0]);
    command.args(&server[1..]);
    let server_process = Process::start(command, &folder.join("server.log")).unwrap();
    wait_until("the talkers' server listens", || server_process.log_text().contains("listening"));
    let log = server_process.log_text();
    let ports: Vec<String> = log.lines().filter_map(|line| line.strip_prefix("port ")).map(str::to_owned).collect();
    let account = folder.join("real.till.csv");
    let words = programs.talker_at(0, &account, 400, 50, &ports);
    let mut command = std::process::Command::new(&words[0]);
    command.args(&words[1..]).envs(agent.environment());
    let talker = Process::start(command, &folder.join("talker.log")).unwrap();

    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        waits.of("under unauthenticated connections, a persistent connection", || {
            send_on_open_connection(&mut persistent)
        });
        waits.of("under unauthenticated connections, a new connection", || send_on_new_connection(&mut reconnecting));
        rest(Duration::from_millis(50));
    }
    talker.succeeds_within(crate::fleet::TEST_TIMEOUT).unwrap();
    let lines = std::fs::read_to_string(&account).unwrap().lines().count() as u64 - 1;
    let simulated_rows = (persistent.sequence - 1 + reconnecting.sequence - 1) * 5;
    wait_until("the real agent's rows are stored", || site.stored()["rows"].as_u64() == Some(lines + simulated_rows));

    // During the attack the manager has few connections.
    let sockets = site.serving.sockets();
    stop.store(true, Ordering::Relaxed);
    let tallies: Vec<_> = attacks.into_iter().map(|(what, attack)| (what, attack.join().unwrap())).collect();
    for (what, tally) in &tallies {
        println!("{what}: {tally}");
    }
    waits.show();
    println!("{sockets} sockets of the manager, peak memory {} MiB", site.serving.peak_kib() >> 10);
    let opened: u64 = tallies.iter().map(|(_, tally)| tally.opened).sum();
    assert!(opened >= 10_000, "{opened} unauthenticated connections");
    assert!(sockets < 1_000, "{sockets}: unauthenticated connections are limited");
    assert!(site.serving.peak_kib() < 300 << 10, "{} KiB", site.serving.peak_kib());
    process.end(nix::sys::signal::Signal::SIGTERM, crate::fleet::TEST_TIMEOUT).unwrap();
    // After the attack agents are served as before.
    send_on_open_connection(&mut persistent);
    send_on_new_connection(&mut reconnecting);
}
