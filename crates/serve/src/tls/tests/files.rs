//! Valid and invalid certificate and key files.

use std::fs;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::version::TLS13;

use super::super::{Tls, TlsError};
use super::{Pair, TlsPair};

/// Unix time of 2026-01-01.
const NEW_YEAR_2026_S: u64 = 1_767_225_600;

#[test]
fn keys_in_pkcs8_sec1_and_rsa_form_are_read() {
    let pair = Pair::new();
    for (form, key, certificate) in [
        ("SEC1", include_str!("pems/sec1.key"), include_str!("pems/sec1.pem")),
        ("PKCS#1", include_str!("pems/rsa.key"), include_str!("pems/rsa.pem")),
    ] {
        fs::write(pair.file("key.pem"), key).unwrap();
        fs::write(pair.file("cert.pem"), certificate).unwrap();
        let tls = pair.load();
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[&TLS13], &[]));
        tls_pair.settle(usize::MAX);
        assert!(tls_pair.server.established(), "{form}");
    }
}

#[test]
fn certificate_and_key_may_be_in_one_file() {
    let pair = Pair::new();
    let key_and_certificate =
        fs::read_to_string(pair.file("key.pem")).unwrap() + &fs::read_to_string(pair.file("cert.pem")).unwrap();
    fs::write(pair.file("both.pem"), key_and_certificate).unwrap();
    Tls::load(&pair.file("both.pem"), &pair.file("both.pem")).unwrap();
}

#[test]
fn unusable_files_are_named_with_the_reason() {
    let pair = Pair::new();
    let words =
        |certificate: &str, key: &str| Tls::load(&pair.file(certificate), &pair.file(key)).unwrap_err().to_string();
    assert!(words("none.pem", "key.pem").contains("none.pem: No such file"));
    assert!(words("cert.pem", "none.key").contains("none.key: No such file"));
    let swapped = words("key.pem", "cert.pem");
    assert!(swapped.contains("key.pem: it contains a private key and no certificate"), "{swapped}");
    assert!(words("cert.pem", "cert.pem").contains("cert.pem: it contains no private key"));
    fs::write(pair.file("empty.pem"), "").unwrap();
    assert!(words("empty.pem", "key.pem").contains("empty.pem: it contains no certificate in PEM form"));
    fs::write(pair.file("half.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    assert!(words("half.pem", "key.pem").contains("half.pem: not valid PEM"));
    let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(pair.file("noise.pem"), noise).unwrap();
    let unusable = words("noise.pem", "key.pem");
    assert!(unusable.contains("noise.pem: its first certificate is unusable"), "{unusable}");
    let secret = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(pair.file("secret.key"), secret).unwrap();
    assert!(words("cert.pem", "secret.key").contains("openssl pkey"));
    let other = Pair::new();
    let mixed = Tls::load(&pair.file("cert.pem"), &other.file("key.pem")).unwrap_err();
    assert!(matches!(mixed, TlsError::Mismatch { .. }), "{mixed}");
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let pair = Pair::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["server".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = date_time_ymd(2026, 1, 1);
    fs::write(pair.file("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(pair.file("key.pem"), key.serialize_pem()).unwrap();
    let tls = pair.load();
    assert_eq!(tls.doubt(NEW_YEAR_2026_S), None);
    let late = tls.doubt(NEW_YEAR_2026_S + 3 * 86_400 + 1).unwrap();
    assert!(late.contains("cert.pem: the certificate expired 3 days ago"), "{late}");
    let early = tls.doubt(NEW_YEAR_2026_S - 3 * 366 * 86_400).unwrap();
    assert!(early.contains("becomes valid in"), "{early}");
}

#[test]
fn a_reload_replaces_the_certificate_and_a_failed_reload_keeps_the_old_one() {
    let pair = Pair::new();
    let tls = pair.load();
    // One client each, so that none of them resumes a session and sees no certificate.
    let before = [pair.client(&[&TLS13], &[]), pair.client(&[&TLS13], &[])];
    pair.renew();
    let after = pair.client(&[&TLS13], &[]);
    TlsPair::new(&tls, before[0].clone()).settle(usize::MAX);
    tls.reload().unwrap();
    TlsPair::new(&tls, after.clone()).settle(usize::MAX);
    let mut refused = TlsPair::new(&tls, before[1].clone());
    let hello = refused.client_bytes();
    refused.deliver_to_server(&hello).unwrap();
    assert!(refused.deliver_to_client().is_err());
    fs::write(pair.file("key.pem"), "").unwrap();
    tls.reload().unwrap_err();
    TlsPair::new(&tls, after).settle(usize::MAX);
}
