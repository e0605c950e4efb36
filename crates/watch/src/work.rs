//! Counts work, so that tests can check that it is linear in packets and bytes for any input. Without the feature
//! `count-work` nothing is counted, at no cost.
//!
//! Only work that could grow is counted: iterations over holes, pieces, searched bytes and messages. The constant cost
//! of a packet is not.

/// Counts `steps`.
#[inline(always)]
pub(crate) fn spend(steps: usize) {
    #[cfg(feature = "count-work")]
    SPENT.with(|spent| spent.set(spent.get() + steps as u64));
    #[cfg(not(feature = "count-work"))]
    let _ = steps;
}

/// Steps of this thread since the last call.
#[cfg(feature = "count-work")]
pub fn take_work() -> u64 {
    SPENT.with(std::cell::Cell::take)
}

#[cfg(feature = "count-work")]
thread_local! {
    static SPENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
