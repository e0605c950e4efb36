//! Both engines of the load against the same servers: io_uring and epoll must report the same, count everything, and
//! leave no descriptor open.
//!
//! Nothing is timed: a run ends when its requests have ended.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use plan::Plan;
use serve::{MaxSpec, serve_max};
use sys::signal::{Interrupts, Wake};

/// Runs share this process, whose descriptors can be counted for one run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What both engines must agree on.
#[derive(Debug, PartialEq)]
struct Told {
    completed: u64,
    failed: BTreeMap<String, u64>,
    status: BTreeMap<String, u64>,
    bytes_received: u64,
    bytes_sent: u64,
}

/// Runs `requests` requests to `address` with each engine; returns their common result.
fn on_both(address: SocketAddr, requests: u64, load: &str) -> Told {
    let [epoll, ring] = on_each(address, requests, load);
    assert_eq!(epoll, ring, "{load}");
    epoll
}

/// The same, for bytes that depend on a race.
fn on_each(address: SocketAddr, requests: u64, load: &str) -> [Told; 2] {
    ["epoll", "io_uring"].map(|engine| {
        let text = format!(
            "[load]\nurl = \"http://{address}/x\"\nrequests = {requests}\n{load}\n\
             [host]\nwait = \"sleep\"\nengine = \"{engine}\"\n"
        );
        let plan = Plan::from_toml(&text, "test").unwrap();
        let interrupts = Interrupts::install().unwrap();
        let before = descriptors();
        let document = testbed::bench(&plan, "test", None, &interrupts, &mut testbed::NoObserver).unwrap().document;
        assert_eq!(descriptors(), before, "{engine}, {load}: descriptors that were not closed");
        assert_eq!(clients_left(address), 0, "{engine}, {load}: connections that were not closed");
        assert_eq!(document.run.host.settings["engine"], engine);
        let load = document.load.unwrap();
        let failed: u64 = load.failed.values().sum();
        assert_eq!((load.offered_requests, load.in_flight_at_end), (requests, 0), "{engine}");
        assert_eq!(load.offered_requests, load.completed + failed, "{engine}");
        assert_eq!(load.status.values().sum::<u64>(), load.completed, "{engine}");
        Told {
            completed: load.completed,
            failed: load.failed,
            status: load.status,
            bytes_received: load.bytes_received,
            bytes_sent: load.bytes_sent,
        }
    })
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors of this process other than sockets, which the servers here use.
fn descriptors() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| !target.to_string_lossy().starts_with("socket:")).count()
}

/// Connections to `server` whose client end is still open.
fn clients_left(server: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!("0100007F:{:04X}", server.port());
    let established = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        // ESTABLISHED, or CLOSE_WAIT: the server has closed it, but the client has not.
        words.next() == Some(&port) && matches!(words.next(), Some("01" | "08"))
    };
    table.lines().filter(established).count()
}

/// Runs `client` against MAX.
fn against_max(body_bytes: usize, client: impl FnOnce(SocketAddr)) {
    let spec = MaxSpec {
        listen: "127.0.0.1:0".parse().unwrap(),
        threads: 1,
        shared: false,
        body_bytes,
        engine: serve::Engine::default(),
        blind: None,
    };
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let server = scope.spawn(|| serve_max(&spec, stop.as_fd(), move |bound, _| tell.send(bound).unwrap()));
        let end = End(&stop);
        let address = told.recv().unwrap();
        // After its first response it has all its descriptors.
        let mut first = TcpStream::connect(address).unwrap();
        first.write_all(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        first.read_to_end(&mut Vec::new()).unwrap();
        drop(first);
        client(address);
        drop(end);
        server.join().unwrap().unwrap();
    });
}

struct End<'a>(&'a Wake);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A server that runs `talk` for each connection, in its own thread, for the lifetime of the process.
fn against(talk: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || talk(stream));
        }
    });
    address
}

