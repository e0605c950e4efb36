//! Links of all clients, and shared links.

use std::collections::HashMap;
use std::ops::Range;

use schema::Direction;
use units::{Bytes, Timestamp};

use crate::build;
use crate::effect::{ClosedEffect, Fate, State};
use crate::queue;
use crate::spec::PathSpec;
use crate::special::Special;

/// The clients' own links in one flat array, one row each; the index of a link is `2 * client + direction`, so no
/// search is needed.
///
/// Memory fetches decide whether a packet of one of 60,000 clients costs more than one of a single client. A row begins
/// with its [`Head`]: delay and program. The program is the list of effects; links with the same configuration share
/// one. The effects' states follow the head. Where paths only delay, a row is 8 bytes: all 120,000 links take less than
/// 1 MB. With up to three effects in closed form a row is one cache line. Links that need more ([`Special`]) have only
/// their number in their row.
#[derive(Debug)]
pub(crate) struct Links {
    rows: Vec<u64>,
    /// Index of the first row, aligned to a cache line.
    first: usize,
    /// Numbers in a row, a power of two.
    stride: usize,
    programs: Vec<Box<[ClosedEffect]>>,
    specials: Vec<Special>,
    /// Members of each shared link; its two directions are specials `2 * number + direction`.
    members: Vec<Range<u32>>,
}

/// A client's own link, before its row exists.
#[derive(Debug)]
pub(crate) enum UnplacedLink {
    /// Effects in closed form with their states, and then a delay in nanoseconds.
    Plain(Vec<(ClosedEffect, State)>, u64),
    Special(Special),
}

/// The first number of a row: program and delay of a plain link, or the number of a special link.
#[derive(Clone, Copy, Debug)]
struct Head(u64);

/// Numbers in a cache line.
const LINE: usize = 8;
/// Set if the other bits are the number of a special link.
const SPECIAL: u64 = 1 << 63;
/// Bits of the delay in nanoseconds; the bits above are the program.
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
pub(crate) enum ClientLink<'a> {
    /// The whole way of its packets is computed on arrival.
    Plain(Link<'a>),
    /// The link's packets travel step by step, cut into wire packets if the flag is set.
    Special { acts_per_wire_packet: bool },
}

