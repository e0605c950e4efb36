//! Common programs of the system under the tap.

use std::process::Command;

use tap::event::{EventKind, Role};

use crate::support::{Tapped, compare, counted, server};

fn url(port: u16, bytes: usize) -> String {
    format!("http://127.0.0.1:{port}/{bytes}")
}

fn with(program: &str, arguments: &[&str]) -> Tapped {
    compare(&|| {
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C");
        command
    })
}

#[test]
fn curl_output_is_unchanged_with_and_without_keep_alive() {
    let port = server();
    let (one, two) = (url(port, 100_000), url(port, 10));
    let tapped = with("curl", &["-sS", &one, &two]);
    let connections = tapped.assert_complete();
    let [connection] = connections.as_slice() else { panic!("{connections:?}") };
    assert_eq!(connection.runs.iter().map(|run| run.0).collect::<String>(), "srsr");
    assert!(connection.received > 100_000 && connection.connected == 1);
    assert_eq!(connection.opened[0].1.port(), port);

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tapped = with("curl", &["-s", &format!("http://127.0.0.1:{nobody}/")]);
    assert!(tapped.connections().iter().all(|connection| connection.failed == [111]));
}

#[test]
fn perl_and_python_output_is_unchanged() {
    let port = server();
    let perl = format!(
        "use IO::Socket::INET; my $s = IO::Socket::INET->new('127.0.0.1:{port}') or die; print $s \"GET /5000 \
         HTTP/1.0\\r\\n\\r\\n\"; local $/; print length <$s>;"
    );
    assert_eq!(with("perl", &["-e", &perl]).assert_complete().len(), 1);

    let python = format!(
        "import asyncio, subprocess, urllib.request\nprint(len(urllib.request.urlopen('{}').read()))\nasync def get():\n    \
         r, w = await asyncio.open_connection('127.0.0.1', {port})\n    w.write(b'GET /300000 HTTP/1.0\\r\\n\\r\\n')\n    \
         n = len(await r.read())\n    w.close()\n    return n\nasync def all():\n    \
         print(await asyncio.gather(*[get() for _ in range(5)]))\nasyncio.run(all())\n\
         print(subprocess.run(['sh', '-c', 'exit 5']).returncode)\n",
        url(port, 70_000)
    );
    let tapped = with("python3", &["-c", &python]);
    let connections = tapped.assert_complete();
    assert_eq!(connections.len(), 6);
    assert_eq!(counted(&tapped.loaded()).get("sh"), Some(&1));

    let tapped = with("python3", &["-c", "import socket; print(len(socket.getaddrinfo('localhost', 80)) > 0)"]);
    let lookup = |what: &EventKind| matches!(what, EventKind::Resolved { name, error: 0, .. } if name == "localhost");
    assert!(tapped.events.iter().any(|event| lookup(&event.what)));
}

#[test]
fn a_shell_connection_inherited_by_cat_is_recorded() {
    let port = server();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /7000 HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
    let tapped = with("bash", &["-c", &script]);
    // bash writes through stdio or by write; the output of cat is complete in both cases.
    let connections = tapped.connections();
    let [connection] = connections.as_slice() else { panic!("{connections:?}") };
    assert_eq!(connection.received, 7060);
    assert_eq!(connection.tcp_counts.unwrap().received, 7060);
    assert!(connection.opened.iter().any(|(role, ..)| *role == Role::Found));
    assert_eq!(tapped.loaded(), ["bash", "cat"]);
}

/// The output of load generators contains times: only the counts are compared.
#[test]
fn load_generators_report_the_same_counts() {
    let port = server();
    let mut tapped = Tapped::new();
    let output = tapped.run(Command::new("ab").args(["-q", "-k", "-n", "200", "-c", "7", &url(port, 3000)]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Complete requests:      200") && text.contains("Failed requests:        0"), "{text}");
    let connections = tapped.assert_complete();
    assert!(connections.len() >= 7);
    let runs = |kind| connections.iter().flat_map(|one| &one.runs).filter(|run| run.0 == kind).count();
    // ab opens one connection more than its concurrency; every request is one run of sends.
    assert!(runs('s') >= 200 && runs('r') >= 200);

    let mut tapped = Tapped::new();
    let output = tapped.run(Command::new("wrk").args(["-t2", "-c6", "-d1s", &url(port, 2000)]));
    assert!(output.status.success() && output.stderr.is_empty());
    if tapped.lost() == 0 {
        assert!(tapped.assert_complete().len() >= 6);
    }
}

#[test]
fn wget_and_git_output_is_unchanged() {
    let port = server();
    assert_eq!(with("wget", &["-q", "-O-", &url(port, 123_456)]).assert_complete().len(), 1);
    // The server does not speak git's protocol: git fails with the same text.
    let tapped = with("git", &["ls-remote", &url(port, 50)]);
    assert!(counted(&tapped.loaded()).contains_key("git"));
    assert!(!tapped.assert_complete().is_empty());
}
