//! Numbers in the byte order of the machine that wrote the file.

/// Byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The two bytes at `at`. The caller has checked the length.
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let number = [bytes[at], bytes[at + 1]];
        match self {
            Order::Little => u16::from_le_bytes(number),
            Order::Big => u16::from_be_bytes(number),
        }
    }

    /// The four bytes at `at`.
    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let number = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Order::Little => u32::from_le_bytes(number),
            Order::Big => u32::from_be_bytes(number),
        }
    }

    /// The eight bytes at `at`.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        match self {
            Order::Little => second << 32 | first,
            Order::Big => first << 32 | second,
        }
    }
}
