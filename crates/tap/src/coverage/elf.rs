//! The parts of an ELF file that show whether a loader runs, and which one: header, program headers, notes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Unseen;

/// Relevant facts of a program file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    same_machine: bool,
    /// Path of the loader; absent: linked statically.
    loader: Option<String>,
    is_go: bool,
    /// Whether the program is linked with liburing.
    uring: bool,
}

/// x86-64, in `e_machine`.
const MACHINE: u16 = 62;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERP: u32 = 3;
const NOTE: u32 = 4;
/// Maximum program headers: more than any linker writes.
const HEADERS_MAX: u16 = 256;
/// Maximum bytes of a loader path or of notes.
const PART_MAX: u64 = 4096;

impl Elf {
    /// Reads the file; `None` if it is not an ELF file, or is damaged.
    pub fn read(file: &File) -> Option<Elf> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if header[..4] != *b"\x7fELF" {
            return None;
        }
        // Class 2: 64 bits; data 1: little-endian.
        let same_machine = header[4] == 2 && header[5] == 1 && number::<2>(&header, 18) == u64::from(MACHINE);
        let mut elf = Elf { same_machine, loader: None, is_go: false, uring: false };
        if !same_machine {
            return Some(elf);
        }
        let (at, size) = (number::<8>(&header, 32), number::<2>(&header, 54));
        let count = (number::<2>(&header, 56) as u16).min(HEADERS_MAX);
        if size != 56 {
            return None;
        }
        let (mut loaded, mut dynamic) = (Vec::new(), None);
        for index in 0..u64::from(count) {
            let mut segment = [0; 56];
            file.read_exact_at(&mut segment, at.checked_add(index * size)?).ok()?;
            let kind = number::<4>(&segment, 0) as u32;
            match kind {
                LOAD => loaded.push([8, 16, 32].map(|at| number::<8>(&segment, at))),
                DYNAMIC => dynamic = Some((number::<8>(&segment, 8), number::<8>(&segment, 32))),
                _ => {}
            }
            if kind != INTERP && kind != NOTE {
                continue;
            }
            let (offset, length) = (number::<8>(&segment, 8), number::<8>(&segment, 32).min(PART_MAX));
            let mut part = vec![0; length as usize];
            file.read_exact_at(&mut part, offset).ok()?;
            if kind == INTERP {
                let path = part.split(|&byte| byte == 0).next().unwrap_or_default();
                elf.loader = Some(String::from_utf8_lossy(path).into_owned());
            } else {
                elf.is_go |= has_note_of(b"Go\0\0", &part);
            }
        }
        elf.uring = dynamic.is_some_and(|(at, length)| needs_library(file, at, length, &loaded, b"liburing.so"));
        Some(elf)
    }

    /// Whether the Go linker produced the program.
    pub fn is_go_program(&self) -> bool {
        self.is_go
    }

    /// Whether the program is linked with liburing, whose calls bypass libc.
    pub fn has_uring(&self) -> bool {
        self.uring
    }

    /// Why the library would not be loaded, as far as the file shows.
    pub fn unseen(&self) -> Option<Unseen> {
        if !self.same_machine {
            return Some(Unseen::OtherMachine);
        }
        match &self.loader {
            None if self.is_go => Some(Unseen::Go),
            None => Some(Unseen::Static),
            Some(loader) if !loader.contains("ld-linux") => Some(Unseen::OtherLibc(loader.clone())),
            Some(_) => None,
        }
    }
}

/// Little-endian, `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Whether the dynamic section (`length` bytes at `at`) needs a library whose name has this prefix. `loaded`:
/// position in the file, address and length of each loaded segment.
fn needs_library(file: &File, at: u64, length: u64, loaded: &[[u64; 3]], name: &[u8]) -> bool {
    let mut section = vec![0; length.min(PART_MAX) as usize / 16 * 16];
    if file.read_exact_at(&mut section, at).is_err() {
        return false;
    }
    let entries = || section.chunks_exact(16).map(|entry| (number::<8>(entry, 0), number::<8>(entry, 8)));
    let Some((_, strings)) = entries().find(|(tag, _)| *tag == STRTAB) else { return false };
    let within = |[_, memory, length]: &&[u64; 3]| strings.checked_sub(*memory).is_some_and(|from| from < *length);
    let Some([offset, memory, _]) = loaded.iter().find(within) else { return false };
    entries().filter(|(tag, _)| *tag == NEEDED).any(|(_, string)| {
        let from = (strings - memory).checked_add(*offset).and_then(|from| from.checked_add(string));
        let mut text = vec![0; name.len()];
        from.is_some_and(|from| file.read_exact_at(&mut text, from).is_ok() && text == name)
    })
}

