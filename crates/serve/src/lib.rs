//! The static server.
