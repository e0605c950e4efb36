//! Sandboxes of an ordinary user, in a user namespace.

use nix::unistd::{getgid, getuid};
use sys::cgroup::{Cgroup, Limits};
use sys::namespace::{NetNamespace, Privilege, enter_user_namespace, in_user_namespace, privilege};
use sys::sandbox::{Exit, Net, SandboxSpec};

use crate::check::{output, shell};
use crate::network::{carry_packets, net_with_tun};
use crate::runner::NOBODY;
use crate::servers::{apache, folder, nginx, serve};

pub fn user_namespace_is_allowed() {
    assert_ne!(getuid().as_raw(), 0, "this case is to run as an ordinary user");
    assert!(NetNamespace::create().unwrap_err().to_string().contains("run as root"));
    assert_eq!(privilege(), Privilege::UserNamespace);
    assert!(!in_user_namespace(), "a query changes nothing");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stopped.recv());
    assert!(enter_user_namespace().unwrap_err().to_string().contains("2 threads"));
    drop(stop);
    let _ = other.join();
    enter_user_namespace().unwrap();
    assert!(in_user_namespace() && getuid().is_root());
    assert_eq!(privilege(), Privilege::Root);
}

pub fn command_keeps_its_real_identity() {
    let (uid, gid) = (getuid(), getgid());
    enter_user_namespace().unwrap();
    let who = "id -u; id -g; grep CapEff /proc/self/status; ls /proc | grep -c '^[0-9]'; getent hosts server";
    let with_hosts = |rootless| {
        let mut spec = shell(who);
        spec.hosts = vec![("198.18.0.1".parse().unwrap(), "server".to_owned())];
        spec.rootless = rootless;
        spec
    };
    let (exit, text) = output(with_hosts(true));
    assert_eq!(exit, Exit::Code(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], [&*uid.to_string(), &*gid.to_string(), "CapEff:\t0000000000000000"], "{text}");
    assert!(lines[3].parse::<u32>().unwrap() <= 4, "{text}");
    assert!(lines[4].starts_with("198.18.0.1"), "{text}");
    // Otherwise it is root of its own namespace.
    let (exit, text) = output(with_hosts(false));
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(text.starts_with("0\n0\n") && !text.contains("CapEff:\t0000000000000000"), "{text}");
}

pub fn low_ports_and_ping_are_allowed() {
    enter_user_namespace().unwrap();
    let (exit, text) = output(rootless(shell("ping -c1 -W5 127.0.0.1")));
    assert_eq!(exit, Exit::Code(0), "{text}");
    // A second sandbox in the network of a first one has the same permissions.
    let net = {
        let sandbox = crate::check::start(rootless(shell("true")));
        sandbox.net().try_clone().unwrap()
    };
    let mut spec = rootless(shell("ping -c1 -W5 127.0.0.1"));
    spec.net = Net::Existing(net);
    assert_eq!(output(spec).0, Exit::Code(0));
    // A rootless command may stay in the host's network.
    let mut spec = rootless(shell("true"));
    spec.net = Net::Existing(NetNamespace::current().unwrap());
    assert_eq!(output(spec).0, Exit::Code(0));
}

pub fn nginx_serves() {
    enter_user_namespace().unwrap();
    let folder = folder();
    serve(rootless(nginx(&folder, 80, "daemon off;")), 80, false);
    serve(rootless(nginx(&folder, 80, "")), 80, true);
}

pub fn apache_serves() {
    enter_user_namespace().unwrap();
    let folder = folder();
    serve(rootless(apache(&folder, 80, "")), 80, true);
}

pub fn tun_carries_packets() {
    enter_user_namespace().unwrap();
    let (net, tun) = net_with_tun();
    carry_packets(&net, &tun);
    let error = sys::accounting::set_rps(&net, "t0", &[0]).unwrap_err().to_string();
    assert!(error.contains("only root outside"), "{error}");
}

pub fn missing_control_group_is_an_error() {
    assert_eq!(getuid().as_raw(), NOBODY, "only a user who surely owns no control group can try this: run it as root");
    enter_user_namespace().unwrap();
    let limits = Limits { cpu: Some("50%".parse().unwrap()), ..Limits::default() };
    let error = Cgroup::create("server", limits).unwrap_err().to_string();
    assert!(error.contains("delegated") && error.contains("root"), "{error}");
    sys::cgroup::sweep().expect("nothing to sweep is not an error");
}

fn rootless(mut spec: SandboxSpec<'_>) -> SandboxSpec<'_> {
    spec.rootless = true;
    spec
}
