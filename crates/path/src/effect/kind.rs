//! The contract of an effect's file: one trait, and the types of its results.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schema::DropCause;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stats::Rng;
use units::{Bytes, Timestamp};

use super::{ClosedEffect, EffectSpec, SteppedEffect};
use crate::draw::{Chance, Draw};
use crate::spec::Bottleneck;

/// One kind of effect. It defines everything specific to that kind: its textual form, its description, its expected
/// influence on packets, its simulation, and its row in `profile check`.
pub(crate) trait EffectKind {
    /// The configuration: the value of its [`EffectSpec`].
    type Settings;
    /// The effect's textual form in a file and on a command line.
    type Form: FromStr<Err: fmt::Display> + Serialize + DeserializeOwned;

    /// The effect's key on a link of a profile, in `[path]` of a plan, and as an option. On one link an effect replaces
    /// others of the same key.
    const KEY: &'static str;
    /// The effect's position in the order of travel if no order is given: the lowest first.
    const RANK: u8;
    /// Numbers of its random sequences, below 256. No other effect uses them, and they never change: with other numbers
    /// the same seed would give other losses.
    const STREAMS: &'static [u64];
    /// Present if it can be set for all clients, by an option and in `[path]`.
    const OPTION: Option<OptionText> = None;
    /// How a packet's receiver notices it, if it does more than lose or delay packets.
    const SYMPTOM: Option<Symptom> = None;
    /// Whether it is a link's loss, which a change of the loss replaces.
    const IS_LOSS: bool = false;
    /// Whether packets leave later than they arrive.
    const DELAYS: bool = false;
    /// Whether it is rejected on a link that clients share.
    const IS_OF_ONE_CLIENT: bool = false;

    /// The effect that a textual form defines.
    fn spec(form: Self::Form) -> EffectSpec;

    /// The textual form of the settings.
    fn form(settings: &Self::Settings) -> Self::Form;

    /// Whether every packet passes unchanged and without delay.
    fn is_idle(settings: &Self::Settings) -> bool;

    /// Rejects settings that are impossible for a client at this RTT.
    fn check(_settings: &Self::Settings, _rtt: Duration) -> Result<(), String> {
        Ok(())
    }

    /// The effect in words, as `profile show` prints it.
    fn describe(settings: &Self::Settings) -> String;

    /// The effect as a part of a path's name, such as `corrupt 1%`.
    fn label(settings: &Self::Settings) -> String;

    /// The expected influence on packets.
    fn expected(settings: &Self::Settings) -> Expected;

    /// Minimum and maximum, in nanoseconds, by which it moves the median or the lower quartile of the delays of packets
    /// of this size on an idle link.
    fn added_ns(_settings: &Self::Settings, _size: Bytes) -> [f64; 2] {
        [0.0; 2]
    }

    /// The part of the simulation; `None` if the settings have no effect.
    fn build<'a>(settings: &'a Self::Settings, site: &mut Site<'_>) -> Option<Built<'a>>;
}

/// An effect in closed form: the fate of a packet is computed from a [`State`] on arrival, and order is kept.
pub(crate) trait ClosedForm {
    /// Whether it must process every wire packet individually; false if a super-packet may pass uncut.
    const ACTS_PER_WIRE_PACKET: bool = true;

    /// The fate of a wire packet of `size` IP bytes that reaches this effect at `at`.
    fn handle(&self, state: &mut State, at: Timestamp, size: Bytes) -> Fate;
}

/// An effect that processes packets one by one, in true order of time.
pub(crate) trait Stepwise {
    /// False if packets may overtake one another.
    const KEEPS_ORDER: bool = true;

    /// What happens to a packet of `size` IP bytes that reaches this effect at `at`.
    fn handle(&mut self, at: Timestamp, size: Bytes) -> Step;

    /// Changes the bytes of `frame` (vnet header and wire packet) after [`Step::Altered`]. False when the frame cannot
    /// be changed.
    fn alter(_frame: &mut [u8], _draw: &mut Draw) -> bool {
        false
    }
}

/// The fate of a packet at one effect in closed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The packet reaches the next effect at this time, not earlier than it arrived.
    Leaves(Timestamp),
    /// The packet is dropped.
    Dropped(DropCause),
}

