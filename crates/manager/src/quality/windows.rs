//! Windows of 10 s with attempts, and with a success, as bits: when data is merged later (programs of an agent, late
//! rows), each window counts once.

/// Length of a window, as in `tap`. They start at full minutes (UTC).
pub const WINDOW_S: u64 = 10;

/// The windows of a span: 6 of a minute, 8640 of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    tried: Vec<u64>,
    /// Windows with attempts and no success so far.
    failed: Vec<u64>,
}

impl Windows {
    /// Adds an attempt in the window of this number within the span.
    pub fn note(&mut self, window: u32, succeeded: bool) {
        let (word, bit) = (window as usize / 64, 1_u64 << (window % 64));
        if word >= self.tried.len() {
            self.tried.resize(word + 1, 0);
            self.failed.resize(word + 1, 0);
        }
        let is_new = self.tried[word] & bit == 0;
        self.tried[word] |= bit;
        if succeeded {
            self.failed[word] &= !bit;
        } else if is_new {
            self.failed[word] |= bit;
        }
    }

    /// Adds the windows of the same span.
    pub fn merge(&mut self, other: &Windows) {
        if other.tried.len() > self.tried.len() {
            self.tried.resize(other.tried.len(), 0);
            self.failed.resize(other.tried.len(), 0);
        }
        for (at, (&tried, &failed)) in other.tried.iter().zip(&other.failed).enumerate() {
            let succeeded = (self.tried[at] & !self.failed[at]) | (tried & !failed);
            self.tried[at] |= tried;
            self.failed[at] = self.tried[at] & !succeeded;
        }
    }

    /// Adds the windows of a minute, or of another short span, that starts with this window.
    pub fn merge_at(&mut self, short: &Windows, first: u32) {
        for (at, (&tried, &failed)) in short.tried.iter().zip(&short.failed).enumerate() {
            let mut remaining = tried;
            while remaining != 0 {
                let bit = remaining.trailing_zeros();
                self.note(first + at as u32 * 64 + bit, failed & (1 << bit) == 0);
                remaining &= remaining - 1;
            }
        }
    }

    /// Number of windows with attempts, and with a success.
    pub fn counts(&self) -> (u64, u64) {
        let count = |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let tried = count(&self.tried);
        (tried, tried - count(&self.failed))
    }

    /// Encoding: two rows of bits, each as run lengths or as plain bits, whichever is shorter. No windows are no
    /// bytes.
    pub fn encode(&self) -> Vec<u8> {
        if self.counts().0 == 0 {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        for words in [&self.tried, &self.failed] {
            let (runs, plain) = (runs_of(words), plain_of(words));
            let is_runs = runs.len() <= plain.len();
            let body = if is_runs { runs } else { plain };
            write_number(&mut bytes, ((body.len() as u64) << 1) | u64::from(is_runs));
            bytes.extend(body);
        }
        bytes
    }

    /// Decodes the result of [`encode`](Self::encode) for a span of `span_s`. `None` for anything else.
    pub fn decode(bytes: &[u8], span_s: u64) -> Option<Windows> {
        let mut rest = bytes;
        if rest.is_empty() {
            return Some(Windows::default());
        }
        let bits = span_s / WINDOW_S;
        let tried = row_of(&mut rest, bits)?;
        let mut failed = row_of(&mut rest, bits)?;
        if failed.len() > tried.len() || failed.iter().zip(&tried).any(|(failed, tried)| failed & !tried != 0) {
            return None;
        }
        failed.resize(tried.len(), 0);
        rest.is_empty().then_some(Windows { tried, failed })
    }
}

/// Run lengths: of clear bits, of set bits, and so on to the last set bit.
fn runs_of(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut at, mut is_set) = (0_u64, false);
    let end = words.len() as u64 * 64;
    while at < end {
        let mut next = at;
        while next < end && ((words[next as usize / 64] >> (next % 64)) & 1 == 1) == is_set {
            // Whole words at a time.
            let same = if is_set { u64::MAX } else { 0 };
            next += if next % 64 == 0 && words[next as usize / 64] == same { 64 } else { 1 };
        }
        if next < end || is_set {
            write_number(&mut bytes, next - at);
        }
        (at, is_set) = (next, !is_set);
    }
    bytes
}

