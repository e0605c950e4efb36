//! All links of all clients, in two flat arrays.

use ledger::Direction;
use stats::Rng;
use units::{Bytes, Timestamp};

use crate::draw::Draw;
use crate::effect::{Delay, Effect, Fate, Loss, Rate, Variation};
use crate::spec::{ClientPath, EffectSpec, LinkSpec, RateSpec};

/// Every link's delay, and every link's other effects, one link after the other; the place of a link is
/// `2 * client + direction`, so finding it is no search.
///
/// What a packet of one of 60,000 clients fetches from memory is what decides whether it costs more than one of a
/// single client. Where paths only delay, that is the 8 bytes of the delay: all 120,000 links are under 1 MB. Links
/// with other effects take as many places in `effects` as the longest of them has (`stride`), 40 bytes each.
#[derive(Debug)]
pub(crate) struct Links {
    delays: Vec<Delay>,
    effects: Vec<Option<Effect>>,
    stride: usize,
}

impl Links {
    /// The links of `clients`. Each random effect draws from its own sequence, named by client, direction and kind.
    pub(crate) fn new(clients: &[ClientPath], seed: u64) -> Self {
        let specs = || clients.iter().flat_map(|client| [&client.up, &client.down]);
        let count = |spec: &LinkSpec| effects(spec, |_| Draw::new(0)).count();
        let stride = specs().map(count).max().unwrap_or(0);
        // The streams below are numbers, and other rooms number theirs too: the path's seed is its own.
        let seed = Rng::named(seed, "path").next();
        let mut all = Vec::with_capacity(clients.len() * 2 * stride);
        for (link, spec) in specs().enumerate() {
            let draw = |kind: u64| Draw::new(Rng::new(seed, (link as u64) << 8 | kind).next());
            all.extend(effects(spec, draw).map(Some).chain(std::iter::repeat(None)).take(stride));
        }
        let fastest = |spec: &LinkSpec| Delay::new(spec.delay().saturating_sub(spec.variation()));
        Links { delays: specs().map(fastest).collect(), effects: all, stride }
    }

    /// The link of `client`, which must be one of those given to [`Links::new`], in `direction`.
    #[inline]
    pub(crate) fn at(&mut self, client: u32, direction: Direction) -> Link<'_> {
        let place = client as usize * 2 + direction.index();
        let effects = &mut self.effects[place * self.stride..(place + 1) * self.stride];
        Link { effects, delay: self.delays[place] }
    }
}

/// One link: the effects a packet meets, in order, and then the delay.
pub(crate) struct Link<'a> {
    effects: &'a mut [Option<Effect>],
    delay: Delay,
}

impl Link<'_> {
    /// The fate of a wire packet (or a whole super-packet, where nothing acts per wire packet) of `size` IP bytes
    /// that reaches the link at `at`.
    #[inline]
    pub(crate) fn handle(&mut self, at: Timestamp, size: Bytes) -> Fate {
        let mut at = at;
        for effect in self.effects.iter_mut().map_while(Option::as_mut) {
            match effect.handle(at, size) {
                Fate::Leaves(later) => at = later,
                dropped @ Fate::Dropped(_) => return dropped,
            }
        }
        Fate::Leaves(self.delay.handle(at))
    }

    /// True when a super-packet must be cut into wire packets before it meets this link.
    #[inline]
    pub(crate) fn acts_per_wire_packet(&self) -> bool {
        self.effects.iter().map_while(Option::as_ref).any(Effect::acts_per_wire_packet)
    }
}

/// The effects of one link in the order of travel, without the delay.
fn effects(spec: &LinkSpec, mut draw: impl FnMut(u64) -> Draw) -> impl Iterator<Item = Effect> {
    // No delay is negative: a variation beyond the delay itself is cut to it.
    let delay = spec.delay();
    spec.effects.iter().filter_map(move |effect| match effect {
        EffectSpec::Loss(loss) => (loss.value() > 0.0).then(|| Effect::Loss(Loss::new(*loss, draw(LOSS)))),
        EffectSpec::Bottleneck(bottleneck) => match bottleneck.rate {
            RateSpec::Constant(rate) => Some(Effect::Rate(Rate::new(rate, bottleneck.queue.limit))),
            RateSpec::Trace(_) => unreachable!("being built"),
        },
        EffectSpec::Variation(variation) => {
            let variation = (*variation).min(delay);
            (!variation.is_zero()).then(|| Effect::Variation(Variation::new(variation, draw(VARIATION))))
        }
        _ => unreachable!("being built"),
    })
}

/// Names of the draw sequences of one link. A later effect takes a new number, so that these do not shift.
const LOSS: u64 = 0;
const VARIATION: u64 = 1;
