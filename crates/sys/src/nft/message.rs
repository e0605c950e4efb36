//! Messages of nfnetlink: headers, attributes, batches, and the expressions of rules.

use std::net::IpAddr;

pub(super) const NEW_TABLE: u16 = 0;
pub(super) const NEW_CHAIN: u16 = 3;
pub(super) const GET_CHAIN: u16 = 4;
pub(super) const NEW_RULE: u16 = 6;

pub(super) const TABLE_NAME: u16 = 1;
pub(super) const TABLE_FLAGS: u16 = 2;
/// The table belongs to its socket and is removed with it.
pub(super) const TABLE_OWNER: u32 = 2;

pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_POLICY: u16 = 5;
pub(super) const CHAIN_TYPE: u16 = 7;
pub(super) const HOOK_NUMBER: u16 = 1;
pub(super) const HOOK_PRIORITY: u16 = 2;
pub(super) const HOOK_PREROUTING: u32 = 0;
pub(super) const HOOK_FORWARD: u32 = 2;
pub(super) const HOOK_POSTROUTING: u32 = 4;
pub(super) const PRIORITY_SOURCE_NAT: i32 = 100;

pub(super) const RULE_TABLE: u16 = 1;
pub(super) const RULE_CHAIN: u16 = 2;
pub(super) const RULE_EXPRESSIONS: u16 = 4;

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE_EXCLUSIVE: u16 = 0x200 | 0x400;
const APPEND: u16 = 0x800;
const DUMP: u16 = 0x300;
const NESTED: u16 = 0x8000;
const TYPE: u16 = 0x3fff;
const HEADER: usize = 16;
/// nfgenmsg, after the header.
const GENERIC: usize = 4;

/// The packets that a table processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family(pub u8);

impl Family {
    pub(super) const INET: Family = Family(1);
    pub(super) const IPV4: Family = Family(2);
    pub(super) const IPV6: Family = Family(10);

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::IPV4 } else { Family::IPV6 }
    }
}

/// Several changes as one transaction.
pub(super) struct Batch {
    family: Family,
    bytes: Vec<u8>,
    steps: Vec<&'static str>,
}

impl Batch {
    pub(super) fn new(family: Family) -> Self {
        let mut bytes = Vec::new();
        message(&mut bytes, BATCH_BEGIN, REQUEST, 0, Family(0), SUBSYSTEM, &[]);
        Batch { family, bytes, steps: Vec::new() }
    }

    /// Adds one step; `what` names it in errors.
    pub(super) fn add(&mut self, what: &'static str, kind: u16, fill: impl FnOnce(&mut Attributes)) {
        let mut attributes = Attributes::default();
        fill(&mut attributes);
        self.steps.push(what);
        let flags = REQUEST | ACKNOWLEDGE | if kind == NEW_RULE { APPEND | 0x400 } else { CREATE_EXCLUSIVE };
        let kind = SUBSYSTEM << 8 | kind;
        message(&mut self.bytes, kind, flags, self.steps.len() as u32, self.family, 0, &attributes.0);
    }

    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The name of the step with this sequence number; number 0 is the batch itself.
    pub(super) fn step(&self, sequence: u32) -> Option<&'static str> {
        self.steps.get((sequence as usize).checked_sub(1)?).copied()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        message(&mut bytes, BATCH_END, REQUEST, self.steps.len() as u32 + 1, Family(0), SUBSYSTEM, &[]);
        bytes
    }
}

/// A request for all objects of one kind.
pub(super) fn dump(kind: u16, family: Family) -> Vec<u8> {
    let mut bytes = Vec::new();
    message(&mut bytes, SUBSYSTEM << 8 | kind, REQUEST | DUMP, 1, family, 0, &[]);
    bytes
}

fn message(to: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, family: Family, resource: u16, attributes: &[u8]) {
    let length = (HEADER + GENERIC + attributes.len()) as u32;
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(flags.to_ne_bytes());
    to.extend(sequence.to_ne_bytes());
    to.extend(0u32.to_ne_bytes());
    to.extend([family.0, 0]);
    to.extend(resource.to_be_bytes());
    to.extend(attributes);
}

