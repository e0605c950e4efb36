//! Bytes that any peer can send to a gateway server. The first byte is the length of the pieces in which they arrive.

use gateway::tester::datagram::{Datagram, Introduction};
use gateway::tester::frame::{FrameDirection, FrameReader, FrameWriter, TEXT_MAX};
use gateway::tester::handshake::{HandshakeStep, Opening, Proof, ServerHandshake};
use gateway::tester::message::{LASTS_MS_MAX, STREAMS_MAX, ToClient, ToServer};
use gateway::tester::{Keys, Secret};

/// A peer without proof receives only a nonce, only written frames are read, and parsed messages round-trip.
pub fn run(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let cut = usize::from(cut).max(1);
    let secret = Secret::new(b"the secret of this target");
    handshake(&secret, bytes, cut);
    frames(&keys(&secret), bytes, cut);
    if let Ok(message) = serde_json::from_slice::<ToServer>(bytes) {
        let text = serde_json::to_vec(&message).unwrap();
        assert_eq!(serde_json::from_slice::<ToServer>(&text).unwrap(), message);
        if let ToServer::Ready { test, .. } = message
            && test.check().is_ok()
        {
            assert!(test.lasts_ms() <= LASTS_MS_MAX && test.streams() <= STREAMS_MAX);
        }
    }
    if let Ok(message) = serde_json::from_slice::<ToClient>(bytes) {
        let text = serde_json::to_vec(&message).unwrap();
        assert_eq!(serde_json::from_slice::<ToClient>(&text).unwrap(), message);
    }
    if let Some(introduction) = Introduction::read(bytes) {
        assert_eq!(introduction.write(), bytes);
    }
    if let Some(datagram) = Datagram::read(bytes) {
        assert_eq!(datagram.write(), bytes[..Datagram::BYTES]);
    }
}

/// Passes the bytes to the handshake like the server: never more than it accepts.
fn handshake(secret: &Secret, mut bytes: &[u8], cut: usize) {
    let mut server = ServerHandshake::with_nonce(secret, NONCE);
    let mut challenged = false;
    while !bytes.is_empty() {
        let bytes_wanted = server.bytes_wanted();
        assert!(bytes_wanted > 0 && bytes_wanted <= 64);
        let (piece, rest) = bytes.split_at(bytes.len().min(cut).min(bytes_wanted));
        bytes = rest;
        match server.receive(piece) {
            HandshakeStep::Wait => {}
            HandshakeStep::Challenge(nonce) => {
                assert!(nonce == NONCE && !challenged);
                challenged = true;
            }
            // The corpus has a valid proof with its nonce.
            HandshakeStep::Proven { keys, proof, .. } => {
                assert!(challenged && proof != [0; 32] && keys.session() != [0; 16]);
                return;
            }
            HandshakeStep::Ticket(ticket) => {
                assert!(!challenged && ticket.write().len() == 32);
                return;
            }
            HandshakeStep::Refuse(_) => return,
        }
    }
}

fn frames(keys: &Keys, bytes: &[u8], cut: usize) {
    // The bytes as frames. The corpus has valid ones, whose texts must round-trip.
    let mut reader = FrameReader::new(keys, FrameDirection::Up);
    let (mut writer, mut again) = (FrameWriter::new(keys, FrameDirection::Up), Vec::new());
    for piece in bytes.chunks(cut) {
        reader.push(piece);
        while let Ok(Some(text)) = reader.next() {
            again.extend(writer.write(&text));
        }
        assert!(reader.buffered() <= 4 + TEXT_MAX + 32 + cut);
    }
    assert!(bytes.starts_with(&again));
    // The bytes as the text of a frame.
    let text = &bytes[..bytes.len().min(TEXT_MAX)];
    let frame = FrameWriter::new(keys, FrameDirection::Down).write(text);
    let mut reader = FrameReader::new(keys, FrameDirection::Down);
    let mut read = None;
    for piece in frame.chunks(cut) {
        assert!(read.is_none());
        reader.push(piece);
        read = reader.next().unwrap();
    }
    assert_eq!(read.as_deref(), Some(text));
}

/// Keys of a handshake with constant nonces.
fn keys(secret: &Secret) -> Keys {
    let mut server = ServerHandshake::with_nonce(secret, NONCE);
    server.receive(&Opening::Control.write());
    match server.receive(Proof::with_nonce(secret, &Opening::Control, NONCE, [3; 32]).bytes()) {
        HandshakeStep::Proven { keys, .. } => *keys,
        _ => unreachable!("the proof is valid"),
    }
}

const NONCE: [u8; 32] = [7; 32];
