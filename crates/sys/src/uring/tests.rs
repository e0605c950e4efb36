//! What a ring promises when the kernel is short of room, and at its end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use super::*;

const SMALL: RingSpec = RingSpec { operations: 8, buffers: 8, buffer_bytes: 64 };
const WATCHED: u64 = 1;
const OTHER: u64 = 2;

/// How often each token completed, until nothing more does.
fn completed(ring: &mut Ring) -> [usize; 2] {
    let mut counts = [0, 0];
    loop {
        ring.wait(Some(Duration::ZERO)).unwrap();
        let Some(mut completion) = ring.next() else { return counts };
        loop {
            counts[completion.token as usize - 1] += 1;
            let Some(next) = ring.next() else { break };
            completion = next;
        }
    }
}

/// The kernel ends a multishot operation when its completion queue is full, and says so only there.
#[test]
fn a_descriptor_is_watched_for_ever() {
    let mut ring = Ring::new(SMALL).unwrap();
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    ring.poll_readable(reader.as_fd(), WATCHED);
    assert_eq!(completed(&mut ring), [0, 0]);
    let (busy, _peer) = UnixStream::pair().unwrap();
    for round in 0..3 {
        // More than the completion queue of 64 holds.
        for _ in 0..200 {
            ring.poll_writable(busy.as_fd(), OTHER);
        }
        ring.submit().unwrap();
        writer.write_all(b"x").unwrap();
        let [watched, other] = completed(&mut ring);
        assert!(watched >= 1 && other == 200, "round {round}: {watched} {other}");
        reader.read_exact(&mut [0]).unwrap();
        writer.write_all(b"x").unwrap();
        assert!(completed(&mut ring)[0] >= 1, "round {round}: nothing was said after the queue had been full");
        reader.read_exact(&mut [0]).unwrap();
    }
}

/// The peer hears of the end at the end of the ring, whatever was under way, and no descriptor is left.
#[test]
fn a_ring_that_ends_lets_go_of_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut ring = Ring::new(SMALL).unwrap();
    ring.accept(listener.as_fd(), WATCHED);
    ring.wait(Some(Duration::ZERO)).unwrap();
    let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let first = loop {
        ring.wait(None).unwrap();
        if let Some(completion) = ring.next() {
            break completion.accepted.unwrap();
        }
    };
    ring.receive(first.as_fd(), OTHER);
    ring.wait(Some(Duration::ZERO)).unwrap();
    ring.cancel_and_close(first);
    // The other two were accepted, and nobody has looked at them.
    drop(ring);
    drop(listener);
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(client.read(&mut [0]), Ok(1..)), "nothing was sent");
    }
}
