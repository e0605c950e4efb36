//! Idle connections that are opened before the load and kept open through it.

use std::time::Duration;

use load::{Load, LoadSpec, Shard};

use crate::world::*;

const PER_SECOND: u32 = 100;

/// One shard of a load that begins at 1 s, with 60 idle connections that are opened from time zero on.
fn shard(index: u32, of: u32) -> World<impl Server> {
    let shard = Shard::new(index, of);
    let connections_max = shard.share(60) as u32;
    let spec = LoadSpec { shard, connections_max, clients: 12, ..spec(constant(50.0)) };
    let mut world = World::new(spec.clone(), answering(ms(3)));
    world.load = Load::new(spec, at(ms(1_000)));
    world.load.open_first(60, PER_SECOND, at(Duration::ZERO));
    world
}

#[test]
fn idle_open_connections_are_opened_and_closed_at_their_rate_and_used_in_turn() {
    let world = shard(0, 1).run();
    let mut opened: Vec<_> = world.ends.iter().map(|end| end.opened_at).collect();
    opened.sort_unstable();
    assert_eq!(opened.len(), 60, "requests opened no further connections");
    assert!(opened.iter().zip(0..).all(|(&opened_at, number)| opened_at == at(ms(10 * number))), "{opened:?}");
    let mut closed: Vec<_> = world.ends.iter().map(|end| end.closed_at).collect();
    closed.sort_unstable();
    let (_, end) = world.load.measured();
    assert!(closed[0] >= end.unwrap(), "no connection is closed before the end of the phase");
    assert!(closed.windows(2).all(|pair| pair[1].since(pair[0]) == ms(10)), "{closed:?}");
    assert_eq!((world.load.live().held_failed, world.open_max), (0, 60));
    // 500 requests of 12 clients with five connections each use all connections equally often.
    let requests: Vec<u32> = world.ends.iter().map(|end| end.requests).collect();
    assert!(requests.iter().all(|&requests| (8..=9).contains(&requests)), "{requests:?}");
}

#[test]
fn shards_divide_idle_open_connections_by_client() {
    let worlds: Vec<_> = (0..5).map(|index| shard(index, 5).run()).collect();
    let ends: Vec<_> = worlds.iter().flat_map(|world| &world.ends).collect();
    assert_eq!(ends.len(), 60);
    for client in 0..12 {
        let own = ends.iter().filter(|end| end.client == client).count();
        assert!((4..=6).contains(&own), "client {client} has {own}");
    }
    for (world, index) in worlds.iter().zip(0..) {
        assert!(world.ends.iter().all(|end| end.client % 5 == index));
    }
    let mut opened: Vec<_> = ends.iter().map(|end| end.opened_at).collect();
    opened.sort_unstable();
    assert!(
        opened.iter().zip(0..).all(|(&opened_at, number)| opened_at == at(ms(10 * number))),
        "all shards together open connections at the configured rate"
    );
}

#[test]
fn refused_idle_open_connections_are_counted() {
    struct Refusing(u32);
    impl Server for Refusing {
        fn connect(&mut self, _: units::Timestamp, _: u32) -> Accept {
            self.0 += 1;
            if self.0 <= 7 { Accept::Refuse } else { Accept::Yes }
        }
        fn request(&mut self, _: units::Timestamp, _: u32) -> Vec<(Duration, Reply)> {
            vec![(ms(3), Reply::Bytes(OK.to_vec()))]
        }
    }
    let spec = LoadSpec { connections_max: 60, clients: 12, ..spec(constant(50.0)) };
    let mut world = World::new(spec.clone(), Refusing(0));
    world.load = Load::new(spec, at(ms(1_000)));
    world.load.open_first(60, PER_SECOND, at(Duration::ZERO));
    let world = world.run();
    let refused = world.ends.iter().filter(|end| end.connected_at.is_none()).count();
    assert_eq!((refused, world.load.live().held_failed), (7, 7));
    assert!(world.records.iter().all(|record| record.failure.is_none()), "clients use their other connections");
}
