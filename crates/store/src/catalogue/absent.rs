//! Stub of the catalogue in a build without the feature `catalogue`.

use std::collections::HashMap;
use std::path::Path;

use super::{Row, Without};

/// A catalogue: never exists in this build.
pub(crate) enum Catalogue {}

impl Catalogue {
    pub(crate) fn open(_: &Path) -> Without<(Catalogue, HashMap<String, Row>)> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn create_empty(_: &Path) -> Without<Catalogue> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn change(self, _: &[Row], _: &[String]) -> Without<()> {
        match self {}
    }
}

const ABSENT: &str = "this program was built without the feature `catalogue`";
