//! Builds the links of a path from its specification.

use std::collections::HashMap;
use std::sync::Arc;

use stats::Rng;
use units::time::saturating_nanos;

use crate::effect::{Built, ClosedEffect, Site, State, sequence};
use crate::link::{Links, UnplacedLink};
use crate::queue::Queue;
use crate::spec::{Change, ChangedLinks, EffectSpec, LinkSpec, PathSpec, Propagation};
use crate::special::{DelayNode, Kind, Node, NodeDelay, Special};
use crate::timeline::{Kinds, Timeline};

/// The random sequence of a loss that a change sets; each effect has sequences of its own (`EffectKind::STREAMS`).
pub(crate) const CHANGED_LOSS: u64 = 8;

/// All links of `path`, and the queues among their effects.
///
/// # Panics
/// When a change names a shared link that does not exist, or a link has more than 250 effects.
pub(crate) fn links<P>(path: &PathSpec, seed: u64) -> (Links, Vec<Queue<P>>) {
    // Other crates number their random sequences as well: the path derives a seed of its own.
    let mut builder =
        Builder { seed: Rng::named(seed, "path").next(), timelines: HashMap::new(), queues: Vec::new(), path };
    for change in &path.changes {
        if let ChangedLinks::Shared(number) = change.place {
            assert!(number < path.shared.len(), "a change names shared link {number} of {}", path.shared.len());
        }
    }
    assert!(path.shared.len() < usize::from(u16::MAX), "at most 65,534 shared links");
    let mut shared_links = Vec::new();
    for (number, shared) in path.shared.iter().enumerate() {
        let timeline = builder.timeline(|place| *place == ChangedLinks::Shared(number));
        for (direction, effects) in [&shared.up, &shared.down].into_iter().enumerate() {
            let spec = LinkSpec { propagation: Propagation::default(), effects: effects.clone() };
            // Numbers above those of the clients' own links.
            shared_links.push(builder.special(&spec, 1 << 32 | (2 * number + direction) as u64, timeline.clone()));
        }
    }
    let members: Vec<_> = path.shared.iter().map(|shared| shared.members.clone()).collect();
    let mut own = Vec::with_capacity(path.clients.len() * 2);
    for (number, client) in path.clients.iter().enumerate() {
        let shares = || members.iter().enumerate().filter(|(_, members)| members.contains(&(number as u32)));
        let applies = |links: &ChangedLinks| match links {
            ChangedLinks::Clients(clients) => clients.contains(&(number as u32)),
            ChangedLinks::Shared(_) => false,
        };
        let timeline = builder.timeline(applies);
        for (direction, spec) in [&client.up, &client.down].into_iter().enumerate() {
            let name = (2 * number + direction) as u64;
            if timeline.is_none() && shares().next().is_none() && is_plain(spec) {
                let fastest = spec.delay().saturating_sub(spec.jitter());
                own.push(UnplacedLink::Plain(builder.closed(spec, name), saturating_nanos(fastest)));
                continue;
            }
            let mut special = builder.special(spec, name, timeline.clone());
            special.acts_per_wire_packet |=
                shares().any(|(shared, _)| shared_links[2 * shared + direction].acts_per_wire_packet);
            own.push(UnplacedLink::Special(special));
        }
    }
    (Links::of(own, shared_links, members), builder.queues)
}

struct Builder<'a, P> {
    seed: u64,
    path: &'a PathSpec,
    /// Timelines by the indexes of their changes.
    timelines: HashMap<Vec<usize>, Arc<Timeline>>,
    queues: Vec<Queue<P>>,
}

