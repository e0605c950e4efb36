//! The engine against a simulated server in virtual time. `world` holds the simulation; the other files the claims.

mod breakage;
mod closed_loop;
mod figures;
mod open_loop;
mod reuse;
mod timeouts;
mod tls;
mod world;
