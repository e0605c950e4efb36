//! TLS connections whose client reports its secrets when it has them: half a round trip after the capture at the
//! server's end has the server's first message.

#[path = "support/packets.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion, version,
};
use support::*;
use watch::{Limits, Watch, WatchSpec};
use wire::link::LinkType;

const NAME: &str = "shop.example";
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";

/// A label, the client's random, a secret.
type Secret = (String, [u8; 32], Vec<u8>);

/// Secrets in the order of their reports.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<Secret>>);

impl rustls::KeyLog for Reports {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let random = client_random.try_into().expect("a random has 32 bytes");
        self.0.lock().unwrap().push((label.to_owned(), random, secret.to_vec()));
    }
}

/// What the capture and the client say, in order.
enum Step {
    Packet(bool, Vec<u8>),
    Secret(Secret),
}

/// A connection with one request. The client reports its secrets as it reads what the server sent: after it was captured.
fn connection(version: &'static SupportedProtocolVersion) -> Vec<Step> {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let reports = Arc::new(Reports::default());
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.key_log = Arc::clone(&reports) as Arc<dyn rustls::KeyLog>;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::Pkcs8(signing_key.serialize_der().into()))
        .unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    client.writer().write_all(REQUEST).unwrap();
    let (mut steps, mut has_answered) = (Vec::new(), false);
    loop {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut up).unwrap();
        }
        steps.extend(reports.0.lock().unwrap().drain(..).map(Step::Secret));
        steps.push(Step::Packet(CLIENT, up.clone()));
        let mut rest = &up[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        if !has_answered && server.reader().read(&mut [0; 1024]).is_ok() {
            has_answered = true;
            server.writer().write_all(RESPONSE).unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut down).unwrap();
        }
        if up.is_empty() && down.is_empty() {
            return steps;
        }
        steps.push(Step::Packet(SERVER, down.clone()));
        let mut rest = &down[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
}

/// The outcome of a capture of these steps, and the number of connections that were not decrypted. `omits`: secrets that
/// are not reported.
fn outcome(steps: Vec<Step>, limits: Limits, omits: impl Fn(&str) -> bool) -> (Outcome, u64) {
    let mut watch = Watch::new(WatchSpec { secrets_are_reported: true, limits, ..WatchSpec::default() });
    let mut talk = Talk::new();
    let mut seen = 0;
    let mut pass = |talk: &Talk, watch: &mut Watch| {
        for (at, packet) in &talk.packets[seen..] {
            let bytes = packet.bytes();
            watch.handle_packet(millis(*at), LinkType::RawIp, &bytes, bytes.len() as u32);
        }
        seen = talk.packets.len();
    };
    talk.open();
    for step in steps {
        match step {
            Step::Secret((label, random, secret)) if !omits(&label) => watch.report_secret(&label, &random, &secret),
            Step::Secret(_) => {}
            Step::Packet(from_client, bytes) => {
                // Records may be split anywhere.
                for part in bytes.chunks(700) {
                    talk.wait(1).send(from_client, ACK, part);
                }
            }
        }
        pass(&talk, &mut watch);
    }
    talk.wait(1).close();
    pass(&talk, &mut watch);
    let at = millis(talk.at);
    watch.finish(at);
    let undecrypted = watch.reading().undecrypted_tls;
    (finish(watch, at), undecrypted)
}

#[test]
fn requests_are_read_with_secrets_that_the_client_reports_as_it_gets_them() {
    for version in [&version::TLS13, &version::TLS12] {
        let (outcome, undecrypted) = outcome(connection(version), Limits::default(), |_| false);
        assert_eq!(outcome.requests_seen(), ["GET /a 404 exact"], "{version:?}");
        assert_eq!((undecrypted, outcome.connection().server_name.as_deref()), (0, Some(NAME.as_bytes())));
        let request = &outcome.requests[0];
        assert!(request.request_first_at < request.response_first_at, "{request:?}");
    }
}

#[test]
fn connection_without_its_secrets_is_counted_and_releases_its_memory() {
    for (version, omitted) in [(&version::TLS13, ""), (&version::TLS13, "SERVER_"), (&version::TLS12, "")] {
        let all = omitted.is_empty();
        let (outcome, undecrypted) =
            outcome(connection(version), Limits::default(), |label| label.starts_with(omitted));
        // A client that reports a part of its secrets gave up the handshake.
        assert_eq!((outcome.requests.len(), undecrypted), (0, u64::from(all)), "{omitted}");
    }
    let tight = Limits { held_per_direction: 500, ..Limits::default() };
    let (outcome, undecrypted) = outcome(connection(&version::TLS13), tight, |_| true);
    assert_eq!((outcome.requests.len(), undecrypted), (0, 1));
}