fn plain_of(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

fn row_of(rest: &mut &[u8], bits: u64) -> Option<Vec<u64>> {
    let head = read_number(rest)?;
    let (body, after) = rest.split_at_checked(usize::try_from(head >> 1).ok()?)?;
    *rest = after;
    let mut words = Vec::new();
    if head & 1 == 0 {
        for part in body.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            words.push(u64::from_le_bytes(word));
        }
    } else {
        let (mut body, mut at, mut is_set) = (body, 0_u64, false);
        while !body.is_empty() {
            let end = at.checked_add(read_number(&mut body)?).filter(|end| *end <= bits)?;
            if is_set {
                set(&mut words, at, end);
            }
            (at, is_set) = (end, !is_set);
        }
    }
    let highest = words.iter().rposition(|word| *word != 0);
    let past = highest.map_or(0, |at| at as u64 * 64 + 64 - u64::from(words[at].leading_zeros()));
    (past <= bits).then_some(words)
}

fn set(words: &mut Vec<u64>, from: u64, to: u64) {
    words.resize(to.div_ceil(64) as usize, 0);
    let mut at = from;
    while at < to {
        let count = (64 - at % 64).min(to - at);
        words[at as usize / 64] |= (u64::MAX >> (64 - count)) << (at % 64);
        at += count;
    }
}

fn write_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn encoded_windows_of_quiet_and_busy_days_take_few_bytes() {
        let busy = (0..8640).fold(Windows::default(), |mut all, at| {
            all.note(at, at % 1000 != 0);
            all
        });
        assert_eq!(busy.counts(), (8640, 8631));
        assert!(busy.encode().len() < 40, "{}", busy.encode().len());
        // Every second window: run lengths are longer than plain bits.
        let striped = (0..4320).fold(Windows::default(), |mut all, at| {
            all.note(at * 2, true);
            all
        });
        assert!(striped.encode().len() <= 1084, "{}", striped.encode().len());
        assert_eq!(Windows::decode(&striped.encode(), DAY), Some(striped));
    }

    #[test]
    fn corrupt_encoded_data_is_rejected() {
        let mut windows = Windows::default();
        (0..6).for_each(|at| windows.note(at, at == 3));
        let bytes = windows.encode();
        assert_eq!(Windows::decode(&bytes, 60), Some(windows));
        assert_eq!(Windows::decode(&bytes, 50), None, "more windows than the span has");
        assert_eq!(Windows::decode(&bytes[..bytes.len() - 1], 60), None);
        assert_eq!(Windows::decode(&[0xff; 12], 60), None);
    }

    proptest! {
        #[test]
        fn each_availability_window_counts_once(
            notes in prop::collection::vec((0_u32..8640, any::<bool>()), 0..400),
            clustered in prop::collection::vec((100_u32..140, any::<bool>()), 0..200),
            cut in 0_usize..600,
        ) {
            let notes: Vec<_> = notes.into_iter().chain(clustered).collect();
            let cut = cut.min(notes.len());
            let of = |notes: &[(u32, bool)]| {
                let mut windows = Windows::default();
                notes.iter().for_each(|&(at, succeeded)| windows.note(at, succeeded));
                windows
            };
            let mut plain = BTreeMap::new();
            notes.iter().for_each(|&(at, succeeded)| *plain.entry(at).or_insert(false) |= succeeded);
            let expected = (plain.len() as u64, plain.values().filter(|succeeded| **succeeded).count() as u64);
            let mut joined = of(&notes[cut..]);
            joined.merge(&of(&notes[..cut]));
            prop_assert_eq!(joined.counts(), expected);
            let back = Windows::decode(&joined.encode(), DAY).unwrap();
            prop_assert_eq!(back.counts(), expected);
            let mut both = back;
            both.merge(&of(&notes));
            prop_assert_eq!(both.counts(), expected);
        }
    }
}
