//! Sessions against rustls' own server, in memory, with bytes split at arbitrary positions.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use rcgen::{CertificateParams, CertifiedKey, DistinguishedName, DnType, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use schema::FailureCause;

use super::*;
use crate::drive::tls::Tls;
use plan::{Alpn, TlsPlan, TlsVersion};

const NAME: &str = "shop.example";

static AUTHORITIES: AtomicU32 = AtomicU32::new(0);

/// A server of one version, and the file with its authority's certificate.
struct TestServer {
    config: Arc<ServerConfig>,
    authority: PathBuf,
    _folder: tempfile::TempDir,
}

impl TestServer {
    fn new(version: &'static SupportedProtocolVersion) -> TestServer {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        // Two authorities of one name would differ by their signatures only.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![NAME.into()]).unwrap().signed_by(&own, &issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, authority.pem()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::Pkcs8(own.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if version.version == TLS12.version {
            config.ticketer = ring::Ticketer::new().unwrap();
        }
        TestServer { config: Arc::new(config), authority: file, _folder: folder }
    }

    fn plan(&self) -> TlsPlan {
        TlsPlan { cacert: Some(self.authority.clone()), ..TlsPlan::default() }
    }

    fn client(&self) -> Tls {
        Tls::new(&self.plan(), NAME).unwrap()
    }

    fn server(&self) -> ServerConnection {
        ServerConnection::new(Arc::clone(&self.config)).unwrap()
    }
}

/// Events of a session.
#[derive(Debug, Default)]
struct Received {
    plain: Vec<u8>,
    secured: u32,
    close_notify: u32,
}

/// Passes these bytes to a session, in pieces of this length.
fn receive_in_parts(
    session: &mut Session,
    bytes: &[u8],
    at_a_time: usize,
    received: &mut Received,
) -> Result<(), Error> {
    let mut buffer = vec![0; READ_BUFFER];
    for part in bytes.chunks(at_a_time.max(1)) {
        let before = session.copy_incomplete_to(&mut buffer);
        buffer[before..before + part.len()].copy_from_slice(part);
        session.receive(&mut buffer[..before + part.len()], |event| match event {
            TlsEvent::Secured => received.secured += 1,
            TlsEvent::Plain(bytes) => received.plain.extend_from_slice(bytes),
            TlsEvent::CloseNotify => received.close_notify += 1,
        })?;
    }
    Ok(())
}

/// The output of a session, as if the kernel had taken it.
fn written(session: &mut Session) -> Vec<u8> {
    session.written = 0;
    std::mem::take(&mut session.outgoing)
}

fn server_output(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn pass_to_server(server: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        server.process_new_packets().unwrap();
        let mut part = vec![0; 1 << 16];
        while let Ok(length @ 1..) = server.reader().read(&mut part) {
            plain.extend_from_slice(&part[..length]);
        }
    }
    plain
}

