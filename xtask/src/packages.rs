//! Installs the Debian packages that the tests use and that are missing.
//!
//! Debian starts web servers when it installs them. A policy file (policy-rc.d) forbids that during the installation,
//! and is removed afterwards in any case.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::rights::Rights;
use crate::test::background::Background;
use crate::test::{Extent, Options};

/// A Debian package, and what the tests use it for.
struct Package(&'static str, &'static str);

/// Packages that the tests without `--full` use.
const PACKAGES: &[Package] = &[
    Package("nginx-light", "a real server under test"),
    Package("apache2", "the other real server under test"),
    Package("apache2-utils", "ab: its requests through a path, and its output compared with ours"),
    Package("caddy", "a server with HTTP/3"),
    Package("gunicorn", "the application server of examples/directory, behind `serve --dynamic`"),
    Package("python3", "the model server of `capacity`, whose limit is known"),
    Package("php-cgi", "a FastCGI program behind `serve --dynamic`"),
    Package("openssl", "certificates of servers under test"),
    Package("squid", "a forward cache under test, and the gateway's"),
    Package("varnish", "a reverse cache under test"),
    Package("httperf", "an open-loop generator to compare with"),
    Package("wrk", "a closed-loop generator to compare with, and to fill a path"),
    Package("nghttp2-client", "h2load: a generator for HTTP/2 to compare with"),
    Package("iperf3", "goodput and loss of links and of the emulated gateway, measured independently"),
    Package("tcpdump", "handshakes of a run, seen independently"),
    Package("tcptrace", "connections and retransmissions of a capture, computed independently"),
    Package("tshark", "HTTP requests of a capture, read independently"),
    Package("iproute2", "ip and ss: leftovers of a run, and the kernel's information about sockets"),
    Package("nftables", "rules that `gateway --setup` adds to the emulated gateway"),
    Package("iputils-ping", "RTT and loss of a link, measured independently"),
    Package("fio", "what reads and writes under `disk`"),
    Package("curl", "an ordinary client at the far end of a path"),
    Package("wget", "what loads a proxy as P5 did, and a client under the tap"),
    Package("ethtool", "offloads of a device on and off"),
    Package("libcap2-bin", "capsh: runs without one capability"),
    Package("procps", "ps and pgrep: what a killed run left running"),
    Package("strace", "system calls of a run, counted independently"),
    Package("chromium", "a browser at the far end of a path"),
    Package("zsh", "a shell that loads our completions"),
    Package("fish", "another"),
    Package("man-db", "man: our manual pages"),
    Package("mandoc", "another reader of them, with a lint"),
    Package("prometheus", "promtool reads our metrics; a Prometheus takes them by remote write"),
    Package("munge", "authentication of Slurm's processes"),
    Package("slurmctld", "runs the script of `manifests --slurm`"),
    Package("slurmd", "its nodes"),
    Package("slurm-client", "sbatch and sinfo"),
    Package("nats-server", "where the shards of a load meet"),
    Package("openssh-client", "reaches the hosts of a load, and is a client under the tap"),
    Package("openssh-server", "those hosts"),
    Package("python3-venv", "where DuckDB, polars and an OpenTelemetry receiver go that read what we write"),
];

/// Packages that only the tests of `--full` use: programs and servers that run under the tap.
const FULL_PACKAGES: &[Package] = &[
    Package("git", "a client under the tap: many requests, many processes"),
    Package("python3-requests", "a client under the tap"),
    Package("nodejs", "a client under the tap: libuv, which closes by system call"),
    Package("default-jre-headless", "a client under the tap: many threads"),
    Package("php-cli", "a client under the tap"),
    Package("fetchmail", "a mail client under the tap"),
    Package("msmtp", "a mail client under the tap"),
    Package("dovecot-pop3d", "the server of POP3 for a mail client"),
    Package("postfix", "the server of SMTP for a mail client"),
    Package("redis-tools", "a client under the tap"),
    Package("redis-server", "its server"),
    Package("postgresql-client", "a client under the tap"),
    Package("postgresql", "its server"),
    Package("golang-go", "a program that goes past libc"),
];

/// Services of the packages that would be started at boot.
const SERVICES: &[(&str, &str)] = &[
    ("nginx-light", "nginx"),
    ("apache2", "apache2"),
    ("squid", "squid"),
    ("varnish", "varnish"),
    ("varnish", "varnishncsa"),
    ("prometheus", "prometheus"),
    ("nats-server", "nats-server"),
    ("munge", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("dovecot-pop3d", "dovecot"),
    ("fetchmail", "fetchmail"),
    ("postfix", "postfix"),
    ("openssh-server", "ssh"),
    ("redis-server", "redis-server"),
    ("postgresql", "postgresql"),
];

/// Starts the installation of missing packages, of the tests in `options`.
///
/// # Errors
/// The system is not a Debian; or packages are missing, and the user or the options do not permit their installation.
pub fn begin(rights: Rights, options: Options) -> Result<Option<Background>> {
    let needed = needed(options.extent);
    let missing = missing(&needed)?;
    if missing.is_empty() {
        println!("all {} packages are here", needed.len());
        return Ok(None);
    }
    for Package(name, purpose) in needed.iter().filter(|package| missing.contains(&package.0)) {
        println!("missing: {name} ({purpose})");
    }
    let names = missing.join(" ");
    if !options.install {
        bail!("missing packages: {names}\ninstall them, or leave out --no-install");
    }
    if rights == Rights::Ordinary {
        bail!("missing packages: {names}\nrun this as root, or first: sudo apt-get install -y {names}");
    }
    let services = SERVICES.iter().filter(|(package, _)| missing.contains(package)).map(|(_, service)| *service);
    let mut install = rights.command("sh");
    install.args(["-c", INSTALL, "install", POLICY, &services.collect::<Vec<_>>().join(" ")]).args(&missing);
    Background::start(&install, 0).context("install packages").map(Some)
}

fn needed(extent: Extent) -> Vec<&'static Package> {
    let more = if extent == Extent::Full { FULL_PACKAGES } else { &[] };
    PACKAGES.iter().chain(more).collect()
}

