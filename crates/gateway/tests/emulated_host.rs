//! The emulated gateway host on the real kernel: its forwarding is limited to a share of a core, and counted.
//!
//! A program without threads, since the host process is forked from it. Needs root and fails with a message without it.
#![allow(clippy::disallowed_methods, reason = "this test waits for a real process")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use gateway::emulation::host;
use gateway::emulation::{CLIENT, INSIDE, OUTSIDE, SERVER};
use sys::accounting::served;
use sys::cgroup::{Cgroup, Limits};
use sys::namespace::NetNamespace;
use sys::netlink::{LinkStats, Netlink, Route, sysctl};
use sys::nft::Masquerade;
use sys::tun::{LARGEST_PACKET_BYTES, Tun, VNET_HEADER_BYTES};
use testbed::drive::packet_queue::PacketQueue;

/// Time for which the queues are kept full.
const LOAD_TIME: Duration = Duration::from_secs(2);

fn main() {
    // The test runner may request a list of tests, and may select tests by name.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        println!("{NAME}: test\n");
        return;
    }
    let named: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    if !named.is_empty() && !named.iter().any(|word| NAME.contains(word.as_str())) {
        println!("\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out\n");
        return;
    }
    println!("\nrunning 1 test");
    forwarding_is_limited_to_the_cpu_share();
    println!("test {NAME} ... ok\n");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n");
}

const NAME: &str = "forwarding_is_limited_to_the_cpu_share";

fn forwarding_is_limited_to_the_cpu_share() {
    let net = NetNamespace::create().expect("this test needs root");
    let (devices, _nat) = net.run(gateway).unwrap();
    let limits = Limits { cpu: Some("2%".parse().unwrap()), ..Limits::default() };
    let group = Cgroup::create("card", limits).unwrap();
    assert_eq!(group.period(), Duration::from_millis(50));
    let ((mut from_client, first), (from_server, second)) = (PacketQueue::new().unwrap(), PacketQueue::new().unwrap());
    let host_process = host::start([&devices[0], &devices[1]], [first, second], Some(&group), None).unwrap();

    let packet = datagram();
    let (mut sent, mut translated) = (0u64, 0u64);
    let mut buffer = vec![0; LARGEST_PACKET_BYTES];
    let began = Instant::now();
    while began.elapsed() < LOAD_TIME {
        for _ in 0..2000 {
            from_client.put(&packet).unwrap();
            sent += 1;
        }
        while let Ok(length) = devices[1].read(&mut buffer) {
            let ip = &buffer[VNET_HEADER_BYTES..length];
            if ip[0] == 0x45 && ip[9] == UDP {
                assert_eq!((&ip[12..16], &ip[16..20]), (&OUTSIDE.octets()[..], &SERVER.octets()[..]));
                translated += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let used = group.usage().unwrap();
    let by_thread = served(host_process.pid(), host_process.pid()).unwrap().ran;
    let [into, out] = net.run(statistics).unwrap();

    let periods = used.periods.unwrap();
    let elapsed = group.period().mul_f64(periods.all as f64);
    let time = used.user + used.system;
    let share = time.as_secs_f64() / elapsed.as_secs_f64();
    println!(
        "note: {translated} of {sent} packets forwarded in {time:?}, {:.2} % of the core in {elapsed:?}; {periods:?}",
        share * 100.0
    );
    assert!((0.015..0.025).contains(&share), "{share}");
    assert!(periods.throttled * 2 > periods.all, "{periods:?}");
    // The CPU time of forwarding is charged to the host process alone.
    assert!(time.abs_diff(by_thread) < Duration::from_millis(10), "{time:?} {by_thread:?}");
    // Every packet is accounted for: forwarded, dropped by the full queue, or still in the queue.
    let waiting = sent - from_client.overflowed() - into.rx_packets;
    assert!(from_client.overflowed() > 0 && waiting <= 1400, "{waiting} packets wait");
    assert!(translated > 1000 && out.tx_packets >= translated, "{translated} {out:?}");

    // The host process ends when its queues are closed, even while throttled.
    drop((from_client, from_server));
    assert!(host_process.wait());
}

const UDP: u8 = 17;

/// Both devices, and the address translation of the client's packets.
fn gateway() -> ([Tun; 2], Masquerade) {
    for key in ["conf/all/rp_filter", "conf/default/rp_filter"] {
        sysctl(&format!("net/ipv4/{key}"), "0").unwrap();
    }
    sysctl("net/ipv4/ip_forward", "1").unwrap();
    let mut netlink = Netlink::open().unwrap();
    let ends = [("g0", INSIDE, CLIENT), ("g1", OUTSIDE, SERVER)];
    let devices = ends.map(|(name, own, far): (&str, Ipv4Addr, Ipv4Addr)| {
        let device = Tun::open(name).unwrap();
        netlink.link_up(name).unwrap();
        netlink.set_tx_queue_len(name, 20_000).unwrap();
        netlink.add_address(name, own.into(), 32).unwrap();
        netlink.add_route(&Route::new(far.into(), 32, name)).unwrap();
        device
    });
    (devices, Masquerade::of("yamabiko-gateway", CLIENT.into(), 32).unwrap())
}

fn statistics() -> [LinkStats; 2] {
    let mut netlink = Netlink::open().unwrap();
    ["g0", "g1"].map(|name| netlink.link_statistics(name).unwrap())
}

/// A datagram of 64 bytes from client to server, with the header of a TUN device.
fn datagram() -> Vec<u8> {
    let mut ip = [0u8; 64];
    ip[..20].copy_from_slice(&[0x45, 0, 0, 64, 0, 1, 0, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    ip[12..16].copy_from_slice(&CLIENT.octets());
    ip[16..20].copy_from_slice(&SERVER.octets());
    // Ports 5000 and 6000, 44 bytes, no checksum.
    ip[20..28].copy_from_slice(&[0x13, 0x88, 0x17, 0x70, 0, 44, 0, 0]);
    let sum: u32 = ip[..20].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[0; VNET_HEADER_BYTES][..], &ip].concat()
}