impl ClientLink<'_> {
    /// True if a super-packet must be cut into wire packets before it enters this link.
    #[inline]
    pub(crate) fn acts_per_wire_packet(&self) -> bool {
        match self {
            ClientLink::Plain(link) => link.program.iter().any(ClosedEffect::acts_per_wire_packet),
            ClientLink::Special { acts_per_wire_packet } => *acts_per_wire_packet,
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

    /// The clients' own links in index order, and the shared links with these members, each with two entries in
    /// `shared`.
    pub(crate) fn of(own: Vec<UnplacedLink>, shared: Vec<Special>, members: Vec<Range<u32>>) -> Self {
        let effects = own.iter().map(|link| match link {
            UnplacedLink::Plain(effects, _) => effects.len(),
            UnplacedLink::Special(_) => 0,
        });
        let stride = (1 + 2 * effects.max().unwrap_or(0)).next_power_of_two();
        let mut rows = vec![0; own.len() * stride + LINE];
        let first = rows.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE);
        let mut links = Links { rows: Vec::new(), first, stride, programs: Vec::new(), specials: shared, members };
        let mut numbers: HashMap<Vec<ClosedEffect>, usize> = HashMap::new();
        for (made, row) in own.into_iter().zip(rows[first..].chunks_exact_mut(stride)) {
            row[0] = match made {
                UnplacedLink::Special(special) => {
                    links.specials.push(special);
                    SPECIAL | (links.specials.len() - 1) as u64
                }
                UnplacedLink::Plain(effects, delay) => {
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

    /// The own link of `client` in `direction`; the client must be one of those passed to [`Links::new`].
    #[inline]
    pub(crate) fn own(&mut self, client: u32, direction: Direction) -> ClientLink<'_> {
        let from = self.place(client, direction);
        let [head, states @ ..] = &mut self.rows[from..from + self.stride] else {
            unreachable!("every row has a head");
        };
        let head = Head(*head);
        if let Some(number) = head.special() {
            return ClientLink::Special { acts_per_wire_packet: self.specials[number].acts_per_wire_packet };
        }
        ClientLink::Plain(Link { program: &self.programs[head.program()], states, delay: head.delay() })
    }

    /// Prefetches the row of a client's link while its packet is copied: with many clients the row is not in the cache.
    #[inline]
    pub(crate) fn touch(&self, client: u32, direction: Direction) {
        std::hint::black_box(self.rows[self.place(client, direction)]);
    }

    /// The special link `link` on the way of `client`: 0 for its own, otherwise 1 plus the number of the shared one.
    #[inline]
    pub(crate) fn special(&mut self, client: u32, direction: Direction, link: u16) -> &mut Special {
        let number = match link {
            0 => Head(self.rows[self.place(client, direction)]).special().expect("the link is special"),
            shared => 2 * (usize::from(shared) - 1) + direction.index(),
        };
        &mut self.specials[number]
    }

    #[inline]
    fn place(&self, client: u32, direction: Direction) -> usize {
        self.first + (client as usize * 2 + direction.index()) * self.stride
    }

    /// The first link of a packet of `client`: its own link going up, the farthest shared link going down.
    pub(crate) fn first(&self, client: u32, direction: Direction) -> u16 {
        match direction {
            Direction::Up => 0,
            Direction::Down => self.shared_below(client, self.members.len()),
        }
    }

    /// The link after `link`; `None` after the last one.
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

    /// The last of the first `count` shared links that `client` passes; 0, its own link, if it passes none.
    fn shared_below(&self, client: u32, count: usize) -> u16 {
        let shared = self.members[..count].iter().rposition(|members| members.contains(&client));
        shared.map_or(0, |number| number as u16 + 1)
    }
}

/// One plain link: its effects in order, and then the delay.
pub(crate) struct Link<'a> {
    program: &'a [ClosedEffect],
    /// States of the effects, in sequence.
    states: &'a mut [u64],
    delay: u64,
}

impl Link<'_> {
    /// The fate of a wire packet (or an uncut super-packet, if no effect acts per wire packet) of `size` IP bytes that
    /// reaches the link at `at`.
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
    fn links_of_the_up_path_are_those_of_the_down_path_reversed() {
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
        assert!(
            matches!(links.own(3, Direction::Up), ClientLink::Plain(_)),
            "a client without shared links has plain links"
        );
    }

    #[test]
    fn delay_only_link_takes_8_bytes_and_three_effects_one_cache_line() {
        let rate = BitRate::from_bits_per_second(1_000_000).unwrap();
        let mut client = ClientPath::constant(Duration::from_millis(48));
        let links = |client: &ClientPath| Links::new::<()>(&PathSpec::new(vec![client.clone(); 100]), 1).0;
        assert_eq!(links(&client).stride, 1);
        client.up.put(EffectSpec::Loss(Probability::new(0.1).unwrap()));
        client.up.put(EffectSpec::Jitter(Duration::from_millis(1)));
        let queue = Queue::default();
        client.up.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
        let links = links(&client);
        assert_eq!((links.stride, links.programs.len()), (LINE, 2), "one program per direction for all clients");
        assert_eq!(links.rows[links.first..].as_ptr().align_offset(64), 0);
    }

    #[test]
    fn link_head_round_trips_delay_and_program() {
        for (program, delay) in [(0, 0), (1, Links::DELAY_MAX), ((1 << 20) - 1, 7)] {
            let head = Head(program << DELAY_BITS | delay);
            assert_eq!((head.special(), head.program() as u64, head.delay()), (None, program, delay));
        }
        assert_eq!(Head(SPECIAL | 131_067).special(), Some(131_067));
    }
}
