//! Unauthenticated and authenticated connections: floods from one address and from many, over real sockets on loopback.
//! A separate test binary, since it raises the process's limit of open files.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use web::{Bounds, ConnectionHandle, Key, RunningServer, Secret, Server, Settings, UnauthenticatedLimits};

/// Longer than any step of these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that authenticates a client by the name it sends.
fn start(unauthenticated: UnauthenticatedLimits, authenticated: usize) -> (RunningServer, SocketAddr) {
    let mut settings = Settings::page(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    settings.unauthenticated = Some(unauthenticated);
    settings.bounds = Bounds { connections: authenticated, timeout: TEST_TIMEOUT, ..Bounds::default() };
    let server = Server::bind(settings).unwrap();
    let address = server.address();
    let router = Router::new().fallback(|request: Request| async move {
        let name = request.headers().get("name").map(|name| name.to_str().unwrap().to_owned());
        let connection = request.extensions().get::<ConnectionHandle>().unwrap();
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            connection.authenticate(name);
        }
        format!("{} at {}!", name.unwrap_or_default(), connection.peer().ip())
    });
    (server.start(router, || {}).unwrap(), address)
}

/// Connects from a loopback address.
fn connect_from(local: [u8; 4], to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let socket_fd: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(socket_fd.as_raw_fd(), &SockaddrIn::new(local[0], local[1], local[2], local[3], 0)).unwrap();
    connect(socket_fd.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
    let stream = TcpStream::from(socket_fd);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, name: &str) {
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nName: {name}\r\n\r\n").unwrap();
    read_response(stream);
}

/// Reads a response.
fn read_response(stream: &mut TcpStream) {
    let (mut response, mut byte) = (Vec::new(), [0]);
    while !response.ends_with(b"!") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&response));
        response.push(byte[0]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
}

/// Waits until the server closes the connection.
fn is_closed_by_server(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn two_thousand_unauthenticated_connections_do_not_block_an_authenticated_client() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let (_running, address) = start(UnauthenticatedLimits { connections: 64, timeout: Duration::from_secs(3600) }, 8);
    let mut authenticated = connect_from([127, 0, 0, 1], address);
    exchange(&mut authenticated, "shop-7");
    // A client from another address that has sent half a request.
    let mut slow = connect_from([127, 0, 0, 9], address);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nNa").unwrap();
    let mut unauthenticated: Vec<TcpStream> = Vec::new();
    for at in 0..2000 {
        let mut stream = connect_from([127, 0, 1, 1 + (at % 4) as u8], address);
        // The connection may be closed already.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHo");
        unauthenticated.push(stream);
    }
    exchange(&mut authenticated, "shop-7");
    slow.write_all(b"me: shop-8\r\n\r\n").unwrap();
    read_response(&mut slow);
    for local in [[127, 0, 0, 10], [127, 0, 1, 1]] {
        exchange(&mut connect_from(local, address), "shop-9");
    }
    // The oldest connections were displaced.
    assert!(unauthenticated[..1900].iter_mut().all(is_closed_by_server));
    let open = unauthenticated[1900..].iter_mut().filter_map(|stream| is_open(stream).then_some(())).count();
    assert!(open <= 64, "{open} unauthenticated connections are open");
    exchange(&mut authenticated, "shop-7");
    exchange(&mut slow, "shop-8");
}

#[test]
fn an_authenticated_client_that_opens_endless_connections_displaces_only_its_own() {
    let (_running, address) = start(UnauthenticatedLimits { connections: 4, timeout: Duration::from_secs(3600) }, 4);
    let mut quiet = connect_from([127, 0, 0, 1], address);
    exchange(&mut quiet, "quiet");
    let mut many: Vec<TcpStream> = Vec::new();
    for _ in 0..20 {
        let mut stream = connect_from([127, 0, 0, 1], address);
        exchange(&mut stream, "greedy");
        many.push(stream);
    }
    assert!(many[..17].iter_mut().all(is_closed_by_server));
    many[17..].iter_mut().for_each(|stream| exchange(stream, "greedy"));
    exchange(&mut quiet, "quiet");
}

#[test]
fn unauthenticated_connections_time_out_and_authenticated_ones_do_not() {
    let (_running, address) = start(UnauthenticatedLimits { connections: 4, timeout: Duration::from_millis(300) }, 4);
    let mut authenticated = connect_from([127, 0, 0, 1], address);
    exchange(&mut authenticated, "shop-7");
    // An unauthenticated connection that is newer than the authenticated one. Responses without a name do not
    // authenticate it.
    let mut unauthenticated = connect_from([127, 0, 0, 1], address);
    exchange(&mut unauthenticated, "");
    assert!(is_closed_by_server(&mut unauthenticated));
    let mut silent = connect_from([127, 0, 0, 1], address);
    assert!(is_closed_by_server(&mut silent));
    exchange(&mut authenticated, "shop-7");
}

/// A page on an address other than loopback has its secret in its URL.
#[test]
fn a_flood_without_the_secret_does_not_block_a_viewer_with_the_secret() {
    let secret = Secret::parse("correct-horse-battery").unwrap();
    let mut settings = Settings::page(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
    assert!(settings.unauthenticated.is_some(), "unauthenticated connections are limited by default");
    settings.key = Key::InUrl(secret.clone());
    settings.unauthenticated = Some(UnauthenticatedLimits { connections: 4, timeout: Duration::from_secs(3600) });
    settings.bounds = Bounds { connections: 4, timeout: TEST_TIMEOUT, ..Bounds::default() };
    let server = Server::bind(settings).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.address().port()));
    let _running = server.start(Router::new().fallback(|| async { "page!" }), || {}).unwrap();
    let read = |stream: &mut TcpStream| {
        write!(stream, "GET /{}/ HTTP/1.1\r\nHost: localhost\r\n\r\n", secret.text()).unwrap();
        read_response(stream);
    };
    let mut reader = connect_from([127, 0, 0, 1], address);
    read(&mut reader);
    let mut flood: Vec<TcpStream> = (0..100).map(|_| connect_from([127, 0, 0, 7], address)).collect();
    read(&mut reader);
    read(&mut connect_from([127, 0, 0, 2], address));
    assert!(flood[..90].iter_mut().all(is_closed_by_server));
}
