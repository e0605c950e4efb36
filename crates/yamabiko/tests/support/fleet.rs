//! A trial of agents and manager: real processes of both, programs under the agents' taps that write down what they did, and harm.
//!
//! ```text
//!   agents' network (cut now and then)                                    manager's network
//!   talker ask ─rings─▶ yamabiko tap agent (killed now and then) ══ veth ══▶ yamabiko tap manager (killed now and then)
//!      │   ▲  each its own folder and data, some with a wall clock           │
//!      │   └ talker serve         that is minutes wrong                      ├─▶ days/*/*.parquet ─┐
//!      ▼                                                                     └─▶ index.sqlite ─────┤
//!   accounts: what each program knows that it did ────────────────────────────▶ readers/fleet.py: each row once, in its place
//! ```
//!
//! [`trial::Trial::run`] is all of it. The one who compares is neither of the two: DuckDB and SQLite, from Python. Used by the tests of
//! `real_fleet` and by `cargo xtask bench fleet`; nothing but std, nix, serde_json and tempfile is needed.

#[path = "fleet/harm.rs"]
pub mod harm;
#[path = "fleet/networks.rs"]
pub mod networks;
#[path = "fleet/parties.rs"]
pub mod parties;
#[path = "fleet/process.rs"]
pub mod process;
#[path = "fleet/trial.rs"]
pub mod trial;

use std::time::Duration;

/// What goes wrong with a trial itself.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
/// Of a trial.
pub type Result<T> = std::result::Result<T, Fault>;

/// Far more than any one step takes, also on a slow and busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);
