//! Helpers: a server, programs run with and without tap, and the events of the rings.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use sys::clock::Clock;
use tap::event::{Caveats, Closed, Event, EventKind, Role, TcpCounts};
use tap::folder::Folder;
use tap::rings::{Capacity, Rings};
use units::Timestamp;

/// Compiles a program of `tests/programs`, with additional compiler arguments.
pub fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{name}{}", flags.concat()));
    // Two tests may compile the same program concurrently.
    let unique = COMPILED.fetch_add(1, Ordering::Relaxed);
    let unfinished = folder.join(format!("{name}.{}.{unique}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let status = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(&unfinished)
        .arg(source)
        .args(flags)
        .status()
        .expect("cc compiles test programs");
    assert!(status.success());
    std::fs::rename(unfinished, &program).unwrap();
    program
}

/// Compiles `talk.c`, the test program with many modes.
pub fn talk() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("talk", &[]))
}

/// A server that responds to `GET /N` with N bytes and a close, or keeps the connection open on request; after `ECHO`
/// it echoes; `GET /endless` never ends.
pub fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) -> Option<()> {
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        if head.starts_with("echo") {
            let mut piece = [0; 65536];
            loop {
                let n = stream.read(&mut piece).ok().filter(|&n| n > 0)?;
                stream.write_all(&piece[..n]).ok()?;
            }
        }
        let path = head.split_whitespace().nth(1)?.trim_start_matches('/');
        if path == "endless" {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").ok()?;
            loop {
                stream.write_all(&[b'.'; 10_000]).ok()?;
            }
        }
        let bytes: usize = path.parse().ok()?;
        let keeps_alive =
            head.contains("keep-alive") || head.contains("http/1.1") && !head.contains("connection: close");
        let state = if keeps_alive { "keep-alive" } else { "close" };
        let version = if head.contains("http/1.1") { "1.1" } else { "1.0" };
        let response_head = format!("HTTP/{version} 200 OK\r\nConnection: {state}\r\nContent-Length: {bytes}\r\n\r\n");
        stream.write_all(response_head.as_bytes()).ok()?;
        stream.write_all(&vec![b'y'; bytes]).ok()?;
        if !keeps_alive {
            return None;
        }
    }
}

/// A run under tap.
pub struct Tapped {
    pub folder: Folder,
    rings: Rings,
    pub events: Vec<Event>,
}

impl Tapped {
    /// Capacity for all records of a test program without a reader: fewer than 250 threads and processes, each with
    /// fewer than 1000 records.
    pub fn new() -> Tapped {
        Tapped::with(Capacity { records: 1024, slots: 256, small_slots: 0, ready: 256 })
    }

    pub fn with(capacity: Capacity) -> Tapped {
        let folder = Folder::create(None).unwrap();
        let rings = Rings::create(&folder, Clock::start(), capacity).unwrap();
        Tapped { folder, rings, events: Vec::new() }
    }

