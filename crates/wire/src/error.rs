//! Errors of malformed or truncated packets.

/// The defect that a checked view found. Packets from the wire may contain any bytes, so this is data, not a fault of
/// the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the header does.
    #[error("{header} header needs {needed} bytes, but only {available} are available")]
    Truncated {
        /// The header being read.
        header: &'static str,
        /// Length of the header.
        needed: usize,
        /// Available bytes.
        available: usize,
    },
    /// The version field has another value.
    #[error("the IP version field is {found}, expected {expected}")]
    Version {
        /// The version in the packet.
        found: u8,
        /// The expected version.
        expected: u8,
    },
    /// A length field is inconsistent with the available bytes or another length field.
    #[error("{field} is {value}, which does not fit in a packet of {available} bytes with its headers")]
    Length {
        /// The field.
        field: &'static str,
        /// Its value, in bytes.
        value: usize,
        /// Available bytes.
        available: usize,
    },
}
