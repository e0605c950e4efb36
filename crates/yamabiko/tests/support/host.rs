//! Two hosts of a test: network namespaces that end with the test. The machine's own network is never changed.
//!
//! ```text
//!   host: lo, up0 192.0.2.2, 2001:db8::2  ===veth===  remote: lo, r0 192.0.2.9, 192.0.2.10, 2001:db8::9
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::processes::network;
use super::workspace::{Output, Running, Workspace, wait_until, yamabiko};

/// Addresses of the first host, loopback excluded.
pub const LAN: &str = "192.0.2.2";
pub const LAN_V6: &str = "2001:db8::2";
/// Addresses of the remote host.
pub const REMOTE: [&str; 2] = ["192.0.2.9", "192.0.2.10"];
pub const REMOTE_V6: &str = "2001:db8::9";

/// Both hosts, connected by a veth pair.
pub struct Hosts {
    pub host: Host,
    pub remote: Host,
}

/// One network namespace, which exists as long as this value.
pub struct Host {
    holder: Running,
}

impl Hosts {
    pub fn new(workspace: &Workspace) -> Hosts {
        let (host, remote) = (Host::new(workspace), Host::new(workspace));
        let remote_pid = remote.pid().to_string();
        host.ip(&["link", "add", "up0", "type", "veth", "peer", "name", "r0", "netns", &remote_pid]);
        for (end, device, addresses) in [
            (&host, "up0", vec![format!("{LAN}/24"), format!("{LAN_V6}/64")]),
            (&remote, "r0", vec![format!("{}/24", REMOTE[0]), format!("{}/24", REMOTE[1]), format!("{REMOTE_V6}/64")]),
        ] {
            for address in &addresses {
                let nodad = address.contains(':').then_some("nodad");
                end.ip(&[&["addr", "add", address, "dev", device][..], nodad.as_slice()].concat());
            }
            end.ip(&["link", "set", "lo", "up"]);
            end.ip(&["link", "set", device, "up"]);
        }
        for end in [&host, &remote] {
            let quiet = || !end.ip(&["-6", "addr"]).contains("tentative");
            wait_until("every address is settled", || end.ip(&["-6", "addr"]).contains("fe80:") && quiet());
        }
        Hosts { host, remote }
    }
}

impl Host {
    /// A host without devices.
    pub fn new(workspace: &Workspace) -> Host {
        let mut holder = Command::new("unshare");
        holder.args(["-n", "sleep", "1000"]).stdin(Stdio::null());
        let holder = workspace.start_command(holder);
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let file = format!("/proc/{}/ns/net", holder.pid());
        wait_until("the host's network namespace exists", || fs::read_link(&file).is_ok_and(|network| network != own));
        Host { holder }
    }

    /// A process in the host's network.
    pub fn pid(&self) -> i32 {
        self.holder.pid()
    }

    /// A command that runs in the host's network.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.pid().to_string(), "-n", "--", program]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the program under test in the host's network and waits for its end.
    pub fn yamabiko(&self, workspace: &Workspace, arguments: &[&str]) -> Output {
        self.start(workspace, arguments).finish()
    }

    /// Starts the program under test in the host's network.
    pub fn start(&self, workspace: &Workspace, arguments: &[&str]) -> Running {
        workspace.start_command(self.command(yamabiko().to_str().unwrap(), arguments))
    }

