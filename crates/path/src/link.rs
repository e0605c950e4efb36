//! All links of all clients, and those they share.

use std::collections::HashMap;
use std::ops::Range;

use schema::Direction;
use units::{Bytes, Timestamp};

use crate::build;
use crate::effect::{ClosedEffect, Fate, State};
use crate::queue;
use crate::spec::PathSpec;
use crate::special::Special;

/// The clients' own links in one flat array, a row each; the place of a link is `2 * client + direction`, so finding
/// it is no search.
///
/// What a packet of one of 60,000 clients fetches from memory is what decides whether it costs more than one of a
/// single client. A row begins with its [`Head`]: delay and program. The program says which effects a packet meets;
/// links that are asked to do the same share one. Behind the head stand the effects' states. Where paths only delay, a
/// row is 8 bytes: all 120,000 links are under 1 MB. With up to three effects in closed form it is one cache line.
/// Links that need more ([`Special`]) have only their number in their row.
#[derive(Debug)]
pub(crate) struct Links {
    rows: Vec<u64>,
    /// Where the first row begins: at a cache line.
    first: usize,
    /// Numbers in a row, a power of two.
    stride: usize,
    programs: Vec<Box<[ClosedEffect]>>,
    specials: Vec<Special>,
    /// Whose packets pass each shared link; its two directions are specials `2 * number + direction`.
    members: Vec<Range<u32>>,
}

/// A client's own link, before it has its row.
#[derive(Debug)]
pub(crate) enum Made {
    /// Effects in closed form with their states, and then a delay in nanoseconds.
    Plain(Vec<(ClosedEffect, State)>, u64),
    Special(Special),
}

/// The first number of a row: which program and delay a plain link has, or which special link it is.
#[derive(Clone, Copy, Debug)]
struct Head(u64);

/// Numbers in a cache line.
const LINE: usize = 8;
/// Set where the rest is the number of a special link.
const SPECIAL: u64 = 1 << 63;
/// Bits of the delay, which is in nanoseconds; above it stands the program.
const DELAY_BITS: u32 = 43;

impl Head {
    fn program(self) -> usize {
        (self.0 >> DELAY_BITS) as usize
    }

    fn delay(self) -> u64 {
        self.0 & ((1 << DELAY_BITS) - 1)
    }

    fn special(self) -> Option<usize> {
        (self.0 & SPECIAL != 0).then_some((self.0 & !SPECIAL) as usize)
    }
}

/// A client's own link.
pub(crate) enum Own<'a> {
    /// Its packets' whole way is computed when they come.
    Plain(Link<'a>),
    /// They travel step by step, cut into wire packets where the flag says so.
    Special { acts_per_wire_packet: bool },
}

impl Own<'_> {
    /// True when a super-packet must be cut into wire packets before it meets this link.
    #[inline]
    pub(crate) fn acts_per_wire_packet(&self) -> bool {
        match self {
            Own::Plain(link) => link.program.iter().any(ClosedEffect::acts_per_wire_packet),
            Own::Special { acts_per_wire_packet } => *acts_per_wire_packet,
        }
    }
}

impl Links {
    /// The longest delay of a plain link, in nanoseconds: 2.4 hours.
    pub(crate) const DELAY_MAX: u64 = (1 << DELAY_BITS) - 1;

    /// The links of `path`, and the queues among their effects. Each random effect draws from its own sequence, named
    /// by client (or shared link), direction and kind.
    pub(crate) fn new<P>(path: &PathSpec, seed: u64) -> (Self, Vec<queue::Queue<P>>) {
        build::links(path, seed)
    }

    /// The own links, in the order of their places, behind the shared ones with these members; each of those has two
    /// of `shared`.
    pub(crate) fn of(own: Vec<Made>, shared: Vec<Special>, members: Vec<Range<u32>>) -> Self {
        let effects = own.iter().map(|link| match link {
            Made::Plain(effects, _) => effects.len(),
            Made::Special(_) => 0,
        });
        let stride = (1 + 2 * effects.max().unwrap_or(0)).next_power_of_two();
        let mut rows = vec![0; own.len() * stride + LINE];
        let first = rows.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE);
        let mut links = Links { rows: Vec::new(), first, stride, programs: Vec::new(), specials: shared, members };
        let mut numbers: HashMap<Vec<ClosedEffect>, usize> = HashMap::new();
        for (made, row) in own.into_iter().zip(rows[first..].chunks_exact_mut(stride)) {
            row[0] = match made {
                Made::Special(special) => {
                    links.specials.push(special);
                    SPECIAL | (links.specials.len() - 1) as u64
                }
                Made::Plain(effects, delay) => {
                    let (program, states): (Vec<ClosedEffect>, Vec<State>) = effects.into_iter().unzip();
                    row[1..=2 * states.len()].copy_from_slice(states.as_flattened());
                    let next = numbers.len();
                    let number = *numbers.entry(program).or_insert_with_key(|program| {
                        links.programs.push(program.clone().into());
                        next
                    });
                    (number as u64) << DELAY_BITS | delay.min(Self::DELAY_MAX)
                }
            };
        }
        links.rows = rows;
        links
    }

    /// The own link of `client`, which must be one of those given to [`Links::new`], in `direction`.
    #[inline]
    pub(crate) fn own(&mut self, client: u32, direction: Direction) -> Own<'_> {
        let from = self.place(client, direction);
        let [head, states @ ..] = &mut self.rows[from..from + self.stride] else {
            unreachable!("a row has its head");
        };
        let head = Head(*head);
        if let Some(number) = head.special() {
            return Own::Special { acts_per_wire_packet: self.specials[number].acts_per_wire_packet };
        }
        Own::Plain(Link { program: &self.programs[head.program()], states, delay: head.delay() })
    }

    /// Begins to fetch the row of a client's link, which is far away where there are many, while its packet is copied.
    #[inline]
    pub(crate) fn touch(&self, client: u32, direction: Direction) {
        std::hint::black_box(self.rows[self.place(client, direction)]);
    }

    /// The special link `link` on the way of `client`: 0 for its own, else the number of the shared one and 1.
    #[inline]
    pub(crate) fn special(&mut self, client: u32, direction: Direction, link: u16) -> &mut Special {
        let number = match link {
            0 => Head(self.rows[self.place(client, direction)]).special().expect("it was found special"),
            shared => 2 * (usize::from(shared) - 1) + direction.index(),
        };
        &mut self.specials[number]
    }

    #[inline]
    fn place(&self, client: u32, direction: Direction) -> usize {
        self.first + (client as usize * 2 + direction.index()) * self.stride
    }

    /// Where a packet of `client` begins: up on its own link, down on the farthest link it shares.
    pub(crate) fn first(&self, client: u32, direction: Direction) -> u16 {
        match direction {
            Direction::Up => 0,
            Direction::Down => self.shared_below(client, self.members.len()),
        }
    }

    /// The link after `link`; `None` where that was the last.
    pub(crate) fn after(&self, client: u32, direction: Direction, link: u16) -> Option<u16> {
        let passed = usize::from(link);
        match direction {
            Direction::Up => {
                let ahead = self.members.iter().skip(passed).position(|members| members.contains(&client))?;
                Some((passed + ahead + 1) as u16)
            }
            Direction::Down if link == 0 => None,
            Direction::Down => Some(self.shared_below(client, passed - 1)),
        }
    }

    /// The last of the first `count` shared links that `client` passes; 0, its own, where it passes none.
    fn shared_below(&self, client: u32, count: usize) -> u16 {
        let shared = self.members[..count].iter().rposition(|members| members.contains(&client));
        shared.map_or(0, |number| number as u16 + 1)
    }
}

