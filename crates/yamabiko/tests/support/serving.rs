//! `yamabiko serve` in a workspace, and clients that check every byte of its responses.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::workspace::{Running, Workspace, str_of, wait_until};

/// A `yamabiko serve` with the workspace's pages on a free port. Ends with the test.
pub struct Serving {
    pub running: Running,
    pub address: SocketAddr,
}

impl Serving {
    /// Starts the server with these options besides folder and address, and waits until it listens.
    pub fn start(workspace: &Workspace, options: &[&str]) -> Serving {
        let www = workspace.www();
        let mut command = workspace.command(&["serve", str_of(&www), "--listen", "127.0.0.1:0"]);
        command.args(options);
        Serving::start_command(workspace, command)
    }

    /// Starts a command that becomes `yamabiko serve`, and waits until the server listens.
    pub fn start_command(workspace: &Workspace, command: Command) -> Serving {
        let mut running = workspace.start_command(command);
        let mut address = None;
        wait_until("the server prints its address", || {
            assert!(!running.ended(), "the server exited early: {}", running.stderr());
            let stderr = running.stderr();
            let url = stderr.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
            address = url.map(|(address, _)| address.parse().unwrap());
            address.is_some()
        });
        Serving { running, address: address.unwrap() }
    }

    /// The server's peak resident memory in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.running.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Number of the server's open sockets, the listening one included.
    pub fn sockets(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.running.pid())).unwrap().flatten();
        let is_socket = |to: &Path| to.to_string_lossy().starts_with("socket:");
        open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| is_socket(&to))).count()
    }

    /// A connection to the server.
    pub fn connect(&self) -> Client<TcpStream> {
        Client::connect(self.address)
    }

    /// A function that makes connections to the server, for use in other threads.
    pub fn connector(&self) -> impl Fn() -> Client<TcpStream> + Send + Sync + 'static {
        let address = self.address;
        move || Client::connect(address)
    }

    /// A TLS connection that trusts the certificates in the file `trusted`.
    pub fn connect_tls(&self, trusted: &Path, name: &str) -> Client<Tls> {
        self.tls_connector(trusted, name)()
    }

    /// A function that makes TLS connections to the server, for use in other threads.
    pub fn tls_connector(&self, trusted: &Path, name: &str) -> impl Fn() -> Client<Tls> + Send + Sync + 'static {
        self.tls_connector_from(None, trusted, name)
    }

    /// A function that makes TLS connections from the address `from` of this host.
    pub fn tls_connector_from(
        &self,
        from: Option<IpAddr>,
        trusted: &Path,
        name: &str,
    ) -> impl Fn() -> Client<Tls> + Send + Sync + 'static {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (config, address) = (Arc::new(config), self.address);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        move || {
            let connection = ClientConnection::new(Arc::clone(&config), name.clone()).unwrap();
            let stream =
                from.map_or_else(|| Client::connect(address), |from| Client::connect_from(from, address)).stream;
            Client { stream: StreamOwned::new(connection, stream), read: Vec::new(), has_begun: false }
        }
    }
}

/// A client's TLS stream.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// One connection of a client.
pub struct Client<S> {
    pub stream: S,
    read: Vec<u8>,
    /// Whether some bytes of the current response were received.
    has_begun: bool,
}

/// One response, framed by its Content-Length.
#[derive(Debug)]
pub struct Response {
    pub head: String,
    pub body: Vec<u8>,
}

/// The connection ended before the response was complete.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionEnded {
    /// Whether some bytes of the response were received.
    pub has_begun: bool,
}

impl Client<TcpStream> {
    /// Opens a connection.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, read: Vec::new(), has_begun: false }
    }

    /// Opens a connection from the address `from` of this host.
    pub fn connect_from(from: IpAddr, address: SocketAddr) -> Self {
        let socket_fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(socket_fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0))).unwrap();
        connect(socket_fd.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        let stream = TcpStream::from(socket_fd);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, read: Vec::new(), has_begun: false }
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// The connection ended before the response was complete.
    pub fn get(&mut self, path: &str, fields: &str) -> Result<Response, ConnectionEnded> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        self.stream.write_all(request.as_bytes()).map_err(|_| ConnectionEnded { has_begun: false })?;
        self.response()
    }

    /// Reads a response to GET.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn response(&mut self) -> Result<Response, ConnectionEnded> {
        let response = self.complete_response();
        response.ok_or(ConnectionEnded { has_begun: self.has_begun })
    }

    fn complete_response(&mut self) -> Option<Response> {
        self.has_begun = !self.read.is_empty();
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut response = Response { head, body: Vec::new() };
        let length = match response.status() {
            304 => 0,
            _ => response.field("content-length").expect("a length").parse().unwrap(),
        };
        while self.read.len() < length {
            self.read_more()?;
        }
        response.body = self.read.drain(..length).collect();
        Some(response)
    }

    fn read_more(&mut self) -> Option<()> {
        let mut buffer = [0; 64 << 10];
        let length = loop {
            match self.stream.read(&mut buffer) {
                // After SIGSTOP and SIGCONT a read with a timeout fails with EINTR.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome.ok().filter(|&length| length > 0)?,
            }
        };
        self.has_begun = true;
        self.read.extend_from_slice(&buffer[..length]);
        Some(())
    }
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest[..3].parse().ok()).expect("a status line")
    }

    /// The first field of this name, in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// Clients that request the workspace's pages repeatedly on persistent connections and compare each response with the
/// file.
pub struct VerifyingClients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl VerifyingClients {
    /// Starts one client per connection. `connect` opens a connection. A connection closed between two requests is
    /// replaced; one closed within a response is a failure.
    pub fn start<S: Read + Write>(
        workspace: &Workspace,
        connections: usize,
        connect: impl Fn() -> Client<S> + Send + Sync + 'static,
    ) -> VerifyingClients {
        let stop = Arc::new(AtomicBool::new(false));
        let pages: Arc<Vec<(String, Vec<u8>)>> = Arc::new(
            ["10k.bin", "100k.bin"]
                .map(|name| (format!("/{name}"), fs::read(workspace.www().join(name)).unwrap()))
                .into(),
        );
        let connect = Arc::new(connect);
        let threads = (0..connections)
            .map(|_| {
                let (stop, pages, connect) = (Arc::clone(&stop), Arc::clone(&pages), Arc::clone(&connect));
                thread::spawn(move || {
                    let mut client = connect();
                    let mut responses = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for (path, page) in pages.iter() {
                            let mut outcome = client.get(path, "");
                            for _ in 0..9 {
                                if matches!(outcome, Err(ConnectionEnded { has_begun: false })) {
                                    client = connect();
                                    outcome = client.get(path, "");
                                }
                            }
                            let response = outcome.expect("the server does not close a connection within a response");
                            assert_eq!(response.status(), 200, "{}", response.head);
                            assert!(response.body == *page, "{path}: {} other bytes", response.body.len());
                            responses += 1;
                        }
                        // Without the pause, these clients would use all of the CPU time.
                        thread::sleep(Duration::from_millis(2));
                    }
                    responses
                })
            })
            .collect();
        VerifyingClients { stop, threads }
    }

    /// The number of correct responses; panics after an incorrect one.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("every response is correct")).sum()
    }
}