    /// The output of a tool that runs in the host's network.
    pub fn output_of(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn ip(&self, arguments: &[&str]) -> String {
        self.output_of("ip", arguments)
    }

    /// Asserts that the host's network is as it was in the snapshot `before`.
    pub fn assert_unchanged(&self, before: &[String]) {
        assert_eq!(self.changes(before), Vec::<String>::new());
    }

    /// Differences from the snapshot `before`: removed lines with `-`, new lines with `+`.
    pub fn changes(&self, before: &[String]) -> Vec<String> {
        let now = self.snapshot();
        let removed = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
        let added = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
        removed.chain(added).collect()
    }

    /// Everything of the host's network that a program can change: devices, addresses, routes, rules, firewall rules if
    /// nft is installed, and every setting.
    pub fn snapshot(&self) -> Vec<String> {
        let mut all = Vec::new();
        for what in ["link", "addr", "rule", "route show table all", "neigh show nud permanent", "netns"] {
            for family in ["-4", "-6"] {
                let words: Vec<&str> = std::iter::once(family).chain(what.split(' ')).collect();
                all.extend(self.ip(&words).lines().map(|line| format!("{what}: {}", line.trim())));
            }
        }
        if self.command("nft", &["--version"]).output().is_ok_and(|output| output.status.success()) {
            all.extend(self.output_of("nft", &["list", "ruleset"]).lines().map(|line| format!("nft: {line}")));
        }
        all.extend(self.inside(|| {
            let mut settings = Vec::new();
            read_settings(Path::new("/proc/sys/net"), &mut settings);
            settings
        }));
        all
    }

    /// Does `work` on a thread in the host's network.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            entered.join().unwrap()
        })
    }

    /// Whether a device with this prefix exists now.
    pub fn has_device(&self, prefix: &str) -> bool {
        let devices = fs::read_to_string(format!("/proc/{}/net/dev", self.pid())).unwrap();
        devices.lines().any(|line| line.trim_start().starts_with(prefix))
    }

    /// Starts nginx in the host's network with these servers (`listen` and other lines) and waits until it listens on
    /// every address. nginx logs to `out/NAME.log`, one line a request: local address and port, and the requested host.
    pub fn nginx(&self, workspace: &Workspace, name: &str, servers: &[&str]) -> Running {
        let prefix = workspace.path().join(name);
        fs::create_dir_all(prefix.join("var")).unwrap();
        fs::set_permissions(prefix.join("var"), fs::Permissions::from_mode(0o777)).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("    {kind}_temp_path var/{kind};\n"))
            .concat();
        let blocks: String = servers
            .iter()
            .map(|lines| format!("    server {{ {lines} root {}; }}\n", workspace.www().display()))
            .collect();
        let text = format!(
            "daemon off;\nmaster_process off;\nworker_rlimit_nofile 8192;\npid var/nginx.pid;\nerror_log stderr;\n\
             events {{ worker_connections 4000; }}\nhttp {{\n    log_format lab '$server_addr:$server_port $host';\n    \
             access_log {} lab;\n    keepalive_requests 1000000;\n{temporary}{blocks}}}\n",
            workspace.file(&format!("{name}.log")).display()
        );
        let configuration = prefix.join("nginx.conf");
        fs::write(&configuration, text).unwrap();
        let arguments = ["-p", prefix.to_str().unwrap(), "-c", configuration.to_str().unwrap()];
        let mut running = workspace.start_command(self.command("nginx", &arguments));
        let expected = servers.iter().map(|lines| lines.matches("listen ").count()).sum::<usize>();
        wait_until("nginx listens", || {
            assert!(!running.ended(), "nginx: {}", running.stderr());
            // Before nsenter has entered the namespace, /proc shows the machine's own network.
            network(running.pid()) == network(self.pid()) && listeners(running.pid()) >= expected
        });
        running
    }
}

/// Appends every setting below a folder with its value. A setting that cannot be read has an empty value. Counters are
/// not settings.
fn read_settings(folder: &Path, into: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_settings(&path, into);
        } else if !path.to_string_lossy().ends_with("_count") {
            into.push(format!("{} {}", path.display(), fs::read_to_string(&path).unwrap_or_default().trim()));
        }
    }
}

/// Number of listening TCP sockets in the network of a process.
fn listeners(pid: i32) -> usize {
    let tables = ["tcp", "tcp6"].map(|file| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter(|line| line.split_whitespace().nth(3) == Some("0A")).count()
}
