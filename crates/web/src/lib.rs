//! The program's own HTTP face: what the live page and the manager of taps are seen through. Never on the data path.
//!
//! ```text
//!   socket ──Patient──TLS?──HTTP/1.1──guard──▶ Router of who opened the door
//!                                       │            │
//!                  host? secret? method? body?       └─ Hub ──one frame for all──▶ event streams
//! ```
//!
//! [`Door::bind`] takes the address, [`Door::open`] serves a router on one thread with a runtime of its own. Everything
//! that a stranger can make grow is bounded: connections, heads, bodies, event streams and what each may lag
//! ([`Bounds`]). Who does not read is cut off.
//!
//! A page on loopback can be reached by every web site that its reader visits, if it answers to any name: a name of
//! theirs may be made to point here (DNS rebinding). So a request's `Host` must be one that no stranger can own
//! ([`Hosts`]). Beyond loopback a request needs a secret as well ([`Key`]).
//!
//! Read `guard` for the order of these checks, [`hub`] for the streams. [`post`] is the other direction: what the program says to
//! others.

mod guard;
mod hosts;
pub mod hub;
mod listen;
mod patient;
mod piped;
pub mod post;
mod secret;
mod strangers;

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
pub use strangers::{Arrived, Strangers};

/// What went wrong with a door.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The address cannot be had.
    #[error("listening on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread or descriptor is left.
    #[error("starting the HTTP face: {0}")]
    Start(#[from] io::Error),
    /// Text that cannot be a secret.
    #[error("{0}")]
    Secret(&'static str),
}

/// How a door is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Names of this host, besides its addresses, under which requests may come.
    pub hosts: Vec<String>,
    /// What a request must show.
    pub key: Key,
    /// TLS, where the door has it.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether only GET and HEAD are answered.
    pub reads_only: bool,
    /// What strangers may use up.
    pub bounds: Bounds,
    /// Whether a request may name this host by any name. Only for a door that no browser is sent to, and where each request shows
    /// a secret in a field: a web site cannot make a browser send that.
    pub any_host: bool,
    /// Connections that have not shown yet that they may come are in a pool of their own: see [`Arrived::greet`]. `None`: all are in
    /// one, and those beyond its bound are closed as they come.
    pub strangers: Option<Strangers>,
    /// Who is told of requests that the door itself refuses.
    pub refusals: Option<Refusals>,
}

/// Hears of each request that is refused: from whom it came, and with which status.
#[derive(Clone)]
pub struct Refusals(pub Arc<dyn Fn(Option<SocketAddr>, StatusCode) + Send + Sync>);

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals(..)")
    }
}

/// What strangers may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once; those beyond are closed as they come. With [`Settings::strangers`]: those of the known, of whom the
    /// oldest of whoever has the most gives way.
    pub connections: usize,
    /// Bytes of a request's body; 0 refuses every body.
    pub body: usize,
    /// Bytes of a request's head, at least 8192.
    pub head: usize,
    /// How long the head of a request, the handshake of TLS, and each write may take. An idle connection is closed after it.
    pub patience: Duration,
}

impl Default for Bounds {
    /// For a page: no bodies.
    fn default() -> Self {
        Bounds { connections: 256, body: 0, head: 16 * 1024, patience: Duration::from_secs(10) }
    }
}

impl Settings {
    /// A page on `listen`: read only, without TLS, and with a secret in its URL unless the address is loopback.
    ///
    /// # Errors
    /// No random bytes can be had.
    pub fn page(listen: SocketAddr) -> Result<Settings, DoorError> {
        let is_loopback = listen.ip().to_canonical().is_loopback();
        let key = if is_loopback { Key::None } else { Key::InUrl(Secret::random()?) };
        Ok(Settings {
            listen,
            hosts: Vec::new(),
            key,
            tls: None,
            reads_only: true,
            bounds: Bounds::default(),
            any_host: false,
            // Connections that have not shown the secret have a limit of their own, so a flood of them cannot keep a reader out.
            strangers: (!is_loopback).then(Strangers::default),
            refusals: None,
        })
    }
}

/// A door that listens and is not open yet: connections wait in the kernel's queue.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
}

impl Door {
    /// Takes the address.
    ///
    /// # Errors
    /// Somebody else has it, it is none of this host's, or the port needs privilege.
    pub fn bind(settings: Settings) -> Result<Door, DoorError> {
        let address = settings.listen;
        let taken = |source| DoorError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(taken)?;
        // std's queue of 128 is full at once when many come together, and who finds no place in it waits for a second or more.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::MAXALLOWABLE)
            .map_err(|errno| taken(errno.into()))?;
        listener.set_nonblocking(true).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        Ok(Door { listener, address, settings })
    }

    /// Where it listens, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its root, with the secret where that stands in the URL. An address that stands for all of this host is
    /// shown as loopback: what others call this host, it cannot know.
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

    /// Serves `router` from a thread of its own until the returned handle is dropped. `begin` runs on that thread first:
    /// what it is to be called and how urgent it is are the caller's to say.
    ///
    /// # Errors
    /// No thread or descriptor is left.
    pub fn open(self, router: Router, begin: impl FnOnce() + Send + 'static) -> Result<Open, DoorError> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let (closes, closing) = watch::channel(None);
        let router = guard::stand_before(router, &self.settings);
        let (tls, bounds, strangers) = (self.settings.tls, self.settings.bounds, self.settings.strangers);
        let thread = thread::Builder::new().name("door".into()).spawn(move || {
            begin();
            runtime.block_on(listen::listen(listener, router, tls, bounds, strangers, closing));
            // Tasks that are still there are dropped with the runtime, and their connections with them. Work on other threads that
            // does not end is not waited for.
            runtime.shutdown_timeout(LEFT_OVER);
        })?;
        Ok(Open { closes, thread: Some(thread) })
    }
}

/// What work on other threads gets to end.
const LEFT_OVER: Duration = Duration::from_secs(2);

/// A door that is open, until this is dropped.
#[derive(Debug)]
pub struct Open {
    /// How long those inside may take to leave, once they shall.
    closes: watch::Sender<Option<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Open {
    /// Whether it still serves. It ends by itself only if it breaks.
    pub fn serves(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Takes no one in any more, and waits until those inside have got what they were being sent, at most `patience`. Event
    /// streams end when their hub is closed.
    pub fn close(mut self, patience: Duration) {
        self.end(patience);
    }

    fn end(&mut self, patience: Duration) {
        // Nobody listens any more: then it is closed.
        let _ = self.closes.send(Some(patience));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(Duration::ZERO);
        }
    }
}
