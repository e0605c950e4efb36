//! The manager: takes what agents saw, keeps it by day, and shows it.

pub mod alerts;
pub mod api;
pub mod otlp;
pub mod quality;