/// Attributes of a message, or of another attribute. Numbers are big-endian, as nf_tables requires.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes)) -> &mut Self {
        let mut inner = Attributes::default();
        fill(&mut inner);
        self.bytes(kind | NESTED, &inner.0)
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub kind: u16,
    pub sequence: u32,
    /// The bytes after the netlink header.
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The errno of an acknowledgement (0) or an error.
    pub(super) fn error(&self) -> Option<i32> {
        let code = self.body.first_chunk::<4>().filter(|_| self.kind == ERROR)?;
        Some(-i32::from_ne_bytes(*code))
    }

    /// Whether a dump ends with it.
    pub(super) fn ends(&self) -> bool {
        self.kind == DONE || self.kind == ERROR
    }

    /// The message's attributes: type and value.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        attributes(self.body.get(GENERIC..).unwrap_or_default())
    }
}

/// The messages in a received datagram.
pub(super) fn answers(mut bytes: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    std::iter::from_fn(move || {
        let number = |at: usize| bytes.get(at..at + 4).map(|four| u32::from_ne_bytes(four.try_into().expect("four")));
        let length = number(0)? as usize;
        let (kind, sequence) = (number(4)? as u16, number(8)?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Answer { kind, sequence, body })
    })
}

/// The attributes in these bytes: type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let number = |at: usize| bytes.get(at..at + 2).map(|two| u16::from_ne_bytes(two.try_into().expect("two")));
        let (length, kind) = (usize::from(number(0)?), number(2)? & TYPE);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The expressions of rules. Each works on the registers that earlier ones have filled.
pub(super) mod expression {
    use super::Attributes;

    pub(in super::super) const EQUAL: u32 = 0;
    pub(in super::super) const NOT_EQUAL: u32 = 1;
    const VERDICT: u32 = 0;
    const FIRST: u32 = 1;
    pub(in super::super) const SECOND: u32 = 2;

    const ELEMENT: u16 = 1;
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    const VALUE: u16 = 1;
    const NETWORK_HEADER: u32 = 1;
    const INCOMING_DEVICE: u32 = 4;

    fn put(list: &mut Attributes, name: &str, data: impl FnOnce(&mut Attributes)) {
        list.nested(ELEMENT, |element| {
            element.text(NAME, name).nested(DATA, data);
        });
    }

    /// Loads bytes of the IP header into the first register.
    pub(in super::super) fn load_network_header(list: &mut Attributes, offset: u32, length: u32) {
        put(list, "payload", |data| {
            data.number(1, FIRST).number(2, NETWORK_HEADER).number(3, offset).number(4, length);
        });
    }

    /// Loads the number of the packet's incoming device into the first register.
    pub(in super::super) fn load_incoming_device(list: &mut Attributes) {
        put(list, "meta", |data| {
            data.number(1, FIRST).number(2, INCOMING_DEVICE);
        });
    }

    /// Continues if the comparison with the first register is true.
    pub(in super::super) fn compare(list: &mut Attributes, operator: u32, value: &[u8]) {
        put(list, "cmp", |data| {
            data.number(1, FIRST).number(2, operator).nested(3, |inner| {
                inner.bytes(VALUE, value);
            });
        });
    }

    /// Stores a value in a register.
    pub(in super::super) fn immediate(list: &mut Attributes, register: u32, value: &[u8]) {
        put(list, "immediate", |data| {
            data.number(1, register).nested(2, |inner| {
                inner.bytes(VALUE, value);
            });
        });
    }

    /// Copies the packet to the address in the first register by the device in the second.
    pub(in super::super) fn duplicate(list: &mut Attributes) {
        put(list, "dup", |data| {
            data.number(1, FIRST).number(2, SECOND);
        });
    }

    /// Drops the packet.
    pub(in super::super) fn drop(list: &mut Attributes) {
        put(list, "immediate", |data| {
            data.number(1, VERDICT).nested(2, |inner| {
                inner.nested(2, |verdict| {
                    verdict.number(1, 0);
                });
            });
        });
    }

    /// Replaces the source address by this host's own address.
    pub(in super::super) fn masquerade(list: &mut Attributes) {
        put(list, "masq", |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nft_attributes_are_padded_and_parsed_back() {
        let mut list = Attributes::default();
        list.text(3, "ab").number(7, 258).nested(4, |inner| {
            inner.bytes(1, &[9]);
        });
        assert_eq!(list.0.len() % 4, 0);
        let read: Vec<(u16, &[u8])> = attributes(&list.0).collect();
        assert_eq!(read[0], (3, &b"ab\0"[..]));
        assert_eq!(read[1], (7, &[0, 0, 1, 2][..]));
        assert_eq!((read[2].0, attributes(read[2].1).next()), (4, Some((1, &[9][..]))));
        assert_eq!(attributes(&[3, 0, 0, 0]).count(), 0, "a length below its own header ends it");
        assert_eq!(answers(&[0; 15]).count(), 0);
    }
}
