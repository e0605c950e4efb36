//! Programs that read what we write: those that `cargo xtask readers` makes ready, and Debian's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::workspace::{Output, Running, Workspace, str_of, wait_until};

/// The folder that `cargo xtask readers` makes.
pub fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder").join("readers");
    let folder = std::env::var_os("YAMABIKO_READERS").map_or_else(default, PathBuf::from);
    assert!(folder.join("venv/bin/python").exists(), "{} is not ready: cargo xtask readers", folder.display());
    folder
}

/// A script of `tests/readers`, or any other, run by the Python of the readers.
pub fn python(workspace: &Workspace, script: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(folder().join("venv/bin/python"));
    command.arg(script).args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    // Its data are removed with the workspace.
    command.env("HOME", workspace.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    workspace.start_command(command).finish().success()
}

/// A file of `tests/readers`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(name)
}

/// A file of the repository.
pub fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// promtool with this text as its standard input.
pub fn promtool(workspace: &Workspace, arguments: &[&str], input: &Path) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(std::fs::File::open(input).unwrap());
    workspace.start_command(command).finish()
}

/// An address of loopback that is this process's own, as good as surely, with this port: for programs that cannot tell which
/// port the kernel chose.
pub fn own_address(port: u16) -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 | (high ^ 21), middle, low.max(1)], port))
}

/// A Prometheus on loopback, with nothing to scrape, that takes remote write. Ends with the test.
pub struct Prometheus {
    pub address: SocketAddr,
    running: Running,
}

impl Prometheus {
    /// With the data of `storage`; started and ready.
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
        wait_until("the Prometheus says where it listens", || {
            let said = running.stderr();
            let word = said.lines().find_map(|line| line.split_once("msg=\"Listening on\" address="));
            address = word.and_then(|(_, address)| address.parse().ok());
            address.is_some()
        });
        let prometheus = Prometheus { address: address.expect("said just now"), running };
        wait_until("the Prometheus is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// The values of a query at a time, with the labels of each.
    pub fn query(&self, query: &str, at_s: f64) -> Vec<(Value, f64)> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let text = self.get(&format!("/api/v1/query?query={escaped}&time={at_s:.3}")).expect("an answer");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}\n{}", self.running.stderr());
        let results = answer["data"]["result"].as_array().unwrap().iter();
        results.map(|one| (one["metric"].clone(), one["value"][1].as_str().unwrap().parse().unwrap())).collect()
    }

    /// The one value of a query.
    pub fn one(&self, query: &str, at_s: f64) -> f64 {
        let values = self.query(query, at_s);
        assert_eq!(values.len(), 1, "{query} at {at_s}: {values:?}");
        values[0].1
    }

    fn get(&self, path: &str) -> Option<String> {
        get(self.address, path)
    }
}

/// The body of a page, if it is there.
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
