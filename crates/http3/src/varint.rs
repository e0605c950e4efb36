//! Variable-length integers (RFC 9000, section 16).

/// Largest value.
pub const MAX: u64 = (1 << 62) - 1;

/// Appends a value, at most [`MAX`].
pub fn put(value: u64, into: &mut Vec<u8>) {
    debug_assert!(value <= MAX, "{value} is larger than 2^62 - 1");
    match value {
        0..=0x3f => into.push(value as u8),
        0x40..=0x3fff => into.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => into.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => into.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// The value at the beginning of `bytes`, and its length; `None` if it is incomplete.
pub fn get(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1usize << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
    Some((value, length))
}

/// Takes the value at the beginning of `bytes`; `None` if it is incomplete.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (value, length) = get(bytes)?;
    *bytes = &bytes[length..];
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_shortest_form_and_survive() {
        for (value, length) in
            [(0, 1), (63, 1), (64, 2), (16_383, 2), (16_384, 4), ((1 << 30) - 1, 4), (1 << 30, 8), (MAX, 8)]
        {
            let mut bytes = Vec::new();
            put(value, &mut bytes);
            assert_eq!((bytes.len(), get(&bytes)), (length, Some((value, length))));
            assert_eq!(get(&bytes[..length - 1]), None);
        }
        // RFC 9000, appendix A.1.
        assert_eq!(get(&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]), Some((151_288_809_941_952_652, 8)));
        assert_eq!(get(&[0x40, 0x25]), Some((37, 2)));
    }
}
