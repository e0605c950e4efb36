//! `watch -i` at a server: the screen, the capture file, and the series sent to another host.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::support::document::{count, number};
use crate::support::workspace::{Output, Running, TEST_TIMEOUT, Workspace, str_of, wait_until, yamabiko};
use nix::sys::signal::Signal;
use schema::WatchSecond;
use serde_json::Value;

/// `yamabiko serve` on loopback, and its port.
fn server(workspace: &Workspace) -> (Running, String) {
    let server = workspace.start(&["serve", str_of(&workspace.www()), "--listen", "127.0.0.1:0"]);
    let mut port = String::new();
    wait_until("the server prints its address", || {
        let stderr = server.stderr();
        let url = stderr.split_whitespace().find(|word| word.starts_with("http://")).unwrap_or("");
        port = url.trim_end_matches('/').rsplit(':').next().unwrap_or("").to_owned();
        !port.is_empty()
    });
    (server, port)
}

fn fetch(workspace: &Workspace, port: &str, times: usize) {
    let url = format!("http://127.0.0.1:{port}/10k.bin");
    for _ in 0..times {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", &url]);
        workspace.start_command(curl).finish().success();
    }
}

fn wait_until_capturing(watch: &Running) {
    wait_until("the capture is open", || watch.stderr().contains("capturing on "));
}

fn runs_named(workspace: &Workspace, word: &str) -> Vec<PathBuf> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found: Vec<PathBuf> = fs::read_dir(workspace.runs()).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| name(path).contains(word));
    found.sort();
    found
}

fn series(dir: &Path) -> Vec<WatchSecond> {
    store::read_watch_series(dir).unwrap().map(Result::unwrap).collect()
}

fn summary(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("summary.json")).unwrap()).unwrap()
}

/// A program on a terminal that script(1) creates; a terminal emulator interprets its output.
struct OnTerminal {
    running: Running,
    keys: Option<ChildStdin>,
    seen: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
}

fn at_least_one(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("the size is not zero")
}

