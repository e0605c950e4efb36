//! The servers that are measured beside one another: nginx and Apache tuned as well as they can be, this program's own,
//! and MAX, which shows what could be reached.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use nix::unistd::Uid;

use crate::bench::load::measure::Client;
use crate::bench::servers::{Running, certificate};

/// How a case's requests go over the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP in clear.
    Plain,
    /// HTTP over TLS.
    Tls,
}

/// A running server.
pub struct Peer {
    /// As in the table.
    pub name: &'static str,
    running: Running,
    port: u16,
    spoken: Spoken,
}

impl Peer {
    /// Where a file of [`Files`] is to be had.
    pub fn url(&self, file: &str) -> String {
        match self.spoken {
            Spoken::Plain => format!("http://127.0.0.1:{}/{file}", self.port),
            Spoken::Tls => format!("https://localhost:{}/{file}", self.port),
        }
    }

    /// The root of its processes.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }
}

/// A folder with the files that are served, and one for configurations; gone when dropped.
pub struct Files {
    folder: tempfile::TempDir,
}

/// What starts a server at a port.
type Command<'a> = Box<dyn Fn(u16) -> Result<String> + 'a>;

/// Names and lengths.
const FILES: [(&str, usize); 4] =
    [("1k.bin", 1 << 10), ("10k.bin", 10 << 10), ("100k.bin", 100 << 10), ("1m.bin", 1 << 20)];

impl Files {
    /// Files of 1 KiB, 10 KiB, 100 KiB and 1 MiB, and a certificate.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        // The servers' workers are other users.
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

/// Every server that speaks so, and why others could not be started. `file` is what MAX answers the length of;
/// `turn` chooses ports.
pub fn start(
    client: &Client,
    files: &Files,
    spoken: Spoken,
    file: &str,
    turn: usize,
) -> Result<(Vec<Peer>, Vec<String>)> {
    let program = client.yamabiko().display().to_string();
    let folder = files.path().display().to_string();
    let bytes = FILES.iter().find(|(name, _)| *name == file).map_or(0, |(_, bytes)| *bytes);
    let mut commands: Vec<(&'static str, Command<'_>)> = vec![
        ("nginx", Box::new(|port| nginx(files, port, spoken, true))),
        ("nginx, sendfile off", Box::new(|port| nginx(files, port, spoken, false))),
    ];
    let secure = match spoken {
        Spoken::Plain => String::new(),
        Spoken::Tls => format!(" --tls {folder}/certificate.pem {folder}/key.pem"),
    };
    if spoken == Spoken::Plain {
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
    if spoken == Spoken::Plain {
        commands.push((
            "MAX",
            Box::new(move |port| Ok(format!("exec {program} serve --max {bytes}B --listen 127.0.0.1:{port}"))),
        ));
    }
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for (at, (name, command)) in commands.into_iter().enumerate() {
        let port = PORTS + (turn * 10 + at) as u16;
        match Running::start_at(&command(port)?, Some("0"), port) {
            Ok(running) => peers.push(Peer { name, running, port, spoken }),
            Err(why) => missing.push(format!("{name}: {why}")),
        }
    }
    Ok((peers, missing))
}

/// One worker that logs nothing, keeps files open for an hour without looking at them again, and never ends a
/// connection for its age. Small files cost it less with read than with sendfile and its two writes: both are measured.
fn nginx(files: &Files, port: u16, spoken: Spoken, sendfile: bool) -> Result<String> {
    let folder = files.path().display();
    let name = format!("nginx-{port}");
    let (listen, secure) = match spoken {
        Spoken::Plain => ("", String::new()),
        Spoken::Tls => (
            " ssl",
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

/// One process of event threads that logs nothing, looks for no .htaccess and no symbolic link, and keeps connections.
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

/// The first port of the servers measured here.
const PORTS: u16 = 18_100;