/// One plain link: the effects a packet meets, in order, and then the delay.
pub(crate) struct Link<'a> {
    program: &'a [ClosedEffect],
    /// Of each effect, one after the other.
    states: &'a mut [u64],
    delay: u64,
}

impl Link<'_> {
    /// The fate of a wire packet (or a whole super-packet, where nothing acts per wire packet) of `size` IP bytes
    /// that reaches the link at `at`.
    #[inline]
    pub(crate) fn handle(&mut self, at: Timestamp, size: Bytes) -> Fate {
        let mut at = at;
        for (effect, state) in self.program.iter().zip(self.states.as_chunks_mut::<2>().0) {
            match effect.handle(state, at, size) {
                Fate::Leaves(later) => at = later,
                dropped @ Fate::Dropped(_) => return dropped,
            }
        }
        Fate::Leaves(Timestamp::from_nanos(at.as_nanos().saturating_add(self.delay)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::{BitRate, Probability};

    use super::*;
    use crate::spec::{Bottleneck, ClientPath, EffectSpec, Queue, RateSpec, SharedSpec};

    #[test]
    fn the_way_up_is_the_way_down_backwards() {
        let shared = |members: Range<u32>| {
            let effects = vec![EffectSpec::Delay(Duration::from_millis(1))];
            SharedSpec { members, up: effects.clone(), down: effects }
        };
        let mut path = PathSpec::new(vec![ClientPath::constant(Duration::ZERO); 4]);
        path.shared = vec![shared(0..2), shared(1..3), shared(0..3)];
        let (links, _) = Links::new::<()>(&path, 1);
        let way = |client, direction| {
            let first = Some(links.first(client, direction));
            let way = std::iter::successors(first, |at| links.after(client, direction, *at));
            way.collect::<Vec<u16>>()
        };
        for (client, expected) in [(0, vec![0, 1, 3]), (1, vec![0, 1, 2, 3]), (2, vec![0, 2, 3]), (3, vec![0])] {
            assert_eq!(way(client, Direction::Up), expected);
            assert!(way(client, Direction::Down).iter().rev().eq(&expected), "{client}");
        }
        let (mut links, _) = Links::new::<()>(&path, 1);
        assert!(matches!(links.own(3, Direction::Up), Own::Plain(_)), "who shares nothing pays nothing");
    }

    #[test]
    fn a_link_that_only_delays_is_a_number_and_one_with_three_effects_a_cache_line() {
        let rate = BitRate::from_bits_per_second(1_000_000).unwrap();
        let mut client = ClientPath::constant(Duration::from_millis(48));
        let links = |client: &ClientPath| Links::new::<()>(&PathSpec::new(vec![client.clone(); 100]), 1).0;
        assert_eq!(links(&client).stride, 1);
        client.up.put(EffectSpec::Loss(Probability::new(0.1).unwrap()));
        client.up.put(EffectSpec::Jitter(Duration::from_millis(1)));
        let queue = Queue::default();
        client.up.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
        let links = links(&client);
        assert_eq!((links.stride, links.programs.len()), (LINE, 2), "one for each way, whatever the client");
        assert_eq!(links.rows[links.first..].as_ptr().align_offset(64), 0);
    }

    #[test]
    fn a_head_keeps_what_is_put_in() {
        for (program, delay) in [(0, 0), (1, Links::DELAY_MAX), ((1 << 20) - 1, 7)] {
            let head = Head(program << DELAY_BITS | delay);
            assert_eq!((head.special(), head.program() as u64, head.delay()), (None, program, delay));
        }
        assert_eq!(Head(SPECIAL | 131_067).special(), Some(131_067));
    }
}
