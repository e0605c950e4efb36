//! The result of a run in a sentence, for lists of runs of every kind.

use std::path::Path;

use schema::Document;

use crate::{capacity, compare, disk, gateway, phrases, predict, run_page, sweep};

/// The result of the finished run in `dir`; `None` if this version cannot read its document.
pub fn of_run(dir: &Path) -> Option<String> {
    if let Ok(Some(document)) = store::read_reproduction(dir) {
        return Some(document.reproduce.answer);
    }
    if let Ok(Some(document)) = store::read_disk(dir) {
        return Some(disk::answer(&document));
    }
    if let Ok(Some(document)) = store::read_gateway(dir) {
        return Some(gateway::answer(&document));
    }
    if let Ok(Some(document)) = store::read_compare(dir) {
        return Some(compare::answer(&document.compare));
    }
    if let Ok(Some(document)) = store::read_capacity(dir) {
        return Some(capacity::answer(&document));
    }
    if let Ok(Some(document)) = store::read_predict(dir) {
        return Some(phrases::sentence(&predict::answer(&document)));
    }
    store::read_summary(dir).ok().and_then(|document| of_document(&document))
}

/// The result of a single run, or of a sweep of a cache.
fn of_document(document: &Document) -> Option<String> {
    let sentence = match (&document.load, &document.cache) {
        (None, Some(part)) => sweep::answer(part),
        _ => run_page::answer_of(document),
    };
    Some(phrases::sentence(&sentence)).filter(|sentence| !sentence.is_empty())
}
