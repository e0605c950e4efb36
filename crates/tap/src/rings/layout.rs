//! The shared file, as `interposer/ring.h` says it in C: change both. Offsets are in bytes from the file's begin.

/// "ayytap01", little-endian.
pub const MAGIC: u64 = 0x3130_7061_7479_7961;
/// The header's page.
pub const HEADER_BYTES: usize = 4096;
/// One slot.
pub const SLOT_BYTES: usize = 256;
/// One record.
pub const RECORD_BYTES: usize = 64;
/// One record, in words.
pub const RECORD_WORDS: usize = RECORD_BYTES / 8;

/// Offsets in the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const SLOTS: usize = 8;
    pub const RECORDS: usize = 12;
    pub const CLOCK: usize = 16;
    pub const IMAGES: usize = 20;
    pub const PIECE_TICKS: usize = 24;
    pub const UNCLAIMED: usize = 32;
    pub const FILE_BYTES: usize = 40;
}

/// Offsets in a slot.
pub mod slot {
    pub const STATE: usize = 0;
    pub const IMAGE: usize = 8;
    pub const TID: usize = 12;
    pub const DROPPED: usize = 16;
    pub const HEAD: usize = 64;
    pub const TAIL: usize = 128;
}

/// The lower half of a slot's state; the upper is the owner's process number.
pub mod state {
    pub const FREE: u32 = 0;
    pub const OWNED: u32 = 1;
    pub const RELEASED: u32 = 2;
    pub const ABSENT: u32 = 3;
}

/// What hooks take for a clock.
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
    pub const LEFT: u8 = 12;
    pub const POLLED: u8 = 13;
    pub const ASIDE: u8 = 14;
}

/// Where the records begin, for so many slots.
pub fn records_at(slots: u32) -> u64 {
    (HEADER_BYTES as u64 + u64::from(slots) * SLOT_BYTES as u64).next_multiple_of(4096)
}

/// The whole file.
pub fn file_bytes(slots: u32, records: u32) -> u64 {
    records_at(slots) + u64::from(slots) * u64::from(records) * RECORD_BYTES as u64
}
