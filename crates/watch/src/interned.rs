//! String interning of paths, hosts and methods, which repeat.

use std::sync::Arc;

/// A bounded cache of byte strings. A cached string costs no allocation; a new one replaces another.
pub(crate) struct Words {
    places: Vec<Option<Arc<[u8]>>>,
}

impl Words {
    pub(crate) fn new() -> Words {
        Words { places: vec![None; SLOTS] }
    }

    /// The shared copy of `word`.
    pub(crate) fn share(&mut self, word: &[u8]) -> Arc<[u8]> {
        let place = &mut self.places[slot(word)];
        match place {
            Some(known) if **known == *word => known.clone(),
            _ => place.insert(word.into()).clone(),
        }
    }
}

/// FNV-1a over eight bytes at a time: a collision only costs an allocation.
fn slot(word: &[u8]) -> usize {
    let mut hash = 0xCBF2_9CE4_8422_2325u64 ^ word.len() as u64;
    let (eights, rest) = word.as_chunks::<8>();
    for eight in eights {
        hash = (hash ^ u64::from_le_bytes(*eight)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    (hash ^ hash >> 32) as usize % SLOTS
}

/// With strings of at most a kilobyte, 4 MB in the worst case.
const SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interned_string_is_shared() {
        let mut words = Words::new();
        let first = words.share(b"/index.html");
        assert!(Arc::ptr_eq(&first, &words.share(b"/index.html")));
        for number in 0..100_000 {
            assert_eq!(&*words.share(format!("/{number}").as_bytes()), format!("/{number}").as_bytes());
        }
    }
}
