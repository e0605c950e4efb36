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
use web::{Arrived, Bounds, Door, Key, Open, Secret, Settings, Strangers};

/// Longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that authenticates a client by the name it sends.
fn open(strangers: Strangers, known: usize) -> (Open, SocketAddr) {
    let mut settings = Settings::page(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    settings.strangers = Some(strangers);
    settings.bounds = Bounds { connections: known, patience: PATIENCE, ..Bounds::default() };
    let door = Door::bind(settings).unwrap();
    let address = door.address();
    let router = Router::new().fallback(|request: Request| async move {
        let name = request.headers().get("name").map(|name| name.to_str().unwrap().to_owned());
        let arrived = request.extensions().get::<Arrived>().unwrap();
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            arrived.greet(name);
        }
        format!("{} at {}!", name.unwrap_or_default(), arrived.peer().ip())
    });
    (door.open(router, || {}).unwrap(), address)
}

/// Connects from a loopback address.
fn connected(own: [u8; 4], to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let made: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(made.as_raw_fd(), &SockaddrIn::new(own[0], own[1], own[2], own[3], 0)).unwrap();
    connect(made.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, name: &str) {
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nName: {name}\r\n\r\n").unwrap();
    hear(stream);
}

/// Reads a response.
fn hear(stream: &mut TcpStream) {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"!") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// Waits for the end of the connection.
fn is_put_out(stream: &mut TcpStream) -> bool {
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
    let (_open, address) = open(Strangers { connections: 64, life: Duration::from_secs(3600) }, 8);
    let mut known = connected([127, 0, 0, 1], address);
    ask(&mut known, "shop-7");
    // A client with an address of its own that has sent half a request.
    let mut slow = connected([127, 0, 0, 9], address);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nNa").unwrap();
    let mut strangers: Vec<TcpStream> = Vec::new();
    for at in 0..2000 {
        let mut stream = connected([127, 0, 1, 1 + (at % 4) as u8], address);
        // The connection may be closed already.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHo");
        strangers.push(stream);
    }
    ask(&mut known, "shop-7");
    slow.write_all(b"me: shop-8\r\n\r\n").unwrap();
    hear(&mut slow);
    for own in [[127, 0, 0, 10], [127, 0, 1, 1]] {
        ask(&mut connected(own, address), "shop-9");
    }
    // The oldest connections were displaced.
    assert!(strangers[..1900].iter_mut().all(is_put_out));
    let open = strangers[1900..].iter_mut().filter_map(|stream| is_open(stream).then_some(())).count();
    assert!(open <= 64, "{open} are within");
    ask(&mut known, "shop-7");
    ask(&mut slow, "shop-8");
}

#[test]
fn an_authenticated_client_that_opens_endless_connections_displaces_only_its_own() {
    let (_open, address) = open(Strangers { connections: 4, life: Duration::from_secs(3600) }, 4);
    let mut quiet = connected([127, 0, 0, 1], address);
    ask(&mut quiet, "quiet");
    let mut many: Vec<TcpStream> = Vec::new();
    for _ in 0..20 {
        let mut stream = connected([127, 0, 0, 1], address);
        ask(&mut stream, "greedy");
        many.push(stream);
    }
    assert!(many[..17].iter_mut().all(is_put_out));
    many[17..].iter_mut().for_each(|stream| ask(stream, "greedy"));
    ask(&mut quiet, "quiet");
}

#[test]
fn unauthenticated_connections_time_out_and_authenticated_ones_do_not() {
    let (_open, address) = open(Strangers { connections: 4, life: Duration::from_millis(300) }, 4);
    let mut known = connected([127, 0, 0, 1], address);
    ask(&mut known, "shop-7");
    // An unauthenticated connection that is newer than the authenticated one. Responses without a name do not
    // authenticate it.
    let mut stranger = connected([127, 0, 0, 1], address);
    ask(&mut stranger, "");
    assert!(is_put_out(&mut stranger));
    let mut mute = connected([127, 0, 0, 1], address);
    assert!(is_put_out(&mut mute));
    ask(&mut known, "shop-7");
}

/// A page beyond loopback has its secret in its URL.
#[test]
fn a_flood_without_the_secret_does_not_block_a_viewer_with_the_secret() {
    let secret = Secret::given("correct-horse-battery").unwrap();
    let mut settings = Settings::page(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
    assert!(settings.strangers.is_some(), "by default");
    settings.key = Key::InUrl(secret.clone());
    settings.strangers = Some(Strangers { connections: 4, life: Duration::from_secs(3600) });
    settings.bounds = Bounds { connections: 4, patience: PATIENCE, ..Bounds::default() };
    let door = Door::bind(settings).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, door.address().port()));
    let _open = door.open(Router::new().fallback(|| async { "page!" }), || {}).unwrap();
    let read = |stream: &mut TcpStream| {
        write!(stream, "GET /{}/ HTTP/1.1\r\nHost: localhost\r\n\r\n", secret.text()).unwrap();
        hear(stream);
    };
    let mut reader = connected([127, 0, 0, 1], address);
    read(&mut reader);
    let mut flood: Vec<TcpStream> = (0..100).map(|_| connected([127, 0, 0, 7], address)).collect();
    read(&mut reader);
    read(&mut connected([127, 0, 0, 2], address));
    assert!(flood[..90].iter_mut().all(is_put_out));
}
