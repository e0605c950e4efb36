//! Layout of a user's shared file; `interposer/ring.h` defines the same in C: change both. Offsets are in bytes from
//! the start of the file.

/// "ayytap04", little-endian.
pub const MAGIC: u64 = 0x3430_7061_7479_7961;
/// Bytes of the header page.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 256;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// 64-bit words of a record.
pub const RECORD_WORDS: usize = RECORD_BYTES / 8;

/// Offsets in the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const SLOTS: usize = 8;
    pub const LARGE: usize = 12;
    pub const RECORDS: usize = 16;
    pub const SMALL_RECORDS: usize = 20;
    pub const CLOCK: usize = 24;
    pub const IMAGES: usize = 28;
    pub const PIECE_TICKS: usize = 32;
    pub const UNCLAIMED: usize = 40;
    pub const FILE_BYTES: usize = 48;
    pub const FILTERS: usize = 56;
    pub const FILTERED: usize = 60;
    pub const SLOTS_USED: usize = 64;
    pub const UNFOLLOWED: usize = 68;
    pub const RING: usize = 72;
    pub const BOOT: usize = 80;
    pub const UNCLAIMED_REPORTED: usize = 96;
    pub const IMAGE_BASE: usize = 104;
}

/// Offsets in a slot.
pub mod slot {
    pub const STATE: usize = 0;
    pub const IMAGE: usize = 8;
    pub const TID: usize = 12;
    pub const DROPPED: usize = 16;
    pub const RESERVED: usize = 24;
    pub const SPACE: usize = 32;
    pub const HEAD: usize = 64;
    pub const TAIL: usize = 128;
    pub const DROPPED_REPORTED: usize = 136;
}

/// The lower half of a slot's state; the upper half is the owner's process number.
pub mod state {
    pub const FREE: u32 = 0;
    pub const OWNED: u32 = 1;
    pub const RELEASED: u32 = 2;
}

/// Clocks of the hooks.
pub mod clock {
    pub const NANOSECONDS: u32 = 0;
    pub const TSC: u32 = 1;
}

/// Kinds of records.
pub mod kind {
    pub const LOADED: u8 = 1;
    pub const FORKED: u8 = 2;
    pub const EXECUTING: u8 = 3;
    pub const RESOLVED: u8 = 4;
    pub const OPENED: u8 = 5;
    pub const CONNECTED: u8 = 6;
    pub const CONNECT_FAILED: u8 = 7;
    pub const SENT: u8 = 8;
    pub const RECEIVED: u8 = 9;
    pub const SHUT: u8 = 10;
    pub const CLOSED: u8 = 11;
    pub const LEAVING: u8 = 12;
    pub const POLLED: u8 = 13;
    pub const ASIDE: u8 = 14;
    pub const FILTERED: u8 = 15;
}

/// Number of slots, and records of each. The first `large` ones have `records` records, the others `small_records`;
/// both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub slots: u32,
    pub large: u32,
    pub records: u32,
    pub small_records: u32,
}

impl Shape {
    /// Whether the numbers form a valid shape.
    pub fn is_valid(&self) -> bool {
        let is_count = |records: u32| records.is_power_of_two() && (2..=1 << 24).contains(&records);
        (1..=1 << 16).contains(&self.slots)
            && self.large <= self.slots
            && is_count(self.records)
            && is_count(self.small_records)
    }

    /// Records of one slot.
    pub fn records(&self, slot: u32) -> u32 {
        if slot < self.large { self.records } else { self.small_records }
    }

    /// Start of a slot's records.
    pub fn at(&self, slot: u32) -> u64 {
        let (large, small) = (slot.min(self.large), slot.saturating_sub(self.large));
        let before = u64::from(large) * u64::from(self.records) + u64::from(small) * u64::from(self.small_records);
        self.records_at() + before * RECORD_BYTES as u64
    }

    /// Start of all records.
    pub fn records_at(&self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.slots) * SLOT_BYTES as u64).next_multiple_of(4096)
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.at(self.slots)
    }
}
