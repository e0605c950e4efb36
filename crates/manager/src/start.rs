//! The manager put together, and taken apart again in order.
//!
//! ```text
//!   start:  lock and index ─▶ what a killed one left ─▶ certificate ─▶ addresses ─▶ threads ─▶ doors open
//!   stop:   doors close, those inside are answered ─▶ what waits is stored ─▶ and placed ─▶ alerts, OTLP ─▶ notes ─▶ index, lock
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::realtime_ns;
use web::post::Post;
use web::{Bounds, Door, Key, Open, Refusals, Secret, Settings, Strangers};

use crate::alerts::AlertThreads;
use crate::api::{self, Overview};
use crate::auth::Auth;
use crate::data::Data;
use crate::days::{self, DayWriter};
use crate::error::{Error, Result};
use crate::ingest::{self, IngestThread};
use crate::notes::{Log, Notes, NotesWriter};
use crate::otlp::{self, Sender};
use crate::refused::Refused;
use crate::retention::Keep;
use crate::tls::{self, ServedCertificate};
use tap_protocol::Why;

/// What a manager shall be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its folder.
    pub data: PathBuf,
    /// Where agents and programs come, by TLS.
    pub listen: SocketAddr,
    /// Where the page is. Beyond loopback by TLS as well.
    pub page: SocketAddr,
    /// Certificate and key (PEM); without them it makes its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names and addresses of this host: those that its own certificate is good for, and by which the page may be asked for.
    pub hosts: Vec<String>,
    /// What is kept.
    pub keep: Keep,
    /// Connections of the known at once.
    pub connections: usize,
    /// What strangers may use up.
    pub strangers: Strangers,
    /// Identity is told of alerts, besides the log.
    pub webhook: Option<Post>,
    /// Where the same data goes by OTLP.
    pub otlp: Option<otlp::Plan>,
}

impl Plan {
    /// On these addresses, with what holds unless somebody says otherwise.
    pub fn new(data: PathBuf, listen: SocketAddr) -> Plan {
        Plan {
            data,
            listen,
            page: SocketAddr::from(([127, 0, 0, 1], 0)),
            certificate: None,
            hosts: Vec::new(),
            keep: Keep { age: Some(crate::retention::KEEP_FOR), bytes: Some(crate::retention::KEEP_BYTES) },
            connections: CONNECTIONS_MAX,
            strangers: Strangers::default(),
            webhook: None,
            otlp: None,
        }
    }

    /// The names that the manager's own certificate is good for.
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

/// A manager that runs, until it is stopped or dropped.
pub struct Running {
    data: Arc<Data>,
    served: ServedCertificate,
    url: String,
    page_url: String,
    agents: Option<Open>,
    page: Option<Open>,
    /// What the page's streams are fed by.
    overview: Option<Overview>,
    taking: IngestThread,
    day_writer: DayWriter,
    keeper: AlertThreads,
    sender: Option<Sender>,
    writing: NotesWriter,
    notes: Notes,
}

impl Running {
    /// Starts it. When this returns, agents can come.
    ///
    /// # Errors
    /// Another manager has the folder, its index is of another version, an address cannot be had, the certificate cannot be served, or
    /// the system has no threads or descriptors left.
    pub fn start(plan: &Plan, log: Log) -> Result<Running> {
        let data = Data::open(&plan.data)?;
        let (notes, writing) = Notes::start(Arc::clone(&data), log)?;
        days::recover(&data)?.tell(&notes);
        look_at_rights(&plan.data, &notes);
        let served = match &plan.certificate {
            Some((certificate, key)) => tls::given(certificate, key)?,
            None => tls::own(&data, &plan.names(), realtime_ns())?,
        };
        if let Some(doubt) = served.tls.doubt(realtime_ns() / 1_000_000_000) {
            notes.say(&doubt);
        }
        let agents = Door::bind(agents_server(plan, &served))?;
        let page = Door::bind(page_server(plan, &served, &data, &notes)?)?;
        let (url, page_url) = (agents.url(), page.url());

        let sender = match &plan.otlp {
            Some(plan) => Some(Sender::start(Arc::clone(&data), notes.clone(), plan.clone())?),
            None => {
                otlp::off(&data)?;
                None
            }
        };
        let keeper = AlertThreads::start(Arc::clone(&data), notes.clone(), plan.webhook.clone())?;
        let day_writer = DayWriter::start(Arc::clone(&data), notes.clone(), plan.keep)?;
        let (ingest, taking) = IngestThread::start(Arc::clone(&data), notes.clone(), day_writer.bell())?;
        let auth = Auth { data: Arc::clone(&data), notes: notes.clone() };
        let facts = api::Facts {
            version: env!("CARGO_PKG_VERSION"),
            keep_for_s: plan.keep.age.map(|age| age.as_secs()),
            keep_bytes: plan.keep.bytes,
        };
        let state = api::State::new(Arc::clone(&data), notes.clone(), facts)?;
        let overview = Overview::start(&state).map_err(|_| Error::Thread("overview"))?;
        let routes = ingest::routes(ingest).merge(api::router(state.clone()));
        let agents = agents.open(auth.clone().before(routes), || {})?;
        let page = page.open(auth.before_page(api::page_router(state)), || {})?;
        Ok(Running {
            data,
            served,
            url,
            page_url,
            agents: Some(agents),
            page: Some(page),
            overview: Some(overview),
            taking,
            day_writer,
            keeper,
            sender,
            writing,
            notes,
        })
    }

