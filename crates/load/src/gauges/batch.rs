//! The standard error of the mean of correlated samples.

/// Batch means with a bounded number of batches. When all batches are full, neighbours are merged and the batch length
/// doubles. So batches become much longer than the correlation time, for any length of the run.
///
/// Bias: too small while batches are shorter than the correlation time; negligible from a hundred samples per batch on.
/// Source: Law and Kelton, Simulation Modeling and Analysis, on batch means.
#[derive(Debug)]
pub(super) struct BatchMeans {
    sums: Vec<f64>,
    batch_length: u64,
    current: f64,
    current_length: u64,
}

/// Maximum number of batches; after a merge half of them remain. With fewer batches the estimate is uncertain, with
/// more the batches are short.
const BATCHES_MAX: usize = 40;

impl BatchMeans {
    pub(super) fn new() -> Self {
        BatchMeans { sums: Vec::with_capacity(BATCHES_MAX), batch_length: 1, current: 0.0, current_length: 0 }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.current += value;
        self.current_length += 1;
        if self.current_length < self.batch_length {
            return;
        }
        self.sums.push(self.current);
        (self.current, self.current_length) = (0.0, 0);
        if self.sums.len() == BATCHES_MAX {
            for at in 0..BATCHES_MAX / 2 {
                self.sums[at] = self.sums[2 * at] + self.sums[2 * at + 1];
            }
            self.sums.truncate(BATCHES_MAX / 2);
            self.batch_length *= 2;
        }
    }

    /// Standard error of the mean over the full batches; 0 with fewer than two.
    pub(super) fn standard_error(&self) -> f64 {
        if self.sums.len() < 2 {
            return 0.0;
        }
        let n = self.sums.len() as f64;
        let means = self.sums.iter().map(|sum| sum / self.batch_length as f64);
        let mean = means.clone().sum::<f64>() / n;
        let variance = means.map(|batch| (batch - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (variance / n).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use stats::Rng;

    use super::*;

    #[test]
    fn standard_error_of_independent_values_matches_the_textbook() {
        let mut rng = Rng::named(1, "batch means");
        let mut batches = BatchMeans::new();
        for _ in 0..100_000 {
            batches.add(rng.uniform());
        }
        // sqrt(1/12 / 100000) = 0.000913. Estimated from 20 to 40 batches, one standard deviation is some 16 %.
        assert!((0.0004..0.0018).contains(&batches.standard_error()), "{}", batches.standard_error());
    }

    #[test]
    fn standard_error_of_correlated_values_is_larger() {
        let mut rng = Rng::named(1, "batch means");
        let mut batches = BatchMeans::new();
        for _ in 0..1_000 {
            let value = rng.uniform();
            (0..100).for_each(|_| batches.add(value));
        }
        // There are a hundred times fewer independent values, so the error is ten times larger.
        assert!((0.004..0.018).contains(&batches.standard_error()), "{}", batches.standard_error());
    }
}
