//! The macros that define records.

/// Defines a record: the struct, what it is before anything is known, and its columns.
///
/// The record's documentation is what a row of the table is, a field's what its column means. Beside that a field is one line:
///
/// ```text
///   pub NAME: TYPE,
///   pub NAME: TYPE [OPTION, ..],
/// ```
///
/// | option | meaning |
/// |---|---|
/// | `name "NAME"` | name of the column; else the field's, with `_ns` behind it for a [`Timestamp`](units::Timestamp) |
/// | `unit "UNIT"` | unit, or what the number counts; else none, and `ns` where the name ends in `_ns` |
/// | `few` | few different values: stored as a dictionary |
/// | `as FUNCTION` | the columns are made by this function, else by the field's type |
/// | `null if \|row\| CONDITION` | the column has no value in the rows that fulfil the condition |
/// | `blank (VALUE)` | what the field is before anything is known; else what its type says |
/// | `meaning of field` | in [`group!`](crate::group): the meaning is that of the field that has the group's type |
///
/// A column may be null where the type is an `Option` or the options say `null if`. Fields that are not in the table stand
/// under `besides`.
#[macro_export]
macro_rules! record {
    (
        $(#[doc = $row:literal])+
        $(#[derive($($derive:path),* $(,)?)])?
        pub struct $record:ident in $table:literal $(, $rows:literal rows a part)? { $($fields:tt)* }
        $(besides { $($besides:tt)* })?
    ) => {
        $crate::group! {
            $(#[doc = $row])+
            $(#[derive($($derive),*)])?
            pub struct $record { $($fields)* }
            $(besides { $($besides)* })?
        }

        impl $record {
            /// A row of which nothing is known yet.
            pub const BLANK: Self = <Self as $crate::table::Columns>::BLANK;
        }

        impl $crate::table::Record for $record {
            const TABLE: &'static str = $table;
            const ROW: &'static str = concat!($($row),+).trim_ascii();
            const ROWS_A_PART: usize = $crate::table::rows_a_part(&[$($rows)?]);
            const BLANK: Self = Self::BLANK;

            fn columns() -> Vec<$crate::table::Column<Self>> {
                let mut columns = Vec::new();
                let whole = $crate::table::Field::new("", Self::ROW, |row: &Self| Some(row), |row: &mut Self| row);
                <Self as $crate::table::Columns>::columns(whole, &mut columns);
                columns
            }
        }
    };
}

/// Defines fields that belong together: they are columns of every record that has a field of this type, and the columns' names
/// begin with that field's name. Written as [`record!`](crate::record) is.
#[macro_export]
macro_rules! group {
    (
        $(#[$attribute:meta])*
        pub struct $group:ident {
            $(
                $(#[doc = $about:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $field:ident : $type:ty $([$($options:tt)*])?
            ),* $(,)?
        }
        $(besides { $($(#[doc = $more_about:literal])+ pub $more:ident : $more_type:ty),* $(,)? })?
    ) => {
        $(#[$attribute])*
        pub struct $group {
            $($(#[doc = $about])+ $(#[serde($($serde)*)])? pub $field: $type,)*
            $($($(#[doc = $more_about])+ pub $more: $more_type,)*)?
        }

        impl Default for $group {
            fn default() -> Self {
                <Self as $crate::table::Columns>::BLANK
            }
        }

        impl $crate::table::Columns for $group {
            const BLANK: Self = $group {
                $($field: $crate::group!(@blank $type; $($($options)*)?),)*
                $($($more: <$more_type as $crate::table::Columns>::BLANK,)*)?
            };

            fn columns<R, G, M>(group: $crate::table::Field<G, M>, columns: &mut Vec<$crate::table::Column<R>>)
            where
                R: 'static,
                G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
                M: Fn(&mut R) -> &mut Self + Copy + Send + 'static,
            {
                $($crate::group!(@columns columns group $group $field
                    [concat!($($about),+).trim_ascii()]
                    [|group: &$group| Some(&group.$field)]
                    [<$type as $crate::table::Columns>::columns]
                    [];
                    $($($options)*)?
                );)*
            }
        }
    };

    // What a field is before anything is known.
    (@blank $type:ty;) => { <$type as $crate::table::Columns>::BLANK };
    (@blank $type:ty; blank ($blank:expr) $($more:tt)*) => { $blank };
    (@blank $type:ty; $option:tt $($more:tt)*) => { $crate::group!(@blank $type; $($more)*) };

    // The columns of a field: each option changes one of its meaning, the way to it, the function that makes columns, and calls on
    // the `Field`.
    (@columns $columns:ident $group:ident $type:ident $field:ident [$about:expr] [$get:expr] [$function:expr] [$($calls:tt)*];) => {
        let field = $group.part(stringify!($field), $about, $get, |group: &mut $type| &mut group.$field) $($calls)*;
        $function(field, $columns);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt [$($calls:tt)*];
        name $name:literal $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about $get $function
            [$($calls)* .named(&$group, $name)]; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt [$($calls:tt)*];
        unit $unit:literal $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about $get $function
            [$($calls)* .unit($unit)]; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt [$($calls:tt)*];
        few $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about $get $function
            [$($calls)* .few()]; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt $calls:tt;
        as $path:path $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about $get [$path] $calls; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt [$($calls:tt)*];
        null if |$row:ident| $null:expr $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about
            [|$row: &$type| if $null { None } else { Some(&$row.$field) }]
            $function [$($calls)* .nullable()]; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt $calls:tt;
        blank $blank:tt $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field $about $get $function $calls; $($($more)*)?);
    };
    (@columns $columns:ident $group:ident $type:ident $field:ident $about:tt $get:tt $function:tt $calls:tt;
        meaning of field $(, $($more:tt)*)?) => {
        $crate::group!(@columns $columns $group $type $field [$group.about] $get $function $calls; $($($more)*)?);
    };
}

/// Rows of a part: the number, where a record says one.
pub const fn rows_a_part(said: &[usize]) -> usize {
    match said {
        [rows, ..] => *rows,
        [] => super::ROWS_A_PART_MAX,
    }
}
