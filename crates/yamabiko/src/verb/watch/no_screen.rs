//! Stands in for the live screen in a build without the feature `tui`, which prints a line a second instead.

use std::io;
use std::sync::Arc;

use super::view::View;

/// A screen that cannot exist.
pub enum Screen {}

impl Screen {
    /// # Errors
    /// Always.
    pub fn open(_: String) -> io::Result<Screen> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// See the screen of the feature `tui`.
    pub fn is_alive(&self) -> bool {
        match *self {}
    }

    /// See the screen of the feature `tui`.
    pub fn show(&self, _: Vec<Arc<View>>) {
        match *self {}
    }

    /// See the screen of the feature `tui`.
    pub fn note(&self, _: &str) {
        match *self {}
    }
}
