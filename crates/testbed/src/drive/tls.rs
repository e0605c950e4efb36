//! TLS of the load: settings shared by a run's connections, and sessions of single connections.
//!
//! ```text
//!   socket --bytes--> Session --TlsEvent--> load core        rustls does handshakes, decrypts and encrypts;
//!   socket <--bytes-- Session <--plain-- load core       it has a clock and a random generator of its own
//! ```
//!
//! rustls works without I/O (its unbuffered API): the loop reads all sockets into one buffer, records are decrypted in
//! place, and only incomplete records are stored with their connection. [`config`] creates the shared settings,
//! [`session`] is one connection, [`facts`] counts negotiated parameters, [`tickets`] stores a client's sessions,
//! [`trust`] has the verifiers of `--insecure` and `--cacert`.

mod config;
mod facts;
mod session;
mod tickets;
mod trust;

use std::sync::Arc;

use http3::TlsClient;
use load::Target;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use schema::{FailureCause, document};

use self::facts::{Facts, Negotiated};
pub(crate) use self::session::{READ_BUFFER, Session, TlsEvent};
use self::tickets::Tickets;
use crate::error::TestbedError;
use crate::watching::secrets::SecretSender;
use plan::TlsPlan;

/// TLS of one loop of a run.
pub struct Tls {
    /// Settings common to all clients.
    common: Arc<ClientConfig>,
    /// Whether clients resume sessions.
    resumption: bool,
    /// Whether the plan sets the server name for every target.
    named: bool,
    /// The configuration of each client that has connected, by target.
    clients: Vec<Option<Arc<ClientConfig>>>,
    name: ServerName<'static>,
    /// Server names by target, if targets have their own.
    names: Vec<ServerName<'static>>,
    facts: Facts,
}

impl Tls {
    /// Reads certificates and keys. `host`: the URL's.
    ///
    /// # Errors
    /// An unreadable or invalid file, or a system without root certificates where they are needed.
    pub fn new(plan: &TlsPlan, host: &str) -> Result<Self, TestbedError> {
        let name = plan.server_name(host).map_err(TestbedError::plan)?;
        let trust = config::trust(plan);
        let facts = Facts::new(name.to_str().into_owned(), trust);
        let common = Arc::new(config::client(plan)?);
        let named = plan.sni.is_some();
        Ok(Tls { common, named, resumption: plan.resumption, clients: Vec::new(), name, names: Vec::new(), facts })
    }

    /// Settings for several targets, each with its own server name, unless the plan sets one for all.
    pub(crate) fn of_targets(mut self, targets: &[Target]) -> Self {
        let one = (targets.len() < 2 || self.named).then(|| self.name.clone());
        let own = |target: &Target| ServerName::try_from(target.host.clone()).ok();
        let name = |target| one.clone().or_else(|| own(target)).unwrap_or_else(|| self.name.clone());
        self.names = targets.iter().map(name).collect();
        self
    }

    /// Whether ALPN has chosen HTTP/2; if not, stores the text of the first failure.
    pub(crate) fn chose_http2(&mut self, session: &Session) -> bool {
        let (_, negotiated) = session.negotiated();
        let is_http2 = negotiated.alpn.as_deref() == Some(b"h2");
        if !is_http2 {
            let chosen = negotiated.alpn.map(|chosen| String::from_utf8_lossy(&chosen).into_owned());
            self.facts.failed_with(|| match chosen {
                Some(chosen) => format!(
                    "the server chose {chosen} by ALPN, not h2: it does not support HTTP/2 on this port; use --http 1.1"
                ),
                None => "the server chose no protocol by ALPN: it does not support HTTP/2 on this port; use --http 1.1"
                    .into(),
            });
        }
        is_http2
    }

    /// The settings for one request of HTTP/1.1, and the name to verify.
    ///
    /// # Errors
    /// A host that cannot be in a certificate.
    pub(crate) fn for_one_request(&self, host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        let mut config = ClientConfig::clone(&self.common);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = if self.named { Ok(self.name.clone()) } else { ServerName::try_from(host.to_owned()) };
        Ok((Arc::new(config), name.map_err(|error| format!("{host}: {error}"))?))
    }

    /// A session for a new connection of a client to a target.
    pub(crate) fn session(&mut self, client: u32, target: usize) -> Result<Session, rustls::Error> {
        let name = self.names.get(target).unwrap_or(&self.name).clone();
        Session::new(self.client(client, target), name)
    }

    /// Lets the sessions that follow send requests before the handshake is finished (QUIC only).
    pub(crate) fn with_early_data(mut self, enabled: bool) -> Self {
        Arc::make_mut(&mut self.common).enable_early_data = enabled;
        self
    }

    /// Reports the secrets of the sessions that follow.
    pub(crate) fn reporting_to(mut self, secrets: &SecretSender) -> Self {
        Arc::make_mut(&mut self.common).key_log = Arc::new(secrets.clone());
        self
    }

    /// Number of targets.
    pub(crate) fn targets(&self) -> usize {
        self.names.len()
    }

    /// TLS of QUIC, of a client's connections to a target; `None` if it has no usable cipher suite.
    pub(crate) fn quic_client(&mut self, client: u32, target: usize) -> Option<TlsClient> {
        let name = self.names.get(target).unwrap_or(&self.name).clone();
        TlsClient::new(self.client(client, target), name)
    }

    /// Counts a QUIC connection whose handshake is finished.
    pub(crate) fn quic_secured(&mut self, negotiated: http3::client::Negotiated) {
        let http3::client::Negotiated { alpn, version, suite, kind } = negotiated;
        self.facts.secured(&(kind, Negotiated { version, suite, alpn }));
    }

    /// Counts a session whose handshake is finished.
    pub(crate) fn secured(&mut self, session: &Session) {
        self.facts.secured(&session.negotiated());
    }

    /// The cause of a session's failure; stores the text of the first failure.
    pub(crate) fn failed(&mut self, error: &rustls::Error, secured: bool) -> FailureCause {
        self.facts.failed_with(|| facts::words(error));
        match error {
            rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::UnsupportedNameType => FailureCause::TlsCertificate,
            _ if secured => FailureCause::TlsBroken,
            _ => FailureCause::TlsHandshake,
        }
    }

    /// Stores the text of the first failure, for a handshake that ended without a TLS alert.
    pub(crate) fn failed_without_alert(&mut self, how: &str) {
        self.facts.failed_with(|| how.to_owned());
    }

    /// Negotiated parameters so far.
    pub fn document(&self) -> document::Tls {
        self.facts.document()
    }

    fn client(&mut self, client: u32, target: usize) -> Arc<ClientConfig> {
        if !self.resumption {
            return Arc::clone(&self.common);
        }
        // A ticket is valid only for the host that issued it.
        let index = client as usize * self.names.len().max(1) + target;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        let own = self.clients[index].get_or_insert_with(|| {
            let mut own = ClientConfig::clone(&self.common);
            own.resumption = Resumption::store(Arc::new(Tickets::default()));
            Arc::new(own)
        });
        Arc::clone(own)
    }
}
