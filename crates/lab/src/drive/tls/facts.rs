//! What handshakes settled, counted.

use std::collections::BTreeMap;

use super::trust::is_authority;
use ledger::document;
use rustls::{AlertDescription, CertificateError, Error, HandshakeKind, ProtocolVersion, SupportedCipherSuite};

/// What one handshake settled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settled {
    pub(super) version: Option<ProtocolVersion>,
    pub(super) suite: Option<SupportedCipherSuite>,
    pub(super) alpn: Option<Vec<u8>>,
}

/// Counts over a run. Handshakes that settle the same are one entry: there are one or two.
pub(super) struct Facts {
    server_name: String,
    trust: String,
    full: u64,
    resumed: u64,
    settled: Vec<(Settled, u64)>,
    first_failure: Option<String>,
}

impl Facts {
    pub(super) fn new(server_name: String, trust: String) -> Self {
        Facts { server_name, trust, full: 0, resumed: 0, settled: Vec::new(), first_failure: None }
    }

    pub(super) fn secured(&mut self, (kind, settled): &(Option<HandshakeKind>, Settled)) {
        match kind {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            _ => self.full += 1,
        }
        match self.settled.iter_mut().find(|(other, _)| other == settled) {
            Some((_, count)) => *count += 1,
            None => self.settled.push((settled.clone(), 1)),
        }
    }

    pub(super) fn failed_with(&mut self, words: impl FnOnce() -> String) {
        if self.first_failure.is_none() {
            self.first_failure = Some(words());
        }
    }

    pub(super) fn document(&self) -> document::Tls {
        let all = self.full + self.resumed;
        let counted = |name: fn(&Settled) -> String| {
            self.settled.iter().fold(BTreeMap::new(), |mut counts, (settled, count)| {
                *counts.entry(name(settled)).or_default() += count;
                counts
            })
        };
        document::Tls {
            server_name: self.server_name.clone(),
            trust: self.trust.clone(),
            handshakes_full: self.full,
            handshakes_resumed: self.resumed,
            resumed_share: (all > 0).then(|| self.resumed as f64 / all as f64),
            version: counted(|settled| settled.version.map_or_else(unknown, version_name)),
            cipher_suite: counted(|settled| settled.suite.map_or_else(unknown, suite_name)),
            alpn: counted(|settled| match &settled.alpn {
                Some(protocol) => String::from_utf8_lossy(protocol).into_owned(),
                None => "none".into(),
            }),
            first_failure: self.first_failure.clone(),
        }
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn version_name(version: ProtocolVersion) -> String {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2".into(),
        ProtocolVersion::TLSv1_3 => "TLSv1.3".into(),
        other => format!("{other:?}"),
    }
}

/// The name in IANA's registry: rustls puts the version into those of TLS 1.3.
fn suite_name(suite: SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// An error for a person, with what to do about it where that is known.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is from no authority that is trusted here: give its authority with --cacert FILE, \
             or trust anyone with -k"
                .into()
        }
        Error::InvalidCertificate(why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => {
            format!("the server's certificate is for another name ({why}): give the right one with --sni NAME")
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "the server's certificate is not signed by the authority that it names (BadSignature): is --cacert another \
             authority of the same name?"
                .into()
        }
        error if is_authority(error) => {
            "the server shows an authority's certificate as its own, as `openssl req -x509` makes them: give that very \
             certificate with --cacert FILE, or trust anyone with -k"
                .into()
        }
        Error::InvalidCertificate(why) => format!("the server's certificate was refused: {why}"),
        Error::InvalidMessage(_) => {
            format!("what the server sent is not TLS ({error}): is this its port for https?")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the server has no version of TLS that was offered: see --tls-version".into()
        }
        Error::AlertReceived(alert @ (AlertDescription::CertificateRequired | AlertDescription::UnknownCA | AlertDescription::BadCertificate)) => {
            format!("the server refused the client's certificate (alert {alert:?}): see --cert and --key")
        }
        Error::AlertReceived(alert) => format!("the server ended TLS with an alert: {alert:?}"),
        Error::PeerIncompatible(why) => format!("the server and what was offered have nothing in common: {why:?}"),
        Error::General(why) => why.clone(),
        other => other.to_string(),
    }
}
