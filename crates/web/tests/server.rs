//! The web front end over real sockets on loopback: which requests are served and which are refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use web::{
    Bounds, CONTENT_POLICY, Hub, Key, Refusals, RunningServer, Secret, Server, Settings, Viewers, WebServerError,
};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Longer than any step of these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings::page(ANY).unwrap()
}

/// Responds with the path that the router sees, and accepts a body at `/echo`.
fn router() -> Router {
    Router::new()
        .route("/echo", post(|body: String| async move { body }))
        .fallback(|request: Request| async move { format!("path {}", request.uri()) })
}

fn start(settings: Settings) -> (RunningServer, SocketAddr) {
    let server = Server::bind(settings).unwrap();
    let address = server.address();
    (server.start(router(), || {}).unwrap(), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Sends `bytes` and reads the response until the server closes.
fn send_bytes(address: SocketAddr, bytes: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut response = Vec::new();
    // A reset after the response also ends the read: the server received more than it reads.
    if let Err(error) = stream.read_to_end(&mut response) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&response).into_owned()
}

fn get_path(address: SocketAddr, host: &str, path: &str) -> String {
    send_bytes(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no response: {response:?}"))
}

#[test]
fn requests_with_a_foreign_host_are_refused() {
    let mut settings = settings();
    settings.hosts = vec!["bench.example".to_owned()];
    let (_running, address) = start(settings);
    let port = address.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "bench.example", &format!("127.0.0.1:{port}")] {
        assert_eq!(status(&get_path(address, host, "/")), 200, "{host}");
    }
    // A foreign name that resolves to this host: DNS rebinding.
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example", "192.0.2.1", ""] {
        let response = get_path(address, host, "/");
        assert_eq!(status(&response), 403, "{host}: {response}");
        assert!(
            response.contains("--allow-host") && !response.contains("path /") && !response.contains("evil"),
            "{response}"
        );
    }
    // A missing `Host`, two `Host` fields, and a `Host` that contradicts the request target.
    assert_ne!(status(&send_bytes(address, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n")), 200);
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_ne!(status(&send_bytes(address, two)), 200);
    let other = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&send_bytes(address, other)), 403);
}

#[test]
fn a_server_with_any_host_accepts_every_name_and_reports_refusals() {
    let (_running, address) = start(Settings { any_host: true, ..settings() });
    assert_eq!(status(&get_path(address, "manager.example", "/")), 200);
    let (report, refusals) = std::sync::mpsc::channel();
    let mut settings = settings();
    settings.refusals = Some(Refusals(Arc::new(move |peer, status| report.send((peer, status.as_u16())).unwrap())));
    let (_running, address) = start(settings);
    assert_eq!(status(&get_path(address, "localhost", "/")), 200);
    get_path(address, "evil.example", "/");
    send_bytes(address, "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let refused = [refusals.recv().unwrap(), refusals.recv().unwrap()];
    assert_eq!(refused.map(|(_, status)| status), [403, 405]);
    assert!(refused.iter().all(|(peer, _)| peer.is_some_and(|peer| peer.ip() == Ipv4Addr::LOCALHOST)));
    assert!(refusals.try_recv().is_err());
}

#[test]
fn a_secret_in_the_url_is_required_and_removed_from_the_path() {
    let mut settings = settings();
    settings.key = Key::InUrl(Secret::parse("correct-horse-battery").unwrap());
    let server = Server::bind(settings).unwrap();
    let (address, url) = (server.address(), server.url());
    assert_eq!(url, format!("http://{address}/correct-horse-battery/"));
    let _running = server.start(router(), || {}).unwrap();
    for (path, expected_path) in [
        ("/correct-horse-battery/", "path /"),
        ("/correct-horse-battery", "path /"),
        ("/correct-horse-battery/a/b?c=d", "path /a/b?c=d"),
    ] {
        let response = get_path(address, "localhost", path);
        assert!(status(&response) == 200 && response.ends_with(expected_path), "{response}");
    }
    for path in [
        "/",
        "/correct-horse-batterz/",
        "/correct-horse-battery2/",
        "/x/correct-horse-battery/",
        "//",
        "/?correct-horse-battery",
    ] {
        let response = get_path(address, "localhost", path);
        assert!(status(&response) == 403 && !response.contains("horse"), "{path}: {response}");
    }
    // The host name is checked first, so that no web site can test secrets through a browser.
    assert!(get_path(address, "evil.example", "/correct-horse-battery/").contains("--allow-host"));
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
    settings.key = Key::Bearer(Secret::parse("correct-horse-battery").unwrap());
    settings.read_only = false;
    settings.bounds.body = 10;
    let (_running, address) = start(settings);

    let get_with = |field: &str| {
        send_bytes(address, &format!("GET /x HTTP/1.1\r\nHost: localhost\r\n{field}Connection: close\r\n\r\n"))
    };
    assert_eq!(status(&get_with("Authorization: Bearer correct-horse-battery\r\n")), 200);
    assert_eq!(status(&get_with("Authorization: bearer correct-horse-battery\r\n")), 200);
    for field in ["", "Authorization: Bearer correct-horse-batterz\r\n", "Authorization: correct-horse-battery\r\n"] {
        let response = get_with(field);
        assert!(status(&response) == 401 && response.contains("www-authenticate: Bearer"), "{response}");
    }
    // A body up to the limit; a longer one is refused with and without an announced length.
    let send = |fields: &str, body: &str| {
        let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer correct-horse-battery\r\nConnection: close\r\n";
        send_bytes(address, &format!("{head}{fields}\r\n{body}"))
    };
    assert!(send("Content-Length: 10\r\n", "0123456789").ends_with("\r\n\r\n0123456789"));
    assert_eq!(status(&send("Content-Length: 11\r\n", "0123456789a")), 413);
    assert_eq!(status(&send("Transfer-Encoding: chunked\r\n", "b\r\n0123456789a\r\n0\r\n\r\n")), 413);
}

#[test]
fn a_page_refuses_methods_other_than_get_and_head() {
    let (_running, address) = start(settings());
    let send =
        |line: &str| send_bytes(address, &format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let response = send(&format!("{method} /echo"));
        assert!(status(&response) == 405 && response.contains("allow: GET, HEAD"), "{method}: {response}");
    }
    assert_eq!(status(&send("HEAD /")), 200);
    let with_body = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(status(&send_bytes(address, with_body)), 413);
    // A request head beyond the length limit.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(status(&send_bytes(address, &long)), 431);
}

#[test]
fn every_response_has_the_security_headers() {
    let (_running, address) = start(settings());
    for (host, path) in [("localhost", "/"), ("evil.example", "/")] {
        let response = get_path(address, host, path).to_lowercase();
        let policy = CONTENT_POLICY.to_lowercase();
        assert!(response.contains(&format!("content-security-policy: {policy}\r\n")), "{response}");
        for field in [
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(response.contains(field), "{field}: {response}");
        }
        assert!(!response.contains("access-control-allow"), "{response}");
    }
    for forbidden in ["unsafe", "http:", "https:", "*"] {
        assert!(!CONTENT_POLICY.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn connections_are_limited_and_become_available_after_a_close() {
    let mut settings = settings();
    settings.bounds = Bounds { connections: 2, ..Bounds::default() };
    let (_running, address) = start(settings);
    let mut streams: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_ne!(stream.read(&mut [0; 1]).unwrap(), 0, "connections within the limit are served");
    }
    let mut third = connect(address);
    // The connection is closed immediately; the write may fail with a reset.
    let _ = third.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(matches!(third.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(streams);
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
    settings.bounds.timeout = Duration::from_millis(300);
    let (_running, address) = start(settings);
    // A connection that sends half a request head and stalls, and a connection without a request.
    for sent in [&b"GET / HTTP/1.1\r\nHo"[..], b""] {
        let mut client = connect(address);
        client.write_all(sent).unwrap();
        let mut rest = Vec::new();
        // The server closes the connection by FIN or reset.
        if let Err(error) = client.read_to_end(&mut rest) {
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
    let server = Server::bind(settings()).unwrap();
    let address = server.address();
    let running = server.start(router, || {}).unwrap();
    hub.publish(None, Box::new(|| "first".to_owned()));
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        read_until(stream, "data: first\n\n");
    }
    assert_eq!((hub.viewers(), hub.serialised()), (20, 1));
    hub.publish(Some("second"), Box::new(|| unreachable!("no viewer needs a snapshot")));
    streams.iter_mut().for_each(|stream| read_until(stream, "data: second\n\n"));
    assert_eq!(hub.serialised(), 2);
    hub.close();
    streams.iter_mut().for_each(|stream| read_until(stream, "event: end\ndata: {}\n\n"));
    running.close(TEST_TIMEOUT);
    for stream in &mut streams {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the stream ends without a reset");
    }
}

fn read_until(stream: &mut TcpStream, expected: &str) {
    let mut seen = Vec::new();
    let mut byte = [0; 1];
    while !seen.ends_with(expected.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let (_running, address) = start(settings());
    let error = Server::bind(Settings { listen: address, ..settings() }).unwrap_err();
    assert!(
        matches!(error, WebServerError::Bind { .. })
            && error.to_string().starts_with(&format!("cannot listen on {address}: ")),
        "{error}"
    );
}

#[test]
fn pages_and_checks_work_over_tls() {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (generated.cert.der().clone(), generated.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server_config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.try_into().unwrap())
        .unwrap();
    let mut settings = settings();
    settings.tls = Some(Arc::new(server_config));
    settings.bounds.timeout = Duration::from_secs(5);
    let server = Server::bind(settings).unwrap();
    let address = server.address();
    assert_eq!(server.url(), format!("https://{address}/"));
    let _running = server.start(router(), || {}).unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client_config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(client_config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(session, connect(address));
    stream.write_all(b"GET /in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    // Some servers close without close_notify.
    let _ = stream.read_to_string(&mut response);
    assert!(response.ends_with("path /in"), "{response}");
    // Plain HTTP gets no response on a TLS port.
    assert!(!send_bytes(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("path"));
}
