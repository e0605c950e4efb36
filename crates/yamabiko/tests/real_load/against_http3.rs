//! HTTP/3 with a key log: `watch` compared with tshark on the same capture of aioquic and `serve` across a path. Without
//! loss: tshark 4.0 does not put the packets of QUIC in order. Without offload: it does not divide datagrams that travel as
//! one packet.

use std::fs;

use super::against::capture;
use super::against_http2::{fields, watched};
use crate::support::readers::{folder, script};
use crate::support::servers::PORT;
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of, yamabiko};
use schema::Framing;

/// Year in which certificates expire: far in the future.
const EXPIRY_YEAR: i32 = 4000;

#[test]
fn http3_requests_agree_with_tshark_and_its_key_log() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    fs::write(workspace.www().join("large.bin"), vec![b'x'; 2_000_000]).unwrap();
    let server = format!(
        "exec {} serve {} --listen 0.0.0.0:{PORT} --tls {} {} --http3",
        yamabiko().display(),
        str_of(&workspace.www()),
        str_of(&certificate.cert),
        str_of(&certificate.key)
    );
    let keys = workspace.file("keys.log");
    let clients = format!(
        "export SSLKEYLOGFILE={} PYTHONDONTWRITEBYTECODE=1\n\
         for i in 1 2 3; do\n\
             {}/venv/bin/python {} server {PORT} {} /10k.bin /large.bin /none >/dev/null\n\
         done\n",
        keys.display(),
        folder().display(),
        script("http3_client.py").display(),
        str_of(&authority.file())
    );
    let file = capture(&workspace, &server, "--rtt 20ms --no-offload", 0, &clients);
    let requests = watched(&workspace, &file, &["--keylog", str_of(&keys)]);
    // Each client makes two connections, with three requests and one with a body on each.
    assert_eq!(requests.len(), 3 * 2 * 4, "{requests:#?}");
    assert!(requests.iter().all(|request| request.http_version == 3 && request.complete), "{requests:#?}");
    assert!(requests.iter().all(|request| request.framing == Framing::Exact), "{requests:#?}");
    let of = |status: u16| requests.iter().filter(|request| request.status == Some(status)).count();
    assert_eq!((of(200), of(404), of(405)), (12, 6, 6));
    let large = requests.iter().filter(|request| request.path.as_deref() == Some(b"/large.bin" as &[u8]));
    assert!(large.clone().count() == 6 && large.clone().all(|request| request.response_bytes > 2_000_000));

    let log = format!("tls.keylog_file:{}", keys.display());
    let port = format!("udp.port=={PORT},quic");
    let options = ["-d", &port, "-o", &log];
    let tshark = fields(&workspace, &file, &options, &["quic.connection.number", "http3.frame_type"]);
    let connections: std::collections::BTreeSet<u64> = requests.iter().map(|request| request.connection).collect();
    assert_eq!(tshark[0].len(), connections.len(), "{tshark:?}");
    // HEADERS: one of each request and response. tshark 4.0 does not read requests in early data, which only the second
    // connection of each client has: of its four, as many as are written before the handshake ends.
    let (all, early) = (2 * requests.len() as u64, 3 * 4);
    assert!((all - early..=all).contains(&tshark[1]["1"]), "{tshark:?}");
    // SETTINGS of both ends.
    assert_eq!(tshark[1]["4"], 2 * connections.len() as u64, "{tshark:?}");
}