/// Reads one request without a body; false when the client has closed.
fn asked(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

const CLOSED: &str = "connections = 8";
const CLOSED_EACH: &str = "connections = 8\nclose = true";
const OPEN: &str = "rate = \"2000/s\"\nconnections = 64";
const OPEN_EACH: &str = "rate = \"1000/s\"\narrivals = \"poisson\"\nclose = true\nconnections = 64";

#[test]
fn small_responses() {
    let _alone = alone();
    against_max(100, |address| {
        for load in [CLOSED, CLOSED_EACH, OPEN, OPEN_EACH] {
            let told = on_both(address, 600, load);
            assert_eq!((told.completed, told.status["200"]), (600, 600), "{load}");
        }
    });
}

#[test]
fn responses_of_a_megabyte() {
    let _alone = alone();
    against_max(1_000_000, |address| {
        for load in [CLOSED, CLOSED_EACH, "rate = \"200/s\"\nconnections = 64"] {
            let told = on_both(address, 40, load);
            assert_eq!(told.completed, 40, "{load}");
            assert!(told.bytes_received > 40_000_000, "{load}");
        }
    });
}

/// More connections than the ring has buffers, all with a response at the same time.
#[test]
fn more_concurrent_responses_than_buffers() {
    let _alone = alone();
    against_max(60_000, |address| {
        let told = on_both(address, 1500, "connections = 500");
        assert_eq!(told.completed, 1500);
    });
}

#[test]
fn long_requests() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    against_max(10, |address| {
        // Sent with others in a batch, by one system call of its own, and by many.
        for length in [9_000, 100_000, 5_000_000] {
            let body = folder.path().join("body");
            std::fs::write(&body, vec![b'y'; length]).unwrap();
            for load in [CLOSED, CLOSED_EACH] {
                let told = on_both(address, 24, &format!("method = \"POST\"\nbody = {body:?}\n{load}"));
                assert_eq!(told.completed, 24, "{length} {load}");
                assert!(told.bytes_sent > 24 * length as u64, "{length} {load}");
            }
        }
    });
}

#[test]
fn a_server_that_closes_silently_after_three_responses() {
    let _alone = alone();
    let address = against(|mut stream| {
        for _ in 0..3 {
            if !asked(&mut stream) || stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    // Retried requests count twice, and their number is a race.
    for told in on_each(address, 200, CLOSED) {
        assert_eq!((told.completed, told.failed.len()), (200, 0), "{told:?}");
    }
}

#[test]
fn a_server_that_resets_connections() {
    let _alone = alone();
    // Closing with unread bytes causes a reset.
    let address = against(|mut stream| {
        let _ = stream.read(&mut [0; 1]);
    });
    let told = on_both(address, 16, CLOSED_EACH);
    assert_eq!(told.failed, BTreeMap::from([("reset".to_owned(), 16)]));
}

#[test]
fn a_server_that_resets_within_a_response() {
    let _alone = alone();
    let address = against(|mut stream| {
        let _ = stream.read(&mut [0; 1]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
    });
    // A reset may discard bytes that arrived right before it.
    for told in on_each(address, 16, CLOSED_EACH) {
        assert_eq!(told.failed, BTreeMap::from([("reset".to_owned(), 16)]));
    }
}

#[test]
fn a_server_that_sends_slowly() {
    let _alone = alone();
    let address = against(|mut stream| {
        let _ = stream.set_nodelay(true);
        while asked(&mut stream) {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::yield_now();
            }
        }
    });
    for load in [CLOSED, OPEN] {
        assert_eq!(on_both(address, 100, load).completed, 100, "{load}");
    }
}

/// The response ends with the connection, of which the server closes its half and waits for the client's.
#[test]
fn a_server_that_closes_its_half() {
    let _alone = alone();
    let address = against(|mut stream| {
        asked(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for load in [CLOSED, CLOSED_EACH, OPEN_EACH] {
        let told = on_both(address, 100, load);
        assert_eq!((told.completed, told.bytes_received), (100, 100 * 32), "{load}");
    }
}

#[test]
fn a_server_that_announces_more_bytes_than_it_sends() {
    let _alone = alone();
    let address = against(|mut stream| {
        asked(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    });
    let told = on_both(address, 32, CLOSED);
    assert_eq!(told.failed, BTreeMap::from([("closed_early".to_owned(), 32)]));
}

#[test]
fn a_server_that_never_responds() {
    let _alone = alone();
    let address = against(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let told = on_both(address, 16, "connections = 8\ntimeout = \"50ms\"");
    assert_eq!(told.failed, BTreeMap::from([("response_timeout".to_owned(), 16)]));
}

#[test]
fn an_address_without_a_server() {
    let _alone = alone();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = on_both(address, 16, CLOSED);
    assert_eq!(told.failed, BTreeMap::from([("connect_refused".to_owned(), 16)]));
}
