//! The engine against a simulated server in virtual time. `world` holds the simulation; the other files the claims.

mod breakage;
mod choices;
mod closed_loop;
mod figures;
mod follow_ups;
mod held;
mod held_up;
mod lanes;
mod mix;
mod open_loop;
mod random_workloads;
mod reuse;
mod sessions;
mod streams;
mod timeouts;
mod tls;
mod world;
