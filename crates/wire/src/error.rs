//! Why bytes are not the packet they were taken for.

/// What a checked view found wrong. A packet off the wire may be anything, so this is data, not a fault of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the header does.
    #[error("{header} header needs {needed} bytes, but only {available} are there")]
    Truncated {
        /// The header being read.
        header: &'static str,
        /// Bytes it takes.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The version field says it is something else.
    #[error("the IP version field says {found}, not {wanted}")]
    Version {
        /// The version in the packet.
        found: u8,
        /// The version this view is for.
        wanted: u8,
    },
    /// A length field contradicts the bytes or another length field.
    #[error("{field} is {value}, which does not fit in a packet of {available} bytes with its headers")]
    Length {
        /// The field.
        field: &'static str,
        /// Its value, in bytes.
        value: usize,
        /// Bytes there are.
        available: usize,
    },
}
