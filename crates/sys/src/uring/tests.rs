//! Guarantees of a ring when the kernel's queues are full, and at its end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use super::*;

const SMALL: RingSpec = RingSpec { operations: 8, buffers: 8, buffer_bytes: 64 };
const WATCHED: u64 = 1;
const OTHER: u64 = 2;

/// Number of completions per token, until no more arrive.
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

/// The kernel ends a multishot operation when its completion queue is full, and reports it only there.
#[test]
fn watched_descriptor_is_reported_after_a_full_completion_queue() {
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
        assert!(completed(&mut ring)[0] >= 1, "round {round}: no completion after the queue had been full");
        reader.read_exact(&mut [0]).unwrap();
    }
}

/// The peer sees the end of the connection when the ring is dropped, whatever is in flight, and no descriptor is left.
#[test]
fn dropped_ring_closes_connections_and_descriptors() {
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
    ring.cancel_and_close(first, &[OTHER]);
    // The other two connections were accepted, and not taken.
    drop(ring);
    drop(listener);
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(client.read(&mut [0]), Ok(1..)), "nothing was sent");
    }
}

/// Copied bytes arrive in order; bytes that do not fit are returned, and can still be read.
#[test]
fn copied_bytes_are_sent_or_returned() {
    let mut ring = Ring::new(SMALL).unwrap();
    let (mut reader, writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    for round in 0..20u8 {
        assert!(ring.send_copy(writer.as_fd(), &[round; 100], WATCHED).unwrap().is_some());
        assert_eq!(completed(&mut ring), [0, 0], "all bytes were accepted");
    }
    let mut received = [0; 2000];
    reader.read_exact(&mut received).unwrap();
    assert!(received.chunks(100).zip(0..).all(|(chunk, round)| chunk.iter().all(|&byte| byte == round)));
    // The peer does not read: eventually not all bytes are accepted.
    let large: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    let mut taken = 0;
    let rest = loop {
        let copied = ring.send_copy(writer.as_fd(), &large, OTHER).unwrap().unwrap();
        ring.wait(Some(Duration::ZERO)).unwrap();
        match ring.next() {
            None => taken += large.len(),
            Some(completion) => {
                let of_this = completion.result.map_or(0, |bytes| bytes as usize);
                taken += of_this;
                break ring.copied(&copied, of_this).to_vec();
            }
        }
    };
    assert!(!rest.is_empty() && large.ends_with(&rest));
    let mut received = vec![0; taken];
    reader.read_exact(&mut received).unwrap();
    assert!(received.iter().zip(large.iter().cycle()).all(|(received, sent)| received == sent));
    // A send that does not fit before the next wait is not started.
    while ring.send_copy(writer.as_fd(), &large, OTHER).unwrap().is_some() {}
}

/// Bytes of a watched socket stay in the kernel, and are reported once; a multishot receive ends when it is cancelled.
#[test]
fn poll_completes_once_and_receive_until_it_is_cancelled() {
    let mut ring = Ring::new(SMALL).unwrap();
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"one").unwrap();
    ring.poll_readable_once(reader.as_fd(), WATCHED);
    ring.wait(Some(Duration::ZERO)).unwrap();
    let completion = ring.next().unwrap();
    assert!(!completion.more && completion.buffer.is_none() && completion.result.is_ok());
    let mut one = [0; 3];
    reader.read_exact(&mut one).unwrap();
    writer.write_all(b"two").unwrap();
    ring.wait(Some(Duration::ZERO)).unwrap();
    assert!(ring.next().is_none(), "once");
    ring.receive(reader.as_fd(), OTHER);
    ring.wait(Some(Duration::ZERO)).unwrap();
    let completion = ring.next().unwrap();
    assert!(completion.more && completion.result.is_ok_and(|bytes| bytes == 3));
    ring.cancel(OTHER);
    let ended = loop {
        ring.wait(None).unwrap();
        if let Some(completion) = ring.next() {
            break completion;
        }
    };
    assert_eq!(ended.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    assert!(!ended.more);
    writer.write_all(b"three").unwrap();
    ring.wait(Some(Duration::ZERO)).unwrap();
    assert!(ring.next().is_none(), "no receive is in flight");
}

/// The completions of two operations are returned by the wait that submits their operations, in any order.
#[test]
fn returned_bytes_and_received_bytes_complete_in_one_wait() {
    let mut ring = Ring::new(SMALL).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[b'x'; 4096]).is_ok() {}
    theirs.write_all(b"more").unwrap();
    assert!(ring.send_copy(ours.as_fd(), b"answer", WATCHED).unwrap().is_some());
    ring.receive(ours.as_fd(), OTHER);
    assert_eq!(completed(&mut ring), [1, 1]);
}

/// The kernel does twenty pieces of work per call; a wait returns all available completions.
#[test]
fn one_wait_returns_all_completions() {
    let mut ring = Ring::new(RingSpec { operations: 64, buffers: 64, buffer_bytes: 64 }).unwrap();
    let pairs: Vec<_> = (0..60).map(|_| UnixStream::pair().unwrap()).collect();
    for (here, _) in &pairs {
        ring.receive(here.as_fd(), OTHER);
    }
    ring.wait(Some(Duration::ZERO)).unwrap();
    for (_, there) in &pairs {
        (&*there).write_all(b"x").unwrap();
    }
    ring.wait(None).unwrap();
    let mut came = 0;
    while let Some(completion) = ring.next() {
        came += usize::from(completion.buffer.is_some());
    }
    assert_eq!(came, 60);
}
