//! What the file of an effect says: one trait, and the values in which it answers.

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

/// One kind of effect. Everything that is particular to it is here: how it is written, what it is called, what is
/// to be expected of it, how it is simulated, how `profile check` sees it.
pub(crate) trait EffectKind {
    /// What is configured: the value of its [`EffectSpec`].
    type Settings;
    /// How people write it: in a file, and on a command line.
    type Form: FromStr<Err: fmt::Display> + Serialize + DeserializeOwned;

    /// Its key on a link of a profile, in `[path]` of a plan, and as an option. On one link an effect replaces others
    /// of its key.
    const KEY: &'static str;
    /// The place in the order of travel that it has where no order is given: the lowest first.
    const RANK: u8;
    /// Numbers of its random sequences, below 256. They are its own, and stay as they are: with other numbers the same
    /// seed would give other losses.
    const STREAMS: &'static [u64];
    /// Present where it can be set for all clients at once, by an option and in `[path]`.
    const OPTION: Option<OptionText> = None;
    /// How the receiver of a packet notices it, where it does not only lose or delay.
    const SYMPTOM: Option<Symptom> = None;
    /// Whether it is a link's loss, which a change of the loss stands in for.
    const IS_LOSS: bool = false;
    /// Whether packets leave later than they came.
    const DELAYS: bool = false;
    /// Whether it is refused on a link that clients share.
    const IS_OF_ONE_CLIENT: bool = false;

    /// The effect that a form means.
    fn spec(form: Self::Form) -> EffectSpec;

    /// How the effect is written.
    fn form(settings: &Self::Settings) -> Self::Form;

    /// Whether it passes every packet on, untouched, immediately.
    fn is_idle(settings: &Self::Settings) -> bool;

    /// Refuses what is not possible for a client at this RTT.
    fn check(_settings: &Self::Settings, _rtt: Duration) -> Result<(), String> {
        Ok(())
    }

    /// The effect in words, as `profile show` prints it.
    fn describe(settings: &Self::Settings) -> String;

    /// The effect as a part of a path's name, such as `corrupt 1%`.
    fn label(settings: &Self::Settings) -> String;

    /// What it does to packets.
    fn expected(settings: &Self::Settings) -> Expected;

    /// Least and most, in nanoseconds, by which it moves the median or the lower quartile of the delays of packets of
    /// this size on an idle link.
    fn added_ns(_settings: &Self::Settings, _size: Bytes) -> [f64; 2] {
        [0.0; 2]
    }

    /// Its part of the simulation; `None` where there is nothing for it to do.
    fn build<'a>(settings: &'a Self::Settings, site: &mut Site<'_>) -> Option<Built<'a>>;
}

/// An effect in closed form: what becomes of a packet is known from a [`State`] when it comes, and order is kept.
pub(crate) trait ClosedForm {
    /// Whether it must see every wire packet by itself; false when a super-packet may pass whole.
    const ACTS_PER_WIRE_PACKET: bool = true;

    /// The fate of a wire packet of `size` IP bytes that reaches this effect at `at`.
    fn handle(&self, state: &mut State, at: Timestamp, size: Bytes) -> Fate;
}

/// An effect that meets packets one by one, in true order of time.
pub(crate) trait Stepwise {
    /// False where packets may overtake one another.
    const KEEPS_ORDER: bool = true;

    /// What happens to a packet of `size` IP bytes that reaches this effect at `at`.
    fn handle(&mut self, at: Timestamp, size: Bytes) -> Step;

    /// Changes the bytes of `frame` (vnet header and wire packet), where it said [`Step::Altered`]. False when it
    /// could not.
    fn alter(_frame: &mut [u8], _draw: &mut Draw) -> bool {
        false
    }
}

/// What becomes of a packet at one effect in closed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on to the next effect at this moment, not earlier than it came.
    Leaves(Timestamp),
    /// It ends here.
    Dropped(DropCause),
}

/// What an effect in closed form remembers of one link: two numbers, whose meaning is its own.
pub(crate) type State = [u64; 2];

/// What happens to a packet at one effect of a special link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// It goes on to the next effect at this moment.
    Leaves(Timestamp),
    /// So it does, overtaken by those behind it.
    HeldBack(Timestamp),
    /// It goes on at the same moment with other bytes, drawn by this ([`Stepwise::alter`]).
    Altered(Draw),
    /// It goes on at the same moment, and so does a copy, right behind.
    Duplicated,
    /// It is to wait in this queue.
    Queued(u32),
    /// It ends here.
    Dropped(DropCause),
}

/// Where an effect is built: its place on one link, in one direction.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) seed: u64,
    pub(crate) link: u64,
    /// Effects of the same kind before it on the link.
    pub(crate) earlier: usize,
    /// What is left of the link's shortest delay, in nanoseconds. Whoever makes packets earlier takes it from here.
    pub(crate) left: &'a mut u64,
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

/// The random sequence `stream` of a link, for the effect behind so many of its kind.
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
    /// A stored queue, which draws from this.
    Queue(&'a Bottleneck, Draw),
}

/// What an effect does to packets on an idle link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Share of packets that the link drops, 0 to 1.
    pub dropped: f64,
    /// Variance of the share dropped, over that of independent drops.
    pub scatter: f64,
    /// Share of packets that the receiver's kernel discards, since their checksum is wrong.
    pub discarded: f64,
    /// Copies of a packet, besides itself.
    pub copies: f64,
    /// Share of packets that show the effect's [`Symptom`].
    pub shown: f64,
    /// Constant delay.
    pub delay: Duration,
    /// Each packet's delay varies by up to this, either way.
    pub jitter: Duration,
    /// Some packets are held back for this long.
    pub held: Duration,
}

impl Expected {
    /// Packets pass as they came.
    pub const NOTHING: Expected = Expected {
        dropped: 0.0,
        scatter: 1.0,
        discarded: 0.0,
        copies: 0.0,
        shown: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        held: Duration::ZERO,
    };
}

/// How the receiver of numbered datagrams notices an effect: a row of `profile check`.
#[derive(Clone, Copy, Debug)]
pub struct Symptom {
    /// What the row is called, such as `twice`.
    pub name: &'static str,
    /// What is counted.
    pub sign: Sign,
}

/// What the receiver of numbered datagrams counts. Rows of `profile check` stand in this order.
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    /// Datagrams whose number has come before.
    Again,
    /// Datagrams that come after one with a higher number.
    Late,
    /// Datagrams whose checksum is wrong, of those sent.
    WrongChecksum,
}

impl Sign {
    /// Its place among the rows.
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
    /// What stands for its value in the help.
    pub value_name: &'static str,
    /// What the help says.
    pub help: &'static str,
}
