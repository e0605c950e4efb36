//! `tap`: programs of this machine against servers of the test's own, without any privilege.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use crate::support::document::{count, number};
use crate::support::workspace::{Output, Workspace, wait_until};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// An HTTP/1 server that sends `requests` responses of `bytes` on each of `connections` connections, and closes.
fn server(connections: usize, requests: usize, bytes: usize) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut socket, _) = listener.accept().unwrap();
            for _ in 0..requests {
                if !read_head(&mut socket) {
                    break;
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                socket.write_all(head.as_bytes()).unwrap();
                socket.write_all(&vec![b'x'; bytes]).unwrap();
            }
            // Wait until the client has closed, so that the client always closes first.
            let _ = socket.read(&mut [0; 1]);
        }
    });
    (address, serving)
}

fn read_head(socket: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(socket.read(&mut byte), Ok(1)) {
            return false;
        }
        head.push(byte[0]);
    }
    true
}

/// Runs a program under the tap; returns its output and the document.
fn tapped(workspace: &Workspace, options: &[&str], command: &[&str]) -> (Output, Value) {
    let file = workspace.file("tap.json");
    let mut arguments = vec!["tap", "--json", file.to_str().unwrap()];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(command);
    let output = workspace.run(&arguments);
    let document = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (output, document)
}

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{document:#}"))
}

#[test]
fn tap_records_curl_from_connect_to_close() {
    let workspace = Workspace::concurrent();
    let (address, serving) = server(1, 2, 30_000);
    let url = format!("http://{address}/");
    let (output, document) = tapped(
        &workspace,
        &[],
        &["curl", "-s", "-w", "%{http_code}\n", "-o", "/dev/null", "-o", "/dev/null", &url, &url],
    );
    serving.join().unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "200\n200\n"), "{}", output.stderr);
    assert_eq!(output.stderr, "", "the result is written to the file only");
    assert_eq!(document["validity"]["verdict"], "valid", "{document:#}");
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (1, 2), "{client:#}");
    assert_eq!(client["failed"], serde_json::json!({}));
    assert_eq!(number(client, "availability.attempts"), 1.0);
    assert_eq!((count(client, "setup_ns.count"), count(client, "connection_duration_ns.count")), (1, 1));
    assert!(count(client, "received_bytes_total") > 60_000 && count(client, "unseen_bytes") == 0);
    let longest = count(client, "connection_duration_ns.max");
    assert!(longest >= count(client, "response_ns.max") + count(client, "setup_ns.max"), "{client:#}");
    let (started_at, dir) = (document["run"]["started_at"].as_str().unwrap(), document["run"]["dir"].as_str().unwrap());
    assert!(started_at.ends_with('Z') && fs::exists(format!("{dir}/taps.parquet")).unwrap());
    assert_eq!(document["tap"]["programs"][0]["name"], "curl");
}

#[test]
fn failed_calls_are_recorded_and_the_exit_status_is_the_programs() {
    let workspace = Workspace::concurrent();
    // A recently closed port: no server listens.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (output, document) = tapped(&workspace, &[], &["curl", "-s", &format!("http://{address}/")]);
    assert_eq!(output.code, Some(7), "curl's exit status for a failed connect");
    let client = &document["tap"]["client"];
    assert_eq!(client["failed"], serde_json::json!({ "ECONNREFUSED": 1 }), "{client:#}");
    assert_eq!((number(client, "error_ratio"), number(client, "availability.windows")), (1.0, 0.0));
    // A server that closes without a response.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let closing = std::thread::spawn(move || read_head(&mut listener.accept().unwrap().0));
    let (output, document) = tapped(&workspace, &[], &["curl", "-s", &url]);
    closing.join().unwrap();
    assert_eq!(output.code, Some(52), "curl's exit status for an empty reply");
    assert_eq!(document["tap"]["client"]["failed"], serde_json::json!({ "no_response": 1 }));
}

