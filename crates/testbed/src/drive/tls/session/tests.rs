//! Sessions against rustls' own server, in memory, with bytes split at arbitrary places.

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
struct World {
    config: Arc<ServerConfig>,
    authority: PathBuf,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(version: &'static SupportedProtocolVersion) -> World {
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
        World { config: Arc::new(config), authority: file, _folder: folder }
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
struct Heard {
    plain: Vec<u8>,
    secured: u32,
    close_notify: u32,
}

/// Passes these bytes to a session, in pieces of this length.
fn hear(session: &mut Session, bytes: &[u8], at_a_time: usize, heard: &mut Heard) -> Result<(), Error> {
    let mut buffer = vec![0; READ_BUFFER];
    for part in bytes.chunks(at_a_time.max(1)) {
        let before = session.lay_out(&mut buffer);
        buffer[before..before + part.len()].copy_from_slice(part);
        session.receive(&mut buffer[..before + part.len()], |news| match news {
            News::Secured => heard.secured += 1,
            News::Plain(bytes) => heard.plain.extend_from_slice(bytes),
            News::CloseNotify => heard.close_notify += 1,
        })?;
    }
    Ok(())
}

/// The output of a session, as if the kernel had taken it.
fn written(session: &mut Session) -> Vec<u8> {
    session.written = 0;
    std::mem::take(&mut session.outgoing)
}

fn said(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn tell(server: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
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
fn shake_hands(session: &mut Session, server: &mut ServerConnection, at_a_time: usize) -> Result<Heard, Error> {
    let mut heard = Heard::default();
    session.begin()?;
    loop {
        let up = written(session);
        if !up.is_empty() {
            tell(server, &up);
        }
        let down = said(server);
        if up.is_empty() && down.is_empty() {
            return Ok(heard);
        }
        hear(session, &down, at_a_time, &mut heard)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Both sides get the other's data however it is split, in both versions.
    #[test]
    fn tls_data_does_not_depend_on_how_bytes_are_split(
        old: bool,
        at_a_time in prop_oneof![1usize..40, 1usize..20_000],
        request in 1usize..100_000,
        response in 1usize..100_000,
    ) {
        let world = World::new(if old { &TLS12 } else { &TLS13 });
        let (mut client, mut server) = (world.client(), world.server());
        let mut session = client.session(0, 0).unwrap();
        let mut heard = shake_hands(&mut session, &mut server, at_a_time).unwrap();
        prop_assert_eq!((heard.secured, heard.plain.len(), session.secured()), (1, 0, true));

        let asked: Vec<u8> = (0..request).map(|i| (i % 251) as u8).collect();
        let mut got = Vec::new();
        for part in asked.chunks(64 << 10) {
            session.seal(part).unwrap();
            prop_assert_eq!(session.take_sent(), 0, "nothing was written yet");
            got.extend(tell(&mut server, &written(&mut session)));
            prop_assert_eq!(session.take_sent(), part.len());
        }
        prop_assert_eq!(got, asked);

        let answer: Vec<u8> = (0..response).map(|i| (i % 241) as u8).collect();
        for part in answer.chunks(10_000) {
            server.writer().write_all(part).unwrap();
            hear(&mut session, &said(&mut server), at_a_time, &mut heard).unwrap();
        }
        prop_assert_eq!(&heard.plain, &answer);
        server.send_close_notify();
        hear(&mut session, &said(&mut server), at_a_time, &mut heard).unwrap();
        prop_assert_eq!((heard.secured, heard.close_notify, session.closed_by_peer()), (1, 1, true));
    }
}

/// A ticket that is half received when a request is sent is neither lost nor misread.
#[test]
fn a_request_may_be_sent_while_a_record_is_incomplete() {
    let world = World::new(&TLS13);
    let (mut client, mut server) = (world.client(), world.server());
    let mut session = client.session(0, 0).unwrap();
    session.begin().unwrap();
    let mut heard = Heard::default();
    tell(&mut server, &written(&mut session));
    hear(&mut session, &said(&mut server), usize::MAX, &mut heard).unwrap();
    tell(&mut server, &written(&mut session));
    let tickets = said(&mut server);
    for at in 0..tickets.len() {
        hear(&mut session, &tickets[at..=at], 1, &mut heard).unwrap();
        session.seal(b"x").unwrap();
        assert_eq!(tell(&mut server, &written(&mut session)), b"x");
        assert_eq!(session.take_sent(), 1);
    }
    server.writer().write_all(b"hello").unwrap();
    hear(&mut session, &said(&mut server), 1, &mut heard).unwrap();
    assert_eq!(heard.plain, b"hello");
    let again = shake_hands(&mut client.session(0, 0).unwrap(), &mut world.server(), usize::MAX).unwrap();
    assert_eq!(again.secured, 1);
}

#[test]
fn a_client_resumes_only_its_own_sessions() {
    for version in [&TLS12, &TLS13] {
        let world = World::new(version);
        let mut client = world.client();
        let kind = |who: u32, client: &mut Tls| {
            let mut session = client.session(who, 0).unwrap();
            shake_hands(&mut session, &mut world.server(), usize::MAX).unwrap();
            client.secured(&session);
            session.settled().0
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

        let mut forgetful = Tls::new(&TlsPlan { resumption: false, ..world.plan() }, NAME).unwrap();
        assert_eq!((kind(7, &mut forgetful), kind(7, &mut forgetful)), (full, full));
    }
}

/// Error of a handshake, cause for the core, and text.
fn refusal(world: &World, plan: TlsPlan, host: &str) -> (FailureCause, String) {
    let mut client = Tls::new(&plan, host).unwrap();
    let mut session = client.session(0, 0).unwrap();
    let mut server = world.server();
    session.begin().unwrap();
    let mut bytes = &written(&mut session)[..];
    server.read_tls(&mut bytes).unwrap();
    let _ = server.process_new_packets();
    let error = hear(&mut session, &said(&mut server), usize::MAX, &mut Heard::default()).unwrap_err();
    let cause = client.failed(&error, session.secured());
    (cause, client.document().first_failure.unwrap())
}

#[test]
fn certificates_are_refused_with_the_reason() {
    let world = World::new(&TLS13);
    let (cause, words) = refusal(&world, world.plan(), "other.example");
    assert_eq!(cause, FailureCause::TlsCertificate);
    assert!(words.contains("another name") && words.contains("shop.example") && words.contains("--sni"), "{words}");

    let other_authority = World::new(&TLS13);
    let (cause, words) = refusal(&world, other_authority.plan(), NAME);
    assert_eq!(cause, FailureCause::TlsCertificate);
    assert!(words.contains("--cacert") && words.contains("-k"), "{words}");

    // Without verification both are accepted.
    for host in [NAME, "other.example", "198.18.0.1"] {
        let plan = TlsPlan { insecure: true, ..TlsPlan::default() };
        let mut session = Tls::new(&plan, host).unwrap().session(0, 0).unwrap();
        assert_eq!(shake_hands(&mut session, &mut world.server(), usize::MAX).unwrap().secured, 1);
    }
    // The certificate's own name is accepted for any host.
    let named = TlsPlan { sni: Some(NAME.into()), ..world.plan() };
    let mut session = Tls::new(&named, "198.18.0.1").unwrap().session(0, 0).unwrap();
    assert_eq!(shake_hands(&mut session, &mut world.server(), usize::MAX).unwrap().secured, 1);
}

/// The output of `openssl req -x509`: an authority's certificate, used as the server's own.
#[test]
fn a_self_signed_authority_certificate_is_accepted_as_cacert() {
    let mut world = World::new(&TLS13);
    let self_signed = |world: &mut World, from: i32, to: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![NAME.into()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(&world.authority, certificate.pem()).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        world.config = Arc::new(config);
    };
    self_signed(&mut world, 2020, 4000);
    let mut session = world.client().session(0, 0).unwrap();
    assert_eq!(shake_hands(&mut session, &mut world.server(), usize::MAX).unwrap().secured, 1);
    // Name and dates still count, and no other certificate of the kind is accepted.
    let (cause, words) = refusal(&world, world.plan(), "other.example");
    assert!(cause == FailureCause::TlsCertificate && words.contains("another name"), "{words}");
    let (cause, words) = refusal(&world, World::new(&TLS13).plan(), NAME);
    assert!(cause == FailureCause::TlsCertificate && words.contains("openssl req -x509"), "{words}");
    self_signed(&mut world, 2020, 2021);
    let (cause, words) = refusal(&world, world.plan(), NAME);
    assert!(cause == FailureCause::TlsCertificate && words.contains("expired"), "{words}");
}

#[test]
fn no_common_tls_parameters_is_a_failed_handshake() {
    let world = World::new(&TLS12);
    let (cause, words) = refusal(&world, TlsPlan { version: TlsVersion::V13, ..world.plan() }, NAME);
    assert_eq!(cause, FailureCause::TlsHandshake);
    assert!(words.contains("--tls-version"), "{words}");
    let (cause, words) = refusal(&world, TlsPlan { alpn: Alpn::Http10, ..world.plan() }, NAME);
    assert_eq!(cause, FailureCause::TlsHandshake);
    assert!(words.contains("--alpn"), "{words}");
}

#[test]
fn data_other_than_tls_is_a_failed_handshake_with_an_alert() {
    let world = World::new(&TLS13);
    let mut client = world.client();
    let mut session = client.session(0, 0).unwrap();
    session.begin().unwrap();
    written(&mut session);
    let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let error = hear(&mut session, answer, usize::MAX, &mut Heard::default()).unwrap_err();
    assert_eq!(client.failed(&error, session.secured()), FailureCause::TlsHandshake);
    assert!(client.document().first_failure.unwrap().contains("is not TLS"));
    assert_eq!(written(&mut session)[0], 21, "an alert");
}

#[test]
fn a_broken_record_after_the_handshake_has_its_own_cause() {
    let world = World::new(&TLS13);
    let (mut client, mut server) = (world.client(), world.server());
    let mut session = client.session(0, 0).unwrap();
    let mut heard = shake_hands(&mut session, &mut server, usize::MAX).unwrap();
    server.writer().write_all(b"hello").unwrap();
    let mut record = said(&mut server);
    *record.last_mut().unwrap() ^= 1;
    let error = hear(&mut session, &record, usize::MAX, &mut heard).unwrap_err();
    assert_eq!(client.failed(&error, session.secured()), FailureCause::TlsBroken);
    assert!(heard.plain.is_empty());
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
