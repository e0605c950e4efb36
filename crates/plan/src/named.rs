//! Enums of named values: one definition for plan, command line and messages.

/// Gives an enum `ALL`, `name` and, with feature `cli`, clap's `ValueEnum`: `Variant "name"`, optionally followed by `|
/// "alias"`, which the command line accepts too, or `(hidden)`, which help does not list.
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal $(| $alias:literal)? $(($hidden:ident))?),+ $(,)?) => {
        impl $type {
            /// All values, in the order of help.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The name in a plan and on the command line.
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
