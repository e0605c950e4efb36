//! Tests of the engine with a simulated server in virtual time. `world` contains the simulation.

mod breakage;
mod choices;
mod closed_loop;
mod figures;
mod follow_ups;
mod http3;
mod machines;
mod open_connections;
mod open_loop;
mod random_workloads;
mod reuse;
mod sessions;
mod shards;
mod stalled_generator;
mod streams;
mod timeouts;
mod tls;
mod workload;
mod world;
