//! The configuration that all clients of a run share, from the plan and its files.

use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::trust::{TrustAnyCertificate, TrustGivenCertificates};
use crate::error::TestbedError;
use plan::{Alpn, TlsPlan, TlsVersion};

/// How certificates are verified, for the document.
pub(super) fn trust(plan: &TlsPlan) -> String {
    match (&plan.cacert, plan.insecure) {
        (_, true) => "nothing".into(),
        (Some(file), false) => file.display().to_string(),
        (None, false) => "system".into(),
    }
}

/// The configuration, without session storage.
pub(super) fn client(plan: &TlsPlan) -> Result<ClientConfig, TestbedError> {
    let provider = Arc::new(provider());
    let versions: &[&SupportedProtocolVersion] = match plan.version {
        TlsVersion::Any => &[&TLS13, &TLS12],
        TlsVersion::V12 => &[&TLS12],
        TlsVersion::V13 => &[&TLS13],
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("ring has suites of both versions");
    let builder = match &plan.cacert {
        _ if plan.insecure => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyCertificate(provider)))
        }
        None => builder.with_root_certificates(roots_of_the_system()?),
        Some(file) => {
            let given = certificates(file, "--cacert")?;
            let refuse =
                |error: &dyn std::fmt::Display| TestbedError::Plan(format!("--cacert {}: {error}", file.display()));
            let mut roots = RootCertStore::empty();
            for certificate in &given {
                roots.add(certificate.clone()).map_err(|error| refuse(&error))?;
            }
            let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| refuse(&error))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(TrustGivenCertificates { authorities, given }))
        }
    };
    let mut config = match &plan.cert {
        None => builder.with_no_client_auth(),
        Some(cert) => {
            let key = plan.key.as_ref().unwrap_or(cert);
            let chain = certificates(cert, "--cert")?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                let words = match is_encrypted(key) {
                    true => {
                        "the key is encrypted; decrypt it into a file of its own: openssl pkey -in FILE -out KEY".into()
                    }
                    false => pem_error_text(&error, "private key"),
                };
                TestbedError::Plan(format!("--key {}: {words}", key.display()))
            })?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| TestbedError::Plan(format!("--cert {}: {error}", cert.display())))?
        }
    };
    config.resumption = Resumption::disabled();
    if plan.alpn != Alpn::None {
        config.alpn_protocols = vec![plan.alpn.name().into()];
    }
    Ok(config)
}

/// ring, with AES-128 before the other cipher suites, as Chromium and Firefox offer them on processors with AES.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !FIRST.contains(&suite.suite()));
    provider
}

const FIRST: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

fn roots_of_the_system() -> Result<RootCertStore, TestbedError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(TestbedError::Environment(format!(
            "this system has no readable root certificates{why}, so no server certificate can be verified: \
             install them (ca-certificates), give the server's authority with --cacert FILE, or disable verification with -k"
        )));
    }
    Ok(roots)
}

fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, TestbedError> {
    let refuse = |error: &rustls_pki_types::pem::Error| {
        TestbedError::Plan(format!("{option} {}: {}", file.display(), pem_error_text(error, "certificate")))
    };
    let found: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| refuse(&error))?;
    if found.is_empty() {
        return Err(refuse(&rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Whether a file has an encrypted private key, in either of OpenSSL's forms.
fn is_encrypted(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn pem_error_text(error: &rustls_pki_types::pem::Error, expected: &str) -> String {
    match error {
        rustls_pki_types::pem::Error::Io(error) => error.to_string(),
        rustls_pki_types::pem::Error::NoItemsFound => format!("the file has no {expected} in PEM form"),
        error => format!("the file is not valid PEM: {error}"),
    }
}
