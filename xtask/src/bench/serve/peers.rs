//! The compared servers: nginx and Apache, well tuned, `yamabiko serve`, and MAX, which shows the upper bound.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use nix::unistd::Uid;

use crate::bench::load::measure::Client;
use crate::bench::servers::{Running, certificate};

/// Protocol of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP without TLS.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Protocol {
    /// Its part of the bench.
    pub fn part(self) -> &'static str {
        match self {
            Protocol::Plain => "plain",
            Protocol::Tls => "tls",
            Protocol::Http2 => "http2",
            Protocol::Http3 => "http3",
        }
    }
}

/// A running server.
pub struct Peer {
    /// Name in the table.
    pub name: &'static str,
    running: Running,
    port: u16,
    protocol: Protocol,
}

impl Peer {
    /// URL of a file of [`Files`].
    pub fn url(&self, file: &str) -> String {
        match self.protocol {
            Protocol::Plain => format!("http://127.0.0.1:{}/{file}", self.port),
            _ => format!("https://localhost:{}/{file}", self.port),
        }
    }

    /// The server's first process.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }
}

/// A temporary folder with the served files and one with configurations, deleted when dropped.
pub struct Files {
    folder: tempfile::TempDir,
}

/// Returns the command that starts a server on a port.
type Command<'a> = Box<dyn Fn(u16) -> Result<String> + 'a>;

/// Names and lengths of the files.
const FILES: [(&str, usize); 5] =
    [("1k.bin", 1 << 10), ("10k.bin", 10 << 10), ("100k.bin", 100 << 10), ("1m.bin", 1 << 20), ("10m.bin", 10 << 20)];

