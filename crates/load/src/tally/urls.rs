//! Results by URL: the most requested URLs one by one, the others together.

use schema::RequestRecord;
use schema::document::{UrlPart, UrlsLeftOut};
use serde::{Deserialize, Serialize};

use super::Part;
use crate::workload::{Choice, Workload};

/// The requests of a workload that are listed one by one. A histogram has 270 kB, so of many URLs only those with the
/// highest weights in the plan are listed, and the others are counted together, so that sums stay complete. The choice
/// depends only on the plan, so that all shards list the same URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urls {
    /// Names of the listed requests, in the order of the list.
    names: Vec<String>,
    /// Position in the list for each request of the workload; [`NOT_LISTED`] for the others. Empty if all requests are
    /// listed in the order of the workload.
    places: Vec<u8>,
}

const NOT_LISTED: u8 = u8::MAX;

impl Urls {
    /// Maximum number of listed URLs.
    pub const LISTED_MAX: usize = 100;

    /// Lists all requests, in the order of the workload.
    ///
    /// # Panics
    /// With more than [`Self::LISTED_MAX`] requests.
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        assert!(names.len() <= Self::LISTED_MAX, "at most LISTED_MAX names; `Urls::of` selects among more");
        Urls { names, places: Vec::new() }
    }

    /// Lists up to [`Self::LISTED_MAX`] requests in the order of the workload; of more, those with the highest weights
    /// in descending order.
    pub fn of(workload: &Workload) -> Self {
        let requests = &workload.requests;
        if requests.len() <= Self::LISTED_MAX {
            return Urls::named(requests.iter().map(|request| request.label()));
        }
        let weights = weights(workload);
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        let heavier = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
        order.select_nth_unstable_by(Self::LISTED_MAX, heavier);
        order.truncate(Self::LISTED_MAX);
        order.sort_unstable_by(heavier);
        let mut places = vec![NOT_LISTED; requests.len()];
        for (place, &request) in order.iter().enumerate() {
            places[request as usize] = place as u8;
        }
        Urls { names: order.iter().map(|&request| requests[request as usize].label().to_owned()).collect(), places }
    }

    fn left_out(&self) -> u64 {
        self.places.len().saturating_sub(self.names.len()) as u64
    }

    fn place(&self, request: u32) -> Option<usize> {
        if self.places.is_empty() {
            return Some(request as usize).filter(|&place| place < self.names.len());
        }
        let place = *self.places.get(request as usize)?;
        (place != NOT_LISTED).then_some(usize::from(place))
    }
}

/// The weight of each request in the plan, relative to the others.
fn weights(workload: &Workload) -> Vec<f64> {
    let Choice::Sessions(sessions) = &workload.choice else {
        return workload.requests.iter().map(|request| request.weight).collect();
    };
    let mut weights = vec![0.0; workload.requests.len()];
    for session in sessions {
        for step in &session.steps {
            for &request in std::iter::once(&step.request).chain(&step.embedded) {
                weights[request as usize] += session.weight;
            }
        }
    }
    weights
}

/// The results by URL; empty for a single URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ByUrl {
    urls: Urls,
    listed: Vec<Part>,
    others: Part,
}

impl ByUrl {
    pub(super) fn new(urls: Urls) -> Self {
        let listed = if urls.names.len() > 1 { vec![Part::default(); urls.names.len()] } else { Vec::new() };
        ByUrl { urls, listed, others: Part::default() }
    }

    pub(super) fn add(&mut self, record: &RequestRecord) {
        if self.listed.is_empty() {
            return;
        }
        match self.urls.place(record.url) {
            Some(place) => self.listed[place].add(record),
            None => self.others.add(record),
        }
    }

    /// Whether these are results of `urls`.
    pub(super) fn is_of(&self, urls: &Urls) -> bool {
        let listed = if urls.names.len() > 1 { urls.names.len() } else { 0 };
        self.urls == *urls && self.listed.len() == listed
    }

    pub(super) fn merge(&mut self, other: &ByUrl) {
        assert_eq!(self.urls, other.urls, "parts of one load list the same URLs");
        self.listed.iter_mut().zip(&other.listed).for_each(|(part, other)| part.merge(other));
        self.others.merge(&other.others);
    }

    pub(super) fn parts(&self) -> Vec<UrlPart> {
        let named = self.urls.names.iter().zip(&self.listed);
        named
            .map(|(url, part)| UrlPart {
                url: url.clone(),
                completed: part.completed,
                failed: part.failed,
                response_time_ns: part.response_time.quantiles(),
            })
            .collect()
    }

    pub(super) fn left_out(&self) -> Option<UrlsLeftOut> {
        (self.urls.left_out() > 0).then(|| UrlsLeftOut {
            urls: self.urls.left_out(),
            completed: self.others.completed,
            failed: self.others.failed,
            response_time_ns: self.others.response_time.quantiles(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn workload(n: usize) -> Workload {
        Workload::of((0..n).map(|i| Target::parse(&format!("http://h/{i}")).unwrap()))
    }

    #[test]
    fn up_to_a_hundred_urls_are_listed_in_plan_order() {
        let urls = Urls::of(&workload(100));
        assert_eq!((urls.names[99].as_str(), urls.left_out()), ("http://h/99", 0));
        assert_eq!((urls.place(99), urls.place(100)), (Some(99), None));
    }

    #[test]
    fn of_more_than_a_hundred_urls_the_most_requested_are_listed() {
        let mut workload = workload(101);
        workload.requests[100].weight = 5.0;
        workload.requests[7].weight = 9.0;
        workload.requests[50].weight = 0.5;
        let urls = Urls::of(&workload);
        assert_eq!(
            (&urls.names[0][..], &urls.names[1][..], &urls.names[2][..]),
            ("http://h/7", "http://h/100", "http://h/0")
        );
        assert_eq!((urls.left_out(), urls.place(50), urls.place(7)), (1, None, Some(0)));
    }
}
