use std::collections::{HashMap as Model, VecDeque};

use proptest::prelude::*;

use super::super::testing::{cache, cache_request, get, head_for, received, stored};
use super::super::{CacheSpec, Head};
use super::*;

fn answer(body_bytes: usize) -> Stored {
    variant(body_bytes, "")
}

fn variant(body_bytes: usize, language: &str) -> Stored {
    let request = get("/", &format!("Accept-Language: {language}\r\n"));
    let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
    let head: Head = head_for(&request, 200, fields, received(0), &CacheSpec::default()).unwrap();
    stored(head, &"x".repeat(body_bytes))
}

fn key(number: u32) -> Key {
    Key::new(false, b"a", format!("/{number}").as_bytes(), None)
}

fn sizes(store: &Store, number: u32) -> Vec<usize> {
    store.variants(key(number).bytes()).map(|(_, one)| one.body.len()).collect()
}

#[test]
fn the_least_recently_used_response_is_evicted_first() {
    let mut store = Store::new(40_000);
    for number in 0..3 {
        assert!(store.put(key(number), answer(9_000), |_| true));
    }
    let first = store.variants(key(0).bytes()).next().unwrap().0;
    store.touch(first);
    for number in 3..5 {
        assert!(store.put(key(number), answer(9_000), |_| true));
    }
    let stored: Vec<u32> = (0..5).filter(|&number| !sizes(&store, number).is_empty()).collect();
    assert!(stored.contains(&0) && stored.contains(&4) && !stored.contains(&1), "{stored:?}");
    assert!(store.usage().memory_bytes <= 40_000);
    assert_eq!(store.usage().responses as usize + store.usage().evictions as usize, 5);
}

#[test]
fn a_worker_does_not_wait_for_a_locked_store() {
    let cache = cache(&CacheSpec::default());
    let request = get("/", "Accept-Language: \r\n");
    let cache_request = cache_request(&request);
    assert!(cache.put(cache_request.key(), cache_request.fields, answer(10)));
    let inner = cache.inner();
    assert!(cache.fresh(&cache_request, received(0).at, &mut Vec::new()).is_none());
    drop(inner);
    assert!(cache.fresh(&cache_request, received(0).at, &mut Vec::new()).is_some());
}

#[test]
fn a_response_larger_than_the_store_is_not_stored() {
    let mut store = Store::new(10_000);
    assert!(!store.put(key(1), answer(10_000), |_| true));
    assert_eq!((store.usage().responses, store.usage().body_bytes), (0, 0));
    assert!(store.put(key(1), answer(5_000), |_| true));
}

#[test]
fn variants_coexist_up_to_the_limit() {
    let mut store = Store::new(1 << 20);
    for number in 0..VARIANTS_MAX + 5 {
        assert!(store.put(key(1), variant(number, &format!("l{number}")), |_| false));
    }
    let stored = sizes(&store, 1);
    assert_eq!(stored.len(), VARIANTS_MAX);
    assert_eq!(
        (stored[0], stored[VARIANTS_MAX - 1]),
        (VARIANTS_MAX + 4, 5),
        "the latest variant is first, the oldest was evicted"
    );
    assert_eq!(store.forget(key(1).bytes(), |_| true), VARIANTS_MAX);
    assert_eq!(store.usage().body_bytes, 0);
}

#[test]
fn an_empty_store_uses_little_memory() {
    let mut store = Store::new(64 << 20);
    for number in 0..10_000 {
        store.put(key(number), answer(10), |_| true);
    }
    for number in 0..10_000 {
        store.forget(key(number).bytes(), |_| true);
    }
    assert!(store.usage().memory_bytes < 4096, "{:?}", store.usage());
}

#[derive(Clone, Debug)]
enum Act {
    Put(u32, usize),
    Touch(u32),
    Forget(u32),
}

proptest! {
    /// Comparison with a list: the same responses in the same order of use, and never more memory than the limit.
    #[test]
    fn the_store_behaves_like_an_lru_list(
        acts in prop::collection::vec(
            prop_oneof![
                4 => (0..40u32, 0..3_000usize).prop_map(|(number, size)| Act::Put(number, size)),
                3 => (0..40u32).prop_map(Act::Touch),
                1 => (0..40u32).prop_map(Act::Forget),
            ],
            1..200,
        ),
        memory in 5_000..60_000usize,
    ) {
        let mut store = Store::new(memory);
        let mut order: VecDeque<u32> = VecDeque::new();
        let mut sizes_model: Model<u32, usize> = Model::new();
        for act in acts {
            match act {
                Act::Put(number, size) => {
                    let stored = store.put(key(number), answer(size), |_| true);
                    order.retain(|&one| one != number);
                    sizes_model.remove(&number);
                    if stored {
                        order.push_front(number);
                        sizes_model.insert(number, size);
                    }
                    // Exactly the tail of the list was evicted.
                    while order.back().is_some_and(|last| sizes(&store, *last).is_empty()) {
                        let last = order.pop_back().unwrap();
                        sizes_model.remove(&last);
                    }
                }
                Act::Touch(number) => {
                    let place = store.variants(key(number).bytes()).next().map(|(at, _)| at);
                    if let Some(at) = place {
                        store.touch(at);
                        order.retain(|&one| one != number);
                        order.push_front(number);
                    }
                }
                Act::Forget(number) => {
                    let gone = store.forget(key(number).bytes(), |_| true);
                    prop_assert_eq!(gone, usize::from(sizes_model.remove(&number).is_some()));
                    order.retain(|&one| one != number);
                }
            }
            prop_assert!(store.usage().memory_bytes as usize <= memory);
            prop_assert_eq!(store.usage().responses as usize, order.len());
            prop_assert_eq!(store.usage().body_bytes as usize, sizes_model.values().sum::<usize>());
            for (number, size) in &sizes_model {
                prop_assert_eq!(sizes(&store, *number), vec![*size]);
            }
            let mut at = store.newest;
            for number in &order {
                prop_assert_eq!(&store.entries[at as usize].content.as_ref().unwrap().0, &key(*number));
                at = store.entries[at as usize].older;
            }
            prop_assert_eq!(at, NONE);
        }
    }
}
