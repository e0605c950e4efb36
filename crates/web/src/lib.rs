//! Web front end: the HTTP server of the live page and of the manager. Never on the data path.
//!
//! ```text
//!   socket ── write timeout ── TLS? ── HTTP/1.1 ── guard ──▶ Router of the caller
//!                                                    │            │
//!                         host? secret? method? body?            └─ Hub ──one frame for all──▶ event streams
//! ```
//!
//! [`Server::bind`] binds the address, [`Server::start`] serves a router on one thread with its own runtime. [`Bounds`]
//! limits everything that a client can make grow: connections, heads, bodies, event streams and their lag. A client
//! that does not read is disconnected.
//!
//! Every web site that a viewer visits can reach a page on loopback, if the page accepts any host name: a foreign name
//! can be made to point here (DNS rebinding). So a request's `Host` must be a name that no web site can own
//! ([`Hosts`]). Beyond loopback a request also needs a secret ([`Key`]).
//!
//! Read `guard` for the order of these checks, [`hub`] for the event streams. [`post`] is the HTTP client for exports.

mod guard;
mod hosts;
pub mod hub;
mod listen;
mod piped;
pub mod post;
mod secret;
mod unauthenticated;
mod write_timeout;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use http::StatusCode;
use rustls::ServerConfig;
use tokio::runtime;
use tokio::sync::watch;

pub use guard::{CONTENT_POLICY, page};
pub use hosts::Hosts;
pub use hub::{Hub, Viewers};
pub use piped::{PipeWriter, piped};
pub use secret::{Key, Secret};
pub use unauthenticated::{ConnectionHandle, UnauthenticatedLimits};

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebServerError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// Error of the system call.
        source: io::Error,
    },
    /// No thread or descriptor is available.
    #[error("cannot start the web front end: {0}")]
    Start(#[from] io::Error),
    /// The text is not a valid secret.
    #[error("{0}")]
    Secret(&'static str),
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Additional host names that requests may use.
    pub hosts: Vec<String>,
    /// The secret that a request must present.
    pub key: Key,
    /// TLS configuration, if the server uses TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether only GET and HEAD are allowed, as for a page that changes nothing.
    pub read_only: bool,
    /// Resource limits of clients.
    pub bounds: Bounds,
    /// Whether `Host` may be any name. Only for a server that browsers do not use and whose requests carry a secret in
    /// a header field, which no web site can make a browser send.
    pub any_host: bool,
    /// Limits of unauthenticated connections, which then have a pool of their own: see
    /// [`ConnectionHandle::authenticate`]. `None`: one pool for all connections; connections beyond its limit are
    /// closed immediately.
    pub unauthenticated: Option<UnauthenticatedLimits>,
    /// Receives every request that the server itself refuses.
    pub refusals: Option<Refusals>,
}

/// Callback for a refused request. Its arguments: the peer's address and the response's status.
#[derive(Clone)]
pub struct Refusals(pub Arc<dyn Fn(Option<SocketAddr>, StatusCode) + Send + Sync>);

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals(..)")
    }
}

/// Resource limits of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Concurrent connections; more are closed immediately. With [`Settings::unauthenticated`]: the authenticated
    /// connections; beyond the limit the client with the most connections loses its oldest.
    pub connections: usize,
    /// Bytes of a request body; 0 refuses every body.
    pub body: usize,
    /// Bytes of a request head, at least 8192.
    pub head: usize,
    /// Timeout of a request head, of the TLS handshake, of each write, and of an idle connection.
    pub timeout: Duration,
}

impl Default for Bounds {
    /// Limits of a page: no request bodies.
    fn default() -> Self {
        Bounds { connections: 256, body: 0, head: 16 * 1024, timeout: Duration::from_secs(10) }
    }
}

impl Settings {
    /// Settings of a read-only page on `listen`, without TLS; with a secret in the URL unless the address is loopback.
    ///
    /// # Errors
    /// No random bytes are available.
    pub fn page(listen: SocketAddr) -> Result<Settings, WebServerError> {
        let is_loopback = listen.ip().to_canonical().is_loopback();
        let key = if is_loopback { Key::None } else { Key::InUrl(Secret::random()?) };
        Ok(Settings {
            listen,
            hosts: Vec::new(),
            key,
            tls: None,
            read_only: true,
            bounds: Bounds::default(),
            any_host: false,
            // Connections without the secret have a limit of their own, so that a flood of them blocks no viewer.
            unauthenticated: (!is_loopback).then(UnauthenticatedLimits::default),
            refusals: None,
        })
    }
}

/// A bound server that accepts no connections yet: they wait in the kernel's queue.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// The address is in use, is not of this host, or its port needs privilege.
    pub fn bind(settings: Settings) -> Result<Server, WebServerError> {
        let address = settings.listen;
        let failed = |source| WebServerError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        // The standard library's queue of 128 overflows when many clients connect together; a dropped SYN costs a
        // second.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::MAXALLOWABLE)
            .map_err(|errno| failed(errno.into()))?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Server { listener, address, settings })
    }

    /// The bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the root path, including a secret in the URL. A wildcard address is printed as loopback: the server
    /// does not know its name in other networks.
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() && ip.is_ipv4() => IpAddr::from([127, 0, 0, 1]),
            ip if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            ip => ip,
        };
        let secret = match &self.settings.key {
            Key::InUrl(secret) => format!("{}/", secret.text()),
            _ => String::new(),
        };
        format!("{scheme}://{}/{secret}", SocketAddr::new(ip, self.address.port()))
    }

    /// Serves `router` on a new thread until the returned handle is dropped. `on_start` runs first on that thread, to
    /// set its name and priority.
    ///
    /// # Errors
    /// No thread or descriptor is available.
    pub fn start(
        self,
        router: Router,
        on_start: impl FnOnce() + Send + 'static,
    ) -> Result<RunningServer, WebServerError> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let (close_sender, closing) = watch::channel(None);
        let router = guard::wrap(router, &self.settings);
        let (tls, bounds, unauthenticated) = (self.settings.tls, self.settings.bounds, self.settings.unauthenticated);
        let thread = thread::Builder::new().name("web".into()).spawn(move || {
            on_start();
            runtime.block_on(listen::listen(listener, router, tls, bounds, unauthenticated, closing));
            // Remaining tasks and their connections are dropped with the runtime. Blocking work on other threads is not
            // waited for.
            runtime.shutdown_timeout(BLOCKING_SHUTDOWN_TIMEOUT);
        })?;
        Ok(RunningServer { close_sender, thread: Some(thread) })
    }
}

/// Time that blocking work has to end.
const BLOCKING_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// A running server; it stops when this handle is dropped.
#[derive(Debug)]
pub struct RunningServer {
    /// Sends the time that open connections have to finish.
    close_sender: watch::Sender<Option<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Whether the server thread runs. It ends by itself only after an error.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Accepts no more connections and waits at most `timeout` for responses in progress. Event streams end when their
    /// hub is closed.
    pub fn close(mut self, timeout: Duration) {
        self.end(timeout);
    }

    fn end(&mut self, timeout: Duration) {
        // The send fails if the server has stopped already.
        let _ = self.close_sender.send(Some(timeout));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(Duration::ZERO);
        }
    }
}
