//! A buffer for TLS records that are about to be sent.

use std::fmt;
use std::ops::Deref;

/// Bytes to be sent; new ones are written in place behind them. rustls writes into initialised memory only, so memory is
/// zeroed once here, and not again for each record as by `Vec::resize`.
#[derive(Default)]
pub(crate) struct Records {
    /// All initialised; never shorter than `end`.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Records {
    /// Passes `length` bytes of undefined content behind the last byte to `write`, which returns how many it wrote.
    ///
    /// # Errors
    /// Those of `write`; nothing is appended then.
    pub(crate) fn append_with<E>(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let needed = self.end + length;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        let written = write(&mut self.bytes[self.end..needed])?;
        self.end += written.min(length);
        Ok(())
    }

    /// Appends `bytes`.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(bytes);
        self.end = self.bytes.len();
    }

    /// Drops the first `count` bytes, or all.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.begin = (self.begin + count).min(self.end);
        if self.begin == self.end {
            self.clear();
        }
    }

    /// Drops all bytes, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        (self.begin, self.end) = (0, 0);
    }
}

impl Deref for Records {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_appended_and_dropped_as_of_a_vector() {
        let mut records = Records::default();
        records.extend_from_slice(b"head");
        let append = |records: &mut Records, text: &[u8], room: usize| {
            records
                .append_with(room, |into| {
                    assert_eq!(into.len(), room);
                    into[..text.len()].copy_from_slice(text);
                    Ok::<_, ()>(text.len())
                })
                .unwrap();
        };
        append(&mut records, b"record", 20);
        assert_eq!(*records, *b"headrecord");
        records.drop_first(4);
        assert_eq!(*records, *b"record");
        records.extend_from_slice(b"s");
        assert_eq!(*records, *b"records", "what lies behind the last byte is overwritten");
        assert_eq!(
            records.append_with(3, |into| {
                into.fill(b'x');
                Err(())
            }),
            Err(())
        );
        assert_eq!(*records, *b"records", "nothing of a failed write is appended");
        records.drop_first(100);
        assert!(records.is_empty());
        append(&mut records, b"again", 5);
        assert_eq!(*records, *b"again");
        records.clear();
        assert!(records.is_empty());
    }
}
