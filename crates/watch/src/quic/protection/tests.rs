//! The examples of RFC 9001, appendix A, and RFC 9369, appendix A.

use proptest::prelude::*;
use wire::quic::{LongBody, LongHeader, LongKind};

use super::*;
use crate::crypto::Suite;
use crate::quic::sealing::{bytes, client_initial, protect};

fn id() -> ConnectionId {
    ConnectionId::new(&bytes("8394c8f03e515708")).unwrap()
}

fn open_long(protection: &Protection, packet: &[u8]) -> (u64, Vec<u8>) {
    let header = LongHeader::parse(packet).unwrap();
    let body = LongBody::parse(packet, &header, LongKind::Initial, packet.len()).unwrap();
    let packet = &packet[..body.number_at + body.length];
    let unmasked = protection.unmask(packet, body.number_at).unwrap();
    let mut scratch = Vec::new();
    let number = protection.open(None, packet, body.number_at, unmasked, &mut scratch).unwrap();
    (number, payload(&scratch, body.number_at).to_vec())
}

#[test]
fn initial_secrets_and_keys_are_those_of_the_standards() {
    let [client, server] = initial_secrets(&SALT_1, id().as_bytes());
    assert_eq!(client.expand::<16>("quic key").to_vec(), bytes("1f369613dd76d5467730efcbe3b1a22d"));
    assert_eq!(client.expand::<12>("quic iv").to_vec(), bytes("fa044b2f42a3fd3b46fb255c"));
    assert_eq!(client.expand::<16>("quic hp").to_vec(), bytes("9f50449e04a0e810283a1e9933adedd2"));
    assert_eq!(server.expand::<16>("quic key").to_vec(), bytes("cf3a5331653c364c88f0f379b6067e37"));
    assert_eq!(server.expand::<12>("quic iv").to_vec(), bytes("0ac1493ca1905853b0bba03e"));
    assert_eq!(server.expand::<16>("quic hp").to_vec(), bytes("c206b8d9b9f0f37644430b490eeaa314"));
    let [client, server] = initial_secrets(&SALT_2, id().as_bytes());
    assert_eq!(client.expand::<16>("quicv2 key").to_vec(), bytes("8b1a0bc121284290a29e0971b5cd045d"));
    assert_eq!(client.expand::<12>("quicv2 iv").to_vec(), bytes("91f73e2351d8fa91660e909f"));
    assert_eq!(client.expand::<16>("quicv2 hp").to_vec(), bytes("45b95e15235d6f45a6b19cbcb0294ba9"));
    assert_eq!(server.expand::<16>("quicv2 key").to_vec(), bytes("82db637861d55e1d011f19ea71d5d2a7"));
    assert_eq!(server.expand::<12>("quicv2 iv").to_vec(), bytes("dd13c276499c0249d3310652"));
    assert_eq!(server.expand::<16>("quicv2 hp").to_vec(), bytes("edf6d05c83121201b436e16877593c3a"));
}

#[test]
fn client_initial_of_the_standard_is_protected_and_opened() {
    let [client, _] = initial(VERSION_1, &id()).unwrap();
    let (header, plain) = client_initial();
    let packet = protect(&client, &header, 18, 2, &plain);
    assert_eq!(packet.len(), 1200);
    assert_eq!(packet[..22], bytes("c000000001088394c8f03e5157080000449e7b9aec34")[..]);
    assert_eq!(packet[1184..], bytes("e221af44860018ab0856972e194cd934")[..]);
    assert_eq!(open_long(&client, &packet), (2, plain));
}

#[test]
fn server_initial_of_the_standard_is_opened() {
    let [_, server] = initial(VERSION_1, &id()).unwrap();
    let packet = bytes(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a 5816b6394100f37a1c69797554780bb38cc5a99f5e\
         de4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc 3f3bded74b562bfb19fb84022f8ef4cdd93795d77d\
         06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee",
    );
    let (number, plain) = open_long(&server, &packet);
    // An acknowledgement, then the ServerHello.
    assert_eq!((number, &plain[..10]), (1, &bytes("02000000000600405a02")[..]));
    let mut damaged = packet.clone();
    damaged[60] ^= 1;
    let unmasked = server.unmask(&damaged, 18).unwrap();
    assert!(server.open(None, &damaged, 18, unmasked, &mut Vec::new()).is_none());
}

#[test]
fn retry_of_the_standards_is_valid_for_its_connection_alone() {
    let version_1 = bytes("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let version_2 = bytes("cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6");
    assert!(is_retry_valid(VERSION_1, &version_1, &id()));
    assert!(is_retry_valid(VERSION_2, &version_2, &id()));
    assert!(!is_retry_valid(VERSION_1, &version_1, &ConnectionId::default()));
    assert!(!is_retry_valid(VERSION_1, &version_1[..15], &id()));
}

#[test]
fn short_header_of_the_standard_is_opened_with_chacha20() {
    let secret = bytes("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
    let secret = Secret::new(Suite::ChaCha20, &secret).unwrap();
    let next = bytes("1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9");
    assert_eq!(secret.next("quic ku"), Secret::new(Suite::ChaCha20, &next).unwrap());
    let mut protection = Protection::new(VERSION_1, &secret).unwrap();
    protection.note(654_360_563);
    let packet = bytes("4cfe4189655e5cd55c41f69080575d7999c25a5bfb");
    let unmasked = protection.unmask(&packet, 1).unwrap();
    let mut scratch = Vec::new();
    let number = protection.open(None, &packet, 1, unmasked, &mut scratch).unwrap();
    assert_eq!((number, payload(&scratch, 1), unmasked.first), (654_360_564, &[1][..], 0x42));
}

#[test]
fn cut_packet_numbers_are_completed() {
    // RFC 9000, appendix A.3.
    assert_eq!(whole_number(0xA82F_30EB, 0x9B32, 2), 0xA82F_9B32);
    assert_eq!(whole_number(0, 0xFF, 1), 0xFF);
    assert_eq!(whole_number(0x100, 0xFF, 1), 0xFF);
    assert_eq!(whole_number(0x1FF, 0x00, 1), 0x200);
}

proptest! {
    #[test]
    fn packet_numbers_near_the_expected_one_are_completed(expected in 0u64..1 << 61, ahead in -100i64..100) {
        let Some(number) = expected.checked_add_signed(ahead) else { return Ok(()) };
        for length in 1..5 {
            prop_assert_eq!(whole_number(expected, number & ((1 << (8 * length)) - 1), length), number);
        }
    }
}
