//! Packet capture at a device: the ring, the filter, the counters.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sys::capture::{Capture, CaptureSpec, Framing};
use sys::namespace::NetNamespace;
use sys::netlink::{Netlink, Route};
use sys::signal::wait_readable;
use sys::tun::{LARGEST_PACKET_BYTES, VNET_HEADER_BYTES};

use crate::check::wait_for;
use crate::network::net_with_tun;

/// Captured packets: time, bytes, original length.
type Captured = Vec<(u64, Vec<u8>, u32)>;

pub fn capture_sees_loopback_packets_once() {
    lo().run(|| {
        let (mut capture, listener) = (open(&CaptureSpec::new("lo", 65_535)), listen("127.0.0.1"));
        assert_eq!(capture.framing(), Framing::Ethernet);
        let before = now_ns();
        talk(listener.local_addr().unwrap(), &listener);
        let packets = all_of(&mut capture);
        let after = now_ns();
        // Each packet passes a loopback device twice and is captured once.
        assert_eq!(packets.iter().filter(|(_, bytes, _)| tcp_flags(bytes) == Some(SYN)).count(), 1);
        assert!(packets.iter().any(|(_, bytes, _)| bytes.windows(5).any(|window| window == b"hello")));
        let times: Vec<u64> = packets.iter().map(|&(at, ..)| at).collect();
        assert!(times.is_sorted() && before <= times[0] && *times.last().unwrap() <= after);
        assert!(packets.iter().all(|(_, bytes, length)| bytes.len() == *length as usize));
        let counted = capture.statistics().unwrap();
        assert_eq!((counted.packets, counted.drops), (packets.len() as u64, 0));
        assert_eq!(capture.statistics().unwrap().packets, 0, "counted once");
        capture.check().unwrap();
    })
    .unwrap();
}

pub fn matching_packets_are_captured_truncated() {
    lo().run(|| {
        for host in ["127.0.0.1", "::1"] {
            let (captured_listener, other_listener) = (listen(host), listen(host));
            let port = captured_listener.local_addr().unwrap().port();
            let hosts: [IpAddr; 1] = [host.parse().unwrap()];
            let spec = CaptureSpec::new("lo", 80);
            let mut capture = open(&CaptureSpec { ports: &[port], hosts: &hosts, ..spec });
            let elsewhere: [IpAddr; 1] = ["192.0.2.1".parse().unwrap()];
            let mut of_others = open(&CaptureSpec { hosts: &elsewhere, ..spec });
            let datagrams = UdpSocket::bind((host, 0)).unwrap();
            datagrams.send_to(b"not TCP", (host, port)).unwrap();
            talk(other_listener.local_addr().unwrap(), &other_listener);
            talk(captured_listener.local_addr().unwrap(), &captured_listener);
            let packets = all_of(&mut capture);
            assert_eq!(packets.iter().filter(|(_, bytes, _)| tcp_flags(bytes) == Some(SYN)).count(), 1, "{host}");
            for (_, bytes, length) in &packets {
                assert_eq!(bytes.len(), 80.min(*length as usize));
            }
            assert!(packets.iter().any(|(_, _, length)| *length > 80), "truncated packets have their original length");
            assert_eq!(all_of(&mut of_others), []);
        }
    })
    .unwrap();
}

pub fn capture_of_a_tun_has_no_link_header() {
    let (net, tun) = net_with_tun();
    let mut netlink = net.run(Netlink::open).unwrap().unwrap();
    netlink.add_route(&Route::new("198.18.0.0".parse().unwrap(), 16, "t0")).unwrap();
    let packets = net
        .run(|| {
            let mut capture = open(&CaptureSpec { promiscuous: true, ..CaptureSpec::new("t0", 128) });
            assert_eq!(capture.framing(), Framing::Ip);
            let socket = UdpSocket::bind("198.19.0.1:5000").unwrap();
            socket.send_to(b"on its way out", "198.18.0.1:9").unwrap();
            all_of(&mut capture)
        })
        .unwrap();
    let mine = packets.iter().find(|(_, bytes, _)| bytes.ends_with(b"on its way out")).expect("captured");
    assert_eq!((mine.1[0], mine.2), (0x45, 42));
    drop(tun);
}

