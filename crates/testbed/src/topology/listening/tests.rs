use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn socket(on: &str, port: u16) -> ListeningSocket {
    ListeningSocket { address: address(on), port, v6_only: false, inode: 1 }
}

#[test]
fn lines_of_proc_net_tcp_are_parsed() {
    let line = "   0: 010012C6:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100";
    assert_eq!(listener(line, "0A", parse_v4), Some(ListeningSocket { inode: 77, ..socket("198.18.0.1", 8080) }));
    let established = line.replace(" 0A ", " 01 ");
    assert_eq!(listener(&established, "0A", parse_v4), None);
    let any = "  1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9";
    assert_eq!(listener(any, "0A", parse_v6), Some(ListeningSocket { inode: 9, ..socket("::", 80) }));
    assert_eq!(listener("  sl  local_address rem_address   st", "0A", parse_v4), None);
}

#[test]
fn a_socket_on_all_ipv4_addresses_is_on_no_ipv6_address() {
    let is_reached = |on: &str, at: &str| reaches(&socket(on, 80), address(at));
    assert!(is_reached("0.0.0.0", "198.18.0.1"));
    assert!(is_reached("::", "198.18.0.1"));
    assert!(is_reached("::", "2001:2:0:1::1"));
    assert!(!is_reached("0.0.0.0", "2001:2:0:1::1"));
    assert!(!is_reached("::1", "2001:2:0:1::1"));
    let only = ListeningSocket { v6_only: true, ..socket("::", 80) };
    assert!(reaches(&only, address("2001:2:0:1::1")) && !reaches(&only, address("198.18.0.1")));
}

const MS: u64 = 1_000_000;

/// Polls at this interval in virtual time; returns the time of the last poll, in ms, and the result.
fn poll_until_done(
    spec: &ListenWaitSpec<'_>,
    every_ms: u64,
    listens: impl Fn(u64) -> Vec<ListeningSocket>,
) -> (u64, Result<(), NotListening>) {
    let mut listen_wait = ListenWait::new(spec, 7 * MS);
    let outcome = (0..).map(|poll| poll * every_ms);
    let mut outcome = outcome.filter_map(|at| Some((at, listen_wait.judge((7 + at) * MS, &listens(at))?)));
    outcome.next().unwrap()
}

#[test]
fn a_busy_machine_does_not_lengthen_the_wait() {
    let addresses = [address("198.18.0.1")];
    let spec = ListenWaitSpec {
        pid: 0,
        addresses: &addresses,
        port: Some(8080),
        or_udp: false,
        timeout: Duration::from_secs(10),
        alone: true,
    };
    // A poll and its pause take 5 ms, or 18 if another program has the core most of the time: counting pauses gave
    // 35 s.
    for every_ms in [5, 18, 700] {
        let (at, outcome) = poll_until_done(&spec, every_ms, |_| Vec::new());
        assert!((10_000..10_000 + every_ms).contains(&at), "ended at {at} ms with a poll every {every_ms} ms");
        assert_eq!(outcome, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None }));
        let (at, outcome) =
            poll_until_done(&spec, every_ms, |at| if at < 9_000 { Vec::new() } else { vec![socket("0.0.0.0", 8080)] });
        assert!(outcome.is_ok() && at < 9_000 + every_ms, "{at} {outcome:?}");
    }
}

#[test]
fn a_server_on_another_port_ends_the_wait_early() {
    let addresses = [address("198.18.0.1"), address("198.18.0.2")];
    let spec = ListenWaitSpec {
        pid: 0,
        addresses: &addresses,
        port: Some(8080),
        or_udp: false,
        timeout: Duration::from_secs(10),
        alone: true,
    };
    let (at, outcome) = poll_until_done(&spec, 5, |at| if at < 500 { Vec::new() } else { vec![socket("::", 9090)] });
    assert_eq!(at, 3_500);
    let unchanged_for = Some(Duration::from_secs(3));
    assert_eq!(outcome, Err(NotListening::OtherPorts { ports: vec![9090], unchanged_for }));
    // A server that opens its administration port first opens the expected port just before the wait ends.
    let both = || vec![socket("127.0.0.1", 9090), socket("0.0.0.0", 8080)];
    let (at, outcome) =
        poll_until_done(&spec, 5, |at| if at < 2_990 { vec![socket("127.0.0.1", 9090)] } else { both() });
    assert_eq!((at, outcome), (2_990, Ok(())));
    // A server that still opens sockets is still starting.
    let one_each_second = |at: u64| (0..=at / 1000).map(|nth| socket("::", 9000 + nth as u16)).collect();
    let (at, outcome) = poll_until_done(&spec, 5, one_each_second);
    assert_eq!(at, 10_000);
    assert!(matches!(outcome, Err(NotListening::OtherPorts { unchanged_for: None, .. })), "{outcome:?}");
    // A longer timeout means that the server may need longer.
    let longer = ListenWaitSpec { timeout: Duration::from_secs(60), ..spec.clone() };
    assert_eq!(poll_until_done(&longer, 5, |_| vec![socket("::", 9090)]).0, 18_000);
    // If other programs listen too, their ports show nothing.
    let shared = ListenWaitSpec { alone: false, ..spec.clone() };
    let (at, outcome) = poll_until_done(&shared, 5, |_| vec![socket("::", 9090)]);
    assert_eq!((at, outcome), (10_000, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None })));
    // The expected port on an address that no client reaches, or that reaches only one of the expected addresses.
    let (at, outcome) = poll_until_done(&shared, 5, |_| vec![socket("127.0.0.1", 8080)]);
    let (on, to) = (address("127.0.0.1"), addresses[0]);
    assert_eq!((at, outcome), (3_000, Err(NotListening::Unreachable { on, expected: to })));
    let (_, outcome) = poll_until_done(&spec, 5, |_| vec![socket("198.18.0.1", 8080)]);
    assert_eq!(outcome, Err(NotListening::Unreachable { on: addresses[0], expected: addresses[1] }));
}