    /// Where agents and programs come.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the page is, with its secret.
    pub fn page_url(&self) -> &str {
        &self.page_url
    }

    /// What is served by TLS, and what agents need to trust it.
    pub fn served(&self) -> &ServedCertificate {
        &self.served
    }

    /// The folder.
    pub fn data(&self) -> &Arc<Data> {
        &self.data
    }

    /// Reads certificate and key again, for connections from now on. Where they cannot be served, the ones before are on.
    pub fn reload(&self) {
        match self.served.tls.reload() {
            Ok(()) => self.notes.say("certificate and key were read again"),
            Err(error) => self.notes.say(&format!("the previous certificate and key stay in use: {error}")),
        }
    }

    /// Whether all of it works. A part that broke does not come back: what supervises the process shall start it again, and nothing that
    /// was taken is lost.
    pub fn works(&self) -> bool {
        let doors = [&self.agents, &self.page].into_iter().flatten().all(Open::serves);
        doors && self.taking.works() && self.day_writer.works() && self.writing.works()
    }

    /// Writes what was noted of requests, which else is done each second.
    pub fn write_notes(&self) {
        self.notes.write();
    }

    /// Ends it in order: nobody is let in any more, who is inside is answered, all that was taken is stored and placed.
    pub fn stop(mut self) {
        self.end(SHUTDOWN_TIMEOUT);
    }

    fn end(&mut self, patience: Duration) {
        // The streams of the page end with it; else its door would wait for them.
        self.overview = None;
        for door in [self.page.take(), self.agents.take()].into_iter().flatten() {
            door.close(patience);
        }
        // The doors had the last ways to the thread that stores.
        self.taking.join();
        self.day_writer.stop();
        self.keeper.stop();
        self.sender = None;
        self.writing.stop();
        self.data.settle();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.agents.is_some() {
            self.end(Duration::ZERO);
        }
    }
}

/// Rows say who talks to whom.
fn look_at_rights(folder: &Path, notes: &Notes) {
    use std::os::unix::fs::PermissionsExt as _;
    if std::fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        notes.say(&format!("note: other users of this machine may read {0}: run chmod 700 {0}", folder.display()));
    }
}

/// Agents and programs show a token, which no web site can make a browser do: any name of this host will do. The gate looks at tokens
/// before anything else, so the door itself refuses no body.
fn agents_server(plan: &Plan, served: &ServedCertificate) -> Settings {
    Settings {
        listen: plan.listen,
        hosts: Vec::new(),
        key: Key::None,
        tls: Some(served.tls.config()),
        reads_only: false,
        bounds: Bounds { connections: plan.connections, body: usize::MAX, head: HEAD, patience: REQUEST_TIMEOUT },
        any_host: true,
        strangers: Some(plan.strangers),
        refusals: None,
    }
}

fn page_server(plan: &Plan, served: &ServedCertificate, data: &Data, notes: &Notes) -> Result<Settings> {
    let secret = match data.fact(SECRET_FACT)?.map(|text| Secret::given(&text)) {
        Some(Ok(secret)) => secret,
        _ => {
            let secret = Secret::random()?;
            data.keep_fact(SECRET_FACT, secret.text())?;
            secret
        }
    };
    let notes = notes.clone();
    let tell = move |peer: Option<SocketAddr>, status: axum::http::StatusCode| {
        let (why, words) = match status.as_u16() {
            413 => (Why::TooLarge, "the body was too long"),
            405 => (Why::MethodNotAllowed, "the method was not allowed"),
            _ => (Why::Forbidden, "the URL lacked its secret, or the host name was not one of this host"),
        };
        // What was asked for may be a secret that was typed wrong.
        notes.refused(&Refused::new(why, words), status.as_u16(), "", peer, "the page");
    };
    let is_beyond = !plan.page.ip().to_canonical().is_loopback();
    Ok(Settings {
        listen: plan.page,
        hosts: plan.hosts.iter().filter(|host| host.parse::<IpAddr>().is_err()).cloned().collect(),
        key: Key::InUrl(secret),
        tls: is_beyond.then(|| served.tls.config()),
        reads_only: false,
        bounds: Bounds { body: PAGE_BODY_MAX, ..Bounds::default() },
        any_host: false,
        strangers: None,
        refusals: Some(Refusals(Arc::new(tell))),
    })
}

/// The fact that holds the secret of the page's URL.
const SECRET_FACT: &str = "page_secret";
/// Connections of the known at once: agents have one each, and a second for a moment.
const CONNECTIONS_MAX: usize = 4096;
const HEAD: usize = 16 * 1024;
/// An agent that has nothing to say comes every ten seconds; a link may be slow.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// What the page sends: rules and settings.
const PAGE_BODY_MAX: usize = 64 * 1024;
/// What those inside have to be answered.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
