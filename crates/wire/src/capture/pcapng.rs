//! The pcapng format: a chain of blocks, each with its length before and after.

use units::Timestamp;

use super::order::Order;
use super::{BLOCK_MAX, CaptureError, Captured, PACKET_MAX, Step};

/// The first four bytes of a section header, the same in either byte order.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];
/// The block types.
pub(super) mod kind {
    pub(in super::super) const SECTION: u32 = 0x0A0D_0D0A;
    pub(in super::super) const INTERFACE: u32 = 1;
    /// The obsolete packet block, still found in old files.
    pub(in super::super) const PACKET: u32 = 2;
    pub(in super::super) const SIMPLE: u32 = 3;
    pub(in super::super) const STATISTICS: u32 = 5;
    pub(in super::super) const ENHANCED: u32 = 6;
}
/// The byte-order magic of a section header, in its writer's byte order.
pub(super) const ORDER_MAGIC: u32 = 0x1A2B_3C4D;

/// The current section.
#[derive(Clone, Debug)]
pub(super) struct File {
    order: Order,
    interfaces: Vec<Interface>,
    last_at: Timestamp,
    /// Drops of finished sections.
    drops_before: u64,
}

#[derive(Clone, Debug)]
struct Interface {
    link: u16,
    snap_length: u32,
    resolution: Resolution,
    /// Offset in seconds of every time.
    offset_s: i64,
    drops: u64,
    /// if_name, if it is valid UTF-8.
    name: String,
}

/// Units of a timestamp in a second.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// Power of a tenth.
    Decimal(u32),
    /// Power of a half.
    Binary(u32),
}

/// One block: a step, or a number of bytes to skip, which need not be available yet.
pub(super) enum Block<'a> {
    Step(Step<'a>),
    SkipAll(u64),
}

impl File {
    pub(super) fn new() -> File {
        File { order: Order::Little, interfaces: Vec::new(), last_at: Timestamp::ZERO, drops_before: 0 }
    }

    /// Packets lost by the capture, all sections and interfaces.
    pub(super) fn drops(&self) -> u64 {
        self.interfaces.iter().fold(self.drops_before, |sum, interface| sum.saturating_add(interface.drops))
    }

    pub(super) fn interface_name(&self, index: u32) -> &str {
        self.interfaces.get(index as usize).map_or("", |interface| &interface.name)
    }