/// Exchanges data until neither side has output.
fn handshake(session: &mut Session, server: &mut ServerConnection, at_a_time: usize) -> Result<Received, Error> {
    let mut received = Received::default();
    session.begin()?;
    loop {
        let up = written(session);
        if !up.is_empty() {
            pass_to_server(server, &up);
        }
        let down = server_output(server);
        if up.is_empty() && down.is_empty() {
            return Ok(received);
        }
        receive_in_parts(session, &down, at_a_time, &mut received)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Both sides receive the other's data however it is split, in both TLS versions.
    #[test]
    fn tls_data_does_not_depend_on_how_bytes_are_split(
        tls12: bool,
        at_a_time in prop_oneof![1usize..40, 1usize..20_000],
        request in 1usize..100_000,
        response in 1usize..100_000,
    ) {
        let test_server = TestServer::new(if tls12 { &TLS12 } else { &TLS13 });
        let (mut client, mut server) = (test_server.client(), test_server.server());
        let mut session = client.session(0, 0).unwrap();
        let mut received = handshake(&mut session, &mut server, at_a_time).unwrap();
        prop_assert_eq!((received.secured, received.plain.len(), session.secured()), (1, 0, true));

        let request_bytes: Vec<u8> = (0..request).map(|i| (i % 251) as u8).collect();
        let mut received_by_server = Vec::new();
        for part in request_bytes.chunks(64 << 10) {
            session.seal(part).unwrap();
            prop_assert_eq!(session.take_sent(), 0, "nothing was written yet");
            received_by_server.extend(pass_to_server(&mut server, &written(&mut session)));
            prop_assert_eq!(session.take_sent(), part.len());
        }
        prop_assert_eq!(received_by_server, request_bytes);

        let response_bytes: Vec<u8> = (0..response).map(|i| (i % 241) as u8).collect();
        for part in response_bytes.chunks(10_000) {
            server.writer().write_all(part).unwrap();
            receive_in_parts(&mut session, &server_output(&mut server), at_a_time, &mut received).unwrap();
        }
        prop_assert_eq!(&received.plain, &response_bytes);
        server.send_close_notify();
        receive_in_parts(&mut session, &server_output(&mut server), at_a_time, &mut received).unwrap();
        prop_assert_eq!((received.secured, received.close_notify, session.closed_by_peer()), (1, 1, true));
    }
}

/// A ticket that is half received when a request is sent is neither lost nor misread.
#[test]
fn a_request_may_be_sent_while_a_record_is_incomplete() {
    let test_server = TestServer::new(&TLS13);
    let (mut client, mut server) = (test_server.client(), test_server.server());
    let mut session = client.session(0, 0).unwrap();
    session.begin().unwrap();
    let mut received = Received::default();
    pass_to_server(&mut server, &written(&mut session));
    receive_in_parts(&mut session, &server_output(&mut server), usize::MAX, &mut received).unwrap();
    pass_to_server(&mut server, &written(&mut session));
    let tickets = server_output(&mut server);
    for at in 0..tickets.len() {
        receive_in_parts(&mut session, &tickets[at..=at], 1, &mut received).unwrap();
        session.seal(b"x").unwrap();
        assert_eq!(pass_to_server(&mut server, &written(&mut session)), b"x");
        assert_eq!(session.take_sent(), 1);
    }
    server.writer().write_all(b"hello").unwrap();
    receive_in_parts(&mut session, &server_output(&mut server), 1, &mut received).unwrap();
    assert_eq!(received.plain, b"hello");
    let resumed = handshake(&mut client.session(0, 0).unwrap(), &mut test_server.server(), usize::MAX).unwrap();
    assert_eq!(resumed.secured, 1);
}

#[test]
fn a_client_resumes_only_its_own_sessions() {
    for version in [&TLS12, &TLS13] {
        let test_server = TestServer::new(version);
        let mut client = test_server.client();
        let kind = |client_number: u32, client: &mut Tls| {
            let mut session = client.session(client_number, 0).unwrap();
            handshake(&mut session, &mut test_server.server(), usize::MAX).unwrap();
            client.secured(&session);
            session.negotiated().0
        };
        let (full, resumed) = (Some(HandshakeKind::Full), Some(HandshakeKind::Resumed));
        assert_eq!(kind(7, &mut client), full);
        assert_eq!(kind(7, &mut client), resumed);
        assert_eq!(kind(3, &mut client), full, "the ticket was client 7's");
        assert_eq!(kind(7, &mut client), resumed);
        let facts = client.document();
        assert_eq!((facts.handshakes_full, facts.handshakes_resumed, facts.resumed_share), (2, 2, Some(0.5)));
        assert_eq!(facts.version.len(), 1, "{facts:?}");
        assert_eq!(facts.alpn["http/1.1"], 4);
        assert!(facts.cipher_suite.keys().all(|suite| suite.starts_with("TLS_")), "{facts:?}");

        let mut without_resumption = Tls::new(&TlsPlan { resumption: false, ..test_server.plan() }, NAME).unwrap();
        assert_eq!((kind(7, &mut without_resumption), kind(7, &mut without_resumption)), (full, full));
    }
}

/// Error of a handshake, cause for the core, and text.
fn refusal(test_server: &TestServer, plan: TlsPlan, host: &str) -> (FailureCause, String) {
    let mut client = Tls::new(&plan, host).unwrap();
    let mut session = client.session(0, 0).unwrap();
    let mut server = test_server.server();
    session.begin().unwrap();
    let mut bytes = &written(&mut session)[..];
    server.read_tls(&mut bytes).unwrap();
    let _ = server.process_new_packets();
    let error =
        receive_in_parts(&mut session, &server_output(&mut server), usize::MAX, &mut Received::default()).unwrap_err();
    let cause = client.failed(&error, session.secured());
    (cause, client.document().first_failure.unwrap())
}

#[test]
fn certificates_are_refused_with_the_reason() {
    let test_server = TestServer::new(&TLS13);
    let (cause, words) = refusal(&test_server, test_server.plan(), "other.example");
    assert_eq!(cause, FailureCause::TlsCertificate);
    assert!(words.contains("another name") && words.contains("shop.example") && words.contains("--sni"), "{words}");

    let other_authority = TestServer::new(&TLS13);
    let (cause, words) = refusal(&test_server, other_authority.plan(), NAME);
    assert_eq!(cause, FailureCause::TlsCertificate);
    assert!(words.contains("--cacert") && words.contains("-k"), "{words}");

    // Without verification both are accepted.
    for host in [NAME, "other.example", "198.18.0.1"] {
        let plan = TlsPlan { insecure: true, ..TlsPlan::default() };
        let mut session = Tls::new(&plan, host).unwrap().session(0, 0).unwrap();
        assert_eq!(handshake(&mut session, &mut test_server.server(), usize::MAX).unwrap().secured, 1);
    }
    // The certificate's own name is accepted for any host.
    let named = TlsPlan { sni: Some(NAME.into()), ..test_server.plan() };
    let mut session = Tls::new(&named, "198.18.0.1").unwrap().session(0, 0).unwrap();
    assert_eq!(handshake(&mut session, &mut test_server.server(), usize::MAX).unwrap().secured, 1);
}

/// The output of `openssl req -x509`: an authority's certificate, used as the server's own.
#[test]
fn a_self_signed_authority_certificate_is_accepted_as_cacert() {
    let mut test_server = TestServer::new(&TLS13);
    let self_signed = |test_server: &mut TestServer, from: i32, to: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![NAME.into()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(&test_server.authority, certificate.pem()).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        test_server.config = Arc::new(config);
    };
    self_signed(&mut test_server, 2020, 4000);
    let mut session = test_server.client().session(0, 0).unwrap();
    assert_eq!(handshake(&mut session, &mut test_server.server(), usize::MAX).unwrap().secured, 1);
    // Name and dates still count, and no other certificate of the kind is accepted.
    let (cause, words) = refusal(&test_server, test_server.plan(), "other.example");
    assert!(cause == FailureCause::TlsCertificate && words.contains("another name"), "{words}");
    let (cause, words) = refusal(&test_server, TestServer::new(&TLS13).plan(), NAME);
    assert!(cause == FailureCause::TlsCertificate && words.contains("openssl req -x509"), "{words}");
    self_signed(&mut test_server, 2020, 2021);
    let (cause, words) = refusal(&test_server, test_server.plan(), NAME);
    assert!(cause == FailureCause::TlsCertificate && words.contains("expired"), "{words}");
}

#[test]
fn no_common_tls_parameters_is_a_failed_handshake() {
    let test_server = TestServer::new(&TLS12);
    let (cause, words) = refusal(&test_server, TlsPlan { version: TlsVersion::V13, ..test_server.plan() }, NAME);
    assert_eq!(cause, FailureCause::TlsHandshake);
    assert!(words.contains("--tls-version"), "{words}");
    let (cause, words) = refusal(&test_server, TlsPlan { alpn: Alpn::Http10, ..test_server.plan() }, NAME);
    assert_eq!(cause, FailureCause::TlsHandshake);
    assert!(words.contains("--alpn"), "{words}");
}

#[test]
fn data_other_than_tls_is_a_failed_handshake_with_an_alert() {
    let test_server = TestServer::new(&TLS13);
    let mut client = test_server.client();
    let mut session = client.session(0, 0).unwrap();
    session.begin().unwrap();
    written(&mut session);
    let response_bytes = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let error = receive_in_parts(&mut session, response_bytes, usize::MAX, &mut Received::default()).unwrap_err();
    assert_eq!(client.failed(&error, session.secured()), FailureCause::TlsHandshake);
    assert!(client.document().first_failure.unwrap().contains("is not TLS"));
    assert_eq!(written(&mut session)[0], 21, "an alert");
}

#[test]
fn a_broken_record_after_the_handshake_has_its_own_cause() {
    let test_server = TestServer::new(&TLS13);
    let (mut client, mut server) = (test_server.client(), test_server.server());
    let mut session = client.session(0, 0).unwrap();
    let mut received = handshake(&mut session, &mut server, usize::MAX).unwrap();
    server.writer().write_all(b"hello").unwrap();
    let mut record = server_output(&mut server);
    *record.last_mut().unwrap() ^= 1;
    let error = receive_in_parts(&mut session, &record, usize::MAX, &mut received).unwrap_err();
    assert_eq!(client.failed(&error, session.secured()), FailureCause::TlsBroken);
    assert!(received.plain.is_empty());
}

#[test]
fn unusable_certificate_files_are_named_with_their_option() {
    let folder = tempfile::tempdir().unwrap();
    let (none, empty) = (folder.path().join("none.pem"), folder.path().join("empty.pem"));
    std::fs::write(&empty, "nothing\n").unwrap();
    let refused = |plan: TlsPlan| Tls::new(&plan, NAME).err().expect("refused").to_string();
    let cacert = |file: &PathBuf| refused(TlsPlan { cacert: Some(file.clone()), ..TlsPlan::default() });
    assert!(cacert(&none).starts_with("--cacert") && cacert(&none).contains("No such file"), "{}", cacert(&none));
    assert!(cacert(&empty).contains("no certificate"), "{}", cacert(&empty));

    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let (chain, key) = (folder.path().join("me.pem"), folder.path().join("me.key"));
    std::fs::write(&chain, cert.pem()).unwrap();
    std::fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let own = |cert: &PathBuf, key: Option<&PathBuf>| TlsPlan {
        insecure: true,
        cert: Some(cert.clone()),
        key: key.cloned(),
        ..TlsPlan::default()
    };
    assert!(refused(own(&chain, None)).contains("--key"));
    assert!(refused(own(&chain, Some(&key))).starts_with("--cert"), "{}", refused(own(&chain, Some(&key))));
    std::fs::write(&chain, cert.pem() + &signing_key.serialize_pem()).unwrap();
    assert!(Tls::new(&own(&chain, None), NAME).is_ok(), "both in one file");
}
