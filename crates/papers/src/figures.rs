//! Rows of a reproduction: one figure each.

use schema::ReproductionRow;

/// A row with a figure; a figure that is not a number is absent.
pub fn row(experiment: &str, setting: &str, quantity: &str, unit: &str, here: f64) -> ReproductionRow {
    ReproductionRow {
        experiment: experiment.into(),
        setting: setting.into(),
        quantity: quantity.into(),
        unit: unit.into(),
        measured: here.is_finite().then_some(here),
        ..ReproductionRow::default()
    }
}

/// Adds the published text and a note to a row.
pub fn with_published(row: ReproductionRow, paper: Option<&str>, note: &str) -> ReproductionRow {
    ReproductionRow { published: paper.map(str::to_owned), note: note.to_owned(), ..row }
}

/// The figure of a row.
pub fn find(rows: &[ReproductionRow], experiment: &str, setting: &str, quantity: &str) -> Option<f64> {
    rows.iter()
        .find(|row| row.experiment == experiment && row.setting == setting && row.quantity == quantity)
        .and_then(|row| row.measured)
}
