//! Settings of the client's transport that show in its packets.

use std::time::Duration;

use http3::{Event, Transport};

use super::world::{MS, Setup, World};

/// A connection with this transport, once it is established.
fn connected(transport: Transport) -> World {
    let mut world = World::new(62 * MS, Setup { transport, ..Setup::default() });
    world.connect();
    world.run(Duration::from_secs(10), |world| world.has(|event| matches!(event, Event::Connected)));
    world
}

#[test]
fn an_upload_within_the_initial_window_takes_one_round_trip() {
    let mut took = [12_000, 100_000].map(|initial_window| {
        let mut world = connected(Transport { initial_window, ..Transport::default() });
        let begin = world.now;
        world.send(1, "/bytes/0", &vec![b'y'; 60_000]);
        world.run(Duration::from_secs(60), |world| world.ended() == 1);
        world.time_of(begin, |event| matches!(event, Event::End { .. })).unwrap().as_secs_f64() / 0.062
    });
    took.iter_mut().for_each(|round_trips| *round_trips = round_trips.round());
    assert_eq!(took, [3.0, 1.0], "round trips");
}

#[test]
fn a_connection_that_is_kept_alive_outlives_its_idle_timeout() {
    let idle_timeout = Duration::from_secs(5);
    for (keep_alive, is_lost) in [(None, true), (Some(Duration::from_secs(2)), false)] {
        let mut world = connected(Transport { idle_timeout, keep_alive, ..Transport::default() });
        world.run(Duration::from_secs(100), |world| world.lost().is_some());
        assert_eq!(world.lost().is_some(), is_lost, "{keep_alive:?}");
    }
}

#[test]
fn packets_are_marked_as_ecn_capable_unless_configured_otherwise() {
    for ecn in [true, false] {
        let mut world = connected(Transport { ecn, ..Transport::default() });
        world.request(1, "/bytes/100000");
        world.run(Duration::from_secs(10), |world| world.ended() == 1);
        assert_eq!((world.ended(), world.server.ecn_capable > 0), (1, ecn));
    }
}

#[test]
fn without_segmentation_offload_each_datagram_is_sent_by_itself() {
    for segmentation_offload in [true, false] {
        let transport = Transport { segmentation_offload, ..Transport::default() };
        let mut world = connected(transport);
        let request = http::Request::post("https://shop.example/bytes/0").body(()).unwrap();
        let connection = world.connection.as_mut().unwrap();
        connection.open(1, &request, &vec![b'y'; 60_000]);
        let mut datagrams = Vec::new();
        connection.advance(world.now, &mut Vec::new());
        let first = connection.transmit(world.now, 32, &mut datagrams).unwrap();
        assert_eq!(first.segment.is_some(), segmentation_offload);
        assert_eq!(datagrams.len() > 1500, segmentation_offload);
    }
}
