//! Content and windows: every byte arrives, and none before the client permits it.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn content_is_intact_and_within_the_windows(
        sizes in proptest::collection::vec(prop_oneof![Just(0usize), Just(6), Just(20_000), Just(300_000)], 1..6),
        initial in 0u32..100_000,
        grants in proptest::collection::vec((0usize..6, 1u32..70_000), 1..10),
        takes in proptest::collection::vec(1usize..40_000, 1..5),
        pieces in proptest::collection::vec(1usize..200, 1..5),
    ) {
        let mut test = TestConnection::with(&[(INITIAL_WINDOW_SIZE, initial)]);
        let input: Vec<u8> =
            sizes.iter().enumerate().flat_map(|(at, size)| get(2 * at as u32 + 1, &format!("/{size}"))).collect();
        let mut at = 0;
        for piece in pieces.iter().cycle() {
            let end = input.len().min(at + piece);
            test.connection.take(&mut test.context, &input[at..end]);
            test.turn(*takes.first().unwrap());
            at = end;
            if at == input.len() {
                break;
            }
        }
        let mut window = 65_535i64;
        let mut windows: HashMap<u32, i64> = HashMap::new();
        let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut ended = 0;
        for step in 0..100_000 {
            test.turn(takes[step % takes.len()]);
            for frame in test.frames() {
                let left = windows.entry(frame.stream).or_insert(i64::from(initial));
                match frame.kind {
                    HEADERS => prop_assert!(bodies.insert(frame.stream, Vec::new()).is_none()),
                    DATA => {
                        window -= frame.payload.len() as i64;
                        *left -= frame.payload.len() as i64;
                        prop_assert!(frame.payload.is_empty() || (window >= 0 && *left >= 0));
                        bodies.get_mut(&frame.stream).unwrap().extend_from_slice(&frame.payload);
                    }
                    other => prop_assert!(false, "a frame of kind {}", other),
                }
                ended += usize::from(frame.ends());
            }
            if ended == sizes.len() {
                break;
            }
            let (stream, bytes) = grants[step % grants.len()];
            // Some grants are for streams that need none; the connection always gets as much.
            let stream = 2 * ((stream + step / grants.len()) % sizes.len()) as u32 + 1;
            if windows.get(&stream).is_none_or(|left| *left < 1 << 24) {
                *windows.entry(stream).or_insert(i64::from(initial)) += i64::from(bytes);
                window += i64::from(bytes);
                test.send(&[window_frame(stream, bytes), window_frame(0, bytes)].concat());
            }
            prop_assert!(step < 99_999, "no progress");
        }
        for (at, size) in sizes.iter().enumerate() {
            prop_assert!(bodies[&(2 * at as u32 + 1)] == content(*size), "{}", size);
        }
        prop_assert!(test.connection.deadline() < Timestamp::MAX && test.context.backlog.bytes() < 70_000);
    }

    /// The client may send as much as was forwarded, whatever the pieces.
    #[test]
    fn content_of_requests_reaches_the_relay_intact(
        lengths in proptest::collection::vec(1usize..16_000, 1..30),
        rooms in proptest::collection::vec(1usize..40_000, 1..6),
        announced in any::<bool>(),
    ) {
        let total: usize = lengths.iter().sum();
        let body = content(total);
        let mut test = TestConnection::with(&[]);
        let text = total.to_string();
        let more: &[(&str, &str)] = if announced { &[("content-length", &text)] } else { &[] };
        test.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/app", more)));
        let (mut at, mut next, mut window, mut forwarded) = (0, 0, 128 << 10, Vec::new());
        let (mut room, mut ended) = (0usize, false);
        for step in 0..10_000 {
            if next < lengths.len() && window >= lengths[next] {
                let flags = u8::from(next + 1 == lengths.len());
                test.send(&frame(DATA, flags, 1, &body[at..at + lengths[next]]));
                (window, at) = (window - lengths[next], at + lengths[next]);
                next += 1;
            }
            if room < 64 << 10 {
                let more = rooms[step % rooms.len()];
                room += more;
                test.relay_event(1, Event::Room(more));
            }
            while let Some(call) = test.relay.next() {
                match call {
                    crate::dynamic::RelayCall::Body(bytes) => {
                        room -= bytes.len();
                        forwarded.extend_from_slice(&bytes);
                    }
                    crate::dynamic::RelayCall::BodyEnded => ended = true,
                    _ => {}
                }
            }
            for frame in test.frames() {
                prop_assert_eq!(frame.kind, WINDOW_UPDATE);
                if frame.stream == 1 {
                    window += u32::from_be_bytes(frame.payload[..].try_into().unwrap()) as usize;
                }
            }
            if ended {
                break;
            }
        }
        prop_assert!(ended && forwarded == body, "{} of {}", forwarded.len(), body.len());
    }
}
