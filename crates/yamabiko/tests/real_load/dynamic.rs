//! Real programs behind `serve --dynamic`: the server starts gunicorn and php-cgi, restarts them after a kill, and ends
//! them.

use std::fs;
use std::io::Write as _;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::leftovers::{Leftovers, control_groups};
use crate::support::processes::{command_line, descendants, signal_all};
use crate::support::serving::{Client, Serving};
use crate::support::workspace::{Workspace, wait_until};

const WSGI: &str = r#"
import hashlib
def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    path, client = environ["PATH_INFO"], environ["HTTP_X_FORWARDED_FOR"]
    text = " ".join([environ["REQUEST_METHOD"], path, client, hashlib.sha256(body).hexdigest()]).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]
"#;

const PHP: &str = r#"<?php
$body = file_get_contents("php://input");
$text = implode(" ", [$_SERVER["REQUEST_METHOD"], $_SERVER["SCRIPT_NAME"], $_SERVER["PATH_INFO"] ?? "", $_SERVER["QUERY_STRING"],
    $_SERVER["REMOTE_ADDR"], $_SERVER["HTTPS"] ?? "plain", getenv("HTTP_PROXY") ?: "none", strlen($body), md5($body)]);
error_log("a word for the operator");
http_response_code(202);
header("Content-Length: " . strlen($text));
echo $text;
"#;

/// A workspace with both applications.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    fs::write(workspace.path().join("application.py"), WSGI).unwrap();
    fs::create_dir(workspace.www().join("php")).unwrap();
    fs::write(workspace.www().join("php/say.php"), PHP).unwrap();
    workspace
}

fn gunicorn(workspace: &Workspace, options: &[&str]) -> Serving {
    let route = format!("/app=unix:{}", workspace.file("app.sock").display());
    let command = "exec gunicorn --log-level warning -w 2 -b \"$YAMABIKO_UPSTREAM\" application:app";
    let serving = Serving::start(workspace, &[&["--dynamic", &route, "--dynamic-cmd", command], options].concat());
    wait_until_up(&serving, "/app");
    serving
}

/// Waits until the program responds; until then the status is 503 with Retry-After.
fn wait_until_up(serving: &Serving, path: &str) {
    wait_until("the program responds", || {
        let response = serving.connect().get(path, "").unwrap();
        assert!(response.status() != 503 || response.field("retry-after").is_some(), "{}", response.head);
        assert!(matches!(response.status(), 200 | 202 | 503), "{}", response.head);
        response.status() != 503
    });
}

fn status(serving: &Serving) -> Value {
    serde_json::from_slice(&serving.connect().get("/-/status", "").unwrap().body).unwrap()
}

