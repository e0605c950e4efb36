//! Counts of parameters negotiated by handshakes.

use std::collections::BTreeMap;

use super::trust::is_authority;
use rustls::{
    AlertDescription, CertificateError, Error, HandshakeKind, PeerIncompatible, ProtocolVersion, SupportedCipherSuite,
};
use schema::document;

/// Parameters negotiated by one handshake.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Negotiated {
    pub(super) version: Option<ProtocolVersion>,
    pub(super) suite: Option<SupportedCipherSuite>,
    pub(super) alpn: Option<Vec<u8>>,
}

/// Counts over a run. Handshakes with equal parameters are one entry: there are one or two.
pub(super) struct Facts {
    server_name: String,
    trust: String,
    full: u64,
    resumed: u64,
    negotiated: Vec<(Negotiated, u64)>,
    first_failure: Option<String>,
}

impl Facts {
    pub(super) fn new(server_name: String, trust: String) -> Self {
        Facts { server_name, trust, full: 0, resumed: 0, negotiated: Vec::new(), first_failure: None }
    }

    pub(super) fn secured(&mut self, (kind, negotiated): &(Option<HandshakeKind>, Negotiated)) {
        match kind {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            _ => self.full += 1,
        }
        match self.negotiated.iter_mut().find(|(other, _)| other == negotiated) {
            Some((_, count)) => *count += 1,
            None => self.negotiated.push((negotiated.clone(), 1)),
        }
    }

    pub(super) fn failed_with(&mut self, words: impl FnOnce() -> String) {
        if self.first_failure.is_none() {
            self.first_failure = Some(words());
        }
    }

    pub(super) fn document(&self) -> document::Tls {
        let all = self.full + self.resumed;
        let counted = |name: fn(&Negotiated) -> String| {
            self.negotiated.iter().fold(BTreeMap::new(), |mut counts, (negotiated, count)| {
                *counts.entry(name(negotiated)).or_default() += count;
                counts
            })
        };
        document::Tls {
            server_name: self.server_name.clone(),
            trust: self.trust.clone(),
            handshakes_full: self.full,
            handshakes_resumed: self.resumed,
            resumed_share: (all > 0).then(|| self.resumed as f64 / all as f64),
            version: counted(|negotiated| negotiated.version.map_or_else(unknown, version_name)),
            cipher_suite: counted(|negotiated| negotiated.suite.map_or_else(unknown, suite_name)),
            alpn: counted(|negotiated| match &negotiated.alpn {
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

/// An error as text, with a fix if one is known.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the authority of the server's certificate is not trusted: give it with --cacert FILE, \
             or disable verification with -k"
                .into()
        }
        Error::InvalidCertificate(why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => {
            format!("the server's certificate is for another name ({why}): give the right one with --sni NAME")
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "the server's certificate is not signed by the authority that it names (BadSignature): check that --cacert is not another \
             authority of the same name"
                .into()
        }
        error if is_authority(error) => {
            "the server uses an authority's certificate as its own, as `openssl req -x509` creates: give that \
             certificate with --cacert FILE, or disable verification with -k"
                .into()
        }
        Error::InvalidCertificate(why @ (CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            format!("the server's certificate has expired ({why}): renew it, or disable verification with -k")
        }
        Error::InvalidCertificate(why @ (CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. })) => {
            format!("the server's certificate is not valid yet ({why}): check this machine's clock, or disable verification with -k")
        }
        Error::InvalidCertificate(why) => format!("the server's certificate was refused: {why}"),
        Error::InvalidMessage(_) => {
            format!("the server's data is not TLS ({error}): check that this is its https port")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the server supports none of the offered TLS versions (1.2 and 1.3, or that of --tls-version)".into()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server requires a client certificate: give one with --cert FILE and --key FILE".into()
        }
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate),
        ) => {
            format!("the server refused the client's certificate (alert {alert:?}): see --cert and --key")
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server supports none of the protocols offered by ALPN: use --http 1.1 if it has no HTTP/2; see --alpn".into()
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the server has no site with this name (alert UnrecognisedName): give the right one with --sni NAME".into()
        }
        Error::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity) => {
            "the server has no cipher suite, key exchange or signature in common with the offered ones (those of TLS 1.3, and of 1.2 with forward \
             secrecy), or requires a client certificate (--cert, --key); `openssl s_client -connect HOST:PORT` shows what it accepts"
                .into()
        }
        Error::AlertReceived(alert) => format!("the server ended TLS with an alert: {alert:?}"),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => {
            "the server supports none of the offered TLS versions (1.2 and 1.3, or that of --tls-version)".into()
        }
        Error::PeerIncompatible(why) => format!(
            "the server supports none of the offered parameters ({why:?}); `openssl s_client -connect HOST:PORT` shows what it accepts"
        ),
        Error::NoApplicationProtocol => {
            "the server chose none of the protocols offered by ALPN: use --http 1.1 if it has no HTTP/2; see --alpn".into()
        }
        Error::General(why) => why.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_names_the_option_that_helps() {
        for (error, option) in [
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "--tls-version"),
            (Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13), "--tls-version"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "--cert"),
            (Error::AlertReceived(AlertDescription::CertificateExpired), "--key"),
            (Error::AlertReceived(AlertDescription::NoApplicationProtocol), "--alpn"),
            (Error::NoApplicationProtocol, "--http 1.1"),
            (Error::AlertReceived(AlertDescription::UnrecognisedName), "--sni"),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "openssl s_client"),
            (Error::InvalidCertificate(CertificateError::Expired), "-k"),
            (Error::InvalidCertificate(CertificateError::NotValidYet), "clock"),
        ] {
            let words = words(&error);
            assert!(words.contains(option), "{error:?}: {words}");
        }
    }
}
