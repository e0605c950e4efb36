//! Queueing models of a server: response time by load, for open and closed loops.
//!
//! [`mva`] is for a closed loop of users with think times, [`ps_response`] for the mean response time in an open loop,
//! [`simulate_ps`] and [`simulate_workers`] for quantiles, which no reliable formula gives. Each states its
//! assumptions.

mod closed;
mod simulated;

pub use closed::{MvaPoint, Station, mva};
pub use simulated::{simulate_ps, simulate_workers};

/// Mean response time, in seconds, of a processor that all requests share equally (processor sharing), with the
/// utilization `busy`: D / (1 - U). Infinite from utilization 1 on.
///
/// Assumes Poisson arrivals, and a service demand that does not depend on the load; any distribution of the demand.
/// Source: L. Kleinrock, Queueing Systems II, section 4.4.
pub fn ps_response(demand_s: f64, busy: f64) -> f64 {
    if busy >= 1.0 { f64::INFINITY } else { demand_s / (1.0 - busy.max(0.0)) }
}

/// Mean response time, in seconds, of `cores` processors that all requests share equally, with at most one core per
/// request: D (1 + C / (c (1 - U))), with Erlang's C, the probability that all cores are busy. `busy` is the
/// utilization of all cores together.
///
/// The distribution of the demand has no influence either, as requests share the cores equally.
/// Sources: A. K. Erlang (1917); J. W. Cohen, "The multiple phase service network with generalized processor sharing"
/// (1979).
pub fn ps_response_of_cores(demand_s: f64, cores: u32, busy: f64) -> f64 {
    let (c, busy) = (f64::from(cores.max(1)), busy.max(0.0));
    if busy >= 1.0 {
        return f64::INFINITY;
    }
    demand_s * (1.0 + erlang_c(cores.max(1), busy * c) / (c * (1.0 - busy)))
}

/// Erlang's C: the probability that all `servers` are busy at an offered load `load` (arrival rate times demand) below
/// `servers`.
fn erlang_c(servers: u32, load: f64) -> f64 {
    // The recursion for Erlang's B is numerically stable; C follows from B.
    let b = (1..=servers).fold(1.0, |b, n| load * b / (f64::from(n) + load * b));
    let busy = load / f64::from(servers);
    b / (1.0 - busy * (1.0 - b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_c_of_one_core_is_m_m_1() {
        for busy in [0.0, 0.3, 0.9, 0.99] {
            assert!((ps_response_of_cores(0.02, 1, busy) / ps_response(0.02, busy) - 1.0).abs() < 1e-12);
        }
        assert_eq!(ps_response(0.02, 0.0), 0.02);
        assert!((ps_response(0.02, 0.75) - 0.08).abs() < 1e-15);
        assert!(ps_response(0.02, 1.0).is_infinite() && ps_response_of_cores(0.02, 4, 1.2).is_infinite());
    }

    /// Erlang's C by hand. Two servers, load 1: B = (1/2) / (1 + 1 + 1/2) = 1/5, C = 1/3. Three servers, load 2: B =
    /// (8/6) / (1 + 2 + 2 + 8/6) = 4/19, C = 4/9.
    #[test]
    fn erlang_c_matches_hand_computation() {
        assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(3, 2.0) - 4.0 / 9.0).abs() < 1e-12);
        // M/M/2 at utilization 1/2: the factor is 1 / (1 - U^2).
        assert!((ps_response_of_cores(3.0, 2, 0.5) - 4.0).abs() < 1e-12);
    }
}
