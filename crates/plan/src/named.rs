//! Values that are typed by their names: an enum says them once, for plan, command line and messages.

/// Gives an enum `ALL`, `name` and, with feature `cli`, clap's `ValueEnum`: `Variant "name"`, then perhaps `| "another"`, which
/// the command line takes too, or `(hidden)`, which help does not list.
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal $(| $alias:literal)? $(($hidden:ident))?),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of help.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// As in a plan and as typed.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        #[cfg(feature = "cli")]
        impl clap::ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let value = clap::builder::PossibleValue::new(self.name());
                Some(match self {
                    $($type::$variant => value $(.alias($alias))? $(.hide(stringify!($hidden) == "hidden"))?),+
                })
            }
        }
    };
}

pub(crate) use named;
