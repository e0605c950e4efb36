//! Who is let in, and what the others are sent.

use super::*;

const STREAM_OPENING: Opening = Opening::Stream { session: [9; 16], trial: 3, index: 70_000 };

fn secret() -> Secret {
    Secret::new(b"correct-horse-battery-staple")
}

/// Everything a server says to these bytes, in pieces of `cut`, and how it ends.
fn answer(server: &mut Answering, bytes: &[u8], cut: usize) -> (Vec<u8>, HandshakeStep) {
    let mut sent = Vec::new();
    for piece in bytes.chunks(cut) {
        match server.take(piece) {
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
            let mut server = Answering::new(&secret());
            let (nonce, step) = answer(&mut server, &opening.write(), cut);
            assert!(matches!(step, HandshakeStep::Wait) && server.is_open());
            let proof = Proof::new(&secret(), &opening, nonce.try_into().unwrap());
            let (tag, step) = answer(&mut server, proof.bytes(), cut);
            let HandshakeStep::Proven { opening: heard, keys, .. } = step else { panic!("not proven") };
            assert_eq!(heard, opening);
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
        let (sent, step) = answer(&mut Answering::new(&secret()), text, 1);
        assert_eq!(sent, b"");
        assert_eq!(matches!(step, HandshakeStep::Refuse(Wrong::NotOurs)), at != 3);
    }
    // More than an opening before the nonce is no client of ours.
    for opening in [Opening::Control, STREAM_OPENING] {
        let text = [opening.write(), vec![0; 24]].concat();
        let cut = text.len().min(OPENING_MAX);
        assert!(matches!(Answering::new(&secret()).take(&text[..cut]), HandshakeStep::Refuse(_)) || cut == OPENING_MAX);
    }
    assert!(matches!(Answering::new(&secret()).take(&[0; 34]), HandshakeStep::Refuse(Wrong::NotOurs)));
}

#[test]
fn peer_without_the_secret_gets_only_a_nonce() {
    for wrong in [Secret::new(b"another-secret-altogether"), Secret::none()] {
        let mut server = Answering::new(&secret());
        let (nonce, _) = answer(&mut server, &Opening::Control.write(), 64);
        let proof = Proof::new(&wrong, &Opening::Control, nonce.try_into().unwrap());
        let (sent, step) = answer(&mut server, proof.bytes(), 64);
        assert!(sent.is_empty() && matches!(step, HandshakeStep::Refuse(Wrong::Secret)));
    }
    // And a server that does not know it cannot pretend.
    let proof = Proof::new(&secret(), &Opening::Control, [1; 32]);
    assert!(proof.accept(&[0; 32]).is_none());
}

#[test]
fn proof_is_valid_for_one_connection_and_opening_only() {
    let proof_for = |opening: Opening, nonce| Proof::new(&secret(), &opening, nonce).bytes().to_vec();
    let heard = |opening: Opening, nonce, proof: &[u8]| {
        let mut server = Answering::with_nonce(&secret(), nonce);
        answer(&mut server, &opening.write(), 64);
        answer(&mut server, proof, 64).1
    };
    let recorded = proof_for(Opening::Control, [1; 32]);
    assert!(matches!(heard(Opening::Control, [1; 32], &recorded), HandshakeStep::Proven { .. }));
    assert!(
        matches!(heard(Opening::Control, [2; 32], &recorded), HandshakeStep::Refuse(Wrong::Secret)),
        "played again"
    );
    assert!(matches!(heard(STREAM_OPENING, [1; 32], &recorded), HandshakeStep::Refuse(Wrong::Secret)));
    let of_stream = proof_for(STREAM_OPENING, [1; 32]);
    let other = Opening::Stream { session: [9; 16], trial: 3, index: 70_001 };
    assert!(matches!(heard(other, [1; 32], &of_stream), HandshakeStep::Refuse(Wrong::Secret)));
    for at in [0, 31, 32, 63] {
        let mut changed = recorded.clone();
        changed[at] ^= 1;
        assert!(matches!(heard(Opening::Control, [1; 32], &changed), HandshakeStep::Refuse(Wrong::Secret)), "{at}");
    }
    // The server's proof is not the client's: sent back, it proves nothing.
    let HandshakeStep::Proven { proof, .. } = heard(Opening::Control, [1; 32], &recorded) else { panic!("not proven") };
    let reflected = [&recorded[..32], &proof].concat();
    assert!(matches!(heard(Opening::Control, [1; 32], &reflected), HandshakeStep::Refuse(Wrong::Secret)));
}

#[test]
fn ticket_round_trips() {
    let ticket = Ticket { trial: 7, index: 65_536, tag: [5; 16] };
    for cut in [1, 8, 9, 32] {
        let (sent, step) = answer(&mut Answering::new(&secret()), &ticket.write(), cut);
        assert!(sent.is_empty() && matches!(step, HandshakeStep::Ticket(read) if read == ticket));
    }
    let long = [&ticket.write()[..], b"x"].concat();
    assert!(matches!(Answering::new(&secret()).take(&long), HandshakeStep::Refuse(Wrong::NotOurs)));
}
