//! Connections through a proxy tunnel and a Unix socket, and servers that do not speak the requested protocol.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::document::count;
use crate::support::tls::{Authority, TlsBehaviour, misbehaving_server};
use crate::support::workspace::{Output, Workspace, str_of};
use serde_json::json;

/// A proxy's response to CONNECT.
#[derive(Clone, Copy)]
enum ConnectResponse {
    /// Opens the tunnel.
    OpenTunnel,
    /// Sends this text and closes the connection.
    Send(&'static str),
}

/// Starts a proxy on loopback that runs until the test process exits; returns its address and the received heads.
fn proxy(response: ConnectResponse) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let heads = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heads = Arc::clone(&heads);
            // An error means that the client closed the connection; the test checks the client.
            thread::spawn(move || drop(serve_connect(stream, response, &heads)));
        }
    });
    (address, received)
}

fn serve_connect(mut client: TcpStream, response: ConnectResponse, heads: &Mutex<Vec<String>>) -> io::Result<()> {
    let head = read_head(&mut client)?;
    let to = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(head);
    match response {
        ConnectResponse::Send(words) => {
            client.write_all(words.as_bytes())?;
            client.shutdown(Shutdown::Write)?;
            client.read_to_end(&mut Vec::new()).map(drop)
        }
        ConnectResponse::OpenTunnel => {
            let server = TcpStream::connect(&to)?;
            client.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")?;
            let (mut up, mut down) = ((client.try_clone()?, server.try_clone()?), (server, client));
            let upwards = thread::spawn(move || io::copy(&mut up.0, &mut up.1).map(|_| up.1.shutdown(Shutdown::Write)));
            io::copy(&mut down.0, &mut down.1)?;
            down.1.shutdown(Shutdown::Write)?;
            drop(upwards.join());
            Ok(())
        }
    }
}

fn read_head(stream: &mut impl io::Read) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn failed(output: &Output) -> serde_json::Value {
    output.json()["load"]["failed"].clone()
}

#[test]
fn a_tunnel_through_a_proxy_reaches_a_tls_server() {
    let workspace = Workspace::concurrent();
    let authority = Authority::new(&workspace, "tunnelled");
    let server = misbehaving_server(&authority.sign(&["127.0.0.1"], 2090), TlsBehaviour::OmitsCloseNotifyWithLength);
    let (address, heads) = proxy(ConnectResponse::OpenTunnel);
    let ca = authority.file();
    let url = format!("https://{server}/");
    let through = format!("Aladdin:open sesame@{address}");
    let arguments =
        ["bench", &url, "--cacert", str_of(&ca), "--proxy", &through, "-n", "6", "-c", "2", "--close", "--json"];
    let output = workspace.run(&arguments);
    assert_eq!(output.json()["load"]["status"], json!({ "200": 6 }), "{output}");
    assert_eq!(count(&output.json(), "load.tls_handshake_ns.count"), 6, "{output}");
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 6);
    for head in heads.iter() {
        assert!(head.starts_with(&format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n")), "{head}");
        assert!(head.contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"), "{head}");
    }
}

#[test]
fn a_proxy_that_refuses_connect_is_reported() {
    let workspace = Workspace::concurrent();
    for (words, cause, status) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "proxy_refused", 407),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "proxy_refused", 503),
        ("", "connect_failed", 0),
        ("SSH-2.0-missing\r\n", "malformed", 0),
    ] {
        let (address, _) = proxy(ConnectResponse::Send(words));
        for version in ["1.1", "2"] {
            let through = address.to_string();
            let arguments = [
                "bench",
                "https://192.0.2.1/",
                "-k",
                "--http",
                version,
                "--proxy",
                &through,
                "-n",
                "4",
                "-c",
                "2",
                "--json",
            ];
            let output = workspace.run(&arguments);
            assert_eq!(failed(&output), json!({ cause: 4 }), "{output}");
            let dir = output.json()["run"]["dir"].as_str().unwrap().to_owned();
            let rows: Vec<_> = store::read_requests(dir.as_ref()).unwrap().collect::<Result<_, _>>().unwrap();
            assert!(rows.iter().all(|request| request.status == status), "{rows:?}");
            assert!(rows.iter().all(|request| request.secured_at.is_none()), "{rows:?}");
        }
    }
}

#[test]
fn a_proxy_gets_credentials_with_a_plain_url() {
    let workspace = Workspace::concurrent();
    let (address, heads) =
        proxy(ConnectResponse::Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    let through = format!("me:secret@{address}");
    let output =
        workspace.run(&["bench", "http://shop.example/a", "--proxy", &through, "-n", "2", "-c", "1", "--json"]);
    assert_eq!(output.json()["load"]["status"], json!({ "200": 2 }), "{output}");
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.starts_with("GET http://shop.example/a HTTP/1.1\r\n")), "{heads:?}");
    assert!(heads.iter().all(|head| head.contains("\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n")), "{heads:?}");
}

#[test]
fn a_server_that_does_not_negotiate_http2_is_reported() {
    let workspace = Workspace::concurrent();
    let authority = Authority::new(&workspace, "unchosen");
    let server = misbehaving_server(&authority.sign(&["127.0.0.1"], 2090), TlsBehaviour::SendsCloseNotify);
    let output =
        workspace.run(&["bench", &format!("https://{server}/"), "-k", "--http", "2", "-n", "4", "-c", "2", "--json"]);
    assert_eq!(failed(&output), json!({ "tls_handshake": 4 }), "{output}");
    let why = output.json()["load"]["tls"]["first_failure"].as_str().unwrap().to_owned();
    assert!(why.contains("ALPN") && why.contains("--http 1.1"), "{why}");
}

#[test]
fn a_unix_socket_is_requested() {
    let workspace = Workspace::concurrent();
    let path = workspace.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let hosts = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&hosts);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let received = Arc::clone(&received);
            thread::spawn(move || {
                while let Ok(head) = read_head(&mut stream) {
                    received.lock().unwrap().push(head);
                    // More bytes than the unread data that TCP would discard on close.
                    let body = "x".repeat(100_000);
                    if write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{body}").is_err() {
                        return;
                    }
                }
            });
        }
    });
    for engine in ["epoll", "auto"] {
        let arguments = [
            "bench",
            "http://shop.example/a",
            "--unix",
            "server.sock",
            "-n",
            "20",
            "-c",
            "2",
            "--engine",
            engine,
            "--json",
        ];
        let output = workspace.run(&arguments);
        assert_eq!(output.json()["load"]["status"], json!({ "200": 20 }), "{output}");
        assert!(count(&output.json(), "load.bytes_received") > 2_000_000, "{output}");
        assert_eq!(count(&output.json(), "load.connect_ns.count"), 2, "{output}");
    }
    assert!(hosts.lock().unwrap().iter().all(|head| head.contains("\r\nHost: shop.example\r\n")));
    let missing = workspace.run(&["bench", "http://h/", "--unix", "missing.sock", "-n", "2", "-c", "1", "--json"]);
    assert_eq!(failed(&missing), json!({ "connect_failed": 2 }), "{missing}");
    let refused = workspace.run(&["bench", "http://h/", "--unix", "server.sock", "--rtt", "10ms", "-n", "2"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("--unix"), "{refused}");
}
