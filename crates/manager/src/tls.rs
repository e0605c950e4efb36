//! The server certificate: configured, or created by the manager.
//!
//! The manager creates two: an authority (`DATA/ca.pem`), which agents trust with `--ca` and which stays, and a
//! certificate signed by it for the manager's host names. If the names change, the certificate is created again, and
//! agents need no other file.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serve::Tls;

use crate::data::Data;
use crate::error::{Error, Result};

/// The served certificate, and what agents need to trust it.
#[derive(Debug)]
pub struct ServedCertificate {
    /// Certificate and key; its files can be read again.
    pub tls: Tls,
    /// What agents must trust: the authority's certificate, or the first configured one.
    pub trusted: PathBuf,
    /// SHA-256 of that certificate, as `openssl x509 -fingerprint -sha256` writes it.
    pub fingerprint: String,
}

/// A configured certificate and key.
///
/// # Errors
/// The files cannot be read, or are invalid.
pub fn configured(certificate: &Path, key: &Path) -> Result<ServedCertificate> {
    let tls = Tls::load(certificate, key)?;
    Ok(ServedCertificate { tls, trusted: certificate.to_owned(), fingerprint: fingerprint(certificate)? })
}

/// The manager's own certificate for these names (host names and addresses); created if missing or if it lacks a
/// name.
///
/// # Errors
/// A name is invalid, the files cannot be written, or existing ones cannot be read.
pub fn create_or_load(data: &Data, names: &[String], now_ns: u64) -> Result<ServedCertificate> {
    let folder = data.folder();
    let [ca, ca_key, certificate, key] =
        ["ca.pem", "ca-key.pem", "certificate.pem", "key.pem"].map(|name| folder.join(name));
    let has = |paths: &[&PathBuf]| paths.iter().all(|path| path.exists());
    if !has(&[&ca, &ca_key]) {
        let generated = KeyPair::generate()?;
        write(&ca_key, generated.serialize_pem().as_bytes(), 0o600)?;
        write(&ca, authority(now_ns)?.self_signed(&generated)?.pem().as_bytes(), 0o644)?;
        data.set_fact(NAMES_FACT, "")?;
    }
    let stored_names = data.fact(NAMES_FACT)?.unwrap_or_default();
    let stored_names: Vec<&str> = stored_names.lines().collect();
    if !has(&[&certificate, &key]) || !names.iter().all(|name| stored_names.contains(&name.as_str())) {
        let text = fs::read_to_string(&ca_key).map_err(|source| Error::io("read", &ca_key, source))?;
        let issuer = Issuer::new(authority(now_ns)?, KeyPair::from_pem(&text)?);
        let generated = KeyPair::generate()?;
        let signed = leaf(names, now_ns)?.signed_by(&generated, &issuer)?;
        write(&key, generated.serialize_pem().as_bytes(), 0o600)?;
        write(&certificate, signed.pem().as_bytes(), 0o644)?;
        data.set_fact(NAMES_FACT, &names.join("\n"))?;
    }
    Ok(ServedCertificate { tls: Tls::load(&certificate, &key)?, fingerprint: fingerprint(&ca)?, trusted: ca })
}

/// Parameters of the authority. A signature with its key needs the same name again.
fn authority(now_ns: u64) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Yamabiko manager");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    with_validity(params, now_ns)
}

fn leaf(names: &[String], now_ns: u64) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Yamabiko manager's server certificate");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    with_validity(params, now_ns)
}

/// Valid from two days ago, since an agent's clock may be behind, for about ten years.
fn with_validity(mut params: CertificateParams, now_ns: u64) -> Result<CertificateParams> {
    let since = UNIX_EPOCH + Duration::from_nanos(now_ns).saturating_sub(Duration::from_secs(2 * 86_400));
    let text = store::rfc3339(since);
    let number = |from: usize, to: usize| text[from..to].parse::<u16>().unwrap_or(1);
    let (year, month, day) = (number(0, 4), number(5, 7) as u8, number(8, 10) as u8);
    params.not_before = date_time_ymd(year.into(), month, day);
    // The first of a month exists in every year.
    params.not_after = date_time_ymd(i32::from(year) + VALIDITY_YEARS, month, 1);
    Ok(params)
}

fn fingerprint(file: &Path) -> Result<String> {
    let unreadable = |error: rustls_pki_types::pem::Error| Error::Refused(format!("{}: {error}", file.display()));
    let certificate = CertificateDer::from_pem_file(file).map_err(unreadable)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
    Ok(digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
}

/// Writes a file durably, under another name, and renames it.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let unfinished_path = path.with_extension("unfinished");
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&unfinished_path).and_then(
            |mut file| {
                file.write_all(bytes)?;
                file.sync_all()?;
                fs::rename(&unfinished_path, path)?;
                File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
            },
        );
    written.map_err(|source| Error::io("write", path, source))
}

/// The fact with the names of the certificate.
const NAMES_FACT: &str = "certificate_names";
/// Validity of a created certificate.
const VALIDITY_YEARS: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_ca_is_kept_and_the_certificate_follows_the_host_names() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        let now = 1_795_402_800_000_000_000;
        let first = create_or_load(&data, &names(&["localhost", "192.0.2.7", "::1"]), now).unwrap();
        let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
        let (ca, certificate) = (read("ca.pem"), read("certificate.pem"));
        let again = create_or_load(&data, &names(&["localhost"]), now).unwrap();
        assert_eq!((read("ca.pem"), read("certificate.pem")), (ca.clone(), certificate.clone()));
        assert_eq!(again.fingerprint, first.fingerprint);
        create_or_load(&data, &names(&["localhost", "manager.example"]), now).unwrap();
        assert!(read("ca.pem") == ca && read("certificate.pem") != certificate);
        assert_eq!(first.tls.doubt(now / 1_000_000_000), None);
        // Two days ago it is valid, three days ago it is not.
        assert_eq!(first.tls.doubt(now / 1_000_000_000 - 2 * 86_400), None);
        assert!(first.tls.doubt(now / 1_000_000_000 - 3 * 86_400).is_some());
        for secret in ["ca-key.pem", "key.pem"] {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(folder.path().join(secret)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(
            create_or_load(&data, &names(&["no name"]), now).is_err()
                || create_or_load(&data, &names(&["é"]), now).is_err()
        );
    }

    #[test]
    fn configured_certificate_files_are_served_or_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        let generated = create_or_load(&data, &names(&["localhost"]), 1_795_402_800_000_000_000).unwrap();
        let at = |name: &str| folder.path().join(name);
        let served = configured(&at("certificate.pem"), &at("key.pem")).unwrap();
        assert_ne!(served.fingerprint, generated.fingerprint);
        let error = configured(&at("certificate.pem"), &at("ca-key.pem")).unwrap_err().to_string();
        assert!(error.contains("ca-key.pem"), "{error}");
    }
}