/// Tags of the dynamic section.
const NEEDED: u64 = 1;
const STRTAB: u64 = 5;

/// Parses notes: lengths of name and content, kind, name, content, each padded to 4 bytes.
fn has_note_of(name: &[u8], mut notes: &[u8]) -> bool {
    while notes.len() >= 12 {
        let (name_length, length) = (number::<4>(notes, 0) as usize, number::<4>(notes, 4) as usize);
        let Some(note_name) = notes.get(12..12_usize.saturating_add(name_length)) else { return false };
        if note_name == name {
            return true;
        }
        let next = name_length.next_multiple_of(4).checked_add(length.next_multiple_of(4));
        let Some(rest) = next.and_then(|next| notes.get(next.checked_add(12)?..)) else { return false };
        notes = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Option<Elf> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Elf::read(&file)
    }

    /// Builds a file with segments of these kinds and contents.
    fn elf_file(machine: u16, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64 + segments.len() * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (index, (kind, content)) in segments.iter().enumerate() {
            let (at, offset) = (64 + index * 56, file.len() as u64);
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
            file.extend_from_slice(content);
        }
        file
    }

    const GO: &[u8] = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
    const GNU: &[u8] = b"\x04\0\0\0\x02\0\0\0\x01\0\0\0GNU\0ab\0\0";

    #[test]
    fn a_program_linked_with_liburing_is_recognized_by_its_file() {
        // One loaded segment contains everything: strings at address 1000, 936 bytes after the start of the file.
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = MACHINE as u8;
        (file[32], file[54], file[56]) = (64, 56, 2);
        let mut write_word = |at: usize, number: u64| file[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let loaded = [(64, u64::from(LOAD)), (64 + 16, 64), (64 + 32, 4096)];
        let dynamic = [(120, u64::from(DYNAMIC)), (120 + 8, 200), (120 + 32, 64)];
        loaded.into_iter().chain(dynamic).for_each(|(at, number)| write_word(at, number));
        file.resize(1200, 0);
        let mut write_word = |at: usize, number: u64| file[at..at + 8].copy_from_slice(&number.to_le_bytes());
        [(200, NEEDED), (208, 9), (216, STRTAB), (224, 1000)]
            .into_iter()
            .for_each(|(at, number)| write_word(at, number));
        assert!(!read(&file).unwrap().has_uring());
        file[936 + 9..936 + 22].copy_from_slice(b"liburing.so.2");
        assert!(read(&file).unwrap().has_uring());
        file[200..216].fill(0xff);
        assert!(!read(&file).unwrap().has_uring(), "another tag");
    }

    #[test]
    fn the_elf_file_shows_whether_a_program_loads_the_library() {
        let why = |file: Vec<u8>| read(&file).unwrap().unseen();
        assert_eq!(why(elf_file(MACHINE, &[(INTERP, b"/lib64/ld-linux-x86-64.so.2\0"), (NOTE, GNU)])), None);
        assert_eq!(why(elf_file(MACHINE, &[(NOTE, GNU)])), Some(Unseen::Static));
        assert_eq!(why(elf_file(MACHINE, &[(NOTE, &[GNU, GO].concat())])), Some(Unseen::Go));
        let musl = why(elf_file(MACHINE, &[(INTERP, b"/lib/ld-musl-x86_64.so.1\0")]));
        assert_eq!(musl, Some(Unseen::OtherLibc("/lib/ld-musl-x86_64.so.1".to_owned())));
        assert_eq!(why(elf_file(3, &[])), Some(Unseen::OtherMachine));
        assert_eq!(read(b"#!/bin/sh"), None);
        assert_eq!(read(&elf_file(MACHINE, &[(INTERP, b"x")])[..100]), None);
    }

    proptest! {
        #[test]
        fn damaged_elf_files_are_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            elf in any::<bool>(),
        ) {
            if elf && bytes.len() > 64 {
                let whole = elf_file(MACHINE, &[(NOTE, GO)]);
                bytes[..60].copy_from_slice(&whole[..60]);
            }
            let _ = read(&bytes).and_then(|elf| elf.unseen());
            has_note_of(b"Go\0\0", &bytes);
        }
    }
}