impl Files {
    /// Writes files of 1 KiB to 10 MiB, and a certificate.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        // The servers' workers run as other users.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        fs::create_dir(folder.path().join("www"))?;
        for (name, bytes) in FILES {
            fs::write(folder.path().join("www").join(name), vec![b'y'; bytes])?;
        }
        certificate(folder.path())?;
        Ok(Files { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Starts every server that supports the protocol; returns also why others could not be started. MAX responds with the
/// length of `file`; `turn` selects the ports.
pub fn start(
    client: &Client,
    files: &Files,
    protocol: Protocol,
    file: &str,
    turn: usize,
) -> Result<(Vec<Peer>, Vec<String>)> {
    let program = client.yamabiko().display().to_string();
    let folder = files.path().display().to_string();
    let bytes = FILES.iter().find(|(name, _)| *name == file).map_or(0, |(_, bytes)| *bytes);
    let mut commands: Vec<(&'static str, Command<'_>)> = match protocol {
        Protocol::Http3 => vec![("Caddy", Box::new(|port| caddy(files, port)))],
        _ => vec![
            ("nginx, sendfile on", Box::new(|port| nginx(files, port, protocol, true))),
            ("nginx, sendfile off", Box::new(|port| nginx(files, port, protocol, false))),
        ],
    };
    let tls = format!(" --tls {folder}/certificate.pem {folder}/key.pem");
    let secure = match protocol {
        Protocol::Plain => String::new(),
        Protocol::Tls | Protocol::Http2 => tls,
        Protocol::Http3 => tls + " --http3",
    };
    if protocol == Protocol::Plain {
        commands.push(("Apache", Box::new(|port| apache(files, port))));
    }
    for (name, engine) in [("yamabiko, io_uring", "io_uring"), ("yamabiko, epoll", "epoll")] {
        let (program, folder, secure) = (program.clone(), folder.clone(), secure.clone());
        commands.push((
            name,
            Box::new(move |port| {
                Ok(format!("exec {program} serve {folder}/www --engine {engine} --listen 127.0.0.1:{port}{secure}"))
            }),
        ));
    }
    if protocol == Protocol::Plain {
        commands.push((
            "MAX",
            Box::new(move |port| Ok(format!("exec {program} serve --max {bytes}B --listen 127.0.0.1:{port}"))),
        ));
    }
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for (at, (name, command)) in commands.into_iter().enumerate() {
        let port = PORTS + (turn * 10 + at) as u16;
        match Running::start_at(&command(port)?, Some("0"), port) {
            Ok(running) => peers.push(Peer { name, running, port, protocol }),
            Err(why) => missing.push(format!("{name}: {why}")),
        }
    }
    Ok((peers, missing))
}

/// nginx with one worker that logs nothing, caches open files for an hour without checking them, and never closes a
/// connection for its age. Small files are cheaper with read than with sendfile and its two writes: both are measured.
fn nginx(files: &Files, port: u16, protocol: Protocol, sendfile: bool) -> Result<String> {
    let folder = files.path().display();
    let name = format!("nginx-{port}");
    let (listen, secure) = match protocol {
        Protocol::Plain => ("", String::new()),
        _ => (
            if protocol == Protocol::Http2 { " ssl http2" } else { " ssl" },
            format!(
                "ssl_certificate {folder}/certificate.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.3;"
            ),
        ),
    };
    let sending = if sendfile { "sendfile on; tcp_nopush on;" } else { "sendfile off;" };
    let conf = format!(
        "daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}.log;\n\
         events {{ worker_connections 20000; multi_accept on; }}\n\
         http {{ access_log off; {sending} keepalive_requests 1000000000; keepalive_timeout 300s; {secure}\n\
         open_file_cache max=1000 inactive=1h; open_file_cache_valid 1h;\n\
         client_body_temp_path {folder}/{name}-b; proxy_temp_path {folder}/{name}-p; fastcgi_temp_path {folder}/{name}-f;\n\
         uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;\n\
         server {{ listen {port}{listen} reuseport backlog=4096; root {folder}/www; }} }}\n"
    );
    fs::write(files.path().join(format!("{name}.conf")), conf)?;
    Ok(format!("exec nginx -p {folder} -c {folder}/{name}.conf -e {folder}/{name}.log"))
}

/// Apache with one process of event threads that logs nothing, checks no .htaccess and no symbolic links, and uses
/// persistent connections.
fn apache(files: &Files, port: u16) -> Result<String> {
    let folder = files.path().display();
    let name = format!("apache-{port}");
    let modules = "/usr/lib/apache2/modules";
    let user = if Uid::effective().is_root() { "User www-data\nGroup www-data\n" } else { "" };
    let conf = format!(
        "ServerName localhost\nServerRoot {folder}\nPidFile {folder}/{name}.pid\nDefaultRuntimeDir {folder}\n\
         Mutex file:{folder} default\nListen 127.0.0.1:{port}\nErrorLog /dev/null\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         {user}ServerLimit 1\nStartServers 1\nThreadsPerChild 64\nMaxRequestWorkers 64\nMaxConnectionsPerChild 0\n\
         AsyncRequestWorkerFactor 4\nKeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 300\n\
         EnableSendfile On\nEnableMMAP On\nTraceEnable Off\n\
         DocumentRoot {folder}/www\n<Directory {folder}/www>\n  Options FollowSymLinks\n  AllowOverride None\n\
         Require all granted\n</Directory>\n"
    );
    fs::write(files.path().join(format!("{name}.conf")), conf)?;
    Ok(format!("exec apache2 -DFOREGROUND -f {folder}/{name}.conf"))
}

/// Caddy, which logs nothing and has one running thread of Go.
fn caddy(files: &Files, port: u16) -> Result<String> {
    let folder = files.path().display();
    let name = format!("caddy-{port}");
    let conf = format!(
        "{{\n admin off\n auto_https off\n storage file_system {folder}/{name}\n log {{\n output discard\n }}\n}}\n\
         https://localhost:{port} {{\n tls {folder}/certificate.pem {folder}/key.pem\n root * {folder}/www\n file_server\n}}\n"
    );
    fs::write(files.path().join(format!("{name}.conf")), conf)?;
    Ok(format!("GOMAXPROCS=1 HOME={folder} exec caddy run --adapter caddyfile --config {folder}/{name}.conf"))
}

/// The first port of the compared servers.
const PORTS: u16 = 18_100;
