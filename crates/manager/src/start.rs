//! Starts the parts of the manager, and stops them in order.
//!
//! ```text
//!   start:  lock and index ─▶ repairs after a kill ─▶ certificate ─▶ addresses ─▶ threads ─▶ servers start
//!   stop:   servers close after open requests ─▶ batches are stored ─▶ rows are written to day files
//!           ─▶ alerts, OTLP ─▶ notes ─▶ index, lock
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::realtime_ns;
use web::post::Post;
use web::{Bounds, Key, Refusals, RunningServer, Secret, Server, Settings, UnauthenticatedLimits};

use crate::alerts::AlertThreads;
use crate::api::{self, Overview};
use crate::auth::Auth;
use crate::data::Data;
use crate::days::{self, DayWriter};
use crate::error::{Error, Result};
use crate::from_stream::{StreamPlan, StreamReader};
use crate::ingest::{self, IngestThread};
use crate::notes::{Log, Notes, NotesWriter};
use crate::otlp::{self, Sender};
use crate::refused::Refused;
use crate::retention::Retention;
use crate::tls::{self, ServedCertificate};
use tap_protocol::RefusalReason;

/// Configuration of a manager.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The manager's data folder.
    pub data: PathBuf,
    /// Address of the API for agents and programs, with TLS.
    pub listen: SocketAddr,
    /// Address of the page. With TLS, except on loopback.
    pub page: SocketAddr,
    /// Certificate and key (PEM); by default the manager creates its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names and addresses of this host: for the created certificate, and as accepted host names of the page.
    pub hosts: Vec<String>,
    /// Retention.
    pub retention: Retention,
    /// Maximum authenticated connections.
    pub connections: usize,
    /// Limits of unauthenticated connections.
    pub unauthenticated: UnauthenticatedLimits,
    /// Webhook for alerts, in addition to the log.
    pub webhook: Option<Post>,
    /// OTLP receiver.
    pub otlp: Option<otlp::Plan>,
    /// Stream of NATS to read batches from, besides those that agents send here.
    pub from: Option<StreamPlan>,
}

impl Plan {
    /// A configuration with defaults.
    pub fn new(data: PathBuf, listen: SocketAddr) -> Plan {
        Plan {
            data,
            listen,
            page: SocketAddr::from(([127, 0, 0, 1], 0)),
            certificate: None,
            hosts: Vec::new(),
            retention: Retention {
                age: Some(crate::retention::MAX_AGE_DEFAULT),
                bytes: Some(crate::retention::MAX_BYTES_DEFAULT),
            },
            connections: CONNECTIONS_MAX,
            unauthenticated: UnauthenticatedLimits::default(),
            webhook: None,
            otlp: None,
            from: None,
        }
    }

    /// The names in the manager's own certificate.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        let mut add = |name: String| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        for address in [self.listen.ip(), self.page.ip()] {
            if !address.is_unspecified() {
                add(address.to_canonical().to_string());
            }
        }
        self.hosts.iter().for_each(|host| add(host.clone()));
        names
    }
}

/// A running manager, until it is stopped or dropped.
pub struct Running {
    data: Arc<Data>,
    served: ServedCertificate,
    url: String,
    page_url: String,
    agents: Option<RunningServer>,
    page: Option<RunningServer>,
    /// Feeds the page's event streams.
    overview: Option<Overview>,
    ingest_thread: IngestThread,
    stream_reader: Option<StreamReader>,
    day_writer: DayWriter,
    alert_threads: AlertThreads,
    sender: Option<Sender>,
    notes_writer: NotesWriter,
    notes: Notes,
}

impl Running {
    /// Starts the manager. When this returns, agents can connect.
    ///
    /// # Errors
    /// Another manager uses the folder, the index is of another version, an address is in use, the certificate is
    /// invalid, or the system has no threads or descriptors left.
    pub fn start(plan: &Plan, log: Log) -> Result<Running> {
        let data = Data::open(&plan.data)?;
        let (notes, notes_writer) = Notes::start(Arc::clone(&data), log)?;
        days::recover(&data)?.log_to(&notes);
        warn_about_permissions(&plan.data, &notes);
        let served = match &plan.certificate {
            Some((certificate, key)) => tls::configured(certificate, key)?,
            None => tls::create_or_load(&data, &plan.names(), realtime_ns())?,
        };
        if let Some(warning) = served.tls.doubt(realtime_ns() / 1_000_000_000) {
            notes.log(&warning);
        }
        let agents = Server::bind(agents_server(plan, &served))?;
        let page = Server::bind(page_server(plan, &served, &data, &notes)?)?;
        let (url, page_url) = (agents.url(), page.url());

        let sender = match &plan.otlp {
            Some(plan) => Some(Sender::start(Arc::clone(&data), notes.clone(), plan.clone())?),
            None => {
                otlp::off(&data)?;
                None
            }
        };
        let alert_threads = AlertThreads::start(Arc::clone(&data), notes.clone(), plan.webhook.clone())?;
        let day_writer = DayWriter::start(Arc::clone(&data), notes.clone(), plan.retention)?;
        let (ingest, ingest_thread) = IngestThread::start(Arc::clone(&data), notes.clone(), day_writer.notifier())?;
        let stream_reader = match &plan.from {
            Some(from) => Some(StreamReader::start(Arc::clone(&data), notes.clone(), from, day_writer.notifier())?),
            None => None,
        };
        let auth = Auth { data: Arc::clone(&data), notes: notes.clone() };
        let facts = api::Facts {
            version: env!("CARGO_PKG_VERSION"),
            keep_for_s: plan.retention.age.map(|age| age.as_secs()),
            keep_bytes: plan.retention.bytes,
        };
        let state = api::State::new(Arc::clone(&data), notes.clone(), facts)?;
        let overview = Overview::start(&state).map_err(|_| Error::Thread("overview"))?;
        let routes = ingest::routes(ingest).merge(api::router(state.clone()));
        let agents = agents.start(auth.clone().before(routes), || {})?;
        let page = page.start(auth.before_page(api::page_router(state)), || {})?;
        Ok(Running {
            data,
            served,
            url,
            page_url,
            agents: Some(agents),
            page: Some(page),
            overview: Some(overview),
            ingest_thread,
            stream_reader,
            day_writer,
            alert_threads,
            sender,
            notes_writer,
            notes,
        })
    }