/// From Linux 6.2 on the kernel leaves datagrams in one packet, and divides them behind the device.
pub fn datagrams_that_travel_as_one_packet_are_described_and_divided() {
    let (net, tun) = net_with_tun();
    let mut netlink = net.run(Netlink::open).unwrap().unwrap();
    netlink.add_route(&Route::new("198.18.0.0".parse().unwrap(), 16, "t0")).unwrap();
    let (mut capture, mut quic, plain) = net
        .run(|| {
            let source = Some("198.19.0.1".parse().unwrap());
            let quic = sys::udp::UdpSocket::connect(source, "198.18.0.1:443".parse().unwrap()).unwrap();
            (open(&CaptureSpec::new("t0", 65_535)), quic, UdpSocket::bind("198.19.0.1:5000").unwrap())
        })
        .unwrap();
    let content: Vec<u8> = (0..3_500_usize).map(|at| (at ^ at >> 8) as u8).collect();
    assert_eq!(quic.send(&content, Some(1_000), 0).unwrap(), content.len());
    let mut frame = vec![0; LARGEST_PACKET_BYTES];
    let mut frames = Vec::new();
    let taken = wait_for("the datagrams come out", || {
        while let Ok(length) = tun.read(&mut frame) {
            // The device's own IPv6 traffic is not of interest.
            if frame[VNET_HEADER_BYTES] == 0x45 {
                frames.push(frame[..length].to_vec());
            }
        }
        let bytes: usize = frames.iter().map(|frame| frame.len() - VNET_HEADER_BYTES - 28).sum();
        (bytes == content.len()).then_some(frames.len())
    });
    // Back to a socket that wants datagrams one by one.
    for mut frame in frames {
        let ip = &mut frame[VNET_HEADER_BYTES..];
        (0..4).for_each(|at| ip.swap(12 + at, 16 + at));
        ip[20..22].copy_from_slice(&443_u16.to_be_bytes());
        let old = u16::from_be_bytes([ip[22], ip[23]]);
        ip[22..24].copy_from_slice(&5_000_u16.to_be_bytes());
        assert_ne!(old, 5_000);
        tun.write(&frame).unwrap();
    }
    let mut received = Vec::new();
    plain.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    while received.len() < content.len() {
        let mut datagram = [0; 2_000];
        let (length, from) = plain.recv_from(&mut datagram).unwrap();
        assert!(length == 1_000 || received.len() + length == content.len());
        assert_eq!(from.port(), 443);
        received.extend_from_slice(&datagram[..length]);
    }
    assert_eq!(received, content);
    let described = described_of(&mut capture);
    let bytes: usize = described.iter().map(|(_, length)| *length as usize - 28).sum();
    assert_eq!(bytes, 2 * content.len(), "{described:?}");
    let sizes: Vec<u16> = described.iter().map(|(size, _)| *size).collect();
    assert_eq!(sizes, if taken == 1 { vec![1_000; 2] } else { vec![0; 2 * taken] });
}

/// Stops the capture; size of datagrams and length of each IPv4 packet.
fn described_of(capture: &mut Capture) -> Vec<(u16, u32)> {
    capture.stop().unwrap();
    let (mut described, mut quiet) = (Vec::new(), 0);
    wait_for("the capture to be read", || {
        wait_readable(std::os::fd::AsFd::as_fd(capture), Duration::from_millis(100));
        quiet += 1;
        while let Some(block) = capture.next_block() {
            quiet = 0;
            let of_v4 = block.packets().filter(|packet| packet.bytes.first() == Some(&0x45));
            described.extend(of_v4.map(|packet| (packet.datagram_bytes, packet.original_length)));
        }
        (quiet == 4).then_some(())
    });
    described
}

pub fn capture_counts_packets_lost_without_a_free_block() {
    lo().run(|| {
        let spec = CaptureSpec { block_bytes: 1 << 16, blocks: 2, ..CaptureSpec::new("lo", 65_535) };
        let mut capture = open(&spec);
        let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        for _ in 0..100 {
            from.send_to(&[7; 8000], to.local_addr().unwrap()).unwrap();
        }
        let counted = capture.statistics().unwrap();
        assert_eq!(counted.packets, 100);
        let captured = all_of(&mut capture).len() as u64;
        assert_eq!(captured + counted.drops, 100);
        assert!(captured > 0 && counted.drops > 0, "{captured} captured");
    })
    .unwrap();
}

pub fn capture_errors_name_the_cause() {
    NetNamespace::create()
        .unwrap()
        .run(|| {
            let error = Capture::open(&CaptureSpec::new("nodev", 128)).unwrap_err().to_string();
            assert!(
                error.starts_with("find device nodev: ")
                    && error.ends_with("`ip link` lists the devices of this network"),
                "{error}"
            );
            let ports: Vec<u16> = (1..5000).collect();
            let error = Capture::open(&CaptureSpec { ports: &ports, ..CaptureSpec::new("lo", 128) }).unwrap_err();
            assert!(error.to_string().contains("name fewer"), "{error}");
            let error = Capture::open(&CaptureSpec::new("lo", 128)).unwrap_err().to_string();
            assert_eq!(error, "capture on lo: Network is down; the device is down or gone: ip link set lo up");
        })
        .unwrap();
}

/// A network with only a loopback device.
fn lo() -> NetNamespace {
    let net = NetNamespace::create().unwrap();
    net.run(|| Netlink::open().unwrap().link_up("lo").unwrap()).unwrap();
    net
}

fn open(spec: &CaptureSpec<'_>) -> Capture {
    Capture::open(spec).unwrap()
}

fn listen(host: &str) -> TcpListener {
    TcpListener::bind((host, 0)).unwrap()
}

/// One connection, `hello` and in the other direction `world`, both ends closed.
fn talk(to: SocketAddr, listener: &TcpListener) {
    let mut client = TcpStream::connect(to).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    server.write_all(b"world, at some more length").unwrap();
    drop(server);
    client.read_to_end(&mut Vec::new()).unwrap();
}

/// Stops the capture and collects its packets: done when the kernel reports that no more are left.
fn all_of(capture: &mut Capture) -> Captured {
    capture.stop().unwrap();
    let mut packets = Captured::new();
    let mut quiet = 0;
    wait_for("the capture to be read", || {
        wait_readable(std::os::fd::AsFd::as_fd(capture), Duration::from_millis(100));
        quiet += 1;
        while let Some(block) = capture.next_block() {
            quiet = 0;
            packets.extend(
                block.packets().map(|packet| (packet.at.as_nanos(), packet.bytes.to_vec(), packet.original_length)),
            );
        }
        (quiet == 4).then_some(())
    });
    packets
}

fn tcp_flags(frame: &[u8]) -> Option<u8> {
    let ip = frame.get(14..)?;
    match (ip.first()? >> 4, *ip.get(9)?, *ip.get(6)?) {
        (4, 6, _) => ip.get(20 + 13).copied(),
        (6, _, 6) => ip.get(40 + 13).copied(),
        _ => None,
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

const SYN: u8 = 2;