    pub fn start(&self, command: &mut Command) -> Started {
        command.envs(self.folder.environment(None)).stdin(Stdio::null());
        Started(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Like `start`, with another library.
    pub fn start_with(&self, command: &mut Command, library: &Path) -> Started {
        command.envs(self.folder.environment(None)).env("LD_PRELOAD", library).stdin(Stdio::null());
        Started(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Reads the rings until the program has ended, and then to their ends.
    pub fn wait(&mut self, started: Started) -> Output {
        let ending = thread::spawn(move || started.output());
        while !ending.is_finished() {
            self.drain();
            thread::yield_now();
        }
        self.drain();
        ending.join().unwrap()
    }

    pub fn drain(&mut self) {
        self.rings.drain(&mut |event| self.events.push(event));
    }

    /// Number of connections beyond their program's table.
    pub fn unfollowed(&self) -> u32 {
        self.rings.unfollowed()
    }

    pub fn reclaim(&mut self) -> usize {
        self.rings.reclaim(&mut |origin| tap::coverage::is_alive(origin.pid), &mut |_| {});
        self.rings.owners().len()
    }

    /// Number of rings with an owner.
    pub fn owners(&self) -> usize {
        self.rings.owners().len()
    }

    pub fn run(&mut self, command: &mut Command) -> Output {
        let started = self.start(command);
        self.wait(started)
    }

    pub fn lost(&self) -> u64 {
        self.events.iter().map(|event| if let EventKind::Lost { records } = event.what { records } else { 0 }).sum()
    }

    pub fn loaded(&self) -> Vec<String> {
        let name = |event: &Event| match &event.what {
            EventKind::Loaded { program, .. } => Some(program.clone()),
            _ => None,
        };
        self.events.iter().filter_map(name).collect()
    }

    /// Result of each connection, over all processes, in the order of their numbers.
    pub fn connections(&self) -> Vec<Connection> {
        let mut connections: BTreeMap<u64, Connection> = BTreeMap::new();
        for event in &self.events {
            let Some(number) = number_of(&event.what) else { continue };
            let connection = connections.entry(number).or_default();
            connection.number = number;
            if !connection.images.contains(&event.origin.image) {
                connection.images.push(event.origin.image);
            }
            match &event.what {
                EventKind::Opened(opened) => connection.opened.push((opened.role, opened.peer, opened.local)),
                EventKind::Connected(attempt) => {
                    connection.connected += 1;
                    if let (Some(local), Some(opened)) = (attempt.local, connection.opened.last_mut()) {
                        opened.2 = local;
                    }
                }
                EventKind::Withdrawn { .. } => connection.withdrawn += 1,
                EventKind::ConnectFailed(attempt) => connection.failed.push(attempt.error),
                EventKind::Sent(run) => {
                    assert!(run.begin <= run.first && run.first <= run.end, "{run:?}");
                    connection.sent += run.bytes;
                    connection.errors.extend((run.error != 0).then_some(run.error));
                    connection.runs.push(('s', run.bytes));
                }
                EventKind::Received(run) => {
                    assert!(run.begin <= run.first && run.first <= run.end, "{run:?}");
                    connection.received += run.bytes;
                    connection.ended |= run.ended;
                    connection.errors.extend((run.error != 0).then_some(run.error));
                    if run.bytes > 0 {
                        connection.runs.push(('r', run.bytes));
                    }
                }
                EventKind::Closed(closed) => {
                    connection.closed += 1;
                    connection.tcp_counts_by_connection(closed);
                    connection.caveats = closed.caveats;
                }
                EventKind::Leaving(leaving) => {
                    connection.leaving += 1;
                    connection.tcp_counts_by_connection(leaving);
                    connection.caveats = leaving.caveats;
                }
                _ => {}
            }
        }
        connections.into_values().collect()
    }

    /// For every connection the hooks recorded the bytes that the kernel counted, and no record is missing.
    pub fn assert_complete(&self) -> Vec<Connection> {
        assert_eq!(self.lost(), 0);
        let connections = self.connections();
        for connection in &connections {
            if !connection.failed.is_empty() || connection.withdrawn > 0 {
                continue;
            }
            let tcp_counts = connection.tcp_counts.unwrap_or_else(|| panic!("no TCP counts: {connection:?}"));
            assert_eq!(
                (connection.sent, connection.received),
                (tcp_counts.sent, tcp_counts.received),
                "{connection:?}"
            );
        }
        connections
    }
}

fn number_of(what: &EventKind) -> Option<u64> {
    match what {
        EventKind::Opened(opened) => Some(opened.connection),
        EventKind::Connected(attempt) | EventKind::ConnectFailed(attempt) => Some(attempt.connection),
        EventKind::Sent(run) | EventKind::Received(run) => Some(run.connection),
        EventKind::Closed(closed) | EventKind::Leaving(closed) => Some(closed.connection),
        EventKind::Shut { connection, .. } | EventKind::Withdrawn { connection, .. } => Some(*connection),
        _ => None,
    }
}

/// Result of one connection number.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub number: u64,
    pub images: Vec<u32>,
    pub opened: Vec<(Role, SocketAddr, SocketAddr)>,
    pub connected: u32,
    pub withdrawn: u32,
    pub failed: Vec<i32>,
    pub sent: u64,
    pub received: u64,
    pub runs: Vec<(char, u64)>,
    pub errors: Vec<i32>,
    pub ended: bool,
    pub closed: u32,
    pub leaving: u32,
    pub tcp_counts: Option<TcpCounts>,
    /// Time of the report: an inheriting child may be read later although it reported earlier.
    counts_at: Timestamp,
    pub caveats: Caveats,
}

impl Connection {
    fn tcp_counts_by_connection(&mut self, closed: &Closed) {
        if closed.tcp_counts.is_some() && closed.begin >= self.counts_at {
            (self.tcp_counts, self.counts_at) = (closed.tcp_counts, closed.begin);
        }
    }
}

/// A program that is killed at the end of the test.
pub struct Started(pub Option<Child>);

impl Started {
    pub fn output(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let reading = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            text
        });
        let mut stdout = Vec::new();
        let _ = child.stdout.take().unwrap().read_to_end(&mut stdout);
        Output { status: child.wait().unwrap(), stdout, stderr: reading.join().unwrap() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command without and with tap: status, output and errors must be equal.
pub fn compare(command: &dyn Fn() -> Command) -> Tapped {
    compare_with(Tapped::new(), command)
}

/// Like `compare`, with a given ring.
pub fn compare_with(mut tapped: Tapped, command: &dyn Fn() -> Command) -> Tapped {
    let plain = command().stdin(Stdio::null()).output().unwrap();
    let with = tapped.run(&mut command());
    let printed = |output: &Output| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        (output.status, text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(printed(&plain), printed(&with));
    assert!(plain.stdout == with.stdout, "the outputs differ after the part shown above");
    tapped
}

pub fn succeeded(status: ExitStatus) -> bool {
    status.code() == Some(0)
}

/// Number of occurrences by name.
pub fn counted(names: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}