#[test]
fn with_any_port_a_socket_that_clients_reach_counts() {
    let addresses = [address("198.18.0.1"), address("2001:2:0:1::1")];
    let spec = ListenWaitSpec {
        pid: 0,
        addresses: &addresses,
        port: None,
        or_udp: false,
        timeout: Duration::from_secs(10),
        alone: true,
    };
    let (at, outcome) =
        poll_until_done(&spec, 5, |at| if at < 4_000 { Vec::new() } else { vec![socket("0.0.0.0", 5353)] });
    assert_eq!((at, outcome), (4_300, Ok(())));
    // A server that opens several ports, a tenth of a second apart, is ready when the last is open.
    let several = |at| (0..=u16::try_from(at / 100).unwrap().min(20)).map(|i| socket("0.0.0.0", 5200 + i)).collect();
    assert_eq!(poll_until_done(&spec, 5, several), (2_300, Ok(())));
    let (at, outcome) = poll_until_done(&spec, 5, |_| vec![socket("127.0.0.1", 8080)]);
    assert_eq!(at, 3_000);
    assert_eq!(outcome, Err(NotListening::Unreachable { on: address("127.0.0.1"), expected: addresses[0] }));
    let (at, outcome) = poll_until_done(&spec, 5, |_| Vec::new());
    assert_eq!((at, outcome), (10_000, Err(NotListening::OtherPorts { ports: Vec::new(), unchanged_for: None })));
    // A UDP socket of a name lookup is closed before it counts as a service.
    let mut listen_wait = ListenWait::new(&spec, 0);
    let (lookup, service) = (socket("0.0.0.0", 40_000), socket("0.0.0.0", 53));
    assert_eq!(listen_wait.settled(0, vec![lookup]), []);
    assert_eq!(listen_wait.settled(200 * MS, vec![lookup, service]), []);
    assert_eq!(listen_wait.settled(290 * MS, vec![service]), []);
    assert_eq!(listen_wait.settled(500 * MS, vec![lookup, service]), [service]);
}

#[test]
fn udp_sockets_of_this_process_are_listed() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let pid = std::process::id() as i32;
    assert_eq!(find_udp(pid, address("127.0.0.1"), port), Listening::Yes);
    assert!(tables(pid, UDP_UNCONNECTED).iter().any(|socket| socket.port == port));
    drop(socket);
    assert_eq!(find_udp(pid, address("127.0.0.1"), port), Listening::No);
}

/// A server of HTTP/3 alone has no TCP socket.
#[test]
fn a_udp_socket_on_the_port_will_do_where_it_may() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = [address("127.0.0.1")];
    let wait_for = |or_udp| {
        let spec = ListenWaitSpec {
            pid: std::process::id().cast_signed(),
            addresses: &addresses,
            port: Some(socket.local_addr().unwrap().port()),
            or_udp,
            timeout: Duration::from_millis(200),
            alone: false,
        };
        wait(&spec, || Ok(None)).unwrap()
    };
    assert_eq!(wait_for(true), Ok(()));
    assert!(matches!(wait_for(false), Err(NotListening::OtherPorts { .. })));
}

#[test]
fn listening_sockets_of_this_process_are_listed() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let pid = std::process::id() as i32;
    assert_eq!(find_tcp(pid, "127.0.0.1".parse().unwrap(), port), Listening::Yes);
    // The kernel's list and the tables in /proc agree.
    let of_port = |all: Vec<ListeningSocket>| -> Vec<ListeningSocket> {
        all.into_iter().filter(|socket| socket.port == port).collect()
    };
    let [listed, read] = [Sockets::of(pid).listening(), tables(pid, TCP_LISTENS)].map(of_port);
    assert_eq!((listed.len(), &listed), (1, &read));
    let other = "127.0.0.2".parse().unwrap();
    assert_eq!(find_tcp(pid, other, port), Listening::Elsewhere("127.0.0.1".parse().unwrap()));
    let own = Cores::allowed().unwrap();
    let of_process = cores_of("127.0.0.1".parse().unwrap(), port).unwrap();
    assert!(own.list().iter().all(|core| of_process.list().contains(core)), "{of_process}");
    assert_eq!(cores_of(other, port), None);
    drop(socket);
    assert_eq!(find_tcp(pid, other, port), Listening::No);
}
