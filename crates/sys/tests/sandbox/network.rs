//! Network namespaces, devices, addresses, routes and counters.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use sys::accounting::{TcpCounters, set_rps};
use sys::namespace::NetNamespace;
use sys::netlink::{Netlink, Route, disable_ipv6, sysctl};
use sys::tun::{LARGEST_PACKET_BYTES, Offload, Tun, VNET_HEADER_BYTES};

use crate::check::wait_for;

pub fn creating_a_namespace_keeps_the_caller_in_its_own() {
    let before = NetNamespace::current().unwrap().inode().unwrap();
    let net = NetNamespace::create().unwrap();
    assert_eq!(NetNamespace::current().unwrap().inode().unwrap(), before);
    assert_ne!(net.inode().unwrap(), before);
    let inside = net.run(|| NetNamespace::current().unwrap().inode().unwrap()).unwrap();
    assert_eq!(inside, net.inode().unwrap());
    assert_eq!(NetNamespace::current().unwrap().inode().unwrap(), before);
}

pub fn run_returns_values_and_panics() {
    let net = NetNamespace::create().unwrap();
    let mut seen = 0;
    assert_eq!(net.run(|| seen += 1).unwrap(), ());
    assert_eq!(seen, 1);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| net.run(|| panic!("as expected"))));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"as expected"));
}

pub fn device_is_configured() {
    let (net, _tun) = net_with_tun();
    let shown = ip(&net, &["-d", "addr", "show", "t0"]);
    for expected in ["mtu 1400", "qlen 10000", "inet 198.19.0.1/32", "inet6 2001:2:0:1::1/64", "UP"] {
        assert!(shown.contains(expected), "{expected} in:\n{shown}");
    }
    let ours = shown.lines().find(|line| line.contains("2001:2:0:1::1")).unwrap();
    assert!(!ours.contains("tentative"), "{shown}");
    net.run(|| disable_ipv6("t0")).unwrap().unwrap();
    assert!(!ip(&net, &["addr", "show", "t0"]).contains("inet6"));
}