/// Names of the packages that are not installed, according to dpkg.
fn missing(needed: &[&'static Package]) -> Result<Vec<&'static str>> {
    let names = needed.iter().map(|package| package.0);
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\\n"])
        .args(names.clone())
        .stderr(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => bail!(
            "dpkg-query: {error}; only a Debian can be made ready. Elsewhere install what provides these: {}",
            names.collect::<Vec<_>>().join(" ")
        ),
    };
    // dpkg-query fails if one package is unknown, but lists the others.
    let installed = installed(&String::from_utf8_lossy(&output.stdout));
    Ok(names.filter(|name| !installed.iter().any(|known| known == name)).collect())
}

fn installed(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.strip_suffix(" installed")).map(str::to_owned).collect()
}

/// The policy file that decides whether services may be started (invoke-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Shell script with the policy's path, the services and the packages as arguments. An existing policy file is moved
/// aside and restored; the next run repairs the state after a kill.
const INSTALL: &str = r##"
set -eu
policy=$1 services=$2
shift 2
aside=$policy.set-aside
mark='# Put here by cargo xtask test; it may be removed.'
restore() {
    rm -f "$policy"
    if [ -e "$aside" ]; then mv "$aside" "$policy"; fi
}
if grep -qxF "$mark" "$policy" 2>/dev/null || { [ -e "$aside" ] && [ ! -e "$policy" ]; }; then restore; fi
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ -e "$policy" ]; then mv "$policy" "$aside"; fi
printf '#!/bin/sh\n%s\nexit 101\n' "$mark" > "$policy"
chmod 755 "$policy"
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=300 update
apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
if [ -d /run/systemd/system ]; then
    for service in $services; do systemctl disable --now "$service"; done
fi
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn packages_count_only_when_installed() {
        let listing = "nginx-light installed\napache2 config-files\nwrk not-installed\ncurl installed\n";
        assert_eq!(installed(listing), ["nginx-light", "curl"]);
    }

    #[test]
    fn packages_are_listed_once_with_a_reason() {
        let all = needed(Extent::Full);
        for (at, Package(name, purpose)) in all.iter().enumerate() {
            assert!(!purpose.is_empty());
            assert!(all[..at].iter().all(|earlier| earlier.0 != *name), "{name}");
        }
        assert!(SERVICES.iter().all(|(package, _)| all.iter().any(|known| known.0 == *package)));
        assert!(needed(Extent::Usual).len() == PACKAGES.len());
    }

    /// Runs the script with a fake apt-get that records the policy's exit status and exits with `code`.
    fn install(folder: &tempfile::TempDir, code: i32) -> (bool, String) {
        let at = |name: &str| folder.path().join(name);
        let (log, policy) = (at("log"), at("policy"));
        let apt = format!(
            "#!/bin/sh\n{{ echo \"$*\"; {policy}; echo policy=$?; }} >> {log}\ncase $* in *update) ;; *) exit {code};; esac\n",
            policy = policy.display(),
            log = log.display(),
        );
        fs::write(at("apt-get"), apt).unwrap();
        fs::set_permissions(at("apt-get"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let status = Command::new("sh")
            .args(["-c", INSTALL, "install", policy.to_str().unwrap(), "", "nginx-light", "curl"])
            .env("PATH", path)
            .status()
            .unwrap();
        (status.success(), fs::read_to_string(log).unwrap())
    }

    #[test]
    fn the_policy_against_starting_services_is_removed_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let (succeeded, log) = install(&folder, 0);
        assert!(
            succeeded && log.contains("install -y --no-install-recommends nginx-light curl\npolicy=101\n"),
            "{log}"
        );
        assert!(!folder.path().join("policy").exists());
        let (succeeded, _) = install(&folder, 100);
        assert!(!succeeded && !folder.path().join("policy").exists());
    }

    #[test]
    fn an_existing_policy_is_restored_even_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, aside) = (folder.path().join("policy"), folder.path().join("policy.set-aside"));
        let own = "#!/bin/sh\nexit 0\n";
        let ours = "#!/bin/sh\n# Put here by cargo xtask test; it may be removed.\nexit 101\n";
        // A first run; after a kill while the policy was in place; after a kill between moving the existing file and
        // writing.
        for (before, set_aside) in [(Some(own), None), (Some(ours), Some(own)), (None, Some(own))] {
            for (path, text) in [(&policy, before), (&aside, set_aside)] {
                let _ = fs::remove_file(path);
                if let Some(text) = text {
                    fs::write(path, text).unwrap();
                    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
                }
            }
            for code in [0, 100] {
                let (succeeded, log) = install(&folder, code);
                assert_eq!(succeeded, code == 0, "{log}");
                assert!(log.ends_with("policy=101\n"), "{log}");
                assert_eq!(fs::read_to_string(&policy).unwrap(), own);
                assert!(!aside.exists());
            }
        }
    }
}
