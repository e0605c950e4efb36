//! Headers of a tar archive: POSIX.1-1988 ustar (pax, "ustar Interchange Format"), and of GNU's additions the size in
//! base 256.
//!
//! ```text
//!   0 name 100 | 100 mode 8 | 108 uid 8 | 116 gid 8 | 124 size 12 | 136 mtime 12 | 148 checksum 8 | 156 type 1
//!   157 link 100 | 257 "ustar" 0 "00" | 265 owner 32 | 297 group 32 | 329 devices 16 | 345 prefix 155 | 500 zeros 12
//! ```
//! Numbers are octal text. Contents follow, filled up to whole blocks; two blocks of zeros end the archive.

use std::ops::Range;

/// Block size of a tar in bytes.
pub(super) const BLOCK: usize = 512;

/// A tar header block.
pub(super) type Block = [u8; BLOCK];

/// The fields of a tar header that runs use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Path in the archive, unchanged.
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// Bytes of contents.
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// Any other kind of entry, as text.
    Other(&'static str),
}

/// The header of a regular file; `None` if the name is too long for a header.
pub(super) fn emit(name: &str, size: u64, mtime: u64) -> Option<Block> {
    let (prefix, name) = split(name)?;
    let mut block = [0; BLOCK];
    put(&mut block, NAME, name.as_bytes());
    put(&mut block, MODE, b"0000644\0");
    put(&mut block, UID, b"0000000\0");
    put(&mut block, GID, b"0000000\0");
    number(&mut block[SIZE], size);
    number(&mut block[MTIME], mtime);
    block[TYPE] = b'0';
    put(&mut block, MAGIC, b"ustar\x0000");
    put(&mut block, PREFIX, prefix.as_bytes());
    let sum = checksum(&block);
    put(&mut block, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
    Some(block)
}

/// Parses a header; `Ok(None)` is a block of zeros.
pub(super) fn parse(block: &Block) -> Result<Option<Header>, &'static str> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    if !block[MAGIC].starts_with(b"ustar") {
        return Err("it is not a tar archive in ustar format");
    }
    if value(&block[CHECKSUM]) != Some(u64::from(checksum(block))) {
        return Err("a header has a wrong checksum: the archive is damaged");
    }
    let (Some(size), Some(mtime)) = (value(&block[SIZE]), value(&block[MTIME])) else {
        return Err("a header has an invalid number");
    };
    let mut name = text(&block[NAME]).to_vec();
    // GNU's own format has other fields in the bytes of ustar's prefix.
    let prefix = if block[MAGIC] == *b"ustar\x0000" { text(&block[PREFIX]) } else { &[] };
    if !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let kind = match block[TYPE] {
        b'0' | 0 => Kind::File,
        b'5' => Kind::Folder,
        b'1' | b'2' => Kind::Other("a link"),
        b'3' | b'4' => Kind::Other("a device"),
        b'6' => Kind::Other("a pipe"),
        b'x' | b'g' | b'L' | b'K' => {
            Kind::Other("an extended header of another program (pack it anew with tar --format=ustar)")
        }
        b'S' => Kind::Other("a sparse file"),
        _ => Kind::Other("of an unknown kind"),
    };
    Ok(Some(Header { name, kind, size, mtime }))
}

/// Number of padding zeros after `size` bytes of contents.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// Splits a path into prefix and name at a slash if the name field alone is too short.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME.len() {
        return Some(("", path));
    }
    path.match_indices('/')
        .map(|(at, _)| (&path[..at], &path[at + 1..]))
        .find(|(prefix, name)| prefix.len() <= PREFIX.len() && name.len() <= NAME.len() && !name.is_empty())
}

fn put(block: &mut Block, at: Range<usize>, bytes: &[u8]) {
    block[at.start..at.start + bytes.len()].copy_from_slice(bytes);
}

/// Writes a number as eleven octal digits, or from 8 GiB in GNU's base 256.
fn number(field: &mut [u8], value: u64) {
    if value < 1 << 33 {
        field.copy_from_slice(format!("{value:011o}\0").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&value.to_be_bytes());
    }
}

fn value(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 && field.len() == 12 {
        let (high, low) = field[1..].split_at(3);
        return high.iter().all(|&byte| byte == 0).then(|| u64::from_be_bytes(low.try_into().expect("eight bytes")));
    }
    let digits = str::from_utf8(text(field)).ok()?.trim_matches(' ');
    // from_str_radix would accept a sign.
    if !digits.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        return None;
    }
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

/// The text of a field, up to the first zero byte.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The tar checksum: the sum of all header bytes, with the checksum field counted as spaces.
fn checksum(block: &Block) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    sum(&block[..CHECKSUM.start]) + 8 * u32::from(b' ') + sum(&block[CHECKSUM.end..])
}

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: Range<usize> = 257..265;
const PREFIX: Range<usize> = 345..500;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_tar_names_are_split_at_a_slash() {
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(60));
        let header = parse(&emit(&long, 0, 0).unwrap()).unwrap().unwrap();
        assert_eq!(header.name, long.as_bytes());
        assert_eq!(emit(&"x".repeat(101), 0, 0), None);
        assert_eq!(emit(&format!("{}/x", "d".repeat(156)), 0, 0), None);
    }

    #[test]
    fn invalid_tar_headers_are_refused() {
        let good = emit("a", 5, 6).unwrap();
        assert_eq!(parse(&[0; BLOCK]).unwrap(), None);
        assert!(parse(&[b'x'; BLOCK]).is_err());
        let mut damaged = good;
        damaged[0] ^= 1;
        assert!(parse(&damaged).unwrap_err().contains("checksum"));
        let mut signed = good;
        signed[SIZE].copy_from_slice(b"-0000000005\0");
        let sum = checksum(&signed);
        put(&mut signed, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
        assert!(parse(&signed).unwrap_err().contains("number"));
    }

    proptest! {
        #[test]
        fn tar_headers_round_trip(name in "[a-z/]{1,99}", size: u64, mtime: u64) {
            let header = parse(&emit(&name, size, mtime).unwrap()).unwrap().unwrap();
            prop_assert_eq!(header, Header { name: name.into_bytes(), kind: Kind::File, size, mtime });
            prop_assert_eq!((size.wrapping_add(padding(size) as u64)) % BLOCK as u64, 0);
        }

        #[test]
        fn tar_header_parsing_never_panics(bytes: Vec<u8>, at in 0..BLOCK) {
            let mut block = emit("some/name", 77, 1).unwrap();
            for (place, byte) in block[at..].iter_mut().zip(bytes) {
                *place = byte;
            }
            let sum = checksum(&block);
            put(&mut block, CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
            let _ = parse(&block);
        }
    }
}