impl<P> Builder<'_, P> {
    fn timeline(&mut self, applies: impl Fn(&ChangedLinks) -> bool) -> Option<Arc<Timeline>> {
        let changes = &self.path.changes;
        let selected: Vec<usize> = (0..changes.len())
            .filter(|&change| changes[change].kind.is_of_links() && applies(&changes[change].place))
            .collect();
        if selected.is_empty() {
            return None;
        }
        let timeline = self.timelines.entry(selected).or_insert_with_key(|selected| {
            let selected: Vec<&Change> = selected.iter().map(|&change| &changes[change]).collect();
            Arc::new(Timeline::new(&selected))
        });
        Some(timeline.clone())
    }

    /// Where the effect at `place` of a link is built. Jitters subtract from `remaining_ns`, the link's shortest delay
    /// in nanoseconds.
    fn site<'s>(
        &self,
        link: u64,
        effects: &[EffectSpec],
        place: usize,
        remaining_ns: &'s mut u64,
        change_kinds: Kinds,
    ) -> Site<'s> {
        Site { seed: self.seed, link, earlier: earlier(effects, place), remaining_ns, changes_rate: change_kinds.rate }
    }

    /// The effects of a plain link in the order of travel, without the delay.
    fn closed(&self, spec: &LinkSpec, link: u64) -> Vec<(ClosedEffect, State)> {
        let mut remaining_ns = saturating_nanos(spec.delay());
        let mut closed = Vec::new();
        for (place, effect) in spec.effects.iter().enumerate() {
            let built = effect.build(&mut self.site(link, &spec.effects, place, &mut remaining_ns, Kinds::default()));
            if let Some(Built::Closed(effect, state)) = built {
                closed.push((effect, state));
            }
        }
        closed
    }

    /// A link whose effects are simulated one by one.
    fn special(&mut self, spec: &LinkSpec, link: u64, timeline: Option<Arc<Timeline>>) -> Special {
        let change_kinds = timeline.as_ref().map_or(Kinds::default(), |timeline| timeline.change_kinds);
        let shortest = timeline.as_ref().map_or(1.0, |timeline| timeline.shortest_delay());
        let shortest_ns = |base_ns: u64| (base_ns as f64 * shortest).floor() as u64;
        let propagation_ns = match &spec.propagation {
            Propagation::Constant(delay) => saturating_nanos(*delay),
            Propagation::OverTime(series) => {
                series.points().iter().map(|(_, delay)| saturating_nanos(*delay)).min().unwrap_or(0)
            }
        };
        let constant_ns = spec.effects.iter().map(|effect| shortest_ns(saturating_nanos(effect.expected().delay)));
        let mut remaining_ns = constant_ns.fold(shortest_ns(propagation_ns), u64::saturating_add);
        let total_ns = remaining_ns;
        let mut kinds = self.kinds(spec, link, timeline.as_ref(), change_kinds, &mut remaining_ns);
        let (delay, is_series) = match &spec.propagation {
            Propagation::Constant(delay) => (NodeDelay::Constant(saturating_nanos(*delay)), false),
            Propagation::OverTime(series) => (NodeDelay::Series(series.clone()), true),
        };
        if is_series || !matches!(delay, NodeDelay::Constant(0)) {
            kinds.push(Kind::Delay(DelayNode {
                delay,
                subtracted_ns: 0,
                is_variable: is_series || change_kinds.delay,
                last: 0,
            }));
        }
        // The mean delay that jitters add is subtracted from the delays, the last delay first.
        let mut jitter = total_ns - remaining_ns;
        for kind in kinds.iter_mut().rev() {
            if let Kind::Delay(node) = kind {
                let base_ns = match &node.delay {
                    NodeDelay::Constant(nanos) => *nanos,
                    NodeDelay::Series(_) => propagation_ns,
                };
                node.subtracted_ns = jitter.min(shortest_ns(base_ns));
                jitter -= node.subtracted_ns;
            }
        }
        assert!(kinds.len() <= 250, "a link of {} effects: 250 are the most", kinds.len());
        let acts_per_wire_packet = kinds.iter().any(|kind| match kind {
            Kind::Closed(effect, _) => effect.acts_per_wire_packet(),
            Kind::Delay(_) => false,
            _ => true,
        });
        Special { nodes: nodes(kinds, timeline.is_some()), timeline, acts_per_wire_packet }
    }

    /// The effects of a special link, in the order of travel. A loss that a change sets is placed before the link's own
    /// loss, or first.
    fn kinds(
        &mut self,
        spec: &LinkSpec,
        link: u64,
        timeline: Option<&Arc<Timeline>>,
        change_kinds: Kinds,
        remaining_ns: &mut u64,
    ) -> Vec<Kind> {
        let mut kinds = Vec::new();
        let changed_loss = spec.effects.iter().position(EffectSpec::is_loss).unwrap_or(0);
        for (place, effect) in spec.effects.iter().enumerate() {
            if change_kinds.loss && place == changed_loss {
                kinds.push(Kind::ChangedLoss(sequence(self.seed, link, CHANGED_LOSS, 0)));
            }
            let mut site = self.site(link, &spec.effects, place, remaining_ns, change_kinds);
            kinds.extend(effect.build(&mut site).map(|built| match built {
                Built::Closed(effect, state) => Kind::Closed(effect, state),
                Built::Stepped(effect) => Kind::Stepped(effect),
                Built::Delay(nanos) => {
                    let delay = NodeDelay::Constant(nanos);
                    Kind::Delay(DelayNode { delay, subtracted_ns: 0, is_variable: change_kinds.delay, last: 0 })
                }
                Built::Queue(bottleneck, draw) => {
                    let timeline = timeline.filter(|_| change_kinds.rate).cloned();
                    self.queues.push(Queue::new(bottleneck, timeline, draw));
                    Kind::Queue(self.queues.len() as u32 - 1)
                }
            }));
        }
        if change_kinds.loss && spec.effects.is_empty() {
            kinds.push(Kind::ChangedLoss(sequence(self.seed, link, CHANGED_LOSS, 0)));
        }
        kinds
    }
}

/// Marks which of `kinds`, in their order, may process packets ahead of time. These are effects in closed form behind
/// effects that keep the order, on links where nothing depends on time; and constant delays, which have no state.
fn nodes(kinds: Vec<Kind>, has_changes: bool) -> Box<[Node]> {
    let mut is_ordered = true;
    let node = |kind: Kind| {
        let is_stateless = matches!(&kind, Kind::Delay(node) if !node.is_variable);
        let is_timeless = match &kind {
            Kind::Queue(_) => false,
            Kind::Delay(node) => !node.is_variable,
            _ => !has_changes,
        };
        let is_ahead = is_stateless || (is_ordered && is_timeless);
        // Effects that wait for a packet's time receive the packets in order.
        let keeps_order = !matches!(&kind, Kind::Stepped(effect) if !effect.keeps_order());
        is_ordered = (is_ordered || !is_ahead) && keeps_order;
        Node { kind, is_ahead }
    };
    kinds.into_iter().map(node).collect()
}

/// Number of effects of the same kind before the one at `place`.
fn earlier(effects: &[EffectSpec], place: usize) -> usize {
    let kind = std::mem::discriminant(&effects[place]);
    effects[..place].iter().filter(|effect| std::mem::discriminant(*effect) == kind).count()
}

/// Whether the fate of a packet on this link is known on its arrival.
fn is_plain(spec: &LinkSpec) -> bool {
    matches!(spec.propagation, Propagation::Constant(_))
        && saturating_nanos(spec.delay()) <= Links::DELAY_MAX
        && spec.effects.iter().all(|effect| effect.is_idle() || effect.is_closed())
}