    /// URL for agents and programs.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL of the page, with its secret.
    pub fn page_url(&self) -> &str {
        &self.page_url
    }

    /// The certificate, and what agents need to trust it.
    pub fn served(&self) -> &ServedCertificate {
        &self.served
    }

    /// The folder.
    pub fn data(&self) -> &Arc<Data> {
        &self.data
    }

    /// Reads certificate and key again, for new connections. Invalid files leave the previous ones in use.
    pub fn reload(&self) {
        match self.served.tls.reload() {
            Ok(()) => self.notes.log("certificate and key were read again"),
            Err(error) => self.notes.log(&format!("the previous certificate and key stay in use: {error}")),
        }
    }

    /// Whether all threads run. A failed thread does not restart: a supervisor must restart the process, and no
    /// accepted data is lost.
    pub fn is_running(&self) -> bool {
        let servers_are_running = [&self.agents, &self.page].into_iter().flatten().all(RunningServer::is_running);
        servers_are_running
            && self.ingest_thread.is_running()
            && self.stream_reader.as_ref().is_none_or(StreamReader::is_running)
            && self.day_writer.is_running()
            && self.notes_writer.is_running()
    }

    /// Writes log rows and counts now, instead of each second.
    pub fn write_notes(&self) {
        self.notes.write();
    }

    /// Stops in order: no new connections are accepted, open requests get a response, all accepted rows are stored and
    /// written to files.
    pub fn stop(mut self) {
        self.end(SHUTDOWN_TIMEOUT);
    }

    fn end(&mut self, timeout: Duration) {
        // The page's streams end here; otherwise its server would wait for them.
        self.overview = None;
        for server in [self.page.take(), self.agents.take()].into_iter().flatten() {
            server.close(timeout);
        }
        // The servers had the last handles to the storing thread.
        self.ingest_thread.join();
        self.stream_reader = None;
        self.day_writer.stop();
        self.alert_threads.stop();
        self.sender = None;
        self.notes_writer.stop();
        self.data.checkpoint();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.agents.is_some() {
            self.end(Duration::ZERO);
        }
    }
}

/// Warns if other users may read the folder: its rows show which hosts communicate.
fn warn_about_permissions(folder: &Path, notes: &Notes) {
    use std::os::unix::fs::PermissionsExt as _;
    if std::fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        notes.log(&format!("note: other users of this machine may read {0}: run chmod 700 {0}", folder.display()));
    }
}

/// API clients show a token, which no web site can make a browser send: any host name is accepted. The token is
/// checked before anything else, so the server itself rejects no body.
fn agents_server(plan: &Plan, served: &ServedCertificate) -> Settings {
    Settings {
        listen: plan.listen,
        hosts: Vec::new(),
        key: Key::None,
        tls: Some(served.tls.config()),
        read_only: false,
        bounds: Bounds {
            connections: plan.connections,
            body: usize::MAX,
            head: REQUEST_HEAD_MAX,
            timeout: REQUEST_TIMEOUT,
        },
        any_host: true,
        unauthenticated: Some(plan.unauthenticated),
        refusals: None,
    }
}

fn page_server(plan: &Plan, served: &ServedCertificate, data: &Data, notes: &Notes) -> Result<Settings> {
    let secret = match data.fact(SECRET_FACT)?.map(|text| Secret::parse(&text)) {
        Some(Ok(secret)) => secret,
        _ => {
            let secret = Secret::random()?;
            data.set_fact(SECRET_FACT, secret.text())?;
            secret
        }
    };
    let notes = notes.clone();
    let log_refusal = move |peer: Option<SocketAddr>, status: axum::http::StatusCode| {
        let (why, message) = match status.as_u16() {
            413 => (RefusalReason::TooLarge, "the body was too long"),
            405 => (RefusalReason::MethodNotAllowed, "the method was not allowed"),
            _ => (RefusalReason::Forbidden, "the URL lacked its secret, or the host name was not one of this host"),
        };
        // The URL may contain a mistyped secret.
        notes.refused(&Refused::new(why, message), status.as_u16(), "", peer, "the page");
    };
    let is_beyond_loopback = !plan.page.ip().to_canonical().is_loopback();
    Ok(Settings {
        listen: plan.page,
        hosts: plan.hosts.iter().filter(|host| host.parse::<IpAddr>().is_err()).cloned().collect(),
        key: Key::InUrl(secret),
        tls: is_beyond_loopback.then(|| served.tls.config()),
        read_only: false,
        bounds: Bounds { body: PAGE_BODY_MAX, ..Bounds::default() },
        any_host: false,
        unauthenticated: None,
        refusals: Some(Refusals(Arc::new(log_refusal))),
    })
}

/// Name of the fact with the secret of the page's URL.
const SECRET_FACT: &str = "page_secret";
/// Maximum authenticated connections: agents have one each, and briefly a second.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum bytes of a request head.
const REQUEST_HEAD_MAX: usize = 16 * 1024;
/// Timeout of a request: an idle agent sends a message every ten seconds, and a link may be slow.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum body of the page's requests: rules and settings.
const PAGE_BODY_MAX: usize = 64 * 1024;
/// Time for open requests at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
