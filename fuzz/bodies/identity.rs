//! Arbitrary bytes as the identity of a response, as a request id, and as the path of an object: proxies and other
//! programs may change all three.

use std::sync::Arc;

use polymix::{CacheWorkload, Checker, RequestId, ResponseIdentity, Stream, World};

/// A parsed identity is written as the same bytes. A checker accepts any head and body without a panic, and finds no
/// response without an identity correct.
pub fn run(bytes: &[u8]) {
    let mut written = Vec::new();
    if let Some(identity) = ResponseIdentity::read(bytes) {
        identity.write(&mut written);
        assert_eq!(written, bytes, "{identity:?}");
    }
    written.clear();
    if let Some(request_id) = RequestId::read(bytes) {
        request_id.write(&mut written);
        assert_eq!(written, bytes, "{request_id:?}");
    }
    let world = World::new(Arc::new(CacheWorkload::modern()), 7, 1);
    written.clear();
    if let Some((id, object)) = World::read_path(bytes) {
        world.with_id(id).write_path(object, &mut written);
        // Whatever the end of a path, what it begins with is written alike.
        let end = written.iter().position(|&byte| byte == b'.').unwrap_or(written.len());
        assert!(bytes.starts_with(&written[..end]), "{object:?}");
        assert_eq!(World::read_path(&written), Some((id, object)));
        if world.has(object) {
            let version = world.version(object, 1_700_000_000);
            assert!(version.modified_s <= 1_700_000_000 && version.next_change_s > 1_700_000_000);
            assert!(world.size(object) > 0 && world.embedded(object).count() <= 64);
        }
    }
    // The first byte says where the head ends.
    let Some((&cut, reply)) = bytes.split_first() else { return };
    let (head, body) = reply.split_at(reply.len().min(usize::from(cut)));
    let request = Stream::new(&world).next(std::time::Duration::ZERO);
    let mut checker = Checker::new(Arc::new(world), request, RequestId::default(), 0);
    checker.head(head);
    checker.body(body);
    let seen = checker.end();
    assert_eq!(seen.body_bytes, body.len() as u64);
    assert!(seen.identity.is_some() || seen.content == polymix::Content::NotCompared, "{seen:?}");
}
