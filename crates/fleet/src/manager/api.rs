//! The documented HTTP API and the page, over what the manager has.
