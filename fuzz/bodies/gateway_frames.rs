//! What a server of `gateway` hears from whoever can connect to it: the first byte says how the rest is cut.

use gateway::tester::datagram::{Datagram, Introduction};
use gateway::tester::frame::{FrameDirection, FrameReader, FrameWriter, TEXT_MAX};
use gateway::tester::handshake::{Answering, HandshakeStep, Opening, Proof};
use gateway::tester::message::{LASTS_MS_MAX, STREAMS_MAX, ToClient, ToServer};
use gateway::tester::{Keys, Secret};

/// Nothing but a nonce goes to who gives no proof; no frame is read that was not written; what is read is written alike.
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

/// Fed as the door does it: never more than it wants.
fn handshake(secret: &Secret, mut bytes: &[u8], cut: usize) {
    let mut server = Answering::with_nonce(secret, NONCE);
    let mut challenged = false;
    while !bytes.is_empty() {
        let wants = server.wants();
        assert!(wants > 0 && wants <= 64);
        let (piece, rest) = bytes.split_at(bytes.len().min(cut).min(wants));
        bytes = rest;
        match server.take(piece) {
            HandshakeStep::Wait => {}
            HandshakeStep::Challenge(nonce) => {
                assert!(nonce == NONCE && !challenged);
                challenged = true;
            }
            // The corpus has a proof that is good: its client's nonce is part of it.
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
    // As they come: the corpus has frames that are good, and their texts are what was written.
    let mut reader = FrameReader::new(keys, FrameDirection::Up);
    let (mut writer, mut again) = (FrameWriter::new(keys, FrameDirection::Up), Vec::new());
    for piece in bytes.chunks(cut) {
        reader.take(piece);
        while let Ok(Some(text)) = reader.next() {
            again.extend(writer.write(&text));
        }
        assert!(reader.held() <= 4 + TEXT_MAX + 32 + cut);
    }
    assert!(bytes.starts_with(&again));
    // As the text of one.
    let text = &bytes[..bytes.len().min(TEXT_MAX)];
    let frame = FrameWriter::new(keys, FrameDirection::Down).write(text);
    let mut reader = FrameReader::new(keys, FrameDirection::Down);
    let mut read = None;
    for piece in frame.chunks(cut) {
        assert!(read.is_none());
        reader.take(piece);
        read = reader.next().unwrap();
    }
    assert_eq!(read.as_deref(), Some(text));
}

/// Of a handshake that is always the same.
fn keys(secret: &Secret) -> Keys {
    let mut server = Answering::with_nonce(secret, NONCE);
    server.take(&Opening::Control.write());
    match server.take(Proof::with_nonce(secret, &Opening::Control, NONCE, [3; 32]).bytes()) {
        HandshakeStep::Proven { keys, .. } => *keys,
        _ => unreachable!("the proof is good"),
    }
}

const NONCE: [u8; 32] = [7; 32];
