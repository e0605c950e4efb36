//! `bench --hosts`: shards on hosts (network namespaces) with an sshd of their own each, reached by the system's ssh.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machines::{Lan, SERVER, served};
use crate::support::document::{assert_checks_passed, check, count};
use crate::support::workspace::{Output, Running, Workspace, set_mode, str_of, wait_until, yamabiko};

const HOSTS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(120);

/// The hosts' servers, and the client's configuration.
struct Ssh {
    _servers: Vec<Running>,
    command: String,
}

impl Ssh {
    fn start(workspace: &Workspace, lan: &Lan) -> Ssh {
        let keys = workspace.file("keys");
        fs::create_dir(&keys).unwrap();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", str_of(&keys.join(name))]);
            workspace.start_command(keygen).finish().success();
        }
        let public = fs::read_to_string(keys.join("host.pub")).unwrap();
        let mut known = String::new();
        let servers = (0..HOSTS)
            .map(|index| {
                known += &format!("{} {public}", address(index));
                server(workspace, lan, index)
            })
            .collect();
        fs::write(keys.join("known"), known).unwrap();
        let path = |name: &str| keys.join(name).display().to_string();
        let config = format!(
            "User root\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nStrictHostKeyChecking yes\n",
            path("user"),
            path("known")
        );
        fs::write(keys.join("config"), config).unwrap();
        Ssh { _servers: servers, command: format!("ssh -F {}", path("config")) }
    }

    /// Starts a load of all hosts from the machine without a shard.
    fn bench(&self, workspace: &Workspace, lan: &Lan, options: &str) -> Running {
        let hosts = (0..HOSTS).map(address).collect::<Vec<_>>().join(",");
        let url = format!("http://{SERVER}/10k.bin");
        let mut arguments = vec!["bench", &url, "--hosts", &hosts, "--ssh", &self.command, "--json"];
        arguments.extend(options.split_whitespace());
        lan.machines[HOSTS].start(workspace, &arguments)
    }
}

fn address(index: usize) -> String {
    format!("192.0.2.{}", 20 + index)
}

/// An sshd in a host's network, which runs the program under test, with a run store of its own.
fn server(workspace: &Workspace, lan: &Lan, index: usize) -> Running {
    let (keys, runs) = (workspace.file("keys"), workspace.file(&format!("runs{index}")));
    fs::create_dir(&runs).unwrap();
    let program = yamabiko();
    let config = keys.join(format!("sshd{index}"));
    let text = format!(
        "ListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nPermitRootLogin yes\nStrictModes no\n\
         UsePAM no\nSetEnv PATH={}:/usr/bin:/bin YAMABIKO_RUNS={}\n",
        address(index),
        keys.join("host").display(),
        keys.join("user.pub").display(),
        program.parent().unwrap().display(),
        runs.display()
    );
    fs::write(&config, text).unwrap();
    set_mode(&config, 0o600);
    // sshd wants its folder in /run, which is not this machine's.
    let script = "mount -t tmpfs run /run && mkdir -m 755 /run/sshd && exec /usr/sbin/sshd -D -e -f \"$0\"";
    let arguments = ["-m", "sh", "-c", script, str_of(&config)];
    let running = workspace.start_command(lan.machines[index].command("unshare", &arguments));
    wait_until("sshd listens", || running.stderr().contains("Server listening"));
    running
}

/// Processes of shards in a host's network.
fn shards_of(lan: &Lan, index: usize) -> Vec<i32> {
    let network = fs::read_link(format!("/proc/{}/ns/net", lan.machines[index].pid())).unwrap();
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let is_shard = fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with("yamabiko\0run\0/dev/stdin"));
        is_shard && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|own| own == network)
    })
    .collect()
}

fn all_hosts_are_idle(lan: &Lan) -> bool {
    (0..HOSTS).all(|index| shards_of(lan, index).is_empty())
}

#[test]
fn hosts_make_one_load_whose_runs_are_fetched_and_merged() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let ssh = Ssh::start(&workspace, &lan);
    let output = ssh.bench(&workspace, &lan, "-r 150/s -d 4s --warmup 0s").finish_within(TIMEOUT);
    let merged = output.json();
    assert_checks_passed(
        &merged,
        &["shards_complete", "shards_ended_together", "shards_cover_schedule", "shards_aligned"],
    );
    assert_eq!((count(&merged, "load.offered_requests"), served(&workspace)), (600, 600));
    // The hosts have one run each, this machine those of all and the whole.
    let runs = |dir| fs::read_dir(dir).unwrap().count();
    assert_eq!(runs(workspace.runs()), HOSTS + 1);
    assert!((0..HOSTS).all(|index| runs(workspace.file(&format!("runs{index}"))) == 1));
}

#[test]
fn a_lost_host_is_missing_by_name_and_with_abort_on_lost_ends_all() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let ssh = Ssh::start(&workspace, &lan);
    let lose = |options: &str, before: usize| -> Output {
        let running = ssh.bench(&workspace, &lan, options);
        wait_until("the load has begun", || served(&workspace) > before + 30);
        for pid in shards_of(&lan, 1) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        running.finish_within(TIMEOUT)
    };
    for (options, aborts) in
        [("-r 30/s -d 6s --warmup 0s", false), ("-r 30/s -d 60s --warmup 0s --abort-on-lost", true)]
    {
        let before = served(&workspace);
        let output = lose(options, before);
        let merged = output.json();
        assert_eq!(merged["validity"]["verdict"], "invalid");
        assert!(check(&merged, "shards_complete")["why"].as_str().unwrap().contains("(1/3)"), "{merged}");
        assert!(output.stderr.contains("lost shard 1/3 on 192.0.2.21"), "{output}");
        assert_eq!(merged["run"]["interrupted"], aborts, "{output}");
        assert!(all_hosts_are_idle(&lan));
    }
}

#[test]
fn an_interrupt_ends_all_hosts_and_keeps_what_was_measured() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let ssh = Ssh::start(&workspace, &lan);
    let running = ssh.bench(&workspace, &lan, "-r 30/s -d 60s --warmup 0s");
    wait_until("the load has begun", || served(&workspace) > 30);
    running.signal(Signal::SIGINT);
    let output = running.finish_within(TIMEOUT);
    let merged = output.json();
    assert_eq!(merged["run"]["interrupted"], true);
    assert!(merged["run"]["shards"].as_array().unwrap().iter().all(|shard| shard["verdict"] != "missing"), "{merged}");
    assert!(all_hosts_are_idle(&lan));
}

#[test]
fn a_host_that_cannot_be_reached_is_named_before_anything_is_sent() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let ssh = Ssh::start(&workspace, &lan);
    let url = format!("http://{SERVER}/10k.bin");
    let with = |hosts: &str| {
        let arguments = ["bench", &url, "--hosts", hosts, "--ssh", &ssh.command, "-d", "1s"];
        lan.machines[HOSTS].start(&workspace, &arguments).finish_within(TIMEOUT)
    };
    with("192.0.2.20,192.0.2.23").refused(1, &["192.0.2.23"]);
    with("192.0.2.20,-oProxyCommand=id").refused(1, &["-oProxyCommand=id", "expected a name"]);
    with("192.0.2.20,192.0.2.20").refused(1, &["given twice"]);
    assert_eq!(served(&workspace), 0);
}
