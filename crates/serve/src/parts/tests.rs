//! Tests that components do their work as often as they count it, by counters of the kernel and by their output.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::eventfd::EventFd;

use super::*;

fn spec(part: LocalComponent, bytes: usize, folder: &std::path::Path) -> LocalSpec {
    LocalSpec { part, bytes, folder: folder.to_owned(), rounds: 2, each: Duration::from_micros(500), tls: None }
}

/// Read calls and bytes read by this thread, from the kernel's counters.
fn read_so_far() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (of("syscr"), of("rchar"))
}

#[test]
fn every_counted_file_read_takes_place() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, part) in
        [(1, LocalComponent::OpenRead), (100_000, LocalComponent::OpenRead), (100_000, LocalComponent::OpenReadCold)]
    {
        let (calls, read) = read_so_far();
        let made = measure_part(&spec(part, bytes, folder.path())).unwrap();
        let (calls, read) = {
            let now = read_so_far();
            (now.0 - calls, now.1 - read)
        };
        let count: u64 = made.iter().map(|round| round.count).sum();
        assert_eq!(made.len(), 2);
        assert!(
            calls >= count && read >= count * bytes as u64,
            "{part:?}: {count} of {bytes}: {calls} calls, {read} bytes"
        );
        assert!(made.iter().all(|round| round.count > 0 && round.cpu > Duration::ZERO), "{made:?}");
    }
    // Without `read` nothing is read, whatever the size.
    let (_, read) = read_so_far();
    let made = measure_part(&spec(LocalComponent::Open, 1 << 20, folder.path())).unwrap();
    let count: u64 = made.iter().map(|round| round.count).sum();
    assert!(read_so_far().1 - read < count * (1 << 20) / 100, "{made:?}");
    // All files were removed.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn log_measurements_remove_their_files() {
    let folder = tempfile::tempdir().unwrap();
    for part in [LocalComponent::LogLine, LocalComponent::LogBuffered] {
        assert_eq!(measure_part(&spec(part, 0, folder.path())).unwrap().len(), 2);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn request_heads_have_the_configured_length() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, is_one) in
        [(HEAD_BYTES_MIN - 1, false), (HEAD_BYTES_MIN, true), (HEAD_BYTES_MAX, true), (HEAD_BYTES_MAX + 1, false)]
    {
        let made = measure_part(&spec(LocalComponent::Parse, bytes, folder.path()));
        assert_eq!(made.is_ok(), is_one, "{bytes}: {made:?}");
        assert!(!is_one || head(bytes).unwrap().len() == bytes);
    }
}

#[test]
fn handshakes_are_full_or_resumed_as_configured_and_need_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Some(Tls::load(&certificate, &key).unwrap());
    let with = |part, bytes| LocalSpec { tls: tls.clone(), ..spec(part, bytes, folder.path()) };
    // Each handshake is asserted to be full or resumed.
    let full = measure_part(&with(LocalComponent::HandshakeFull, 0)).unwrap();
    let resumed = measure_part(&with(LocalComponent::HandshakeResumed, 0)).unwrap();
    // The server sends a certificate in a full handshake; the client sends a ticket in a resumed one.
    assert!(
        full[0].down_bytes > resumed[0].down_bytes && full[0].up_bytes < resumed[0].up_bytes,
        "{full:?} {resumed:?}"
    );
    for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 200_000] {
        let made = measure_part(&with(LocalComponent::Records, bytes)).unwrap();
        assert!(made.iter().all(|round| round.count > 0), "{made:?}");
    }
    assert!(measure_part(&spec(LocalComponent::HandshakeFull, 0, folder.path())).is_err());
}

/// The response bytes of a client that sends `requests` requests on one connection.
fn answered(spec: &ExchangeSpec, requests: usize) -> Vec<u8> {
    let stop = EventFd::new().unwrap();
    std::thread::scope(|scope| {
        let (address_sender, address_receiver) = mpsc::channel();
        let server =
            scope.spawn(|| serve_exchange(spec, stop.as_fd(), move |address| address_sender.send(address).unwrap()));
        let mut client = TcpStream::connect(address_receiver.recv().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut got = Vec::new();
        for _ in 0..requests {
            client.write_all(b"GET /anything HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut one = vec![0; 1 << 16];
            let length = loop {
                let end = memchr::memmem::find(&got, b"\r\n\r\n").map(|at| at + 4 + spec.body_bytes);
                if let Some(end) = end.filter(|end| got.len() >= *end) {
                    break end;
                }
                let read = client.read(&mut one).unwrap();
                assert!(read > 0, "the server closed the connection");
                got.extend_from_slice(&one[..read]);
            };
            got.drain(..length - spec.body_bytes);
            assert!(got.len() == spec.body_bytes, "{} bytes beyond an answer", got.len() - spec.body_bytes);
            assert!(got.iter().all(|byte| *byte == b'x'));
            got.clear();
        }
        if spec.close {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server closes after its response");
        }
        drop(client);
        stop.write(1).unwrap();
        server.join().unwrap().unwrap();
        got
    })
}

#[test]
fn epoll_io_uring_and_threads_respond_to_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let sendfile = ExchangeBody::Sendfile(folder.path().to_owned());
    for waits in [WaitMode::Epoll, WaitMode::Uring, WaitMode::Threads] {
        for body in [ExchangeBody::Memory, sendfile.clone()] {
            let spec = ExchangeSpec { listen, waits, body: body.clone(), body_bytes: 0, close: false };
            if waits == WaitMode::Uring && body != ExchangeBody::Memory {
                assert!(serve_exchange(&spec, EventFd::new().unwrap().as_fd(), |_| ()).is_err());
                continue;
            }
            for body_bytes in [0, 1, 3_000_000] {
                answered(&ExchangeSpec { body_bytes, ..spec.clone() }, 3);
                answered(&ExchangeSpec { body_bytes, close: true, ..spec.clone() }, 1);
            }
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