    #[inline]
    pub(super) fn step<'a>(&mut self, bytes: &'a [u8], offset: u64) -> Result<Block<'a>, CaptureError> {
        let more = |needed| Ok(Block::Step(Step::More { needed }));
        if bytes.len() < 12 {
            return more(12);
        }
        if bytes[..4] == SECTION_MAGIC {
            // The byte order of the length is known only from the magic number behind it.
            self.order = match Order::Little.u32(bytes, 8) {
                ORDER_MAGIC => Order::Little,
                other if other.swap_bytes() == ORDER_MAGIC => Order::Big,
                other => {
                    let what = "byte-order magic of a section header";
                    return Err(CaptureError::Corrupt { offset, what, value: u64::from(other) });
                }
            };
        }
        let (kind, length) = (self.order.u32(bytes, 0), self.order.u32(bytes, 4));
        if length < 12 || !length.is_multiple_of(4) {
            return Err(CaptureError::Corrupt { offset, what: "length of a block", value: u64::from(length) });
        }
        let used = length as usize;
        let known = matches!(
            kind,
            kind::SECTION | kind::INTERFACE | kind::PACKET | kind::SIMPLE | kind::STATISTICS | kind::ENHANCED
        );
        if !known {
            return Ok(Block::SkipAll(u64::from(length)));
        }
        if used > BLOCK_MAX {
            return Err(CaptureError::Corrupt { offset, what: "length of a block", value: u64::from(length) });
        }
        let Some(block) = bytes.get(..used) else { return more(used) };
        let trailer = self.order.u32(block, used - 4);
        if trailer != length {
            let what = "length at the end of a block";
            return Err(CaptureError::Corrupt { offset, what, value: u64::from(trailer) });
        }
        let body = &block[8..used - 4];
        let packet = match kind {
            kind::SECTION => {
                self.drops_before = self.drops();
                self.interfaces.clear();
                None
            }
            kind::INTERFACE => {
                self.interface(body, offset)?;
                None
            }
            kind::STATISTICS => {
                self.statistics(body);
                None
            }
            kind::ENHANCED => Some(self.enhanced(body, offset, true)?),
            kind::PACKET => Some(self.enhanced(body, offset, false)?),
            _ => Some(self.simple(body, offset)?),
        };
        Ok(Block::Step(match packet {
            Some(packet) => Step::Packet { packet, used },
            None => Step::Skip { used },
        }))
    }

    fn interface(&mut self, body: &[u8], offset: u64) -> Result<(), CaptureError> {
        if body.len() < 8 {
            return Err(short("interface description", body, offset));
        }
        if self.interfaces.len() == INTERFACES_MAX {
            let value = INTERFACES_MAX as u64 + 1;
            return Err(CaptureError::Corrupt { offset, what: "number of interfaces", value });
        }
        let mut interface = Interface {
            link: self.order.u16(body, 0),
            snap_length: self.order.u32(body, 4),
            resolution: Resolution::Decimal(6),
            offset_s: 0,
            drops: 0,
            name: String::new(),
        };
        for (code, value) in self.options(&body[8..]) {
            match (code, value) {
                (OPTION_RESOLUTION, [power, ..]) if power & 0x80 != 0 => {
                    interface.resolution = Resolution::Binary(u32::from(power & 0x7F));
                }
                (OPTION_RESOLUTION, [power, ..]) => interface.resolution = Resolution::Decimal(u32::from(*power)),
                (OPTION_NAME, value) if value.len() <= NAME_MAX => {
                    interface.name = std::str::from_utf8(value).unwrap_or("").trim_end_matches('\0').to_owned();
                }
                (OPTION_OFFSET, value) if value.len() == 8 => interface.offset_s = self.order.u64(value, 0) as i64,
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn statistics(&mut self, body: &[u8]) {
        if body.len() < 12 {
            return;
        }
        let mut drops = 0u64;
        for (code, value) in self.options(&body[12..]) {
            if matches!(code, OPTION_DROPPED | OPTION_OS_DROPPED) && value.len() == 8 {
                drops = drops.saturating_add(self.order.u64(value, 0));
            }
        }
        // The counters run from the start of the capture, so a later block replaces an earlier one.
        let index = self.order.u32(body, 0) as usize;
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.drops = interface.drops.max(drops);
        }
    }

    /// An enhanced packet block, or the obsolete one, which differs in the first four bytes only.
    #[inline]
    fn enhanced<'a>(&mut self, body: &'a [u8], offset: u64, new: bool) -> Result<Captured<'a>, CaptureError> {
        if body.len() < 20 {
            return Err(short("packet", body, offset));
        }
        let index = if new { self.order.u32(body, 0) } else { u32::from(self.order.u16(body, 0)) };
        let Some(interface) = self.interfaces.get(index as usize) else {
            return Err(CaptureError::Corrupt { offset, what: "interface of a packet", value: u64::from(index) });
        };
        let (high, low) = (self.order.u32(body, 4), self.order.u32(body, 8));
        let captured_length = self.order.u32(body, 12) as usize;
        let Some(bytes) = body[20..].get(..captured_length).filter(|_| captured_length <= PACKET_MAX) else {
            return Err(CaptureError::Corrupt {
                offset,
                what: "captured length of a packet",
                value: captured_length as u64,
            });
        };
        self.last_at = interface.time(u64::from(high) << 32 | u64::from(low));
        Ok(Captured {
            at: self.last_at,
            has_time: true,
            link: interface.link,
            interface: index,
            bytes,
            original_length: self.order.u32(body, 16).max(captured_length as u32),
        })
    }

    fn simple<'a>(&mut self, body: &'a [u8], offset: u64) -> Result<Captured<'a>, CaptureError> {
        if body.len() < 4 {
            return Err(short("simple packet", body, offset));
        }
        let Some(interface) = self.interfaces.first() else {
            return Err(CaptureError::Corrupt { offset, what: "interface of a simple packet", value: 0 });
        };
        let original_length = self.order.u32(body, 0);
        // The captured length is not in the block: it is the minimum of the original length, the snaplen and the
        // available bytes.
        let snap = if interface.snap_length == 0 { u32::MAX } else { interface.snap_length };
        let captured_length = (original_length.min(snap) as usize).min(body.len() - 4).min(PACKET_MAX);
        Ok(Captured {
            at: self.last_at,
            has_time: false,
            link: interface.link,
            interface: 0,
            bytes: &body[4..4 + captured_length],
            original_length,
        })
    }

    /// The options of a block, as far as they are well formed.
    fn options<'a>(&self, mut bytes: &'a [u8]) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let order = self.order;
        std::iter::from_fn(move || {
            if bytes.len() < 4 {
                return None;
            }
            let (code, length) = (order.u16(bytes, 0), usize::from(order.u16(bytes, 2)));
            let value = bytes.get(4..4 + length).filter(|_| code != 0)?;
            bytes = bytes.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
            Some((code, value))
        })
    }
}

impl Interface {
    /// Nanoseconds since 1970, limited to zero and the end of the range.
    #[inline]
    fn time(&self, units: u64) -> Timestamp {
        let nanos = match self.resolution {
            Resolution::Decimal(power @ 0..=9) => u128::from(units) * 10u128.pow(9 - power),
            // 10^20 units of any finer resolution would overflow the field itself.
            Resolution::Decimal(power) => u128::from(units) / 10u128.pow((power - 9).min(30)),
            Resolution::Binary(power) => (u128::from(units) * 1_000_000_000) >> power,
        };
        let nanos = nanos as i128 + i128::from(self.offset_s) * 1_000_000_000;
        Timestamp::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

fn short(what: &'static str, body: &[u8], offset: u64) -> CaptureError {
    let what = match what {
        "packet" => "length of a packet block",
        "simple packet" => "length of a simple packet block",
        _ => "length of an interface description block",
    };
    CaptureError::Corrupt { offset, what, value: body.len() as u64 + 12 }
}

/// if_name.
pub(super) const OPTION_NAME: u16 = 2;
/// A longer name is not a valid device name and is ignored.
const NAME_MAX: usize = 255;
/// if_tsresol.
pub(super) const OPTION_RESOLUTION: u16 = 9;
/// if_tsoffset.
pub(super) const OPTION_OFFSET: u16 = 14;
/// isb_ifdrop: lost by the interface or its driver.
pub(super) const OPTION_DROPPED: u16 = 5;
/// isb_osdrop: lost by the capturing system.
pub(super) const OPTION_OS_DROPPED: u16 = 7;
/// More interfaces in one section mean a corrupt file.
const INTERFACES_MAX: usize = 4096;