/// The state of an effect in closed form on one link: two numbers, whose meaning the effect defines.
pub(crate) type State = [u64; 2];

/// What happens to a packet at one effect of a special link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The packet reaches the next effect at this time.
    Leaves(Timestamp),
    /// As `Leaves`, and later packets overtake it.
    Reordered(Timestamp),
    /// The packet continues at the same time with other bytes, drawn from this sequence ([`Stepwise::alter`]).
    Altered(Draw),
    /// The packet continues at the same time, followed directly by a copy.
    Duplicated,
    /// The packet waits in the queue of this number.
    Queued(u32),
    /// The packet is dropped.
    Dropped(DropCause),
}

/// Where an effect is built: its place on one link, in one direction.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) seed: u64,
    pub(crate) link: u64,
    /// Effects of the same kind before it on the link.
    pub(crate) earlier: usize,
    /// Remainder of the link's shortest delay, in nanoseconds. An effect that makes packets earlier subtracts from it.
    pub(crate) remaining_ns: &'a mut u64,
    /// Whether the link's rate changes during the run.
    pub(crate) changes_rate: bool,
}

impl Site<'_> {
    /// The random sequence `stream` of this effect.
    pub(crate) fn draw(&self, stream: u64) -> Draw {
        sequence(self.seed, self.link, stream, self.earlier)
    }

    /// A probability with the random sequence `stream`.
    pub(crate) fn chance(&self, probability: units::Probability, stream: u64) -> Chance {
        Chance::new(probability, self.draw(stream))
    }
}

/// The random sequence `stream` of a link, for the effect with `earlier` others of its kind before it.
pub(crate) fn sequence(seed: u64, link: u64, stream: u64, earlier: usize) -> Draw {
    Draw::new(Rng::new(seed, (earlier as u64) << 48 | link << 8 | stream).next())
}

/// The part of an effect in the simulation.
#[derive(Debug)]
pub(crate) enum Built<'a> {
    /// In closed form, with its state before the first packet.
    Closed(ClosedEffect, State),
    /// Step by step.
    Stepped(SteppedEffect),
    /// A constant delay in nanoseconds.
    Delay(u64),
    /// A queue that stores its packets, with its random sequence.
    Queue(&'a Bottleneck, Draw),
}

/// The expected influence of an effect on packets of an idle link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Share of packets that the link drops, 0 to 1.
    pub dropped: f64,
    /// Variance of the share dropped, relative to that of independent drops.
    pub scatter: f64,
    /// Share of packets that the receiver's kernel discards because of a wrong checksum.
    pub discarded: f64,
    /// Additional copies of a packet.
    pub copies: f64,
    /// Share of packets that show the effect's [`Symptom`].
    pub shown: f64,
    /// Constant delay.
    pub delay: Duration,
    /// Maximum variation of each packet's delay, in either direction.
    pub jitter: Duration,
    /// Additional delay of the packets that are reordered.
    pub reorder_delay: Duration,
}

impl Expected {
    /// Packets pass unchanged.
    pub const NOTHING: Expected = Expected {
        dropped: 0.0,
        scatter: 1.0,
        discarded: 0.0,
        copies: 0.0,
        shown: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        reorder_delay: Duration::ZERO,
    };
}

/// How the receiver of numbered datagrams notices an effect: a row of `profile check`.
#[derive(Clone, Copy, Debug)]
pub struct Symptom {
    /// The row's name, such as `duplicated`.
    pub name: &'static str,
    /// The quantity that is counted.
    pub sign: Sign,
}

/// What the receiver of numbered datagrams counts. Rows of `profile check` have this order.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    /// Datagrams whose number was received before.
    Again,
    /// Datagrams received after one with a higher number.
    Late,
    /// Share of sent datagrams with a wrong checksum.
    WrongChecksum,
}

impl Sign {
    /// Position among the rows.
    pub(crate) fn order(&self) -> u8 {
        match self {
            Sign::Again => 0,
            Sign::Late => 1,
            Sign::WrongChecksum => 2,
        }
    }
}

/// An effect's command-line option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionText {
    /// Placeholder of its value in the help.
    pub value_name: &'static str,
    /// Help text.
    pub help: &'static str,
}
