//! Stands in for the sender in a build without the feature `web`, which cannot send.

use anyhow::{Error, Result};
use schema::WatchSecond;
use sys::signal::Interrupts;

use super::message::End;
use super::view::View;

/// A sender that cannot exist.
pub enum Sender {}

impl Sender {
    /// See the sender of the feature `web`.
    pub fn push(&self, _: Vec<WatchSecond>, _: &View) {
        match *self {}
    }

    /// See the sender of the feature `web`.
    pub fn state(&self) -> (String, bool) {
        match *self {}
    }

    /// See the sender of the feature `web`.
    pub fn refusal(&self) -> Option<Error> {
        match *self {}
    }

    /// # Errors
    /// None.
    pub fn finish(self, _: Vec<WatchSecond>, _: &View, _: End, _: &Interrupts) -> Result<()> {
        match self {}
    }
}
