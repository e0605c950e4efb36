//! Tests of the handshake: which clients are accepted, and what rejected clients receive.

use super::*;

const STREAM_OPENING: Opening = Opening::Stream { session: [9; 16], trial: 3, index: 70_000 };

fn secret() -> Secret {
    Secret::new(b"correct-horse-battery-staple")
}

/// Everything that the server sends in response to these bytes, received in pieces of `cut` bytes, and its last step.
fn exchange(server: &mut ServerHandshake, bytes: &[u8], cut: usize) -> (Vec<u8>, HandshakeStep) {
    let mut sent = Vec::new();
    for piece in bytes.chunks(cut) {
        match server.receive(piece) {
            HandshakeStep::Wait => {}
            HandshakeStep::Challenge(nonce) => sent.extend(nonce),
            HandshakeStep::Proven { opening, keys, proof } => {
                sent.extend(proof);
                return (sent, HandshakeStep::Proven { opening, keys, proof });
            }
            end => return (sent, end),
        }
    }
    (sent, HandshakeStep::Wait)
}

#[test]
fn same_secret_gives_both_ends_the_same_keys() {
    for opening in [Opening::Control, STREAM_OPENING] {
        for cut in [1, 7, 33, 64] {
            let mut server = ServerHandshake::new(&secret());
            let (nonce, step) = exchange(&mut server, &opening.write(), cut);
            assert!(matches!(step, HandshakeStep::Wait) && server.is_open());
            let proof = Proof::new(&secret(), &opening, nonce.try_into().unwrap());
            let (tag, step) = exchange(&mut server, proof.bytes(), cut);
            let HandshakeStep::Proven { opening: received, keys, .. } = step else { panic!("not proven") };
            assert_eq!(received, opening);
            let own = proof.accept(&tag.try_into().unwrap()).unwrap();
            assert_eq!((own.session(), own.ticket(1, 2)), (keys.session(), keys.ticket(1, 2)));
            assert_eq!(own.mark("packet", 5), keys.mark("packet", 5));
            assert_ne!(own.mark("packet", 5), keys.mark("probe", 5));
            assert_ne!(own.ticket(1, 2), own.ticket(2, 1));
        }
    }
}

#[test]
fn server_sends_nothing_without_the_magic() {
    let texts: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"YBKGATE2\0", b"YBKGATE", b"YBKGATE1\x02"];
    for (at, text) in texts.into_iter().enumerate() {
        let (sent, step) = exchange(&mut ServerHandshake::new(&secret()), text, 1);
        assert_eq!(sent, b"");
        assert_eq!(matches!(step, HandshakeStep::Refuse(RejectReason::InvalidProtocol)), at != 3);
    }
    // More bytes than an opening before the nonce violate the protocol.
    for opening in [Opening::Control, STREAM_OPENING] {
        let text = [opening.write(), vec![0; 24]].concat();
        let cut = text.len().min(OPENING_MAX);
        assert!(
            matches!(ServerHandshake::new(&secret()).receive(&text[..cut]), HandshakeStep::Refuse(_))
                || cut == OPENING_MAX
        );
    }
    assert!(matches!(
        ServerHandshake::new(&secret()).receive(&[0; 34]),
        HandshakeStep::Refuse(RejectReason::InvalidProtocol)
    ));
}

#[test]
fn peer_without_the_secret_gets_only_a_nonce() {
    for wrong in [Secret::new(b"another-secret-altogether"), Secret::none()] {
        let mut server = ServerHandshake::new(&secret());
        let (nonce, _) = exchange(&mut server, &Opening::Control.write(), 64);
        let proof = Proof::new(&wrong, &Opening::Control, nonce.try_into().unwrap());
        let (sent, step) = exchange(&mut server, proof.bytes(), 64);
        assert!(sent.is_empty() && matches!(step, HandshakeStep::Refuse(RejectReason::WrongSecret)));
    }
    // A server without the secret cannot send a valid proof.
    let proof = Proof::new(&secret(), &Opening::Control, [1; 32]);
    assert!(proof.accept(&[0; 32]).is_none());
}

#[test]
fn proof_is_valid_for_one_connection_and_opening_only() {
    let proof_for = |opening: Opening, nonce| Proof::new(&secret(), &opening, nonce).bytes().to_vec();
    let last_step = |opening: Opening, nonce, proof: &[u8]| {
        let mut server = ServerHandshake::with_nonce(&secret(), nonce);
        exchange(&mut server, &opening.write(), 64);
        exchange(&mut server, proof, 64).1
    };
    let recorded = proof_for(Opening::Control, [1; 32]);
    assert!(matches!(last_step(Opening::Control, [1; 32], &recorded), HandshakeStep::Proven { .. }));
    assert!(
        matches!(last_step(Opening::Control, [2; 32], &recorded), HandshakeStep::Refuse(RejectReason::WrongSecret)),
        "replayed"
    );
    assert!(matches!(last_step(STREAM_OPENING, [1; 32], &recorded), HandshakeStep::Refuse(RejectReason::WrongSecret)));
    let of_stream = proof_for(STREAM_OPENING, [1; 32]);
    let other = Opening::Stream { session: [9; 16], trial: 3, index: 70_001 };
    assert!(matches!(last_step(other, [1; 32], &of_stream), HandshakeStep::Refuse(RejectReason::WrongSecret)));
    for at in [0, 31, 32, 63] {
        let mut changed = recorded.clone();
        changed[at] ^= 1;
        assert!(
            matches!(last_step(Opening::Control, [1; 32], &changed), HandshakeStep::Refuse(RejectReason::WrongSecret)),
            "{at}"
        );
    }
    // The server's proof sent back is not a valid proof of the client.
    let HandshakeStep::Proven { proof, .. } = last_step(Opening::Control, [1; 32], &recorded) else {
        panic!("not proven")
    };
    let reflected = [&recorded[..32], &proof].concat();
    assert!(matches!(
        last_step(Opening::Control, [1; 32], &reflected),
        HandshakeStep::Refuse(RejectReason::WrongSecret)
    ));
}

#[test]
fn ticket_round_trips() {
    let ticket = Ticket { trial: 7, index: 65_536, tag: [5; 16] };
    for cut in [1, 8, 9, 32] {
        let (sent, step) = exchange(&mut ServerHandshake::new(&secret()), &ticket.write(), cut);
        assert!(sent.is_empty() && matches!(step, HandshakeStep::Ticket(read) if read == ticket));
    }
    let long = [&ticket.write()[..], b"x"].concat();
    assert!(matches!(
        ServerHandshake::new(&secret()).receive(&long),
        HandshakeStep::Refuse(RejectReason::InvalidProtocol)
    ));
}
