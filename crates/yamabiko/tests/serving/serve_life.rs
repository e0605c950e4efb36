//! `serve` from start to end: refused options, messages, reloaded certificates, two ways to stop.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::support::serving::Serving;
use crate::support::tls::{Authority, Certificate};
use crate::support::workspace::{Workspace, str_of, wait_until};

const BIG_PAGE_BYTES: usize = 20 << 20;

/// A workspace with a page larger than all socket buffers.
fn workspace() -> Workspace {
    let workspace = Workspace::concurrent();
    fs::write(workspace.www().join("big.bin"), vec![b'b'; BIG_PAGE_BYTES]).unwrap();
    workspace
}

fn with_tls(workspace: &Workspace, certificate: &Certificate) -> Serving {
    Serving::start(workspace, &["--tls", str_of(&certificate.cert), str_of(&certificate.key)])
}

#[test]
fn contradictory_serve_options_are_refused() {
    let workspace = Workspace::concurrent();
    let www = workspace.www();
    let refuse = |options: &[&str], words: &[&str]| {
        let arguments: Vec<&str> = ["serve"].into_iter().chain(options.iter().copied()).collect();
        workspace.run(&arguments).refused(1, words);
    };
    let www = str_of(&www);
    refuse(&[], &["<DIR>"]);
    refuse(&["--max", "1KiB", "--tls", "a", "b"], &["--max", "--tls", "cannot be used"]);
    refuse(&["--max", "1KiB", "--idle-time", "1s"], &["--max", "--idle-time", "cannot be used"]);
    refuse(&["--max", "1KiB", "--connections", "5"], &["--max", "--connections", "cannot be used"]);
    refuse(&[www, "--processes", "2"], &["--processes", "cannot be used"]);
    refuse(&[www, "--tls", "only-one"], &["--tls", "2 values"]);
    refuse(&[www, "--head-time", "0s"], &["--head-time", "at least 100ms"]);
    refuse(&[www, "--idle-time", "5"], &["--idle-time", "unit"]);
    refuse(&[www, "--head-size", "64KiB"], &["--head-size", "32KiB"]);
    refuse(&[www, "--connections", "0"], &["--connections", "from 1"]);
    refuse(&[www, "--dynamic-cmd", "app"], &["--dynamic"]);
    refuse(&[www, "--dynamic", "/app=https://host:443"], &["--dynamic", "TLS to an upstream is not supported"]);
    refuse(&[www, "--dynamic", "app=http://host:80"], &["--dynamic", "begins with /"]);
    refuse(&[www, "--dynamic", "/a=http://h:1", "--dynamic", "/a/=http://h:2"], &["the same prefix"]);
    refuse(&[www, "--dynamic", "/a=http://h:1", "--dynamic-cpu", "40%"], &["--dynamic-cmd"]);
    refuse(&[www, "--dynamic", "/a=http://h:1", "--dynamic-concurrency", "0"], &["--dynamic-concurrency", "1.."]);
    refuse(&["--max", "1KiB", "--dynamic", "/a=http://h:1"], &["--max", "--dynamic", "cannot be used"]);
    refuse(&[www, "--dynamic", "/a=fastcgi://h:1/no/such/folder/"], &["/no/such/folder", "No such file"]);
    refuse(&[www, "--tls", "/no/such.crt", "/no/such.key"], &["--tls", "/no/such.crt", "No such file"]);
    let authority = Authority::new(&workspace, "authority");
    let (one, other) = (authority.sign(&["server"], 2090), authority.sign(&["other"], 2090));
    let mixed = ["--tls", str_of(&one.cert), str_of(&other.key)];
    refuse(&[&[www][..], &mixed].concat(), &["--tls", "does not match the first certificate"]);
}

#[test]
fn a_stopped_server_finishes_responses_in_progress() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &[]);
    let (mut busy, mut idle) = (serving.connect(), serving.connect());
    assert_eq!(idle.get("/10k.bin", "").unwrap().body.len(), 10 << 10);
    // The client has read the response's head; the body exceeds the socket buffers by far.
    std::io::Write::write_all(&mut busy.stream, b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    busy.stream.read_exact(&mut [0; 1]).unwrap();
    serving.running.signal(Signal::SIGTERM);
    // Idle connections are closed, and new ones are refused.
    assert_eq!(idle.stream.read(&mut [0; 1]).unwrap(), 0);
    wait_until("new connections are refused", || TcpStream::connect(serving.address).is_err());
    let mut rest = Vec::new();
    busy.stream.read_to_end(&mut rest).unwrap();
    let head = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(rest.len() - head, BIG_PAGE_BYTES);
    drop(busy);
    let output = serving.running.finish().success();
    assert!(output.stderr.contains("served 2 requests in ") && output.stderr.contains("0 cut short"), "{output}");
}

