//! The macros that define records.

/// Defines a record: the struct, its blank value, and its columns.
///
/// The record's doc comment describes a row of the table, and that of a field its column. Each field is one line:
///
/// ```text
///   pub NAME: TYPE,
///   pub NAME: TYPE [OPTION, ..],
/// ```
///
/// | option | meaning |
/// |---|---|
/// | `name "NAME"` | name of the column [default: the field's, followed by `_ns` for a [`Timestamp`](units::Timestamp)] |
/// | `unit "UNIT"` | unit, or the counted items [default: none, or `ns` if the name ends in `_ns`] |
/// | `few` | few distinct values: stored as a dictionary |
/// | `as FUNCTION` | function that makes the columns [default: that of the field's type] |
/// | `null if \|row\| CONDITION` | the column has no value in rows that fulfil the condition |
/// | `blank (VALUE)` | initial value of the field [default: that of its type] |
/// | `meaning of field` | in [`group!`](crate::group): the meaning of the field with the group's type |
///
/// A column is nullable if the type is an `Option` or the options contain `null if`. Fields that are not in the table
/// are listed under `besides`.
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
            /// A row without values.
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

/// Defines a group of fields: they are columns of every record with a field of this type, and their names begin with
/// that field's name. The syntax is that of [`record!`](crate::record).
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

    // The initial value of a field.
    (@blank $type:ty;) => { <$type as $crate::table::Columns>::BLANK };
    (@blank $type:ty; blank ($blank:expr) $($more:tt)*) => { $blank };
    (@blank $type:ty; $option:tt $($more:tt)*) => { $crate::group!(@blank $type; $($more)*) };

    // The columns of a field: each option changes the meaning, the access, the function that makes columns, or calls on
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

/// Rows of a part: the configured number of a record, or the default.
pub const fn rows_a_part(configured: &[usize]) -> usize {
    match configured {
        [rows, ..] => *rows,
        [] => super::ROWS_A_PART_MAX,
    }
}
