//! Signals to `net`, the end of its server, and waiting for the server: a program under `net` behaves as in a shell.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::host::Hosts;
use crate::support::servers::{PAGE, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of, wait_until};

/// A program that prints `up`, and that handles each of these signals before it exits.
const HANDLES_SIGNALS: &str =
    "for s in TERM HUP INT QUIT USR1 USR2; do trap \"echo $s; sleep .3; echo cleaned; exit 9\" $s; done
    echo up; while :; do sleep .05; done";

#[test]
fn net_forwards_every_signal_and_waits_for_the_program() {
    let workspace = Workspace::concurrent_as_root();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        let json = workspace.file(signal.as_str());
        let net = ["net", "--rtt", "1ms", "--json", str_of(&json), "--", "bash", "-c", HANDLES_SIGNALS];
        let running = workspace.start_command(with_default_signals(&workspace.command(&net)));
        wait_until("the program has installed its handlers", || running.stdout().contains("up"));
        running.signal(signal);
        let output = running.finish();
        let expected = format!("up\n{}\ncleaned\n", &signal.as_str()[3..]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(9), expected.as_str()), "{signal}: {output}");
        let document: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert!(document["path"]["packets"].is_u64(), "{document}");
    }
    // A program without a handler is ended by the signal, as in a shell.
    let running = workspace.start(&["net", "--", "sh", "-c", "echo up; exec sleep 60"]);
    wait_until("the program has installed its handlers", || running.stdout().contains("up"));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish().code, Some(128 + 15));
}

#[test]
fn net_forwards_signals_to_a_program_at_the_gateway() {
    let workspace = Workspace::concurrent_as_root();
    let running = workspace.start(&["gateway", "--", "bash", "-c", HANDLES_SIGNALS]);
    wait_until("the program has installed its handlers", || running.stdout().contains("up"));
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

/// A server that records SIGTERM and needs some time to exit.
fn slow_to_exit(workspace: &Workspace, log: &str) -> String {
    let log = workspace.file(log);
    let server = yamabiko_serve(workspace);
    let server = server.strip_prefix("exec ").unwrap();
    format!("trap 'echo term >> {0}; sleep .5; echo cleaned >> {0}; exit' TERM; {server} & wait; wait", log.display())
}

#[test]
fn net_sends_sigterm_to_the_server_before_sigkill() {
    let workspace = Workspace::concurrent_as_root();
    let read = |log: &str| fs::read_to_string(workspace.file(log)).unwrap_or_default();
    let server = slow_to_exit(&workspace, "net.log");
    workspace.run(&["net", "--server", &server, "--", "true"]).success();
    assert_eq!(read("net.log"), "term\ncleaned\n");
    let server = slow_to_exit(&workspace, "bench.log");
    let bench = workspace.run(&["bench", PAGE, "--server", &server, "--rate", "20/s", "-d", "1s", "--warmup", "0s"]);
    assert!(matches!(bench.code, Some(0 | 3 | 4)), "{bench}");
    assert_eq!(read("bench.log"), "term\ncleaned\n");
    // The server gets SIGTERM also if the run fails.
    let server = slow_to_exit(&workspace, "refused.log");
    workspace.run(&["net", "--server", &server, "--", "/no/such/program"]).refused(1, &["/no/such/program"]);
    let server = slow_to_exit(&workspace, "wrong-port.log");
    let other = PAGE.replace(":8080", ":9999");
    let short = ["--server-start-timeout", "1s", "-d", "1s"];
    workspace.run(&[&["bench", &other, "--server", &server][..], &short].concat()).refused(1, &["9999", "8080"]);
    assert_eq!(read("wrong-port.log"), "term\ncleaned\n");
}

#[test]
fn net_waits_for_a_server_on_any_port() {
    let workspace = Workspace::concurrent_as_root();
    let late = format!("sleep 1; {}", yamabiko_serve(&workspace));
    let curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", PAGE];
    let net = workspace.run(&[&["net", "--rtt", "2ms", "--server", &late, "--"][..], &curl].concat());
    assert_eq!((net.code, net.stdout.as_str()), (Some(0), "200"), "{net}");
    // A server of UDP datagrams.
    let udp = format!("sleep 1; exec python3 -c '{UDP_SERVER}' 0.0.0.0 5353");
    let client_script = format!("{UDP_CLIENT} server 5353");
    let net = workspace.run(&["net", "--rtt", "2ms", "--server", &udp, "--", "sh", "-c", &client_script]);
    assert_eq!((net.code, net.stdout.as_str()), (Some(0), "pong\n"), "{net}");
    // No server, and an unused address.
    let idle = ["net", "--server", "sleep 60", "--server-start-timeout", "1s", "--", "true"];
    workspace.run(&idle).refused(1, &["did not listen on any port within 1s", "--server-start-timeout", "sleep 60"]);
    let inside = yamabiko_serve(&workspace).replace("0.0.0.0", "127.0.0.1");
    let inside = ["net", "--server", &inside, "--server-start-timeout", "1s", "--", "true"];
    workspace.run(&inside).refused(1, &["listens on 127.0.0.1 only", "0.0.0.0"]);
}

#[test]
fn net_accepts_a_udp_only_service() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    for (address, to) in [("127.0.0.1", "127.0.0.1:5300"), ("::", "[::1]:5300")] {
        let _echo = workspace.start_command(hosts.host.command("python3", &["-c", UDP_SERVER, address, "5300"]));
        let client_script = format!("for i in 1 2 3 4 5 6 7 8 9; do {UDP_CLIENT} server 5300 && break; done");
        let net = ["net", "--rtt", "2ms", "--to", to, "--", "sh", "-c", &client_script];
        wait_until("the service's name resolves and it responds", || {
            let net = hosts.host.yamabiko(&workspace, &net);
            assert!(net.code == Some(0) || net.stderr.contains("nothing listens"), "{net}");
            net.stdout.contains("pong")
        });
    }
}

#[test]
fn net_refuses_an_unwritable_result_before_the_program_starts() {
    let workspace = Workspace::concurrent_as_root();
    let touched = workspace.file("touched");
    let json = workspace.file("no/such/folder.json");
    for verb in ["net", "tap"] {
        let run = [verb, "--json", str_of(&json), "--", "touch", str_of(&touched)];
        workspace.run(&run).refused(2, &["folder.json", "cannot write"]);
        assert!(!touched.exists(), "{verb}");
    }
}

/// A server that responds to each datagram.
const UDP_SERVER: &str = "import socket,sys
a,p=sys.argv[1:3]
s=socket.socket(socket.AF_INET6 if \":\" in a else socket.AF_INET,socket.SOCK_DGRAM)
s.bind((a,int(p)))
while True: s.sendto(b\"pong\",s.recvfrom(99)[1])";

/// A client that sends one datagram to a name and port and waits for a response for at most one second.
const UDP_CLIENT: &str = "python3 -c 'import socket,sys
f,t,_,_,a=socket.getaddrinfo(sys.argv[1],sys.argv[2],type=socket.SOCK_DGRAM)[0]
s=socket.socket(f,t); s.settimeout(1); s.sendto(b\"ping\",a)
print(s.recv(99).decode())'";
