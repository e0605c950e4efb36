//! Headers of a tar archive, written and parsed by the crate [`tar`]: ustar is written; ustar and GNU's format without
//! extended headers are read.
//!
//! Contents follow a header, filled up to whole blocks; two blocks of zeros end the archive.

use std::io;

use tar::EntryType;

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

/// The header of a regular file; `None` if the name is too long for a header, is absolute or contains `..`.
pub(super) fn emit(name: &str, size: u64, mtime: u64) -> Option<Block> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).ok()?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(mtime);
    header.set_cksum();
    Some(*header.as_bytes())
}

/// Parses a header; `Ok(None)` is a block of zeros.
pub(super) fn parse(block: &Block) -> Result<Option<Header>, &'static str> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let header = tar::Header::from_byte_slice(block);
    if header.as_ustar().is_none() && header.as_gnu().is_none() {
        return Err("it is not a tar archive in ustar format");
    }
    if header.cksum().ok() != summed(header).cksum().ok() {
        return Err("a header has a wrong checksum: the archive is damaged");
    }
    let old = header.as_old();
    let (size, mtime) = (number(&old.size, header.entry_size()), number(&old.mtime, header.mtime()));
    let (Some(size), Some(mtime)) = (size, mtime) else {
        return Err("a header has an invalid number");
    };
    let kind = match header.entry_type() {
        EntryType::Regular => Kind::File,
        EntryType::Directory => Kind::Folder,
        EntryType::Link | EntryType::Symlink => Kind::Other("a link"),
        EntryType::Char | EntryType::Block => Kind::Other("a device"),
        EntryType::Fifo => Kind::Other("a pipe"),
        EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongName | EntryType::GNULongLink => {
            Kind::Other("an extended header of another program (pack it anew with tar --format=ustar)")
        }
        EntryType::GNUSparse => Kind::Other("a sparse file"),
        _ => Kind::Other("of an unknown kind"),
    };
    Ok(Some(Header { name: header.path_bytes().into_owned(), kind, size, mtime }))
}

/// The value of a field: octal without a sign, GNU's base 256 below 2^64, or zero for a blank field. `parsed` is the
/// crate's value: the crate `tar` accepts a sign, ignores higher bytes of base 256 and refuses blanks.
fn number(field: &[u8; 12], parsed: io::Result<u64>) -> Option<u64> {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
    match field[0] {
        0x80 if field[1..4] != [0; 3] => None,
        0x81.. => None,
        _ if text.iter().all(|&byte| byte == b' ') => Some(0),
        _ if text.contains(&b'+') => None,
        _ => parsed.ok(),
    }
}

/// The header with the correct checksum.
fn summed(header: &tar::Header) -> tar::Header {
    let mut header = header.clone();
    header.set_cksum();
    header
}

/// Number of padding zeros after `size` bytes of contents.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The block with the correct checksum.
    fn with_checksum(block: Block) -> Block {
        *summed(tar::Header::from_byte_slice(&block)).as_bytes()
    }

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
        // A checksum field without a number is wrong, too.
        let mut unsummed = good;
        unsummed[148..156].copy_from_slice(b"????????");
        assert!(parse(&unsummed).unwrap_err().contains("checksum"));
        for blank in [[0; 12], [b' '; 12]] {
            let mut untimed = good;
            untimed[136..148].copy_from_slice(&blank);
            assert_eq!(parse(&with_checksum(untimed)).unwrap().unwrap().mtime, 0);
        }
        for number in [b"-0000000005\0", b"+0000000005\0", b"\x80\0\0\x01\0\0\0\0\0\0\0\x05", &[0xff; 12]] {
            let mut invalid = good;
            invalid[124..136].copy_from_slice(number);
            assert!(parse(&with_checksum(invalid)).unwrap_err().contains("number"), "{number:?}");
        }
    }

    proptest! {
        #[test]
        fn tar_headers_round_trip(name in "[a-z]{1,24}(/[a-z]{1,24}){0,3}", size: u64, mtime: u64) {
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
            let _ = parse(&with_checksum(block));
        }
    }
}
