//! HTTPS records of DNS (RFC 9460): whether a site offers HTTP/3 before its first response.
//!
//! The system's resolver interface does not return them, so the name servers of `/etc/resolv.conf` are queried directly:
//! over UDP, and over TCP if a response does not fit. One question needs no resolver library, which would bring a cache and
//! an asynchronous runtime.

use std::io::{self, Error, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use simple_dns::rdata::{RData, SVCB, SVCParam};
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use sys::clock::Clock;

/// The system's list of name servers.
const RESOLVERS: &str = "/etc/resolv.conf";
/// Port of DNS.
const PORT: u16 = 53;
/// Time until the next name server is queried.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most name servers, as in the system's resolver.
const SERVERS_MAX: usize = 3;
/// Largest response over UDP without EDNS; larger ones come over TCP.
const UDP_MAX: usize = 512;

/// Whether the HTTPS record of a host offers HTTP/3 at this port of the host itself. A name without a dot has none.
///
/// # Errors
/// No name server of the system answers.
pub fn offers_http3(host: &str, port: u16) -> io::Result<bool> {
    if host.parse::<IpAddr>().is_ok() || !host.trim_end_matches('.').contains('.') {
        return Ok(false);
    }
    let servers = name_servers(&std::fs::read_to_string(Path::new(RESOLVERS))?);
    let mut last = Error::new(ErrorKind::NotFound, format!("{RESOLVERS} names no name server"));
    for server in servers {
        match records(server, host, port) {
            Ok(offers) => return Ok(offers),
            Err(error) => last = Error::new(error.kind(), format!("name server {}: {error}", server.ip())),
        }
    }
    Err(last)
}

fn name_servers(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().filter_map(address).map(|address: IpAddr| SocketAddr::new(address, PORT)).take(SERVERS_MAX).collect()
}

/// Queries one name server.
fn records(server: SocketAddr, host: &str, port: u16) -> io::Result<bool> {
    let id = (sys::clock::realtime_ns() >> 10) as u16;
    let name = query_name(host, port);
    let query = query(id, &name)?;
    let response = over_udp(server, &query, id)?;
    let is_cut = Packet::parse(&response).is_ok_and(|packet| packet.has_flags(PacketFlag::TRUNCATION));
    let response = if is_cut { over_tcp(server, &query)? } else { response };
    let packet = Packet::parse(&response).map_err(malformed)?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err(malformed("it responds to another query"));
    }
    match packet.rcode() {
        RCODE::NoError => Ok(packet.answers.iter().any(|answer| is_offer(&answer.rdata, host, port))),
        RCODE::NameError => Ok(false),
        other => Err(Error::other(format!("responded {other:?}"))),
    }
}

/// RFC 9460, section 9.1: other ports than 443 have names of their own.
fn query_name(host: &str, port: u16) -> String {
    let host = host.trim_end_matches('.');
    if port == 443 { host.to_owned() } else { format!("_{port}._https.{host}") }
}

