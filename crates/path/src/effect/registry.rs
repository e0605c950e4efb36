//! Expands the list of effects in `effect.rs` to enums and their methods.
//!
//! Calls are dispatched by the enums' variants: no function pointer is looked up per packet.

/// The whole list, by how effects are simulated: `closed` ones are values of [`ClosedForm`](super::ClosedForm),
/// `stepped` ones of [`Stepwise`](super::Stepwise), the others are a queue, a delay or in closed form, depending on the
/// configuration.
macro_rules! effects {
    (
        closed { $($(#[$closed_doc:meta])* $closed:ident($closed_settings:ty): $closed_kind:ty,)* }
        stepped { $($(#[$stepped_doc:meta])* $stepped:ident($stepped_settings:ty): $stepped_kind:ty,)* }
        either { $($(#[$either_doc:meta])* $either:ident($either_settings:ty): $either_kind:ty,)* }
    ) => {
        specs! {
            $($(#[$closed_doc])* $closed($closed_settings): $closed_kind,)*
            $($(#[$stepped_doc])* $stepped($stepped_settings): $stepped_kind,)*
            $($(#[$either_doc])* $either($either_settings): $either_kind,)*
        }

        impl EffectSpec {
            /// Whether a packet's fate at this effect is known on arrival.
            pub(crate) fn is_closed(&self) -> bool {
                match self {
                    $(EffectSpec::$closed(_) => true,)*
                    $(EffectSpec::$stepped(_) => false,)*
                    $(EffectSpec::$either(settings) => <$either_kind>::is_closed(settings),)*
                }
            }
        }

        /// One effect in closed form: its configuration.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum ClosedEffect {
            $(#[doc = concat!("As [`EffectSpec::", stringify!($closed), "`].")] $closed($closed_kind),)*
            /// A bottleneck with a queue whose state is a few numbers.
            Rate(Rate),
        }

        impl ClosedEffect {
            /// The fate of a wire packet of `size` IP bytes that reaches this effect at `at`.
            #[inline]
            pub(crate) fn handle(&self, state: &mut State, at: Timestamp, size: Bytes) -> Fate {
                match self {
                    $(ClosedEffect::$closed(effect) => effect.handle(state, at, size),)*
                    ClosedEffect::Rate(rate) => rate.handle(state, at, size),
                }
            }

            /// True if it must process every wire packet individually; false if a super-packet may pass uncut.
            #[inline]
            pub(crate) fn acts_per_wire_packet(&self) -> bool {
                match self {
                    $(ClosedEffect::$closed(_) => <$closed_kind as ClosedForm>::ACTS_PER_WIRE_PACKET,)*
                    ClosedEffect::Rate(_) => Rate::ACTS_PER_WIRE_PACKET,
                }
            }

            /// Whether it is the link's loss.
            #[inline]
            pub(crate) fn is_loss(&self) -> bool {
                match self {
                    $(ClosedEffect::$closed(_) => <$closed_kind as EffectKind>::IS_LOSS,)*
                    ClosedEffect::Rate(_) => false,
                }
            }
        }

        /// One effect that processes packets step by step, with its state of one link.
        #[derive(Debug)]
        pub(crate) enum SteppedEffect {
            $(#[doc = concat!("As [`EffectSpec::", stringify!($stepped), "`].")] $stepped($stepped_kind),)*
        }

        impl SteppedEffect {
            /// What happens to a packet of `size` IP bytes that reaches this effect at `at`.
            #[inline]
            pub(crate) fn handle(&mut self, at: Timestamp, size: Bytes) -> Step {
                match self {
                    $(SteppedEffect::$stepped(effect) => effect.handle(at, size),)*
                }
            }

            /// Changes the bytes of a packet for which `handle` returned [`Step::Altered`].
            pub(crate) fn alter(&self, frame: &mut [u8], draw: &mut Draw) -> bool {
                match self {
                    $(SteppedEffect::$stepped(_) => <$stepped_kind as Stepwise>::alter(frame, draw),)*
                }
            }

            /// False if packets may overtake one another.
            pub(crate) fn keeps_order(&self) -> bool {
                match self {
                    $(SteppedEffect::$stepped(_) => <$stepped_kind as Stepwise>::KEEPS_ORDER,)*
                }
            }
        }
    };
}

/// Methods of every effect, however it is simulated.
macro_rules! specs {
    ($($(#[$doc:meta])* $name:ident($settings:ty): $kind:ty,)*) => {
        /// One effect of a link on packets. All but the delays act on wire packets, never on super-packets.
        #[derive(Clone, Debug, PartialEq)]
        pub enum EffectSpec {
            $($(#[$doc])* $name($settings),)*
        }

        /// Properties of each kind of effect, in the order of the list.
        const KINDS: &[KindProperties] = &[$(KindProperties::of::<$kind>(),)*];

        impl EffectSpec {
            /// The effect's key in files; on one link an effect replaces others of the same key.
            pub fn key(&self) -> &'static str {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::KEY,)* }
            }

            /// Position of an effect in the order of travel if no order is given.
            pub(crate) fn rank(&self) -> u8 {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::RANK,)* }
            }

            /// Whether every packet passes unchanged and without delay.
            pub fn is_idle(&self) -> bool {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::is_idle(settings),)* }
            }

            /// Whether it is a link's loss, which a change of the loss replaces.
            pub(crate) fn is_loss(&self) -> bool {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::IS_LOSS,)* }
            }

            /// Whether packets leave later than they arrive.
            pub fn delays(&self) -> bool {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::DELAYS,)* }
            }

            /// Whether it is rejected on a link that clients share.
            pub(crate) fn is_of_one_client(&self) -> bool {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::IS_OF_ONE_CLIENT,)* }
            }

            /// Rejects settings that are impossible for a client at this RTT.
            ///
            /// # Errors
            /// The contradiction to the RTT, in a sentence.
            pub fn check(&self, rtt: Duration) -> Result<(), String> {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::check(settings, rtt),)* }
            }

            /// The effect in words, as `profile show` prints it.
            pub(crate) fn describe(&self) -> String {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::describe(settings),)* }
            }

            /// The effect as a part of a path's name, such as `corrupt 1%`.
            pub fn label(&self) -> String {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::label(settings),)* }
            }

            /// The expected influence on packets.
            pub fn expected(&self) -> Expected {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::expected(settings),)* }
            }

            /// How the receiver notices it, if it does more than lose or delay packets.
            pub fn symptom(&self) -> Option<Symptom> {
                match self { $(EffectSpec::$name(_) => <$kind as EffectKind>::SYMPTOM,)* }
            }

            /// Minimum and maximum, in nanoseconds, by which it moves the median or the lower quartile of the delays of
            /// packets of `size` IP bytes on an idle link.
            pub fn added_ns(&self, size: Bytes) -> [f64; 2] {
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::added_ns(settings, size),)* }
            }

            /// The part of the simulation; `None` if the settings have no effect.
            pub(crate) fn build(&self, site: &mut Site<'_>) -> Option<Built<'_>> {
                if self.is_idle() {
                    return None;
                }
                match self { $(EffectSpec::$name(settings) => <$kind as EffectKind>::build(settings, site),)* }
            }

            /// Writes it to a table, under its key.
            pub(super) fn write<M: SerializeMap>(&self, table: &mut M) -> Result<(), M::Error> {
                match self {
                    $(EffectSpec::$name(settings) => {
                        table.serialize_entry(<$kind as EffectKind>::KEY, &<$kind as EffectKind>::form(settings))
                    })*
                }
            }

            /// Reads the value of `key` in a table.
            ///
            /// # Panics
            /// When no effect has this key.
            pub(super) fn read<'de, M: MapAccess<'de>>(key: &str, table: &mut M) -> Result<Self, M::Error> {
                $(if key == <$kind as EffectKind>::KEY {
                    return table.next_value().map(<$kind as EffectKind>::spec);
                })*
                unreachable!("`{key}` is the key of no effect")
            }
        }
    };
}
