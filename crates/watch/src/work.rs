//! Work counted, so that tests can hold that it is linear in packets and bytes whatever these say. Without the feature
//! `count-work` nothing is counted and nothing is spent.
//!
//! Only what could grow is counted: steps of loops over holes, pieces, bytes searched and messages. What a packet
//! always costs is not.

/// Counts so many steps.
#[inline(always)]
pub(crate) fn spend(steps: usize) {
    #[cfg(feature = "count-work")]
    SPENT.with(|spent| spent.set(spent.get() + steps as u64));
    #[cfg(not(feature = "count-work"))]
    let _ = steps;
}

/// Steps of this thread since it was last asked.
#[cfg(feature = "count-work")]
pub fn take_work() -> u64 {
    SPENT.with(std::cell::Cell::take)
}

#[cfg(feature = "count-work")]
thread_local! {
    static SPENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
