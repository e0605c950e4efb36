//! Responses to static file requests.

use super::*;

#[test]
fn a_file_response_has_its_header_fields() {
    let server = Running::start();
    // Last-Modified is absent in the second of the change.
    let changed = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = fs::File::options().write(true).open(server.root().join("hello.txt")).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(changed)).unwrap();
    let response = server.connect().get("/hello.txt");
    assert_eq!(response.status(), "200 OK");
    assert_eq!(response.body, b"hello\n");
    assert_eq!(response.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.field("Content-Length"), Some("6"));
    assert_eq!(response.field("Server"), Some("yamabiko"));
    assert_eq!(response.field("Connection"), None);
    for field in ["Date", "Last-Modified"] {
        let date = response.field(field).unwrap();
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{field}: {date}");
    }
}

#[test]
fn files_of_every_size_arrive_completely() {
    // Around the size limits of copied, in-memory and open files, and beyond one turn of sendfile and the socket's
    // buffer.
    let server = Running::start();
    let mut client = server.connect();
    for size in [0, 1, 16_383, 16_384, 16_385, 65_536, 262_144, 262_145, 1 << 20, (1 << 20) + 1, 9_999_999] {
        let content: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        fs::write(server.root().join(size.to_string()), &content).unwrap();
        for _ in 0..2 {
            let response = client.get(&format!("/{size}"));
            assert_eq!(response.status(), "200 OK");
            assert!(response.body == content, "{size} bytes differ");
        }
    }
}

#[test]
fn a_head_response_has_the_fields_of_get_and_no_body() {
    let server = Running::start();
    fs::write(server.root().join("big"), vec![0; 100_000]).unwrap();
    let mut client = server.connect();
    for path in ["/hello.txt", "/big", "/absent"] {
        let get = client.get(path);
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let head = client.response(false);
        assert_eq!(head.status(), get.status());
        assert_eq!(head.field("Content-Length"), get.field("Content-Length"));
    }
    // A body after the HEAD response would be read as the head of this one.
    assert_eq!(client.get("/hello.txt").body, b"hello\n");
}

#[test]
fn directory_requests_redirect_or_serve_the_index() {
    let server = Running::start();
    fs::create_dir(server.root().join("d")).unwrap();
    let mut client = server.connect();
    assert_eq!(client.get("/").status(), "404 Not Found");
    assert_eq!(client.get("/d/").status(), "404 Not Found");
    fs::write(server.root().join("d/index.html"), "page").unwrap();
    let moved = client.get("//d?x");
    assert_eq!((moved.status(), moved.field("Location")), ("301 Moved Permanently", Some("/d/?x")));
    let page = client.get("/d/");
    assert_eq!((page.body.as_slice(), page.field("Content-Type")), (&b"page"[..], Some("text/html; charset=utf-8")));
}

#[test]
fn paths_outside_the_root_are_not_found() {
    let server = Running::start();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(secret.path(), server.root().join("link")).unwrap();
    let name = secret.path().to_str().unwrap();
    let mut client = server.connect();
    for path in ["/link", "/..", "/../", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd", "/a/../../x", name] {
        assert_eq!(client.get(path).status(), "404 Not Found", "{path}");
    }
    assert_eq!(client.get("/%00").status(), "400 Bad Request");
    assert_eq!(client.get("/./hello%2etxt").body, b"hello\n");
}

#[test]
fn refusals_close_the_connection() {
    let server = Running::start();
    let long = "a".repeat(9000);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400 Bad Request"),
        ("nonsense\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET / HTTP/3.0\r\nHost: x\r\n\r\n".to_owned(), "505 HTTP Version Not Supported"),
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), "414 URI Too Long"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}\r\n\r\n"), "431 Request Header Fields Too Large"),
    ] {
        let response_text = server.ask(&format!("{request}GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(response_text.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:.30}: {response_text:?}");
        assert!(response_text.contains("\r\nConnection: close\r\n"));
        assert_eq!(response_text.matches("HTTP/1.1 ").count(), 1, "no response follows a refusal: {response_text:?}");
    }
}

#[test]
fn an_unreadable_file_gives_403() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Running::start();
    let path = server.root().join("closed");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read it nevertheless.
    let expected = if nix::unistd::geteuid().is_root() { "200 OK" } else { "403 Forbidden" };
    assert_eq!(server.connect().get("/closed").status(), expected);
}

#[test]
fn connections_are_spread_over_worker_threads() {
    let server = Running::with(3, Limits::default());
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response(true).body, b"hello\n");
    }
}

#[test]
fn an_unusable_root_is_an_error_at_the_start() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stop = EventFd::new().unwrap();
    let outcome = |root: &str, listen| serve(&ServeSpec::new(root, listen), stop.as_fd(), |_| panic!("not listening"));
    let free = "127.0.0.1:0".parse().unwrap();
    let absent = outcome("/does/not/exist", free).unwrap_err();
    assert!(matches!(absent, ServeError::Root { .. }), "{absent}");
    assert!(matches!(outcome("/etc/passwd", free), Err(ServeError::Root { .. })));
    let taken = outcome("/", held.local_addr().unwrap()).unwrap_err();
    assert!(taken.to_string().starts_with("bind 127.0.0.1:"), "{taken}");
}
