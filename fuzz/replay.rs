//! Runs the body of a fuzz target on its corpus, on stable Rust and without a fuzzer: with every file unchanged, then
//! with random mutations from a fixed seed.

use std::fs;
use std::path::{Path, PathBuf};

/// Runs `body` over `corpus/NAME` and `regressions/NAME`. A panic prints the file.
pub fn target(name: &str, body: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut files = files(&fuzz.join("corpus").join(name));
    assert!(!files.is_empty(), "the corpus of {name} is missing");
    files.extend(self::files(&fuzz.join("regressions").join(name)));
    let texts: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a file of the corpus")).collect();
    let mut random = Random(0x5EED);
    for (file, text) in files.iter().zip(&texts) {
        let named = Named(file, 0);
        body(text);
        named.done();
    }
    let rounds = (MUTATIONS / texts.len()).max(1);
    for (file, text) in files.iter().zip(&texts) {
        for round in 1..=rounds {
            let other = &texts[random.below(texts.len())];
            let changed = random.change(text, other);
            let named = Named(file, round);
            body(&changed);
            named.done();
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of the corpus").path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

/// Prints the file when a body panics.
struct Named<'a>(&'a Path, usize);

impl Named<'_> {
    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        eprintln!("with {}, mutation {} (0: unchanged)", self.0.display(), self.1);
    }
}

/// splitmix64: small, and equal on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    /// A copy of `text` with a few bytes changed, removed or repeated, or with a part of `other` inserted.
    fn change(&mut self, text: &[u8], other: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(text.len());
            let until = (at + 1 + self.below(16)).min(text.len());
            match self.below(6) {
                _ if text.is_empty() => text.extend(other),
                0 => text[at] = self.next() as u8,
                1 => text[at] ^= 1 << self.below(8),
                2 => drop(text.drain(at..until)),
                3 => drop(text.splice(at..at, text[at..until].to_vec())),
                4 => text.truncate(at),
                _ => {
                    let from = self.below(other.len());
                    let part = &other[from..(from + 64).min(other.len())];
                    drop(text.splice(at..at, part.iter().copied()));
                }
            }
        }
        text
    }
}

/// Number of mutated inputs of a target, over all files: some seconds without optimisation.
const MUTATIONS: usize = 4000;
