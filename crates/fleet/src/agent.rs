//! The agent: what the programs of one machine saw, kept and handed on.
