//! Counts malformed responses by reason, in bounded memory.

use std::collections::BTreeMap;

use http1::{Fault, Reason};
use schema::document::MalformedResponses;

/// Number and first fault by reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(BTreeMap<Reason, (u64, Fault)>);

impl Faults {
    /// Counts a fault, and stores the first of its reason.
    pub(crate) fn note(&mut self, fault: &Fault) {
        self.0.entry(fault.reason).or_insert((0, *fault)).0 += 1;
    }

    /// The counts by reason, the most frequent first.
    pub(crate) fn parts(&self) -> Vec<MalformedResponses> {
        let parts = self.0.iter().map(|(reason, (count, first))| MalformedResponses {
            reason: reason.name().to_owned(),
            count: *count,
            first: first.to_string(),
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.count));
        parts
    }
}

/// Merges the counts of several shards. The first fault of a reason is that of the first shard.
pub fn merged_faults<'a>(shards: impl IntoIterator<Item = &'a [MalformedResponses]>) -> Vec<MalformedResponses> {
    let mut all: Vec<MalformedResponses> = Vec::new();
    for part in shards.into_iter().flatten() {
        match all.iter_mut().find(|other| other.reason == part.reason) {
            Some(other) => other.count += part.count,
            None => all.push(part.clone()),
        }
    }
    all.sort_by_key(|part| std::cmp::Reverse(part.count));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_reasons_are_sorted_by_frequency_with_their_first_fault() {
        let mut faults = Faults::default();
        faults.note(&Fault::new(Reason::NoColon, b"x"));
        faults.note(&Fault::new(Reason::LengthNotNumber, b"+5"));
        faults.note(&Fault::new(Reason::LengthNotNumber, b"-5"));
        let one = faults.parts();
        let shown: Vec<_> = one.iter().map(|part| (&*part.reason, part.count, &*part.first)).collect();
        let not_a_number = ("content_length_not_a_number", 2, "Content-Length `+5` is not a number");
        assert_eq!(shown, [not_a_number, ("no_colon", 1, "header line `x` has no colon")]);
        let mut other = Faults::default();
        (0..4).for_each(|_| other.note(&Fault::new(Reason::NoColon, b"y")));
        let both = merged_faults([&one[..], &other.parts()]);
        let shown: Vec<_> = both.iter().map(|part| (&*part.reason, part.count, &*part.first)).collect();
        assert_eq!(shown, [("no_colon", 5, "header line `x` has no colon"), not_a_number]);
    }
}
