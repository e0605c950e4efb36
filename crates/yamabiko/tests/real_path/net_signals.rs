//! Signals that are sent to `net`, the end of its server, and what it waits for: a program behaves there as in a shell.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::host::Hosts;
use crate::support::servers::{PAGE, own};
use crate::support::workspace::{Workspace, str_of, wait_until};

/// Prints `up`, and cleans up at each of these signals before it ends.
const CLEANS: &str =
    "for s in TERM HUP INT QUIT USR1 USR2; do trap \"echo $s; sleep .3; echo cleaned; exit 9\" $s; done
    echo up; while :; do sleep .05; done";

#[test]
fn net_forwards_every_signal_and_waits_for_the_program() {
    let workspace = Workspace::beside();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        let json = workspace.file(signal.as_str());
        let net = ["net", "--rtt", "1ms", "--json", str_of(&json), "--", "bash", "-c", CLEANS];
        let running = workspace.start_command(with_default_signals(&workspace.command(&net)));
        wait_until("the program is up", || running.stdout().contains("up"));
        running.signal(signal);
        let output = running.finish();
        let expected = format!("up\n{}\ncleaned\n", &signal.as_str()[3..]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(9), expected.as_str()), "{signal}: {output}");
        let document: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert!(document["path"]["packets"].is_u64(), "{document}");
    }
    // One that does nothing about it ends by it, as in a shell.
    let running = workspace.start(&["net", "--", "sh", "-c", "echo up; exec sleep 60"]);
    wait_until("the program is up", || running.stdout().contains("up"));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish().code, Some(128 + 15));
}

#[test]
fn net_forwards_signals_to_a_program_at_the_gateway() {
    let workspace = Workspace::beside();
    let running = workspace.start(&["gateway", "--", "bash", "-c", CLEANS]);
    wait_until("the program is up", || running.stdout().contains("up"));
    running.signal(Signal::SIGTERM);
    let output = running.finish();
    assert!(output.code == Some(9) && output.stdout.contains("TERM\ncleaned\n"), "{output}");
}

/// The parent of these tests may ignore signals (nohup), and `net` does not forward ignored ones.
fn with_default_signals(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        env.current_dir(folder);
    }
    env
}

/// A server that records SIGTERM and needs a while to end.
fn careful(workspace: &Workspace, log: &str) -> String {
    let log = workspace.file(log);
    let server = own(workspace);
    let server = server.strip_prefix("exec ").unwrap();
    format!("trap 'echo term >> {0}; sleep .5; echo cleaned >> {0}; exit' TERM; {server} & wait; wait", log.display())
}

#[test]
fn net_sends_sigterm_to_the_server_before_sigkill() {
    let workspace = Workspace::beside();
    let read = |log: &str| fs::read_to_string(workspace.file(log)).unwrap_or_default();
    let server = careful(&workspace, "net.log");
    workspace.run(&["net", "--server", &server, "--", "true"]).success();
    assert_eq!(read("net.log"), "term\ncleaned\n");
    let server = careful(&workspace, "bench.log");
    let bench = workspace.run(&["bench", PAGE, "--server", &server, "--rate", "20/s", "-d", "1s", "--warmup", "0s"]);
    assert!(matches!(bench.code, Some(0 | 3 | 4)), "{bench}");
    assert_eq!(read("bench.log"), "term\ncleaned\n");
    // Also where the run comes to nothing.
    let server = careful(&workspace, "refused.log");
    workspace.run(&["net", "--server", &server, "--", "/no/such/program"]).refused(1, &["/no/such/program"]);
    let server = careful(&workspace, "wrong-port.log");
    let other = PAGE.replace(":8080", ":9999");
    let short = ["--server-start-timeout", "1s", "-d", "1s"];
    workspace.run(&[&["bench", &other, "--server", &server][..], &short].concat()).refused(1, &["9999", "8080"]);
    assert_eq!(read("wrong-port.log"), "term\ncleaned\n");
}

#[test]
fn net_waits_for_a_server_on_any_port() {
    let workspace = Workspace::beside();
    let late = format!("sleep 1; {}", own(&workspace));
    let curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", PAGE];
    let net = workspace.run(&[&["net", "--rtt", "2ms", "--server", &late, "--"][..], &curl].concat());
    assert_eq!((net.code, net.stdout.as_str()), (Some(0), "200"), "{net}");
    // Of datagrams.
    let udp = format!("sleep 1; exec python3 -c '{UDP}' 0.0.0.0 5353");
    let ask = format!("{ASK} server 5353");
    let net = workspace.run(&["net", "--rtt", "2ms", "--server", &udp, "--", "sh", "-c", &ask]);
    assert_eq!((net.code, net.stdout.as_str()), (Some(0), "pong\n"), "{net}");
    // Nowhere, and at an unused address.
    let idle = ["net", "--server", "sleep 60", "--server-start-timeout", "1s", "--", "true"];
    workspace.run(&idle).refused(1, &["did not listen on any port within 1s", "--server-start-timeout", "sleep 60"]);
    let inside = own(&workspace).replace("0.0.0.0", "127.0.0.1");
    let inside = ["net", "--server", &inside, "--server-start-timeout", "1s", "--", "true"];
    workspace.run(&inside).refused(1, &["listens on 127.0.0.1 only", "0.0.0.0"]);
}

#[test]
fn net_accepts_a_udp_only_service() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    for (address, to) in [("127.0.0.1", "127.0.0.1:5300"), ("::", "[::1]:5300")] {
        let _echo = workspace.start_command(hosts.host.command("python3", &["-c", UDP, address, "5300"]));
        let ask = format!("for i in 1 2 3 4 5 6 7 8 9; do {ASK} server 5300 && break; done");
        let net = ["net", "--rtt", "2ms", "--to", to, "--", "sh", "-c", &ask];
        wait_until("the service is named and answers", || {
            let net = hosts.host.yamabiko(&workspace, &net);
            assert!(net.code == Some(0) || net.stderr.contains("nothing listens"), "{net}");
            net.stdout.contains("pong")
        });
    }
}

#[test]
fn net_refuses_an_unwritable_result_before_the_program_starts() {
    let workspace = Workspace::beside();
    let touched = workspace.file("touched");
    let json = workspace.file("no/such/folder.json");
    for verb in ["net", "tap"] {
        let run = [verb, "--json", str_of(&json), "--", "touch", str_of(&touched)];
        workspace.run(&run).refused(2, &["folder.json", "cannot write"]);
        assert!(!touched.exists(), "{verb}");
    }
}

/// Responds to each datagram.
const UDP: &str = "import socket,sys
a,p=sys.argv[1:3]
s=socket.socket(socket.AF_INET6 if \":\" in a else socket.AF_INET,socket.SOCK_DGRAM)
s.bind((a,int(p)))
while True: s.sendto(b\"pong\",s.recvfrom(99)[1])";

/// Asks once, of a name and port, for a second at most.
const ASK: &str = "python3 -c 'import socket,sys
f,t,_,_,a=socket.getaddrinfo(sys.argv[1],sys.argv[2],type=socket.SOCK_DGRAM)[0]
s=socket.socket(f,t); s.settimeout(1); s.sendto(b\"ping\",a)
print(s.recv(99).decode())'";
