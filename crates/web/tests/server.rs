//! The web front end over real sockets on loopback: which requests are served and which are refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use web::{Bounds, CONTENT_POLICY, Door, Hub, Key, Open, Refusals, Secret, Settings, Viewers, WebServerError};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings::page(ANY).unwrap()
}

/// Responds with the path that the router sees, and accepts a body at `/take`.
fn router() -> Router {
    Router::new()
        .route("/take", post(|body: String| async move { body }))
        .fallback(|request: Request| async move { format!("path {}", request.uri()) })
}

fn open(settings: Settings) -> (Open, SocketAddr) {
    let door = Door::bind(settings).unwrap();
    let address = door.address();
    (door.open(router(), || {}).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends these bytes and reads until the server closes.
fn say(address: SocketAddr, bytes: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after the response also ends the read: the server got more than it reads.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(address: SocketAddr, host: &str, path: &str) -> String {
    say(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

#[test]
fn requests_with_a_foreign_host_are_refused() {
    let mut settings = settings();
    settings.hosts = vec!["bench.example".to_owned()];
    let (_open, address) = open(settings);
    let port = address.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "bench.example", &format!("127.0.0.1:{port}")] {
        assert_eq!(status(&ask(address, host, "/")), 200, "{host}");
    }
    // A foreign name that resolves to this host: DNS rebinding.
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example", "192.0.2.1", ""] {
        let answer = ask(address, host, "/");
        assert_eq!(status(&answer), 403, "{host}: {answer}");
        assert!(answer.contains("--allow-host") && !answer.contains("path /") && !answer.contains("evil"), "{answer}");
    }
    // No `Host`, two of them, and one that contradicts the target.
    assert_ne!(status(&say(address, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n")), 200);
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_ne!(status(&say(address, two)), 200);
    let other = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&say(address, other)), 403);
}

#[test]
fn a_server_with_any_host_accepts_every_name_and_reports_refusals() {
    let (_open, address) = open(Settings { any_host: true, ..settings() });
    assert_eq!(status(&ask(address, "manager.example", "/")), 200);
    let (tell, told) = std::sync::mpsc::channel();
    let mut settings = settings();
    settings.refusals = Some(Refusals(Arc::new(move |peer, status| tell.send((peer, status.as_u16())).unwrap())));
    let (_open, address) = open(settings);
    assert_eq!(status(&ask(address, "localhost", "/")), 200);
    ask(address, "evil.example", "/");
    say(address, "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let refused = [told.recv().unwrap(), told.recv().unwrap()];
    assert_eq!(refused.map(|(_, status)| status), [403, 405]);
    assert!(refused.iter().all(|(peer, _)| peer.is_some_and(|peer| peer.ip() == Ipv4Addr::LOCALHOST)));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_secret_in_the_url_is_required_and_removed_from_the_path() {
    let mut settings = settings();
    settings.key = Key::InUrl(Secret::given("correct-horse-battery").unwrap());
    let door = Door::bind(settings).unwrap();
    let (address, url) = (door.address(), door.url());
    assert_eq!(url, format!("http://{address}/correct-horse-battery/"));
    let _open = door.open(router(), || {}).unwrap();
    for (path, seen) in [
        ("/correct-horse-battery/", "path /"),
        ("/correct-horse-battery", "path /"),
        ("/correct-horse-battery/a/b?c=d", "path /a/b?c=d"),
    ] {
        let answer = ask(address, "localhost", path);
        assert!(status(&answer) == 200 && answer.ends_with(seen), "{answer}");
    }
    for path in [
        "/",
        "/correct-horse-batterz/",
        "/correct-horse-battery2/",
        "/x/correct-horse-battery/",
        "//",
        "/?correct-horse-battery",
    ] {
        let answer = ask(address, "localhost", path);
        assert!(status(&answer) == 403 && !answer.contains("horse"), "{path}: {answer}");
    }
    // The host name is checked first, so that no web site can test secrets through a browser.
    assert!(ask(address, "evil.example", "/correct-horse-battery/").contains("--allow-host"));
}

#[test]
fn a_page_beyond_loopback_has_a_random_secret() {
    let beyond = Settings::page(SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let again = Settings::page("[::]:0".parse().unwrap()).unwrap();
    let (Key::InUrl(one), Key::InUrl(other)) = (beyond.key, again.key) else { panic!("no secret") };
    assert!(one.text().len() >= 22 && one.text() != other.text());
    assert!(matches!(settings().key, Key::None));
}

#[test]
fn a_bearer_token_is_required_from_programs() {
    let mut settings = settings();
    settings.key = Key::Bearer(Secret::given("correct-horse-battery").unwrap());
    settings.reads_only = false;
    settings.bounds.body = 10;
    let (_open, address) = open(settings);
    let ask =
        |field: &str| say(address, &format!("GET /x HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n"));
    assert_eq!(status(&ask("Authorization: Bearer correct-horse-battery\r\n")), 200);
    assert_eq!(status(&ask("Authorization: bearer correct-horse-battery\r\n")), 200);
    for field in ["", "Authorization: Bearer correct-horse-batterz\r\n", "Authorization: correct-horse-battery\r\n"] {
        let answer = ask(field);
        assert!(status(&answer) == 401 && answer.contains("www-authenticate: Bearer"), "{answer}");
    }
    // A body up to the limit; a longer one is refused with and without an announced length.
    let send = |fields: &str, body: &str| {
        let head = "POST /take HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer correct-horse-battery\r\nConnection: close\r\n";
        say(address, &format!("{head}{fields}\r\n{body}"))
    };
    assert!(send("Content-Length: 10\r\n", "0123456789").ends_with("\r\n\r\n0123456789"));
    assert_eq!(status(&send("Content-Length: 11\r\n", "0123456789a")), 413);
    assert_eq!(status(&send("Transfer-Encoding: chunked\r\n", "b\r\n0123456789a\r\n0\r\n\r\n")), 413);
}

#[test]
fn a_page_refuses_methods_other_than_get_and_head() {
    let (_open, address) = open(settings());
    let send = |line: &str| say(address, &format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let answer = send(&format!("{method} /take"));
        assert!(status(&answer) == 405 && answer.contains("allow: GET, HEAD"), "{method}: {answer}");
    }
    assert_eq!(status(&send("HEAD /")), 200);
    let with_body = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(status(&say(address, with_body)), 413);
    // An endless head, and an incomplete one.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(status(&say(address, &long)), 431);
}

#[test]
fn every_response_has_the_security_headers() {
    let (_open, address) = open(settings());
    for (host, path) in [("localhost", "/"), ("evil.example", "/")] {
        let answer = ask(address, host, path).to_lowercase();
        let policy = CONTENT_POLICY.to_lowercase();
        assert!(answer.contains(&format!("content-security-policy: {policy}\r\n")), "{answer}");
        for field in [
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(answer.contains(field), "{field}: {answer}");
        }
        assert!(!answer.contains("access-control-allow"), "{answer}");
    }
    for loose in ["unsafe", "http:", "https:", "*"] {
        assert!(!CONTENT_POLICY.contains(loose), "{loose}");
    }
}

#[test]
fn connections_are_limited_and_become_available_after_a_close() {
    let mut settings = settings();
    settings.bounds = Bounds { connections: 2, ..Bounds::default() };
    let (_open, address) = open(settings);
    let mut held: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
    for stream in &mut held {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_ne!(stream.read(&mut [0; 1]).unwrap(), 0, "those within are served");
    }
    let mut third = connect(address);
    // The connection is closed immediately; the write may fail with a reset.
    let _ = third.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(matches!(third.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(held);
    // Once the connections are closed there is a free slot; the server thread notices it later.
    loop {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if matches!(stream.read(&mut [0; 1]), Ok(1)) {
            break;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_silent_client_times_out() {
    let mut settings = settings();
    settings.bounds.patience = Duration::from_millis(300);
    let (_open, address) = open(settings);
    // Half a head and nothing more; and a connection without a request.
    for said in [&b"GET / HTTP/1.1\r\nHo"[..], b""] {
        let mut mute = connect(address);
        mute.write_all(said).unwrap();
        let mut rest = Vec::new();
        // The connection ends, by FIN or reset.
        if let Err(error) = mute.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    }
}

#[test]
fn twenty_viewers_share_one_serialisation() {
    let viewers = Viewers::new(64);
    let hub = Hub::new(&viewers).unwrap();
    let joined = hub.clone();
    let router = Router::new().route("/events", get(move || async move { joined.join(None) }));
    let door = Door::bind(settings()).unwrap();
    let address = door.address();
    let open = door.open(router, || {}).unwrap();
    hub.publish(None, Box::new(|| "first".to_owned()));
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        read_until(stream, "data: first\n\n");
    }
    assert_eq!((hub.viewers(), hub.serialised()), (20, 1));
    hub.publish(Some("second"), Box::new(|| unreachable!("nobody needs the whole")));
    streams.iter_mut().for_each(|stream| read_until(stream, "data: second\n\n"));
    assert_eq!(hub.serialised(), 2);
    hub.close();
    streams.iter_mut().for_each(|stream| read_until(stream, "event: end\ndata: {}\n\n"));
    open.close(PATIENCE);
    for stream in &mut streams {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("closed in order");
    }
}

fn read_until(stream: &mut TcpStream, wanted: &str) {
    let mut seen = Vec::new();
    let mut byte = [0; 1];
    while !seen.ends_with(wanted.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let (_open, address) = open(settings());
    let error = Door::bind(Settings { listen: address, ..settings() }).unwrap_err();
    assert!(
        matches!(error, WebServerError::Bind { .. })
            && error.to_string().starts_with(&format!("cannot listen on {address}: ")),
        "{error}"
    );
}

#[test]
fn pages_and_checks_work_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let served = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.try_into().unwrap())
        .unwrap();
    let mut settings = settings();
    settings.tls = Some(Arc::new(served));
    settings.bounds.patience = Duration::from_secs(5);
    let door = Door::bind(settings).unwrap();
    let address = door.address();
    assert_eq!(door.url(), format!("https://{address}/"));
    let _open = door.open(router(), || {}).unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(trusting), name).unwrap();
    let mut stream = rustls::StreamOwned::new(session, connect(address));
    stream.write_all(b"GET /in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // Some servers close without close_notify.
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.ends_with("path /in"), "{answer}");
    // Plain HTTP gets no response on a TLS port.
    assert!(!say(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("path"));
}
