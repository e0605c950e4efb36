//! Values by name, as bars or dots.

use super::Quantity;

/// Values by name: groups of horizontal bars on a linear axis from 0 ([`Bars::new`]), or, for values decades apart,
/// dots on a logarithmic axis ([`Bars::dots`]), where the length of a bar would be misleading.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Quantity of the values.
    pub quantity: Quantity,
    /// Names of the bars of a group: `p50`, `p99`.
    pub series: Vec<String>,
    /// The groups from top to bottom.
    pub rows: Vec<BarRow>,
    /// Whether the values are dots on a logarithmic axis.
    pub dots: bool,
    /// Whether the values of a group are parts of a whole, side by side in one bar.
    pub stacked: bool,
}

/// One group.
#[derive(Clone, Debug, PartialEq)]
pub struct BarRow {
    /// Name of the group: `RTT 50 ms to 100 ms`.
    pub name: String,
    /// A value for each series; `None` and NaN are shown as a dash.
    pub values: Vec<Option<f64>>,
    /// Confidence intervals, if known, drawn at the end of a bar; not drawn with dots.
    pub intervals: Vec<Option<[f64; 2]>>,
}

impl Bars {
    /// Bars of one quantity.
    pub fn new(title: impl Into<String>, quantity: Quantity, series: &[&str]) -> Self {
        let series = series.iter().map(|&name| name.to_owned()).collect();
        Bars {
            title: title.into(),
            about: String::new(),
            quantity,
            series,
            rows: Vec::new(),
            dots: false,
            stacked: false,
        }
    }

    /// Dots on a logarithmic axis, one line for each name; values that are not positive are left out.
    pub fn dots(title: impl Into<String>, quantity: Quantity, series: &[&str]) -> Self {
        Bars { dots: true, ..Bars::new(title, quantity, series) }
    }

    /// Parts of a whole, one bar for each name.
    pub fn stacked(title: impl Into<String>, quantity: Quantity, series: &[&str]) -> Self {
        Bars { stacked: true, ..Bars::new(title, quantity, series) }
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a group.
    pub fn row(mut self, name: impl Into<String>, values: &[Option<f64>]) -> Self {
        self.rows.push(BarRow { name: name.into(), values: values.to_vec(), intervals: Vec::new() });
        self
    }

    /// Adds a group of values with their intervals.
    pub fn row_within(mut self, name: impl Into<String>, values: &[(Option<f64>, Option<[f64; 2]>)]) -> Self {
        let (values, intervals) = values.iter().copied().unzip();
        self.rows.push(BarRow { name: name.into(), values, intervals });
        self
    }

    /// Whether there is no bar.
    pub fn is_empty(&self) -> bool {
        !self.rows.iter().flat_map(|row| &row.values).flatten().any(|value| value.is_finite())
    }
}