impl OnTerminal {
    fn start(
        workspace: &Workspace,
        rows: u16,
        columns: u16,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> OnTerminal {
        let log = workspace.file("screen.log");
        // stty prints the final terminal settings: echo and line editing must be on again.
        let program = format!(
            "stty rows {rows} cols {columns}; '{}' {}; echo status=$?; stty -a | tr ' ;' '\\n\\n' | grep -x -e '-*echo' -e '-*icanon' | tr '\\n' ' '",
            str_of(&yamabiko()),
            arguments.join(" ")
        );
        let mut script = Command::new("script");
        script.args(["-qfec", &program, str_of(&log)]).envs(environment.iter().copied());
        script.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        let (running, keys) = workspace.start_with_input(script);
        let seen = Arc::new(Mutex::new(vt100::Parser::new(at_least_one(rows), at_least_one(columns), 0)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        wait_until("the terminal's log exists", || log.exists());
        OnTerminal { running, keys: Some(keys), seen, raw }.reading(log)
    }

    fn reading(self, log: PathBuf) -> OnTerminal {
        let (seen, raw) = (self.seen.clone(), self.raw.clone());
        thread::spawn(move || {
            let mut file = File::open(log).unwrap();
            let deadline = Instant::now() + TEST_TIMEOUT;
            while Instant::now() < deadline {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                seen.lock().unwrap().process(&bytes);
                raw.lock().unwrap().extend(bytes);
                if Arc::strong_count(&seen) == 1 {
                    return;
                }
                sleep(Duration::from_millis(20));
            }
        });
        self
    }

    fn screen(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    fn is_alternate(&self) -> bool {
        self.seen.lock().unwrap().screen().alternate_screen()
    }

    fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// The first number after a name.
    fn figure(&self, name: &str) -> Option<f64> {
        let screen = self.screen();
        let line = screen.lines().find(|line| line.trim_start().starts_with(name))?;
        line.trim_start()[name.len()..].split_whitespace().next()?.trim_end_matches("/s").parse().ok()
    }
}

#[test]
fn the_screen_shows_connections_and_q_restores_the_terminal() {
    let workspace = Workspace::concurrent_as_root();
    let (server, port) = server(&workspace);
    let arguments = ["watch", "-i", "lo", "--port", &port];
    let mut terminal = OnTerminal::start(&workspace, 24, 80, &[], &arguments);
    wait_until("the screen is drawn", || terminal.screen().contains("concurrent connections, last"));
    assert!(terminal.is_alternate());
    let mut open: Vec<TcpStream> = Vec::new();
    for expected in [5, 20] {
        while open.len() < expected {
            open.push(TcpStream::connect(format!("127.0.0.1:{port}")).unwrap());
        }
        wait_until("the screen shows the connections", || terminal.figure("concurrent") == Some(expected as f64));
    }
    let screen = terminal.screen();
    assert!(screen.contains("handshake RTT, all 20") && screen.contains("lo, at the server"), "{screen}");
    assert!(screen.contains(['█', '▇', '▆']), "{screen}");
    terminal.press("q");
    wait_until("the program has exited", || terminal.screen().contains("status=0"));
    wait_until("script(1) has exited", || terminal.screen().contains("Script done"));
    let left = terminal.screen();
    assert!(!terminal.is_alternate() && !terminal.seen.lock().unwrap().screen().hide_cursor(), "{left}");
    for mode in ["echo", "icanon"] {
        let is_on = |word: &str| word == mode;
        assert!(left.split_whitespace().any(is_on), "{mode} in {left}");
    }
    assert!(left.contains("stored in"), "the summary follows: {left}");
    drop(terminal.keys.take());
    terminal.running.finish();
    server.signal(Signal::SIGINT);
    server.finish();
}

#[test]
fn a_signal_restores_the_terminal_and_plain_never_changes_it() {
    let workspace = Workspace::concurrent_as_root();
    let (server, port) = server(&workspace);
    let arguments = ["watch", "-i", "lo", "--port", &port, "--no-save"];
    let mut terminal = OnTerminal::start(&workspace, 10, 40, &[("NO_COLOR", "1")], &arguments);
    wait_until("the screen is drawn", || terminal.screen().contains("concurrent"));
    let pid = crate::support::processes::descendants(terminal.running.pid())
        .into_iter()
        .find(|&pid| {
            crate::support::processes::command_line(pid).contains("--no-save")
                && !crate::support::processes::command_line(pid).contains("stty")
        })
        .expect("the program runs");
    crate::support::processes::signal_all(&[pid], Signal::SIGTERM);
    wait_until("the program has exited", || terminal.screen().contains("status=0"));
    assert!(!terminal.is_alternate());
    let raw = String::from_utf8_lossy(&terminal.raw.lock().unwrap()).into_owned();
    for colour in ["\x1b[36m", "\x1b[32m", "\x1b[33m", "\x1b[38;5;"] {
        assert!(!raw.contains(colour), "NO_COLOR");
    }
    drop(terminal.keys.take());
    terminal.running.finish();
    fs::remove_file(workspace.file("screen.log")).unwrap();
    let arguments = [&arguments[..], &["--plain", "-d", "3s"]].concat();
    let mut terminal = OnTerminal::start(&workspace, 24, 200, &[], &arguments);
    wait_until("the program has exited", || terminal.screen().contains("status=0"));
    let raw = String::from_utf8_lossy(&terminal.raw.lock().unwrap()).into_owned();
    assert!(!raw.contains("\x1b[?1049h"), "{raw}");
    assert!(raw.matches("concurrent connections, 0.00/s new").count() >= 2, "one line per second: {raw}");
    drop(terminal.keys.take());
    terminal.running.finish();
    server.signal(Signal::SIGINT);
    server.finish();
}

/// A written capture file, read by this program and by an independent one.
#[test]
fn a_written_pcapng_file_gives_the_same_figures() {
    let workspace = Workspace::concurrent_as_root();
    let (server, port) = server(&workspace);
    let file = workspace.file("live.pcapng");
    let watch = workspace.start(&["watch", "-i", "lo", "--port", &port, "--pcapng", str_of(&file), "--json"]);
    // With --json nothing is printed: the file exists when the capture runs.
    wait_until("the capture is open", || file.exists());
    sleep(Duration::from_millis(300));
    fetch(&workspace, &port, 15);
    sleep(Duration::from_millis(300));
    watch.signal(Signal::SIGINT);
    let live = watch.finish().success().json();
    let again = workspace.run(&["watch", "-r", str_of(&file), "--json", "--no-save"]).success().json();
    for name in
        ["packets", "bytes", "tcp_packets", "requests", "responses", "status", "handshake_rtt_ns", "service_time_ns"]
            .iter()
            .chain(&["data_packets", "retransmitted", "capture_drops", "missing_bytes"])
    {
        assert_eq!(live["watch"][name], again["watch"][name], "{name}");
    }
    assert_eq!(live["watch"]["connections"]["states"], serde_json::json!({ "SF": 15 }));
    assert_eq!(again["watch"]["connections"]["states"], live["watch"]["connections"]["states"]);
    let tshark = tool(
        &workspace,
        &["tshark", "-n", "-r", str_of(&file), "-Y", "http.response", "-T", "fields", "-e", "http.response.code"],
    );
    assert_eq!(tshark.lines().filter(|line| line.trim() == "200").count(), 15, "{tshark}");
    let times = tool(
        &workspace,
        &["tshark", "-n", "-r", str_of(&file), "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.interface_name"],
    );
    assert_eq!(times.lines().count() as u64, count(&live, "watch.packets"));
    assert!(times.lines().all(|line| line.ends_with("\tlo")), "{times}");
    assert!(times.lines().any(|line| !line.split('\t').next().unwrap().ends_with("000")), "nanoseconds: {times}");
    let about = tool(&workspace, &["capinfos", str_of(&file)]);
    assert!(about.contains("Time precision = nanoseconds (9)") && about.contains("Name = lo"), "{about}");
    let tcpdump = tool(&workspace, &["tcpdump", "-n", "-r", str_of(&file)]);
    assert_eq!(tcpdump.lines().count() as u64, count(&live, "watch.packets"));
    server.signal(Signal::SIGINT);
    server.finish();
}

/// A tool's stdout; it must succeed.
fn tool(workspace: &Workspace, command: &[&str]) -> String {
    let mut process = Command::new(command[0]);
    process.args(&command[1..]);
    workspace.start_command(process).finish().success().stdout
}

fn token(workspace: &Workspace, name: &str, text: &str) -> String {
    let path = workspace.file(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    str_of(&path).to_owned()
}

/// An unused address.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn receive(workspace: &Workspace, address: &str, token: &str) -> Running {
    let receiver = workspace.start(&["watch", "--from", address, "--token-file", token, "--name", "far"]);
    wait_until("the receiver listens", || receiver.stderr().contains("listening on"));
    receiver
}

fn stop(running: Running) -> Output {
    running.signal(Signal::SIGINT);
    running.finish()
}

#[test]
fn sender_and_receiver_store_the_same_series() {
    let workspace = Workspace::concurrent_as_root();
    let (server, port) = server(&workspace);
    let (token, address) = (token(&workspace, "token", "correct-horse-battery-staple"), free_address());
    let receiver = receive(&workspace, &address, &token);
    let url = format!("http://{address}");
    let watch = workspace.start(&[
        "watch",
        "-i",
        "lo",
        "--port",
        &port,
        "--to",
        &url,
        "--token-file",
        &token,
        "--name",
        "near",
    ]);
    wait_until_capturing(&watch);
    for _ in 0..3 {
        fetch(&workspace, &port, 10);
        sleep(Duration::from_millis(700));
    }
    let output = stop(watch).success();
    assert!(output.stderr.contains(&format!("sent to {url}")), "{output}");
    wait_until("the series has ended", || receiver.stderr().contains("has ended, stored as"));
    stop(receiver).success();
    let (near, far) = (runs_named(&workspace, "-near-"), runs_named(&workspace, "-far-"));
    assert_eq!((near.len(), far.len()), (1, 1));
    assert_eq!(series(&near[0]), series(&far[0]));
    let (mut here, mut there) = (summary(&near[0]), summary(&far[0]));
    assert!(there["watch"]["source"].as_str().unwrap().ends_with(": lo"));
    there["watch"]["source"] = here["watch"]["source"].take();
    here["watch"]["source"] = there["watch"]["source"].clone();
    assert_eq!(here["watch"], there["watch"]);
    assert_eq!(count(&there, "watch.requests"), 30);
    assert_eq!(here["run"]["duration_s"], there["run"]["duration_s"]);
    assert!(number(&there, "run.duration_s") > 2.0);
    server.signal(Signal::SIGINT);
    server.finish();
}

#[test]
fn a_restarted_receiver_gets_the_missed_seconds() {
    let workspace = Workspace::concurrent_as_root();
    let (token, address) = (token(&workspace, "token", "correct-horse-battery-staple"), free_address());
    let url = format!("http://{address}");
    let receiver = receive(&workspace, &address, &token);
    let watch =
        workspace.start(&["watch", "-i", "lo", "--port", "9", "--to", &url, "--token-file", &token, "--name", "near"]);
    wait_until_capturing(&watch);
    wait_until("the receiver has received seconds", || {
        receiver.stderr().matches(" concurrent connections").count() >= 2
    });
    stop(receiver).success();
    wait_until("the sender reports the missing receiver", || {
        watch.stderr().contains("unreachable for") && watch.stderr().contains("s queued")
    });
    let receiver = receive(&workspace, &address, &token);
    wait_until("the restarted receiver receives seconds", || {
        receiver.stderr().matches(" concurrent connections").count() >= 2
    });
    let output = stop(watch).success();
    assert!(!output.stderr.contains(" s lost"), "{output}");
    wait_until("the series has ended", || receiver.stderr().contains("has ended, stored as"));
    stop(receiver).success();
    let (near, far) = (runs_named(&workspace, "-near-"), runs_named(&workspace, "-far-"));
    assert_eq!((near.len(), far.len()), (1, 2));
    let mut received = series(&far[0]);
    received.extend(series(&far[1]));
    received.sort_by_key(|second| second.second);
    // Unacknowledged data of the first receiver are sent to the second one too.
    received.dedup();
    assert_eq!(received, series(&near[0]), "each second is stored by at least one receiver");
}

#[test]
fn a_refused_sender_reports_the_refusal_and_lost_seconds_are_counted() {
    let workspace = Workspace::concurrent_as_root();
    let right = token(&workspace, "right", "correct-horse-battery-staple");
    let wrong = token(&workspace, "wrong", "another-token-altogether");
    let address = free_address();
    let url = format!("http://{address}");
    let receiver = receive(&workspace, &address, &right);
    let watch = |token: &[&str]| {
        let common = ["watch", "-i", "lo", "--port", "9", "-d", "2s", "--to", &url, "--name", "near"];
        workspace.run(&[&common, token].concat())
    };
    watch(&["--token-file", &wrong]).refused(1, &["refuses the series", "the token is wrong"]);
    watch(&[]).refused(1, &["a token is required"]);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
    stop(receiver).success();
    // No receiver: the watch continues, is stored, and reports at its end what was not delivered.
    let output = watch(&["--token-file", &right]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("seconds were not accepted"), "{output}");
    assert!(output.stdout.contains("stored in"), "{output}");
    assert_eq!(runs_named(&workspace, "-near-").len(), 1);
    // A server that is not a receiver.
    let (server, port) = server(&workspace);
    let url = format!("http://127.0.0.1:{port}");
    workspace
        .run(&["watch", "-i", "lo", "--port", "9", "-d", "2s", "--to", &url])
        .refused(1, &["is it a `yamabiko watch"]);
    server.signal(Signal::SIGINT);
    server.finish();
}

/// The file ends at its last complete block, so that it is readable.
#[test]
fn a_full_disk_leaves_a_readable_capture_file() {
    let workspace = Workspace::concurrent_as_root();
    let (mut long, copy) = (Vec::new(), workspace.file("copy.pcapng"));
    wire::capture::write::pcap_header(&mut long, wire::link::LinkType::Ethernet, 65_535);
    for micros in 0..8000 {
        let at = units::Timestamp::from_nanos(1_795_167_005_000_000_000 + micros * 1000);
        wire::capture::write::pcap_packet(&mut long, at, &[0xAA; 1000], 1000);
    }
    let file = workspace.file("long.pcap");
    fs::write(&file, long).unwrap();
    // A file system of 5 MB that ends with the mount namespace.
    let script = format!(
        "mkdir {disk} && mount -t tmpfs -o size=5m tmpfs {disk} && \
         '{program}' watch -r {file} --pcapng {disk}/full.pcapng --json --no-save; status=$?; \
         cp {disk}/full.pcapng {copy}; exit $status",
        disk = str_of(&workspace.file("disk")),
        program = str_of(&yamabiko()),
        file = str_of(&file),
        copy = str_of(&copy),
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let output = workspace.start_command(command).finish();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("full.pcapng: No space left on device"), "{output}");
    assert_eq!(count(&output.json(), "watch.packets"), 8000, "the figures are complete");
    let left = workspace.run(&["watch", "-r", str_of(&copy), "--json", "--no-save"]).success().json();
    assert!((3000..8000).contains(&count(&left, "watch.packets")), "{left}");
    let packets = tool(&workspace, &["tshark", "-n", "-r", str_of(&copy), "-T", "fields", "-e", "frame.number"]);
    assert_eq!(packets.lines().count() as u64, count(&left, "watch.packets"));
}