pub fn sockets_bind_any_address_of_a_local_route() {
    let (net, _tun) = net_with_tun();
    net.run(|| {
        Netlink::open().unwrap().link_up("lo").unwrap();
        let far: SocketAddr = "198.19.200.7:0".parse().unwrap();
        assert_eq!(UdpSocket::bind(far).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        Netlink::open().unwrap().add_route(&Route::local("198.19.0.0".parse().unwrap(), 16, "lo")).unwrap();
        UdpSocket::bind(far).expect("AnyIP");
        // IPv6 needs one more setting.
        let six: SocketAddr = "[2001:2:0:2::7]:0".parse().unwrap();
        let route = Route::local("2001:2:0:2::".parse().unwrap(), 64, "lo");
        Netlink::open().unwrap().add_route(&route).unwrap();
        assert!(UdpSocket::bind(six).is_err());
        sysctl("net/ipv6/ip_nonlocal_bind", "1").unwrap();
        UdpSocket::bind(six).expect("AnyIP of IPv6");
    })
    .unwrap();
}

pub fn route_sets_tcp_properties() {
    let (net, _tun) = net_with_tun();
    let plain = Route::new("198.18.0.0".parse().unwrap(), 16, "t0");
    let source: IpAddr = "198.19.0.1".parse().unwrap();
    let mut netlink = net.run(Netlink::open).unwrap().unwrap();
    let route = Route { src: Some(source), initcwnd: Some(2), initrwnd: Some(20), congestion: Some("reno"), ..plain };
    netlink.add_route(&route).unwrap();
    let shown = ip(&net, &["route", "show", "198.18.0.0/16"]);
    for expected in ["dev t0", "src 198.19.0.1", "initcwnd 2", "initrwnd 20", "congctl reno"] {
        assert!(shown.contains(expected), "{expected} in: {shown}");
    }
    netlink.add_route(&Route { initcwnd: Some(10), table: Some(77), ..plain }).unwrap();
    assert!(ip(&net, &["route", "show", "table", "77"]).contains("initcwnd 10"));
    // The same destination replaces the route.
    netlink.add_route(&Route { initcwnd: Some(3), ..plain }).unwrap();
    assert_eq!(ip(&net, &["route", "show", "198.18.0.0/16"]).lines().count(), 1);
    let error = netlink.add_route(&Route { congestion: Some("nosuch"), ..plain }).unwrap_err().to_string();
    assert!(error.contains("tcp_available_congestion_control"), "{error}");
    let error = netlink.add_route(&Route { dev: "nodev", ..plain }).unwrap_err().to_string();
    assert_eq!(error, "find device nodev: No such device");
}

pub fn tun_carries_packets() {
    let (net, tun) = net_with_tun();
    carry_packets(&net, &tun);
}

/// A datagram out of the device, its addresses swapped by hand, and back in.
pub fn carry_packets(net: &NetNamespace, tun: &Tun) {
    let mut netlink = net.run(Netlink::open).unwrap().unwrap();
    netlink.add_route(&Route::new("198.18.0.0".parse().unwrap(), 16, "t0")).unwrap();
    let socket = net.run(|| UdpSocket::bind("198.19.0.1:5000").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut packet = vec![0; LARGEST_PACKET_BYTES];
    // Unsolicited IPv6 packets would be counted, too.
    net.run(|| disable_ipv6("t0")).unwrap().unwrap();
    while tun.read(&mut packet).is_ok() {}
    assert_eq!(tun.read(&mut packet).unwrap_err().kind(), ErrorKind::WouldBlock);
    let before = netlink.link_statistics("t0").unwrap();

    socket.send_to(b"yama", "198.18.0.1:7000").unwrap();
    let length = wait_for("the packet comes out", || tun.read(&mut packet).ok());
    assert_eq!(length, VNET_HEADER_BYTES + 20 + 8 + 4);
    assert_eq!(packet[0] & 1, 1, "VIRTIO_NET_HDR_F_NEEDS_CSUM: the checksum is left to do");
    let ip = &mut packet[VNET_HEADER_BYTES..length];
    let swap = |bytes: &mut [u8], first: usize, second: usize, length: usize| {
        (0..length).for_each(|i| bytes.swap(first + i, second + i));
    };
    swap(ip, 12, 16, 4);
    swap(ip, 20, 22, 2);
    assert_eq!(tun.write(&packet[..length]).unwrap(), length);
    let mut answer = [0; 16];
    let (length, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!((&answer[..length], from), (&b"yama"[..], "198.18.0.1:7000".parse().unwrap()));

    // Without offload the checksum is complete.
    tun.set_offload(Offload::None).unwrap();
    socket.send_to(b"yama", "198.18.0.1:7000").unwrap();
    wait_for("the second packet comes out", || tun.read(&mut packet).ok());
    assert_eq!(packet[0] & 1, 0);

    let counted = netlink.link_statistics("t0").unwrap();
    let sent = (counted.tx_packets - before.tx_packets, counted.tx_bytes - before.tx_bytes);
    assert_eq!(sent, (2, 64), "{before:?} {counted:?}");
    assert_eq!((counted.rx_packets, counted.rx_dropped, counted.tx_dropped), (1, 0, 0), "{counted:?}");
}

pub fn network_errors_name_the_cause() {
    let net = NetNamespace::create().unwrap();
    net.run(|| {
        let tun = Tun::open("t0").unwrap();
        assert_eq!(tun.name(), "t0");
        for (name, why) in [
            ("t0", "a device of this name exists already"),
            ("lo", "not a TUN device"),
            ("", "1 to 15 bytes"),
            ("sixteen-letters-", "1 to 15 bytes"),
        ] {
            let error = Tun::open(name).unwrap_err().to_string();
            assert!(error.starts_with("ioctl TUNSETIFF") && error.contains(why), "{error}");
        }
        Tun::open("fifteen-letters").unwrap();
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.link_up("none").unwrap_err().to_string(), "find device none: No such device");
        assert!(netlink.set_mtu("t0", 10).unwrap_err().to_string().starts_with("set mtu 10 of device t0: Invalid"));
        let error = sysctl("net/ipv4/no_such_setting", "1").unwrap_err().to_string();
        assert!(error.starts_with("write \"1\" to /proc/sys/net/ipv4/no_such_setting: "), "{error}");
        // A device that is down accepts no packet, and returns none.
        let mut packet = [0; 64];
        packet[VNET_HEADER_BYTES] = 0x45;
        assert_eq!(tun.write(&packet).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(tun.read(&mut packet).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(tun);
        assert!(netlink.link_index("t0").is_err(), "the device disappears with its descriptor");
    })
    .unwrap();
}

pub fn receive_processing_is_steered() {
    let (net, _tun) = net_with_tun();
    let mask = || {
        let script = "mount -t sysfs sysfs /sys && cat /sys/class/net/t0/queues/rx-0/rps_cpus";
        let shown = net.run(|| Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap()).unwrap();
        String::from_utf8(shown.stdout).unwrap().trim().trim_start_matches(['0', ',']).to_owned()
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    set_rps(&net, "t0", &[0]).unwrap();
    assert_eq!(mask(), "1");
    set_rps(&net, "t0", &[]).unwrap();
    assert_eq!(mask(), "");
    let error = set_rps(&net, "t9", &[0]).unwrap_err().to_string();
    assert!(error.contains("no such device"), "{error}");
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

pub fn tcp_counters_start_with_the_namespace() {
    let net = NetNamespace::create().unwrap();
    net.run(|| {
        Netlink::open().unwrap().link_up("lo").unwrap();
        let before = TcpCounters::read().unwrap();
        assert_eq!(before.count("Tcp.ActiveOpens"), 0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let since = TcpCounters::read().unwrap().since(&before);
        assert_eq!((since.count("Tcp.ActiveOpens"), since.count("Tcp.PassiveOpens")), (1, 1));
        assert!(since.iter().all(|(_, count)| count != 0));
    })
    .unwrap();
}

/// A namespace with a device `t0` that is up and has addresses.
pub fn net_with_tun() -> (NetNamespace, Tun) {
    let net = NetNamespace::create().unwrap();
    let tun = net.run(|| Tun::open("t0").unwrap()).unwrap();
    let mut netlink = net.run(Netlink::open).unwrap().unwrap();
    netlink.set_mtu("t0", 1400).unwrap();
    netlink.set_tx_queue_len("t0", 10_000).unwrap();
    netlink.link_up("t0").unwrap();
    netlink.add_address("t0", "198.19.0.1".parse().unwrap(), 32).unwrap();
    netlink.add_address("t0", "2001:2:0:1::1".parse().unwrap(), 64).unwrap();
    let again = netlink.add_address("t0", "198.19.0.1".parse().unwrap(), 32).unwrap_err().to_string();
    assert_eq!(again, "add address 198.19.0.1/32 to device t0: File exists");
    (net, tun)
}

/// The output of `ip ARGUMENTS` inside.
fn ip(net: &NetNamespace, arguments: &[&str]) -> String {
    let output = net.run(|| Command::new("ip").args(arguments).output().expect("ip of iproute2")).unwrap();
    String::from_utf8(output.stdout).unwrap()
}