#[test]
fn a_second_signal_and_the_stop_time_end_the_server() {
    let workspace = workspace();
    for (options, again) in [(&["--stop-time", "1h"][..], true), (&["--stop-time", "100ms"][..], false)] {
        let mut serving = Serving::start(&workspace, options);
        let mut busy = serving.connect();
        std::io::Write::write_all(&mut busy.stream, b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        busy.stream.read_exact(&mut [0; 1]).unwrap();
        serving.running.signal(Signal::SIGINT);
        if again {
            wait_until("new connections are refused", || TcpStream::connect(serving.address).is_err());
            assert!(!serving.running.ended(), "the server waits for a response in progress");
            serving.running.signal(Signal::SIGINT);
        }
        let output = serving.running.finish().success();
        assert!(output.stderr.contains("1 cut short"), "{output}");
        let mut rest = Vec::new();
        let _ = busy.stream.read_to_end(&mut rest);
        assert!(rest.len() < BIG_PAGE_BYTES, "{} bytes", rest.len());
    }
}

#[test]
fn sighup_reloads_the_certificate() {
    let workspace = workspace();
    let (old, new) = (Authority::new(&workspace, "old"), Authority::new(&workspace, "new"));
    let (first, second) = (old.sign(&["server"], 2090), new.sign(&["server"], 2090));
    let serving = with_tls(&workspace, &first);
    assert!(serving.running.stderr().contains("on https://"), "{}", serving.running.stderr());
    let mut open_before = serving.connect_tls(&old.file(), "server");
    assert_eq!(open_before.get("/10k.bin", "").unwrap().status(), 200);
    fs::copy(&second.cert, &first.cert).unwrap();
    fs::write(&first.key, "no key").unwrap();
    serving.running.signal(Signal::SIGHUP);
    wait_until("the server reports that it cannot reload the certificate", || {
        serving.running.stderr().contains("the certificate stays as it was")
    });
    assert!(serving.connect_tls(&old.file(), "server").get("/10k.bin", "").is_ok());
    fs::copy(&second.key, &first.key).unwrap();
    serving.running.signal(Signal::SIGHUP);
    wait_until("the server reports the reload", || serving.running.stderr().contains("are read again"));
    assert_eq!(serving.connect_tls(&new.file(), "server").get("/10k.bin", "").unwrap().status(), 200);
    assert!(serving.connect_tls(&old.file(), "server").get("/10k.bin", "").is_err());
    // Open connections continue.
    assert_eq!(open_before.get("/100k.bin", "").unwrap().body, fs::read(workspace.www().join("100k.bin")).unwrap());
    serving.running.signal(Signal::SIGTERM);
    // The server sends close_notify.
    assert_eq!(open_before.stream.read(&mut [0; 1]).unwrap(), 0);
    serving.running.finish().success();
}

#[test]
fn large_files_arrive_completely_over_tls() {
    let workspace = workspace();
    let authority = Authority::new(&workspace, "authority");
    let serving = with_tls(&workspace, &authority.sign(&["server"], 2090));
    let mut client = serving.connect_tls(&authority.file(), "server");
    for _ in 0..2 {
        let big = client.get("/big.bin", "").unwrap();
        assert!(big.body.len() == BIG_PAGE_BYTES && big.body.iter().all(|&byte| byte == b'b'));
        assert_eq!(client.get("/10k.bin", "").unwrap().body, fs::read(workspace.www().join("10k.bin")).unwrap());
    }
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let workspace = workspace();
    let authority = Authority::new(&workspace, "authority");
    let serving = with_tls(&workspace, &authority.sign(&["server"], 2021));
    let stderr = serving.running.stderr();
    assert!(stderr.contains("warning: ") && stderr.contains("the certificate expired"), "{stderr}");
    assert!(serving.connect_tls(&authority.file(), "server").get("/10k.bin", "").is_err());
}