#[test]
fn children_are_tapped_and_an_exit_by_signal_gives_status_128_plus_signal() {
    let workspace = Workspace::concurrent();
    let (address, serving) = server(2, 1, 10);
    let line = format!("curl -s http://{address}/; (curl -s http://{address}/ >&2); kill -9 $$");
    let (output, document) = tapped(&workspace, &["--name", "kinder"], &["sh", "-c", &line]);
    serving.join().unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(137), "xxxxxxxxxx"));
    let errors: Vec<_> = output.stderr.lines().filter(|line| !line.starts_with("yamabiko: ")).collect();
    assert_eq!(errors, ["xxxxxxxxxx"], "{}", output.stderr);
    assert_eq!(count(&document, "tap.client.exchanges"), 2);
    let programs = document["tap"]["programs"].as_array().unwrap();
    let curl = programs.iter().find(|program| program["name"] == "curl").unwrap();
    assert_eq!((&curl["processes"], &curl["connections"]), (&2.into(), &2.into()));
    assert!(document["run"]["id"].as_str().unwrap().contains("-kinder-"));
}

#[test]
fn a_tapped_program_keeps_its_streams_and_environment() {
    let workspace = Workspace::concurrent();
    let mut command = workspace.command(&["tap", "--no-save", "--", "sh", "-c", "cat; echo \"$WORD\" >&2; exit 3"]);
    command.env("WORD", "inherited");
    let (running, mut input) = workspace.start_with_input(command);
    input.write_all(b"a line\n").unwrap();
    drop(input);
    let output = running.finish();
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "a line\n"));
    assert!(
        output.stderr.starts_with("inherited\n") && output.stderr.contains("no TCP connection"),
        "{}",
        output.stderr
    );
    assert!(fs::read_dir(workspace.runs()).unwrap().next().is_none(), "--no-save stores no run");
}

