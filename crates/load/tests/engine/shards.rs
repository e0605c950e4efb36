//! Several shards together make the same load as one: the same requests, each of them once.

use std::collections::HashSet;

use load::{Arrivals, LoadSpec, RequestSpec, Reuse, Shard, Target, Workload};
use units::Timestamp;

use crate::world::*;

/// The properties that identify a request: sequence number, scheduled time, client, URL.
type Identity = (u64, Timestamp, u32, u32);

/// Runs every shard of a load with its own simulated server.
fn shards(spec: &LoadSpec, of: u32) -> Vec<World<impl Server>> {
    (0..of)
        .map(|index| {
            let shard = Shard::new(index, of);
            let connections_max = shard.share(u64::from(spec.connections_max)) as u32;
            World::new(LoadSpec { shard, connections_max, ..spec.clone() }, answering(ms(3))).run()
        })
        .collect()
}

fn identities<S: Server>(worlds: &[World<S>]) -> Vec<Identity> {
    let records = worlds.iter().flat_map(|world| &world.records);
    let mut all: Vec<Identity> =
        records.map(|record| (record.sequence, record.scheduled_at, record.client, record.url)).collect();
    all.sort_unstable();
    all
}

fn three_urls() -> Workload {
    let urls = ["http://server/a", "http://server/b", "http://server/c"];
    Workload { requests: urls.map(|url| RequestSpec::get(Target::parse(url).unwrap())).to_vec(), ..Workload::of([]) }
}

#[test]
fn open_loop_requests_do_not_depend_on_the_number_of_shards() {
    for arrivals in [constant(500.0), poisson(500.0)] {
        // More and fewer clients than shards.
        for clients in [10, 2, 1] {
            let spec = LoadSpec { clients, workload: three_urls(), warmup: ms(500), ..spec(arrivals.clone()) };
            let one = shards(&spec, 1);
            let whole = identities(&one);
            assert!(whole.len() > 4_500, "{}", whole.len());
            for of in [2, 3] {
                let worlds = shards(&spec, of);
                assert_eq!(identities(&worlds), whole, "{of} shards, {clients} clients");
                assert!(worlds.iter().all(|world| world.load.measured() == one[0].load.measured()));
                let measured: u64 = worlds.iter().map(|world| world.load.live().offered_measured).sum();
                assert_eq!(measured, one[0].load.live().offered_measured);
                if clients >= of {
                    let own =
                        |world: &World<_>, index: u32| world.records.iter().all(|record| record.client % of == index);
                    assert!(
                        worlds.iter().zip(0..).all(|(world, index)| own(world, index)),
                        "each client belongs to one shard"
                    );
                }
            }
        }
    }
}

#[test]
fn a_request_limit_ends_all_shards_at_the_same_time() {
    for arrivals in [constant(500.0), poisson(500.0)] {
        let spec = LoadSpec { requests_max: Some(1_001), warmup: ms(100), duration: None, ..spec(arrivals) };
        let one = shards(&spec, 1);
        for of in [2, 3, 7] {
            let worlds = shards(&spec, of);
            assert_eq!(identities(&worlds), identities(&one));
            assert!(worlds.iter().all(|world| world.load.measured() == one[0].load.measured()), "{of} shards");
            assert_eq!(worlds.iter().map(|world| world.load.live().offered_measured).sum::<u64>(), 1_001);
        }
    }
}

#[test]
fn request_and_connection_numbers_are_unique_across_shards() {
    for arrivals in [Arrivals::Closed, constant(200.0)] {
        let spec = LoadSpec { reuse: Reuse::Close, connections_max: 5, ..spec(arrivals) };
        let worlds = shards(&spec, 3);
        let (mut connections, mut sequences) = (HashSet::new(), HashSet::new());
        for world in &worlds {
            assert!(world.ends.iter().all(|end| connections.insert(end.connection)));
            assert!(world.records.iter().all(|record| sequences.insert(record.sequence)));
        }
        assert!(connections.len() > 40 && sequences.len() > 40);
    }
}

#[test]
fn a_closed_loop_divides_connections_clients_and_requests_among_shards() {
    for reuse in [Reuse::KeepAlive, Reuse::Close] {
        let spec = LoadSpec {
            reuse,
            connections_max: 8,
            clients: 5,
            requests_max: Some(1_000),
            duration: None,
            ..spec(Arrivals::Closed)
        };
        let worlds = shards(&spec, 3);
        let open: Vec<usize> = worlds.iter().map(|world| world.open_max).collect();
        assert_eq!(open, [3, 3, 2]);
        let offered: Vec<u64> = worlds.iter().map(|world| world.load.live().offered_measured).collect();
        assert_eq!(offered, [334, 333, 333]);
        let mut clients: Vec<u32> = worlds
            .iter()
            .flat_map(|world| world.connects.iter().take(world.open_max).map(|&(_, client)| client))
            .collect();
        clients.sort_unstable();
        assert_eq!(clients, [0, 0, 1, 1, 2, 2, 3, 4], "clients are assigned round-robin over all shards");
    }
}
