//! Programs that read Yamabiko's files and exports: those that `cargo xtask readers` installs, and Debian's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::workspace::{Output, Running, Workspace, str_of, wait_until};

/// The folder that `cargo xtask readers` creates.
pub fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder").join("readers");
    let folder = std::env::var_os("YAMABIKO_READERS").map_or_else(default, PathBuf::from);
    assert!(folder.join("venv/bin/python").exists(), "{} is missing: run cargo xtask readers", folder.display());
    folder
}

/// Runs a Python script with the packages that `cargo xtask readers` installs; it must succeed.
pub fn python(workspace: &Workspace, script: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(folder().join("venv/bin/python"));
    command.arg(script).args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    // Files that Python writes to its home folder are removed with the workspace.
    command.env("HOME", workspace.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    workspace.start_command(command).finish().success()
}

/// The path of a file in `tests/readers`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(name)
}

/// The path of a file in the repository.
pub fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Runs promtool with this file as its standard input.
pub fn promtool(workspace: &Workspace, arguments: &[&str], input: &Path) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(std::fs::File::open(input).unwrap());
    workspace.start_command(command).finish()
}

/// A loopback address that, almost certainly, no other test process uses, with this port: for programs that cannot
/// report the port that the kernel chose.
pub fn own_address(port: u16) -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 | (high ^ 21), middle, low.max(1)], port))
}

/// A Prometheus server on loopback that accepts remote write. Ends with the test.
pub struct Prometheus {
    pub address: SocketAddr,
    running: Running,
}

impl Prometheus {
    /// Starts the server with the data in `storage` and these scrape targets, and waits until it is ready.
    pub fn start(workspace: &Workspace, storage: &Path, targets: &[SocketAddr]) -> Prometheus {
        let configuration = workspace.file("prometheus.yml");
        let jobs: String = targets
            .iter()
            .map(|target| {
                format!(
                    "  - job_name: yamabiko\n    scrape_interval: 1s\n    static_configs: [{{targets: ['{target}']}}]\n"
                )
            })
            .collect();
        std::fs::write(&configuration, format!("scrape_configs:{}\n{jobs}", if jobs.is_empty() { " []" } else { "" }))
            .unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", str_of(&configuration)));
        command.arg(format!("--storage.tsdb.path={}", storage.display()));
        command.args(["--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver"]).stdin(Stdio::null());
        let running = workspace.start_command(command);
        let mut address = None;
        wait_until("Prometheus prints its address", || {
            let stderr = running.stderr();
            let word = stderr.lines().find_map(|line| line.split_once("msg=\"Listening on\" address="));
            address = word.and_then(|(_, address)| address.parse().ok());
            address.is_some()
        });
        let prometheus = Prometheus { address: address.expect("checked in the wait"), running };
        wait_until("Prometheus is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// The results of a PromQL query at a time in seconds since 1970: labels and value of each.
    pub fn query(&self, query: &str, at_s: f64) -> Vec<(Value, f64)> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let text = self.get(&format!("/api/v1/query?query={escaped}&time={at_s:.3}")).expect("Prometheus responds");
        let response: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["status"], "success", "{query}: {response}\n{}", self.running.stderr());
        let results = response["data"]["result"].as_array().unwrap().iter();
        results.map(|one| (one["metric"].clone(), one["value"][1].as_str().unwrap().parse().unwrap())).collect()
    }

    /// The value of a PromQL query with exactly one result.
    pub fn one(&self, query: &str, at_s: f64) -> f64 {
        let values = self.query(query, at_s);
        assert_eq!(values.len(), 1, "{query} at {at_s}: {values:?}");
        values[0].1
    }

    fn get(&self, path: &str) -> Option<String> {
        get(self.address, path)
    }
}

/// The body of a page, if the status is 200.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200")?;
    Some(body.to_owned())
}
