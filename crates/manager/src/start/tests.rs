use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Mutex;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tempfile::TempDir;

use super::*;
use crate::testing::{SECOND_NS, batch, found, number, stream};
use crate::tokens::{self, Role};
use tap_protocol::{Batch, Hello, Refusal, SpoolUsage, Stored, Welcome};

/// A manager, its folder, and its log.
struct Trial {
    running: Option<Running>,
    folder: TempDir,
    log: Arc<Mutex<Vec<String>>>,
}

impl Trial {
    fn new() -> Trial {
        Trial::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Plan)) -> Trial {
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut trial = Trial { running: None, folder, log };
        let mut plan = trial.plan();
        change(&mut plan);
        trial.start(&plan);
        trial
    }

    fn plan(&self) -> Plan {
        Plan::new(self.folder.path().to_owned(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    fn start(&mut self, plan: &Plan) {
        let log = Arc::clone(&self.log);
        let log: Log = Arc::new(move |line| log.lock().unwrap().push(line.to_owned()));
        self.running = Some(Running::start(plan, log).unwrap());
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn token(&self, name: &str, role: Role) -> String {
        tokens::add(self.running().data(), name, role, realtime_ns()).unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.running().url().trim_start_matches("https://").trim_end_matches('/').parse().unwrap()
    }

    fn client(&self) -> Client {
        Client::over(TcpStream::connect(self.address()).unwrap(), &self.running().served().trusted)
    }

    fn client_from(&self, local: [u8; 4]) -> Client {
        Client::over(connect_from(local, self.address()), &self.running().served().trusted)
    }

    fn count(&self, sql: &str) -> i64 {
        number(self.running().data(), sql)
    }
}

/// A connection from a loopback address.
fn connect_from(local: [u8; 4], to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let socket_fd: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(socket_fd.as_raw_fd(), &SockaddrIn::new(local[0], local[1], local[2], local[3], 0)).unwrap();
    connect(socket_fd.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
    TcpStream::from(socket_fd)
}

/// A scripted agent: hand-written HTTP over TLS.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn refusal(&self) -> Refusal {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn stored(&self) -> Stored {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Client {
    fn over(socket: TcpStream, ca: &std::path::Path) -> Client {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        Client { stream: StreamOwned::new(session, socket) }
    }

    fn request(&mut self, line: &str, fields: &str, body: &[u8]) -> Response {
        let length =
            if fields.contains("chunked") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{line} HTTP/1.1\r\nHost: manager\r\n{length}{fields}\r\n");
        self.stream.write_all(head.as_bytes()).unwrap();
        // The server may respond and close before everything is sent.
        let _ = self.stream.write_all(body);
        self.read_response()
    }

    fn read_response(&mut self) -> Response {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            assert_eq!(self.stream.read(&mut byte).unwrap(), 1, "closed after {:?}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.unwrap_or("0").parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head, body: String::from_utf8(body).unwrap() }
    }

    fn send(&mut self, agent: &str, token: &str, batch: &Batch) -> Response {
        let (zero, body) = (now_zero(), serde_json::to_vec(batch).unwrap());
        let fields =
            format!("{}{}: {zero}\r\n{}: 1000\r\n", fields(token), tap_protocol::ZERO, tap_protocol::ZERO_ERROR);
        self.request(&format!("POST /api/1/agents/{agent}/batches"), &fields, &body)
    }
}

fn fields(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n")
}

/// A clock zero that puts the batches of these tests into the last seconds.
fn now_zero() -> u64 {
    realtime_ns() - 100 * SECOND_NS
}

fn numbered(digit: char, sequence: u64) -> Batch {
    batch(&stream(digit), sequence, &[90 * SECOND_NS, 91 * SECOND_NS])
}

#[test]
fn batches_are_stored_written_to_files_and_survive_a_restart() {
    let mut trial = Trial::new();
    let token = trial.token("shop-7", Role::Agent);
    let mut client = trial.client();
    let hello = Hello {
        stream: stream('a'),
        boot: "b".into(),
        host: "shop".into(),
        version: "1".into(),
        kernel: "6".into(),
        spool: SpoolUsage::default(),
        now_ns: 1,
        zero_own_unix_ns: 1,
        settings: 0,
    };
    let before = realtime_ns();
    let response =
        client.request("POST /api/1/agents/shop-7/hello", &fields(&token), &serde_json::to_vec(&hello).unwrap());
    let welcome: Welcome = serde_json::from_str(&response.body).unwrap();
    assert!(before <= welcome.received_unix_ns && welcome.received_unix_ns <= welcome.answered_unix_ns);
    assert_eq!((welcome.stored_through, welcome.settings), (0, tap_protocol::Settings::default()));
    for sequence in 1..=3 {
        let stored = client.send("shop-7", &token, &numbered('a', sequence)).stored();
        assert_eq!((stored.stored_through, stored.settings), (sequence, None));
    }
    // The settings come with the next response.
    let settings = crate::settings::UnversionedSettings { only: vec![], programs: vec![], share: 0.5 };
    trial.running().data().change(|index| crate::settings::change(index, "shop-7", &settings, 1)).unwrap();
    assert_eq!(client.send("shop-7", &token, &numbered('a', 4)).stored().settings.unwrap().share, 0.5);
    assert_eq!(trial.count("SELECT count(*) FROM agents WHERE last_address = '127.0.0.1' AND host = 'shop'"), 1);

    let (plan, url) = (trial.plan(), trial.running().page_url().to_owned());
    trial.running.take().unwrap().stop();
    assert!(!trial.folder.path().join("index.sqlite-wal").exists(), "the write-ahead log is merged into the index");
    trial.start(&plan);
    assert_eq!(trial.count("SELECT count(*) FROM pending"), 0);
    assert_eq!(found(trial.running().data()).len(), 8);
    assert!(trial.running().is_running());
    let secret = |url: &str| url.rsplit('/').nth(1).unwrap().to_owned();
    assert_eq!(secret(&url), secret(trial.running().page_url()), "the page's secret survives a restart");
    let mut client = trial.client();
    let replayed = client.send("shop-7", &token, &numbered('a', 4));
    assert_eq!((replayed.status, replayed.refusal().stored_through), (409, Some(4)));
    assert_eq!(client.send("shop-7", &token, &numbered('a', 5)).stored().stored_through, 5);
}

/// A case: name, request line, headers, body, and the expected response.
type Case = (&'static str, &'static str, String, Vec<u8>, u16, RefusalReason);

/// Each refusal from outside: its status, its text, its row in the log, and nothing stored.
#[test]
fn each_refused_request_is_explained_logged_and_stores_nothing() {
    let trial = Trial::new();
    let [token, other, operator] = [("shop-7", Role::Agent), ("shop-8", Role::Agent), ("boss", Role::Operator)]
        .map(|(name, role)| trial.token(name, role));
    let revoked = trial.token("gone", Role::Agent);
    tokens::revoke(trial.running().data(), "gone", None, 1).unwrap();
    trial.client().send("shop-8", &other, &numbered('b', 1)).stored();
    trial.client().send("shop-7", &token, &numbered('a', 1)).stored();

    let json = |batch: &Batch| serde_json::to_vec(batch).unwrap();
    let good = json(&numbered('a', 2));
    let plain = |token: &str| fields(token);
    let packed = |token: &str| fields(token) + "Content-Encoding: gzip\r\n";
    let zipped = |text: &[u8]| {
        let mut packed = Vec::new();
        flate2::read::GzEncoder::new(text, flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
        packed
    };
    let bomb = zipped(&vec![b' '; tap_protocol::UNPACKED_MAX + 1]);
    let mut many = numbered('a', 2);
    many.rows = vec![
        schema::TapRow { peer: None, local: None, program: None, ..many.rows[0].clone() };
        tap_protocol::ROWS_MAX + 1
    ];
    let mut impossible_row = numbered('a', 2);
    impossible_row.rows[0].sent_last_at_ns = Some(1);
    let mut future = numbered('a', 2);
    future.sealed_at_ns = 3600 * SECOND_NS;
    let chunk = vec![b'x'; 1 << 20];
    let chunked = [b"100000\r\n".to_vec(), chunk, b"\r\n".to_vec()].concat().repeat(3);
    let batches = "POST /api/1/agents/shop-7/batches";
    let zero = format!("{}: {}\r\n", tap_protocol::ZERO, now_zero());
    let cases: Vec<Case> = vec![
        (
            "no token",
            batches,
            "Content-Type: application/json\r\n".into(),
            good.clone(),
            401,
            RefusalReason::Unauthenticated,
        ),
        ("a wrong token", batches, plain("shop-7.AAAA"), good.clone(), 401, RefusalReason::Unauthenticated),
        ("a revoked token", batches, plain(&revoked), good.clone(), 401, RefusalReason::Unauthenticated),
        ("a token of another agent", batches, plain(&other), good.clone(), 403, RefusalReason::Forbidden),
        ("a token of no agent", batches, plain(&operator), good.clone(), 403, RefusalReason::Forbidden),
        ("a stream of another agent", batches, plain(&token), json(&numbered('b', 2)), 403, RefusalReason::Forbidden),
        ("too long", batches, plain(&token), vec![b'x'; tap_protocol::BODY_MAX + 1], 413, RefusalReason::TooLarge),
        (
            "too long in pieces",
            batches,
            plain(&token) + "Transfer-Encoding: chunked\r\n",
            chunked,
            413,
            RefusalReason::TooLarge,
        ),
        ("too long unpacked", batches, packed(&token), bomb, 413, RefusalReason::TooLarge),
        ("too many rows", batches, packed(&token), zipped(&json(&many)), 413, RefusalReason::TooLarge),
        ("not JSON", batches, plain(&token), b"{\"stream\":".to_vec(), 400, RefusalReason::Malformed),
        ("another shape", batches, plain(&token), b"{\"rows\":[]}".to_vec(), 400, RefusalReason::Malformed),
        ("no gzip", batches, packed(&token), good.clone(), 400, RefusalReason::Malformed),
        (
            "an invalid zero",
            batches,
            plain(&token) + "yamabiko-zero: x\r\n",
            good.clone(),
            400,
            RefusalReason::Malformed,
        ),
        (
            "another kind",
            batches,
            plain(&token).replace("application/json", "text/plain"),
            good.clone(),
            415,
            RefusalReason::UnsupportedMediaType,
        ),
        (
            "another coding",
            batches,
            plain(&token) + "Content-Encoding: br\r\n",
            good.clone(),
            415,
            RefusalReason::UnsupportedMediaType,
        ),
        (
            "a row that ends before it begins",
            batches,
            plain(&token) + &zero,
            json(&impossible_row),
            422,
            RefusalReason::InvalidValue,
        ),
        ("sealed in the future", batches, plain(&token) + &zero, json(&future), 422, RefusalReason::InvalidValue),
        (
            "a batch replayed",
            batches,
            plain(&token) + &zero,
            json(&numbered('a', 1)),
            409,
            RefusalReason::AlreadyStored,
        ),
        (
            "a batch out of sequence",
            batches,
            plain(&token) + &zero,
            json(&numbered('a', 3)),
            409,
            RefusalReason::SequenceGap,
        ),
        (
            "a method of another path",
            "GET /api/1/agents/shop-7/batches",
            plain(&token),
            Vec::new(),
            405,
            RefusalReason::MethodNotAllowed,
        ),
        ("an unknown path", "GET /api/2", plain(&token), Vec::new(), 404, RefusalReason::NotFound),
        (
            "an invalid agent name",
            "POST /api/1/agents/%ff/batches",
            plain(&token),
            good.clone(),
            400,
            RefusalReason::Malformed,
        ),
    ];
    for (count, (what, line, fields, body, status, why)) in (1..).zip(&cases) {
        let response = trial.client().request(line, fields, body);
        assert_eq!(response.status, *status, "{what}: {response:?}");
        let refusal = response.refusal();
        assert_eq!(refusal.error, *why, "{what}");
        assert!(!refusal.message.is_empty() && !response.body.contains("shop-7.AAAA"), "{what}");
        assert_eq!(refusal.stored_through.is_some(), *status == 409, "{what}");
        assert!(*status != 401 || response.head.contains("www-authenticate: bearer"), "{what}");
        trial.running().write_notes();
        assert_eq!(trial.count("SELECT count(*) FROM refusals"), count, "{what}");
        let row: (String, u16, String, String, String) = trial
            .running()
            .data()
            .read(|index| {
                let newest = "SELECT why, status, agent, address, path FROM refusals ORDER BY id DESC LIMIT 1";
                index.query_row(newest, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
            })
            .unwrap();
        let name = match status {
            401 => "",
            _ if fields.contains(&other) => "shop-8",
            _ if fields.contains(&operator) => "boss",
            _ => "shop-7",
        };
        assert_eq!((&*row.0, row.1, &*row.2, &*row.4), (why.as_str(), *status, name, *line), "{what}");
        assert!(row.3.starts_with("127.0.0.1:"), "{what}: {}", row.3);
        assert_eq!(
            trial.count("SELECT coalesce(sum(rows), 0) FROM pending")
                + trial.count("SELECT coalesce(sum(rows), 0) FROM parts"),
            4,
            "{what}"
        );
        assert_eq!(trial.count("SELECT max(through) FROM streams"), 1, "{what}");
        assert_eq!(trial.count("SELECT sum(rows) FROM agents"), 4, "{what}");
    }
    assert_eq!(trial.count("SELECT sum(count) FROM refused") as usize, cases.len());
    let log = trial.log.lock().unwrap();
    let rejected = "rejected 401 unauthenticated: POST /api/1/agents/shop-7/batches from 127.0.0.1:";
    assert!(log.iter().any(|line| line.starts_with(rejected)));
    assert!(log.iter().all(|line| !line.contains("shop-7.AAAA") && !line.contains(token.split_once('.').unwrap().1)));
    // The second batch is still the next in sequence.
    trial.client().send("shop-7", &token, &numbered('a', 2)).stored();
}

#[test]
fn a_revoked_token_is_rejected_on_an_open_connection() {
    let trial = Trial::new();
    let token = trial.token("shop-7", Role::Agent);
    let mut client = trial.client();
    client.send("shop-7", &token, &numbered('a', 1)).stored();
    tokens::revoke(trial.running().data(), "shop-7", None, 1).unwrap();
    let response = client.send("shop-7", &token, &numbered('a', 2));
    assert_eq!((response.status, response.refusal().error), (401, RefusalReason::Unauthenticated));
    assert_eq!(trial.count("SELECT through FROM streams"), 1);
}

#[test]
fn unauthenticated_connections_beyond_the_limit_do_not_block_agents() {
    let trial = Trial::with(|plan| {
        plan.unauthenticated = UnauthenticatedLimits { connections: 32, timeout: Duration::from_secs(600) };
        plan.connections = 8;
    });
    let token = trial.token("shop-7", Role::Agent);
    let mut known = trial.client_from([127, 0, 0, 1]);
    known.send("shop-7", &token, &numbered('a', 1)).stored();
    let unauthenticated: Vec<TcpStream> =
        (0..232).map(|at| connect_from([127, 0, 1, 1 + (at % 4) as u8], trial.address())).collect();
    known.send("shop-7", &token, &numbered('a', 2)).stored();
    // From a separate address, and from the flooding one.
    trial.client_from([127, 0, 2, 1]).send("shop-7", &token, &numbered('a', 3)).stored();
    trial.client_from([127, 0, 1, 1]).send("shop-7", &token, &numbered('a', 4)).stored();
    known.send("shop-7", &token, &numbered('a', 5)).stored();
    drop(unauthenticated);
}

#[test]
fn a_configured_certificate_is_served_and_reloaded() {
    let other = Trial::new();
    let files = other.folder.path().to_owned();
    let trial = Trial::with(|plan| plan.certificate = Some((files.join("certificate.pem"), files.join("key.pem"))));
    let token = trial.token("shop-7", Role::Agent);
    let ca = files.join("ca.pem");
    let connect = || TcpStream::connect(trial.address()).unwrap();
    Client::over(connect(), &ca).send("shop-7", &token, &numbered('a', 1)).stored();
    std::fs::write(files.join("key.pem"), "no key").unwrap();
    trial.running().reload();
    assert!(trial.log.lock().unwrap().last().unwrap().contains("stay in use"));
    Client::over(connect(), &ca).send("shop-7", &token, &numbered('a', 2)).stored();
}

#[test]
fn the_page_requires_its_secret_and_logs_requests_without_it() {
    let trial = Trial::new();
    let url = trial.running().page_url();
    let (host, secret) = url.trim_start_matches("http://").trim_end_matches('/').split_once('/').unwrap();
    let request = |path: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert_eq!((request("/"), request("/wrong-secret-of-16-letters/")), (403, 403));
    assert_eq!(request(&format!("/{secret}/api/2")), 404);
    trial.running().write_notes();
    assert_eq!(trial.count("SELECT count(*) FROM refusals WHERE status = 403 AND path = 'the page'"), 2);
    assert_eq!(trial.count("SELECT count(*) FROM refusals WHERE status = 404 AND agent = 'page'"), 1);
}

#[test]
fn the_certificate_covers_the_configured_host_names() {
    let mut plan = Plan::new("data".into(), "192.0.2.7:443".parse().unwrap());
    plan.hosts = vec!["manager.example".into(), "localhost".into()];
    assert_eq!(plan.names(), ["localhost", "127.0.0.1", "::1", "192.0.2.7", "manager.example"]);
    plan.listen = "[::]:443".parse().unwrap();
    assert!(!plan.names().contains(&"::".to_owned()));
}
