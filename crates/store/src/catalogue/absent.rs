//! The catalogue of a build without the feature `catalogue`: there is none.

use std::collections::HashMap;
use std::path::Path;

use super::{Row, Without};

/// A catalogue that cannot exist.
pub(crate) enum Catalogue {}

impl Catalogue {
    pub(crate) fn open(_: &Path) -> Without<(Catalogue, HashMap<String, Row>)> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn anew(_: &Path) -> Without<Catalogue> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn change(self, _: &[Row], _: &[String]) -> Without<()> {
        match self {}
    }
}

const ABSENT: &str = "this program was built without the feature `catalogue`";
