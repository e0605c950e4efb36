//! `yamabiko serve` under test: started in a workspace, and requested by clients that check every byte.

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

/// A server of the workspace's pages on its own port; ends with the test.
pub struct Serving {
    pub running: Running,
    pub address: SocketAddr,
}

impl Serving {
    /// Starts it with these options besides folder and address, and waits until it listens.
    pub fn start(workspace: &Workspace, options: &[&str]) -> Serving {
        let www = workspace.www();
        let mut command = workspace.command(&["serve", str_of(&www), "--listen", "127.0.0.1:0"]);
        command.args(options);
        Serving::start_command(workspace, command)
    }

    /// The same from a command that ends with such a server.
    pub fn start_command(workspace: &Workspace, command: Command) -> Serving {
        let mut running = workspace.start_command(command);
        let mut address = None;
        wait_until("the server says where it listens", || {
            assert!(!running.ended(), "it ended early: {}", running.stderr());
            let said = running.stderr();
            let url = said.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
            address = url.map(|(address, _)| address.parse().unwrap());
            address.is_some()
        });
        Serving { running, address: address.unwrap() }
    }

    /// The most memory it ever had resident, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.running.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sockets that it has open now, the listening one included.
    pub fn sockets(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.running.pid())).unwrap().flatten();
        let is_socket = |to: &Path| to.to_string_lossy().starts_with("socket:");
        open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| is_socket(&to))).count()
    }

    /// A connection to it.
    pub fn connect(&self) -> Client<TcpStream> {
        Client::connect(self.address)
    }

    /// Makes such connections, also for other threads.
    pub fn connector(&self) -> impl Fn() -> Client<TcpStream> + Send + Sync + 'static {
        let address = self.address;
        move || Client::connect(address)
    }

    /// A connection through TLS, trusting the certificates in this file.
    pub fn connect_tls(&self, trusted: &Path, name: &str) -> Client<Tls> {
        self.tls_connector(trusted, name)()
    }

    /// Makes such connections, also for other threads.
    pub fn tls_connector(&self, trusted: &Path, name: &str) -> impl Fn() -> Client<Tls> + Send + Sync + 'static {
        self.tls_connector_from(None, trusted, name)
    }

    /// The same from an address of this host.
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
            Client { stream: StreamOwned::new(connection, stream), read: Vec::new(), began: false }
        }
    }
}

/// TLS of a client.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// One connection of a client that checks what it is given.
pub struct Client<S> {
    pub stream: S,
    read: Vec<u8>,
    /// Something of the response that is awaited has come.
    began: bool,
}

/// One response, framed by its Content-Length.
#[derive(Debug)]
pub struct Response {
    pub head: String,
    pub body: Vec<u8>,
}

/// The connection ended before the response did.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Some of the response had come.
    pub began: bool,
}

impl Client<TcpStream> {
    /// A connection of its own.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, read: Vec::new(), began: false }
    }

    /// The same from an address of this host.
    pub fn connect_from(from: IpAddr, address: SocketAddr) -> Self {
        let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(made.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0))).unwrap();
        connect(made.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        let stream = TcpStream::from(made);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, read: Vec::new(), began: false }
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// The connection ended before.
    pub fn get(&mut self, path: &str, more: &str) -> Result<Response, Cut> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n");
        self.stream.write_all(request.as_bytes()).map_err(|_| Cut { began: false })?;
        self.response()
    }

    /// Reads a response to GET.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn response(&mut self) -> Result<Response, Cut> {
        let whole = self.whole_response();
        whole.ok_or(Cut { began: self.began })
    }

    fn whole_response(&mut self) -> Option<Response> {
        self.began = !self.read.is_empty();
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut response = Response { head, body: Vec::new() };
        let length = match response.status() {
            304 => 0,
            _ => response.field("content-length").expect("a length").parse().unwrap(),
        };
        while self.read.len() < length {
            self.more()?;
        }
        response.body = self.read.drain(..length).collect();
        Some(response)
    }

    fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 64 << 10];
        let got = loop {
            match self.stream.read(&mut buffer) {
                // After SIGSTOP and SIGCONT a read with a timeout fails with EINTR.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => break outcome.ok().filter(|&got| got > 0)?,
            }
        };
        self.began = true;
        self.read.extend_from_slice(&buffer[..got]);
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

/// Clients that request the workspace's pages repeatedly on persistent connections and compare each with the file.
pub struct Faithful {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Faithful {
    /// Starts one client per connection, made by `connect`. A connection closed between two requests is replaced; one
    /// that breaks off within a response is a failure.
    pub fn start<S: Read + Write>(
        workspace: &Workspace,
        connections: usize,
        connect: impl Fn() -> Client<S> + Send + Sync + 'static,
    ) -> Faithful {
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
                    let mut answers = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for (path, page) in pages.iter() {
                            let mut outcome = client.get(path, "");
                            for _ in 0..9 {
                                if matches!(outcome, Err(Cut { began: false })) {
                                    client = connect();
                                    outcome = client.get(path, "");
                                }
                            }
                            let response = outcome.expect("a good client is not cut off within an answer");
                            assert_eq!(response.status(), 200, "{}", response.head);
                            assert!(response.body == *page, "{path}: {} other bytes", response.body.len());
                            answers += 1;
                        }
                        // Thousands a second would leave attackers nothing.
                        thread::sleep(Duration::from_millis(2));
                    }
                    answers
                })
            })
            .collect();
        Faithful { stop, threads }
    }

    /// The number of correct responses; panics after an incorrect one.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("every answer is right")).sum()
    }
}
