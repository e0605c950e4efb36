//! Reads certificate and key files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

/// Why certificate and key are unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// From open(2) or read(2).
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {why}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong, and how to fix it.
        why: String,
    },
    /// Certificate and key do not match.
    #[error(
        "the key in {} does not match the first certificate in {}; put the server's own certificate first in its file",
        key.display(), certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// No random bytes are available for ticket keys.
    #[error("no random bytes available for the keys of session tickets: {why}")]
    Random {
        /// The library's error text.
        why: String,
    },
}

/// Reads both files and checks that they match.
pub(super) fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = chain(certificate)?;
    let secret = secret(key)?;
    let unusable = |file: &Path, why: String| TlsError::Content { file: file.to_owned(), why };
    match CertifiedKey::from_der(chain, secret, provider) {
        Ok(pair) => Ok(Arc::new(pair)),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() })
        }
        Err(error @ Error::InvalidCertificate(_)) => {
            Err(unusable(certificate, format!("its first certificate is unusable: {error}")))
        }
        Err(error) => Err(unusable(key, format!("the key is unusable: {error}"))),
    }
}

/// Why clients may refuse a certificate because of its validity period; `None` if unknown.
pub(super) fn doubt(certificate: &CertificateDer<'_>, now_s: u64) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
    // Without trusted roots verification always fails, but the validity period is checked first.
    let outcome =
        parsed.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[], &[], now, KeyUsage::server_auth(), None, None);
    match outcome.err()? {
        webpki::Error::CertExpired { not_after, .. } => {
            let days = now_s.saturating_sub(not_after.as_secs()) / 86_400;
            Some(format!("the certificate expired {days} days ago: clients will refuse it"))
        }
        webpki::Error::CertNotValidYet { not_before, .. } => {
            let hours = not_before.as_secs().saturating_sub(now_s).div_ceil(3600);
            Some(format!("the certificate becomes valid in {hours} hours: clients will refuse it until then"))
        }
        _ => None,
    }
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = text(file)?;
    let found = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(file, &error))?;
    if found.is_empty() {
        let why = if contains(&text, b"PRIVATE KEY-----") {
            "it contains a private key and no certificate: name the certificate's file first, then the key's"
        } else {
            "it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)"
        };
        return Err(TlsError::Content { file: file.to_owned(), why: why.into() });
    }
    Ok(found)
}

fn secret(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = text(file)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let why = if contains(&text, b"ENCRYPTED PRIVATE KEY-----") {
                "the key is encrypted; decrypt it into another file: openssl pkey -in FILE -out KEY"
            } else {
                "it contains no private key in PEM form (PKCS#8, SEC1 or RSA)"
            };
            Err(TlsError::Content { file: file.to_owned(), why: why.into() })
        }
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn text(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|source| TlsError::Read { file: file.to_owned(), source })
}

fn unreadable(file: &Path, error: &pem::Error) -> TlsError {
    TlsError::Content { file: file.to_owned(), why: format!("not valid PEM: {error}") }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