fn post(serving: &Serving, path: &str, fields: &str, body: &[u8]) -> (u16, String) {
    let mut client = Client::connect(serving.address);
    client.stream.write_all(format!("POST {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes()).unwrap();
    client.stream.write_all(body).unwrap();
    let response = client.response().unwrap();
    (response.status(), String::from_utf8(response.body).unwrap())
}

#[test]
fn gunicorn_is_restarted_after_a_crash_while_files_are_served() {
    let workspace = workspace();
    let serving = gunicorn(&workspace, &["--dynamic-cpu", "60%", "--dynamic-weight", "usual"]);
    let body = vec![b'y'; 300_000];
    let (code, text) = post(&serving, "/app/up?x=1", "Content-Length: 300000\r\n", &body);
    let hash = "POST /app/up 127.0.0.1 ";
    assert!(code == 200 && text.starts_with(hash), "{code} {text}");
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let (code, text) = post(&serving, "/app/up", "Transfer-Encoding: chunked\r\n", &chunked);
    assert!(code == 200, "{code} {text} {}", serving.running.stderr());
    assert_eq!(serving.connect().get("/10k.bin", "").unwrap().body.len(), 10 << 10);

    let mut file_client = serving.connect();
    for round in 1..=2 {
        let programs: Vec<i32> = descendants(serving.running.pid())
            .into_iter()
            .filter(|&pid| command_line(pid).contains("gunicorn") && !command_line(pid).contains("serve"))
            .collect();
        assert!(!programs.is_empty());
        signal_all(&programs, Signal::SIGKILL);
        wait_until("the server detects the end of the program", || {
            assert_eq!(file_client.get("/100k.bin", "").unwrap().body.len(), 100 << 10);
            status(&serving)["dynamic"]["program"]["starts"] == 1 + round
        });
        wait_until_up(&serving, "/app");
    }
    let stderr = serving.running.stderr();
    assert_eq!(stderr.matches("the program was killed by signal 9; it restarts in").count(), 2, "{stderr}");
    let program = &status(&serving)["dynamic"]["program"];
    assert!(program["up"] == true && program["cpu"]["user_s"].as_f64().unwrap() > 0.0, "{program}");
    assert!(program["periods"]["all"].as_u64().unwrap() > 0, "{program}");
}

#[test]
fn php_receives_variables_and_bodies_over_fastcgi() {
    let workspace = workspace();
    let socket = workspace.file("php.sock");
    let route = format!("/php=fastcgi:{}", socket.display());
    let command = "exec php-cgi -b \"${YAMABIKO_UPSTREAM#unix:}\"";
    let serving =
        Serving::start(&workspace, &["--dynamic", &route, "--dynamic-cmd", command, "--dynamic-weight", "usual"]);
    wait_until_up(&serving, "/php/say.php");
    let mut client = serving.connect();
    // One process, requested repeatedly on persistent and closed connections: no request waits behind an idle
    // connection.
    let mut other = serving.connect();
    let empty = "0 d41d8cd98f00b204e9800998ecf8427e";
    for _ in 0..5 {
        let response = client.get("/php/say.php/more/x?a=b", "Proxy: http://evil\r\n").unwrap();
        assert_eq!(response.status(), 202);
        let text = String::from_utf8(response.body).unwrap();
        assert_eq!(text, format!("GET /php/say.php /more/x a=b 127.0.0.1 plain none {empty}"));
        assert_eq!(other.get("/php/say.php", "").unwrap().status(), 202);
    }
    let expected = "POST /php/say.php   127.0.0.1 plain none 200000 ";
    let body = vec![b'z'; 200_000];
    let (code, text) = post(&serving, "/php/say.php", "Content-Length: 200000\r\n", &body);
    assert!(code == 202 && text.starts_with(expected), "{code} {text}");
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    assert_eq!(post(&serving, "/php/say.php", "Transfer-Encoding: chunked\r\n", &chunked), (code, text));
    for path in ["/php/none.php", "/php/", "/10k.bin/x.php"] {
        assert_eq!(client.get(path, "").unwrap().status(), 404, "{path}");
    }
    let spelled = client.get("/%70hp/say.php", "").unwrap();
    assert!(spelled.status() == 202 && !spelled.body.starts_with(b"<?php"));
    assert!(serving.running.stderr().contains("stderr of the program: "), "{}", serving.running.stderr());
}

#[test]
fn the_dynamic_program_ends_with_a_killed_server() {
    let workspace = workspace();
    // With normal weight: on a busy machine low-weight processes take long to exit.
    let bound = ["--dynamic-cpu", "60%", "--dynamic-weight", "usual"];
    let serving = gunicorn(&workspace, &bound);
    let pid = serving.running.pid();
    let (leftovers, of_server) = (Leftovers::new(workspace.path()), descendants(pid));
    assert!(of_server.iter().any(|&pid| command_line(pid).contains("gunicorn")));
    signal_all(&[pid], Signal::SIGKILL);
    wait_until("all processes of the program have exited", || {
        let left = leftovers.processes();
        left.iter().all(|(pid, _)| !of_server.contains(pid))
    });
    drop(serving);
    // A control group that could not be removed is removed by the next start.
    let again = gunicorn(&workspace, &bound);
    assert_eq!(control_groups(&[pid].into()), Vec::<std::path::PathBuf>::new());
    // After SIGTERM nothing remains.
    let pid = again.running.pid();
    let of_server = descendants(pid);
    again.running.signal(Signal::SIGTERM);
    again.running.finish().success();
    assert!(of_server.iter().all(|&pid| crate::support::processes::stat(pid).is_none()));
    assert_eq!(control_groups(&[pid].into()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_program_starts_on_a_busy_machine_and_then_runs_at_lowest_weight() {
    let workspace = workspace();
    let cores = std::thread::available_parallelism().unwrap().get();
    let _burners: Vec<BusyLoop> = (0..cores).map(|_| BusyLoop::start()).collect();
    let serving = gunicorn(&workspace, &["--dynamic-weight", "least"]);
    let group =
        control_groups(&[serving.running.pid()].into()).into_iter().find(|group| group.join("cpu.idle").exists());
    let group = group.expect("a group with a weight");
    let has_lowest_weight = || std::fs::read_to_string(group.join("cpu.idle")).unwrap() == "1\n";
    assert!(has_lowest_weight());
    // The weight is set after each start.
    let programs: Vec<i32> = descendants(serving.running.pid())
        .into_iter()
        .filter(|&pid| command_line(pid).contains("gunicorn") && !command_line(pid).contains("serve"))
        .collect();
    signal_all(&programs, Signal::SIGKILL);
    wait_until("the server detects the end of the program", || status(&serving)["dynamic"]["program"]["starts"] == 2);
    assert!(!has_lowest_weight());
    wait_until_up(&serving, "/app");
    assert!(has_lowest_weight());
}

/// A process that keeps a core busy.
struct BusyLoop(std::process::Child);

impl BusyLoop {
    fn start() -> Self {
        BusyLoop(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