fn query(id: u16, name: &str) -> io::Result<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{name}: {error}")))?;
    packet.questions.push(Question::new(name, TYPE::HTTPS.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(malformed)
}

fn over_udp(server: SocketAddr, query: &[u8], id: u16) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    // The kernel then drops datagrams from elsewhere.
    socket.connect(server)?;
    socket.send(query)?;
    let clock = Clock::start();
    let mut buffer = [0; UDP_MAX];
    loop {
        let passed = Duration::from_nanos(clock.now().as_nanos());
        let left = TIMEOUT.checked_sub(passed).filter(|left| !left.is_zero());
        let left = left.ok_or_else(|| Error::new(ErrorKind::TimedOut, format!("no answer within {TIMEOUT:?}")))?;
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            // A late response to an earlier query of this port is not ours.
            Ok(length) if buffer[..length].starts_with(&id.to_be_bytes()) => return Ok(buffer[..length].to_vec()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// RFC 1035, section 4.2.2: a length before each message.
fn over_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let length = u16::try_from(query.len()).map_err(malformed)?;
    stream.write_all(&[&length.to_be_bytes()[..], query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut response = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut response)?;
    Ok(response)
}

/// Whether a record offers HTTP/3 at this host and port. A record that requires a parameter that is not understood here
/// does not count (RFC 9460, section 8).
fn is_offer(record: &RData<'_>, host: &str, port: u16) -> bool {
    let RData::HTTPS(record) = record else { return false };
    let record: &SVCB<'_> = record;
    let target = record.target.to_string();
    let is_own = target.is_empty() || target.eq_ignore_ascii_case(host.trim_end_matches('.'));
    // Priority 0 is an alias without parameters.
    let mut has_http3 = false;
    for param in record.iter_params() {
        match param {
            SVCParam::Alpn(protocols) => has_http3 |= protocols.iter().any(|protocol| protocol.to_string() == "h3"),
            SVCParam::Port(other) if *other != port => return false,
            SVCParam::Mandatory(keys) if keys.iter().any(|key| !UNDERSTOOD.contains(key)) => return false,
            _ => {}
        }
    }
    record.priority > 0 && is_own && has_http3
}

/// Keys of parameters that are obeyed, or that change nothing here: alpn, no-default-alpn, port, and the address hints.
const UNDERSTOOD: [u16; 5] = [1, 2, 3, 4, 6];

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use simple_dns::rdata::HTTPS;
    use simple_dns::{CharacterString, ResourceRecord};

    use super::*;

    fn record(priority: u16, target: &str, protocols: &[&str], port: Option<u16>) -> SVCB<'static> {
        let mut record = SVCB::new(priority, Name::new(target).unwrap().into_owned());
        let protocols: Vec<CharacterString<'_>> =
            protocols.iter().map(|name| CharacterString::new(name.as_bytes()).unwrap().into_owned()).collect();
        record.set_alpn(&protocols);
        port.into_iter().for_each(|port| record.set_port(port));
        record
    }

    #[test]
    fn records_offer_http3_at_their_own_host_and_port() {
        let offers = |record: SVCB<'static>| is_offer(&RData::HTTPS(HTTPS(record)), "shop.example", 443);
        assert!(offers(record(1, "", &["h2", "h3"], None)));
        assert!(offers(record(1, "shop.example", &["h3"], Some(443))));
        assert!(!offers(record(1, "", &["h2"], None)));
        assert!(!offers(record(0, "", &["h3"], None)));
        assert!(!offers(record(1, "cdn.example", &["h3"], None)));
        assert!(!offers(record(1, "", &["h3"], Some(8443))));
        let mut strange = record(1, "", &["h3"], None);
        strange.set_mandatory([1].into_iter());
        assert!(offers(strange.clone()));
        strange.set_mandatory([1, 5].into_iter());
        assert!(!offers(strange));
    }

    #[test]
    fn name_servers_and_names_are_those_of_the_system_and_the_port() {
        let text =
            "# nameserver 192.0.2.1\nsearch example\nnameserver 192.0.2.2\nnameserver 2001:db8::1\nnameserver x\n";
        let servers: Vec<String> = name_servers(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["192.0.2.2:53", "[2001:db8::1]:53"]);
        assert_eq!(query_name("shop.example.", 443), "shop.example");
        assert_eq!(query_name("shop.example", 8443), "_8443._https.shop.example");
        for without in ["localhost", "server", "192.0.2.1", "::1"] {
            assert!(!offers_http3(without, 443).unwrap(), "{without}");
        }
    }

    /// Answers one query over UDP as `change` makes it, and one over TCP whole.
    fn name_server(change: impl Fn(&mut Packet<'_>) + Send + 'static) -> SocketAddr {
        // The port that the kernel chooses for one protocol may be in use by the other.
        let both = || {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            let tcp = TcpListener::bind(udp.local_addr().unwrap()).ok()?;
            Some((udp, tcp))
        };
        let (udp, tcp) = (0..100).find_map(|_| both()).unwrap();
        let address = udp.local_addr().unwrap();
        let answer = |query: &[u8]| {
            let query = Packet::parse(query).unwrap();
            assert_eq!(query.questions[0].qname.to_string(), "_8443._https.shop.example");
            let mut reply = Packet::new_reply(query.id());
            let data = RData::HTTPS(HTTPS(record(1, "shop.example", &["h3"], Some(8443))));
            reply.answers.push(ResourceRecord::new(query.questions[0].qname.clone().into_owned(), CLASS::IN, 60, data));
            reply
        };
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let (length, from) = udp.recv_from(&mut buffer).unwrap();
            let mut reply = answer(&buffer[..length]);
            change(&mut reply);
            udp.send_to(b"other", from).unwrap();
            udp.send_to(&reply.build_bytes_vec().unwrap(), from).unwrap();
            let (mut stream, _) = tcp.accept().unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).unwrap();
            let reply = answer(&query).build_bytes_vec().unwrap();
            stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat()).unwrap();
        });
        address
    }

    #[test]
    fn answers_are_read_over_udp_and_long_ones_over_tcp() {
        assert!(records(name_server(|_| {}), "shop.example", 8443).unwrap());
        let cut = name_server(|reply| {
            reply.answers.clear();
            reply.set_flags(PacketFlag::TRUNCATION);
        });
        assert!(records(cut, "shop.example", 8443).unwrap());
        assert!(!records(name_server(|reply| reply.answers.clear()), "shop.example", 8443).unwrap());
        let refusing = name_server(|reply| *reply.rcode_mut() = RCODE::Refused);
        assert!(records(refusing, "shop.example", 8443).unwrap_err().to_string().contains("Refused"));
    }
}
