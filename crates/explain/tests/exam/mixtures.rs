//! Worlds with several limits at the same time, drawn at random, so that they are not selected for being easy.

use stats::Rng;

use crate::world::{MS, Tls, World};

/// The world of a number.
pub fn world(number: u64) -> World {
    let mut rng = Rng::named(number, "mixture");
    let size = (2_000.0 * (1_000.0 * rng.uniform().powi(2)).max(1.0)) as u64;
    let mut world = World::plain(5 + rng.below(250), size);
    (world.seed, world.noise) = (number, true);
    for _ in 0..rng.below(4) {
        change(&mut world, &mut rng);
    }
    world
}

fn change(world: &mut World, rng: &mut Rng) {
    match rng.below(15) {
        0 => world.initial_window = Some(1 + rng.below(20)),
        1 => world.receive_buffer = 8_000 + rng.below(120_000),
        2 => world.send_buffer = 8_000 + rng.below(60_000),
        3 => world.stream_window = Some(20_000 + rng.below(120_000)),
        4 => world.processing = rng.below(400) * MS,
        5 => world.pause = rng.below(1_500) * MS,
        6 => world.rate = Some(500_000 + rng.below(20_000_000)),
        7 => world.shared_queue = rng.below(200) * MS,
        8 => world.loss = 0.04 * rng.uniform(),
        9 => world.lose_last = true,
        10 => world.cpu_percent = 5 + rng.below(60),
        11 => world.send_lag = rng.below(400) * MS,
        12 => (world.new_connection, world.tls) = (true, [Tls::None, Tls::Full, Tls::Resumed][rng.below(3) as usize]),
        13 => (world.reordering, world.reordering_delay) = (0.1 * rng.uniform(), rng.below(60) * MS),
        _ => world.ack_delay = 40 * MS + rng.below(160) * MS,
    }
}