#[test]
fn a_tapped_program_inherits_signal_settings_and_streams() {
    let workspace = Workspace::concurrent();
    let tap = workspace.command(&["tap", "--no-save", "--"]);
    let (program, arguments) = (tap.get_program(), tap.get_args().collect::<Vec<_>>());
    let script = r#"[ -e /proc/self/fd/0 ] && echo open; grep -E 'Sig(Blk|Ign)' /proc/self/status; kill -PIPE $$; echo survives"#;
    let run = |before: &str, tapped: bool| {
        let line = format!("{before}; exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, "sh"]);
        if tapped {
            shell.arg(program).args(&arguments).envs(tap.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
        let output = shell.args(["sh", "-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for before in ["exec < /dev/null", "exec <&-", "trap '' PIPE", "trap '' PIPE TERM; exec <&-"] {
        let plain = run(before, false);
        assert_eq!(run(before, true), plain, "{before}");
        assert_eq!(
            (plain.contains("open"), plain.contains("survives")),
            (!before.contains("<&-"), before.contains("PIPE"))
        );
    }
}

#[test]
fn a_program_that_cannot_start_leaves_no_run() {
    let workspace = Workspace::concurrent();
    let output = workspace.run(&["tap", "--", "/no/such/program"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("/no/such/program: No such file"), "{}", output.stderr);
    assert!(fs::read_dir(workspace.runs()).unwrap().next().is_none());
    assert_eq!(workspace.run(&["tap"]).code, Some(1));
}

#[test]
fn signals_to_the_tap_are_forwarded_to_the_program() {
    let workspace = Workspace::concurrent();
    // The program exits after a minute if the test fails.
    let script = "trap 'echo terminated; exit 5' TERM; echo ready >&2; for i in $(seq 600); do sleep 0.1; done";
    let running = workspace.start(&["tap", "--no-save", "--", "sh", "-c", script]);
    wait_until("the program is ready", || running.stderr().contains("ready"));
    running.signal(Signal::SIGTERM);
    let output = running.finish();
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), "terminated\n"));
}

/// A process that ends with the test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_signal_after_the_program_ended_ends_the_tap() {
    let workspace = Workspace::concurrent();
    // The output exceeds the capacity of the pipe, which is never read.
    let (_unread, mut full) = std::io::pipe().unwrap();
    let pipe_capacity = fcntl(&full, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    full.write_all(&vec![b'.'; pipe_capacity as usize]).unwrap();
    let mut command = workspace.command(&["tap", "--no-save", "--", "true"]);
    let mut tap = KilledOnDrop(command.stdin(Stdio::null()).stderr(full).spawn().unwrap());
    let call = format!("/proc/{}/syscall", tap.0.id());
    // 1 is write, 2 is stderr.
    wait_until("the tap is blocked in write to stderr", || {
        fs::read_to_string(&call).is_ok_and(|call| call.starts_with("1 0x2 "))
    });
    kill(Pid::from_raw(tap.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(tap.0.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn bench_with_tap_records_the_sockets_of_the_load() {
    let workspace = Workspace::concurrent();
    let (address, serving) = server(1, 60, 2_000);
    let url = format!("http://{address}/");
    let output = workspace.run(&["bench", &url, "-c", "1", "-n", "60", "--tap", "--json"]);
    serving.join().unwrap();
    let document = output.json();
    let held = |name: &str| {
        let check = check(&document, name);
        assert_eq!((&check["state"], &check["value"]), (&"ok".into(), &0.0.into()), "{check:#}");
    };
    for what in ["connections", "requests", "bytes"] {
        held(&format!("tap_agrees_with_load_{what}"));
    }
    held("tap_drops");
    assert_eq!(check(&document, "tap_loaded")["state"], "ok");
    assert_eq!(check(&document, "littles_law_tap_connections")["state"], "ok");
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (1, 60), "{client:#}");
    assert_eq!(count(client, "received_bytes_total"), count(&document, "load.bytes_received"));
    let programs = document["tap"]["programs"].as_array().unwrap();
    assert_eq!((programs.len(), &programs[0]["coverage"]), (1, &"seen".into()), "{programs:?}");
    assert_eq!(document["run"]["host"]["settings"]["engine"], "epoll");
    let dir = document["run"]["dir"].as_str().unwrap();
    assert!(fs::exists(format!("{dir}/taps.parquet")).unwrap());
    assert!(fs::read_to_string(format!("{dir}/plan.toml")).unwrap().contains("tap = true"));
    assert!(document["run"]["command"].as_str().unwrap().starts_with("yamabiko bench http"));
}

#[test]
fn bench_with_tap_refuses_a_second_tap_and_unsupported_loads() {
    let workspace = Workspace::concurrent();
    let bench = ["bench", "http://127.0.0.1:9/", "-n", "1", "--tap", "--no-save"];
    let own = crate::support::workspace::yamabiko();
    let nested = [&["tap", "--no-save", "--", own.to_str().unwrap()][..], &bench].concat();
    let output = workspace.run(&nested);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("already runs under a tap"), "{output}");
    let output = workspace.run(&[&bench[..], &["--unix", "/no/such"]].concat());
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("Unix socket"), "{output}");
    // A plan from a pipe cannot be read again when the program restarts itself.
    let mut command = workspace.command(&["run", "/dev/stdin", "--no-save"]);
    command.stdin(std::process::Stdio::piped());
    let (running, mut input) = workspace.start_with_input(command);
    input.write_all(b"[load]\nurl = \"http://127.0.0.1:9/\"\nrequests = 1\n[watch]\ntap = true\n").unwrap();
    drop(input);
    let output = running.finish();
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("read twice"), "{output}");
}

#[test]
fn only_the_selected_programs_are_tapped() {
    let workspace = Workspace::concurrent();
    let ((one, serving_one), (other, serving_other)) = (server(1, 1, 10), server(1, 1, 20));
    let line = format!("curl -s http://{one}/; curl -s http://{other}/");
    let (_, document) = tapped(&workspace, &["--only", &one.port().to_string()], &["sh", "-c", &line]);
    serving_one.join().unwrap();
    serving_other.join().unwrap();
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (1, 1));
}

#[test]
fn a_statically_linked_program_is_reported_as_not_tapped() {
    let workspace = Workspace::concurrent();
    let source = workspace.file("static.c");
    fs::write(&source, "int main(void) { return 4; }").unwrap();
    let program = workspace.file("static-program");
    let built = Command::new("cc").arg("-static").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success(), "cc -static: the test needs the static libc of libc6-dev");
    let (output, document) = tapped(&workspace, &[], &["sh", "-c", &format!("{}; exit $?", program.display())]);
    assert_eq!(output.code, Some(4));
    assert_eq!(document["validity"]["verdict"], "suspect");
    assert_eq!(check(&document, "tap_coverage")["state"], "failed");
    let programs = document["tap"]["programs"].as_array().unwrap();
    let named = programs.iter().find(|program| program["name"] == "static-program").unwrap();
    assert_eq!((&named["coverage"], &named["why"]), (&"unseen".into(), &"linked statically".into()));
    // Without other programs the tap has recorded nothing.
    let (_, document) = tapped(&workspace, &[], &[program.to_str().unwrap()]);
    assert_eq!(
        (&document["validity"]["verdict"], &check(&document, "tap_loaded")["state"]),
        (&"invalid".into(), &"failed".into())
    );
}

#[test]
fn tapped_server_and_client_record_mirrored_exchanges() {
    let workspace = Workspace::concurrent();
    let script = "import socket, sys\n\
                  s = socket.socket(); s.settimeout(60); s.bind(('127.0.0.1', 0)); s.listen()\n\
                  print(s.getsockname()[1], file=sys.stderr, flush=True)\n\
                  c, _ = s.accept()\n\
                  for _ in range(3):\n  c.recv(100); c.sendall(b'y' * 5000)\n\
                  c.recv(1)\n";
    let file = workspace.file("mirror.json");
    let running = workspace.start(&["tap", "--json", file.to_str().unwrap(), "--", "python3", "-c", script]);
    wait_until("the server listens", || running.stderr().ends_with('\n'));
    let port = running.stderr().trim().to_owned();
    let mut socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    for _ in 0..3 {
        socket.write_all(b"ask").unwrap();
        socket.read_exact(&mut [0; 5000]).unwrap();
    }
    drop(socket);
    running.finish().success();
    let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let server = &document["tap"]["server"];
    assert_eq!((count(server, "connections"), count(server, "exchanges")), (1, 3), "{server:#}");
    assert_eq!((count(server, "sent_bytes_total"), count(server, "received_bytes_total")), (15_000, 9));
    assert!(document["tap"].get("client").is_none());
}

#[test]
fn connections_open_at_the_end_are_in_the_table() {
    let workspace = Workspace::concurrent();
    // A connection whose other end a child may have stays open for a second: the run ends before.
    let script = "import os, socket\n\
                  s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
                  c = socket.create_connection(s.getsockname()); a, _ = s.accept()\n\
                  if os.fork() == 0:\n  a.recv(3); a.sendall(b'yes'); os._exit(0)\n\
                  a.close(); c.sendall(b'ask'); c.recv(3); os.wait(); c.close()\n";
    let (output, document) = tapped(&workspace, &[], &["python3", "-c", script]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for side in ["client", "server"] {
        let view = &document["tap"][side];
        assert_eq!((count(view, "connections"), count(view, "exchanges")), (1, 1), "{document:#}");
    }
    let output = workspace.run(&["tap", "slice", "--json"]);
    let slice: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(count(&slice, "rows"), 2, "{slice:#}");
    // A child that still runs has both ends open.
    let script = "import os, socket, time\n\
                  s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
                  c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.sendall(b'ask')\n\
                  r, w = os.pipe()\n\
                  if os.fork() == 0:\n  os.closerange(0, 3); os.write(w, b'x'); time.sleep(3); os._exit(0)\n\
                  os.read(r, 1); os._exit(0)\n";
    let (_, document) = tapped(&workspace, &[], &["python3", "-c", script]);
    assert_eq!(count(&document, "tap.client.connections_open_at_end"), 1, "{document:#}");
    let slice: Value = serde_json::from_str(&workspace.run(&["tap", "slice", "--json"]).stdout).unwrap();
    assert_eq!(count(&slice, "rows"), 2, "{slice:#}");
}

#[test]
fn an_unreadable_table_is_an_error() {
    let workspace = Workspace::concurrent();
    let (address, serving) = server(1, 1, 10);
    let (_, document) = tapped(&workspace, &[], &["curl", "-s", "-o", "/dev/null", &format!("http://{address}/")]);
    serving.join().unwrap();
    let dir = std::path::PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert_eq!(workspace.run(&["tap", "slice"]).code, Some(0));
    let table = dir.join("taps.parquet");
    let complete = fs::read(&table).unwrap();
    for broken in [b"no table".as_slice(), b"", &complete[..complete.len() / 2]] {
        fs::write(&table, broken).unwrap();
        for options in [&["tap", "slice"][..], &["tap", "slice", "--json"]] {
            let output = workspace.run(options);
            assert_ne!(output.code, Some(0), "{output}");
            assert!(output.stdout.is_empty() && output.stderr.contains("taps.parquet"), "{output}");
        }
    }
}

#[test]
fn tap_runs_are_filtered_by_their_columns() {
    let workspace = Workspace::concurrent();
    for bytes in [1_000, 2_000] {
        let (address, serving) = server(1, 1, bytes);
        let (output, _) = tapped(
            &workspace,
            &["--name", "sliced"],
            &["curl", "-s", "-o", "/dev/null", &format!("http://{address}/")],
        );
        assert_eq!(output.code, Some(0));
        serving.join().unwrap();
    }
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    tapped(&workspace, &["--name", "other"], &["curl", "-s", &format!("http://{refused}/")]);
    let slice = |options: &[&str]| -> Value {
        let output = workspace.run(&[&["tap", "slice", "--json"], options].concat());
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    };
    let all = slice(&["--last", "9", "--by", "program"]);
    assert_eq!(all["schema"], "yamabiko.tap_slice/2");
    assert_eq!((count(&all, "rows"), all["runs"].as_array().unwrap().len()), (3, 3));
    assert_eq!(all["groups"][0]["name"], "curl");
    assert_eq!((count(&all, "client.attempts"), count(&all["groups"][0], "failed")), (3, 1));
    assert!((number(&all, "client.error_ratio") - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(count(&slice(&["--name", "sliced"]), "client.exchanges"), 2);
    assert_eq!(count(&slice(&[]), "client.exchanges"), 0, "the last run has only failed exchanges");
    assert_eq!(count(&slice(&["--last", "9", "--port", &refused.port().to_string()]), "rows_taken"), 1);
    assert_eq!(count(&slice(&["--last", "9", "--peer", "127.0.0.0/8", "--by", "port"]), "rows_taken"), 3);
    assert_eq!(count(&slice(&["--last", "9", "--since", "1h", "--by", "minute"]), "rows_taken"), 3);
    assert_eq!(count(&slice(&["--last", "9", "--until", "2020-01-01"]), "rows_taken"), 0);
    let page = workspace.file("slice.html");
    let output = workspace.run(&["tap", "slice", "--last", "9", "--by", "peer", "--html", page.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("127.0.0.1") && html.contains("As clients"));
    let text = workspace.run(&["tap", "slice", "--last", "9", "--by", "peer"]);
    assert!(text.stdout.contains("by peer") && text.stdout.contains("ECONNREFUSED"), "{}", text.stdout);
    let again = workspace.run(&["report", "last"]);
    assert!(again.stdout.contains("ECONNREFUSED"), "{}", again.stdout);
    assert_eq!(workspace.run(&["tap", "slice", "--name", "missing"]).code, Some(1));
}
