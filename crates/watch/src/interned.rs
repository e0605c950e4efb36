//! Paths, hosts and methods: the same few words again and again, kept once each.

use std::sync::Arc;

/// A bounded cache of byte strings. A word that is in it costs no allocation; one that is not takes the place of
/// another.
pub(crate) struct Words {
    places: Vec<Option<Arc<[u8]>>>,
}

impl Words {
    pub(crate) fn new() -> Words {
        Words { places: vec![None; PLACES] }
    }

    /// `word`, shared.
    pub(crate) fn share(&mut self, word: &[u8]) -> Arc<[u8]> {
        let place = &mut self.places[place(word)];
        match place {
            Some(known) if **known == *word => known.clone(),
            _ => place.insert(word.into()).clone(),
        }
    }
}

/// FNV-1a over eight bytes at a time: a poor spread costs an allocation, nothing worse.
fn place(word: &[u8]) -> usize {
    let mut hash = 0xCBF2_9CE4_8422_2325u64 ^ word.len() as u64;
    let (eights, rest) = word.as_chunks::<8>();
    for eight in eights {
        hash = (hash ^ u64::from_le_bytes(*eight)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    (hash ^ hash >> 32) as usize % PLACES
}

/// With words of at most a kilobyte, 4 MB at worst.
const PLACES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_word_is_the_same_one() {
        let mut words = Words::new();
        let first = words.share(b"/index.html");
        assert!(Arc::ptr_eq(&first, &words.share(b"/index.html")));
        for number in 0..100_000 {
            assert_eq!(&*words.share(format!("/{number}").as_bytes()), format!("/{number}").as_bytes());
        }
    }
}
