//! The servers that benches measure against, and yamabiko itself as a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A temporary folder with files to serve and a configuration of nginx, deleted when dropped.
pub struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// Files of 1 KiB, 10 KiB, 100 KiB and 1 MiB.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        use std::os::unix::fs::PermissionsExt;
        // nginx's worker runs as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        for (name, bytes) in [("1k.bin", 1 << 10), ("10k.bin", 10 << 10), ("100k.bin", 100 << 10), ("1m.bin", 1 << 20)]
        {
            fs::write(folder.path().join(name), vec![b'y'; bytes])?;
        }
        let conf = format!(
            "daemon off; worker_processes 1; pid {0}/nginx.pid; error_log {0}/error.log;\n\
             events {{ worker_connections 20000; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; keepalive_timeout 300s;\n\
             open_file_cache max=100; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
             uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
             server {{ listen {PORT} reuseport backlog=4096; root {0}; }} }}\n",
            folder.path().display()
        );
        fs::write(folder.path().join("nginx.conf"), conf)?;
        Ok(Site { folder })
    }

    /// The command that starts nginx on [`PORT`], one worker.
    pub fn nginx(&self) -> String {
        let folder = self.folder.path().display();
        format!("exec nginx -p {folder} -c {folder}/nginx.conf -e {folder}/error.log")
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The same files over TLS and HTTP/2: nginx with a self-signed certificate.
pub struct SecureSite<'a> {
    site: &'a Site,
}

impl<'a> SecureSite<'a> {
    /// Writes the certificate and the configuration to the site's folder.
    pub fn new(site: &'a Site) -> Result<Self> {
        let folder = site.folder.path();
        certificate(folder)?;
        let plain = fs::read_to_string(folder.join("nginx.conf"))?;
        let listens = format!(
            "listen {PORT} http2 reuseport backlog=4096; listen {SECURE_PORT} ssl http2 reuseport backlog=4096;\n\
             ssl_certificate {0}/certificate.pem; ssl_certificate_key {0}/key.pem;",
            folder.display()
        );
        let usual = format!("listen {PORT} reuseport backlog=4096;");
        fs::write(folder.join("secure.conf"), plain.replace(&usual, &listens))?;
        Ok(SecureSite { site })
    }

    /// The command that starts nginx with one worker: HTTP/2 without TLS on [`PORT`], TLS on `SECURE_PORT`.
    pub fn nginx(&self) -> String {
        let folder = self.site.folder.path().display();
        format!("exec nginx -p {folder} -c {folder}/secure.conf -e {folder}/error.log")
    }

    /// URL of the file of 1 KiB over TLS.
    pub fn https_url(&self) -> String {
        format!("https://localhost:{SECURE_PORT}/1k.bin")
    }

    /// URL of the file of 1 KiB over HTTP/2 without TLS.
    pub fn h2c_url(&self) -> String {
        format!("http://127.0.0.1:{PORT}/1k.bin")
    }
}

/// Port of nginx's TLS listener.
const SECURE_PORT: u16 = 18443;

/// Port of the bench servers.
pub const PORT: u16 = 18080;

/// A server process on loopback, ended when dropped.
pub struct Running(Child);

impl Running {
    /// Starts a shell command on these cores (in the form of taskset) and waits until it listens on [`PORT`].
    pub fn start(command: &str, cores: Option<&str>) -> Result<Self> {
        Running::start_at(command, cores, PORT)
    }

    /// The process number.
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Starts a shell command on these cores and waits until it listens on `port`.
    pub fn start_at(command: &str, cores: Option<&str>, port: u16) -> Result<Self> {
        // Another server on the port would be measured instead.
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            bail!("something listens on port {port} already");
        }
        let mut start = match cores {
            Some(cores) => {
                let mut taskset = Command::new("taskset");
                taskset.args(["-c", cores, "sh", "-c", command]);
                taskset
            }
            None => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]);
                shell
            }
        };
        let child = start.stdout(Stdio::null()).stderr(Stdio::null()).spawn().with_context(|| command.to_owned())?;
        let mut running = Running(child);
        let since = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = running.0.try_wait()? {
                bail!("`{command}` ended: {status}");
            }
            if since.elapsed() > Duration::from_secs(10) {
                bail!("`{command}` does not listen on port {port}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM lets nginx end its worker. The shell command uses `exec`, so the process is the server itself.
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let signalled = Instant::now();
        while signalled.elapsed() < Duration::from_secs(2) {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes `key.pem` and `certificate.pem` (ECDSA on P-256, for `localhost`) to a folder.
pub fn certificate(folder: &Path) -> Result<()> {
    output(
        Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-keyout"])
            .arg(folder.join("key.pem"))
            .arg("-out")
            .arg(folder.join("certificate.pem")),
    )
    .map(|_| ())
}

/// Builds the release binary; returns its path.
pub fn yamabiko() -> Result<PathBuf> {
    let status = Command::new("cargo").args(["build", "--release", "--locked", "--package", "yamabiko"]).status()?;
    if !status.success() {
        bail!("cargo build failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(fs::canonicalize(target.join("release/yamabiko"))?)
}

/// Runs a program and returns its stdout; an error contains its stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Standard output of a run of `yamabiko` that prints a document. An invalid run has exit status 3, and a document.
///
/// # Errors
/// It cannot be started, or has another exit status: the error contains what it printed on standard error.
pub fn run_output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !matches!(output.status.code(), Some(0 | 3)) {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Requests per second and bytes per second from wrk's report.
pub fn wrk_figures(text: &str) -> Result<(f64, f64)> {
    let after = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    let requests = after("Requests/sec:").context("wrk printed no Requests/sec")?.parse()?;
    let transfer = after("Transfer/sec:").context("wrk printed no Transfer/sec")?;
    let split = transfer.find(|c: char| c.is_ascii_alphabetic()).context("wrk's Transfer/sec has no unit")?;
    let factor = match &transfer[split..] {
        "KB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        "B" => 1.0,
        unit => bail!("wrk's unit {unit} is not known"),
    };
    Ok((requests, transfer[..split].parse::<f64>()? * factor))
}

/// Checks that a program is installed; the error names it.
pub fn need(program: &str) -> Result<()> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| is_file(&folder.join(program))))
        || is_file(&Path::new("/usr/sbin").join(program));
    if found { Ok(()) } else { bail!("{program} is not installed; `cargo xtask test` installs what benches use too") }
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_parsed() {
        let text = "  100 requests in 1.00s, 1.00MB read\nRequests/sec:  85188.39\nTransfer/sec:    102.69MB\n";
        assert_eq!(wrk_figures(text).unwrap(), (85188.39, 102.69 * 1024.0 * 1024.0));
        assert!(wrk_figures("").is_err());
    }
}
