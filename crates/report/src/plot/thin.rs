//! Reduction of points without a visible change of the plot.

/// Reduces the points of one line: of each column of pixels the first, the lowest, the highest and the last point
/// remain, in their order. Therefore peaks stay visible for any number of points. x rises.
pub(super) fn thin(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut thinned: Vec<[f64; 2]> = Vec::new();
    let mut rest = points;
    while let Some(first) = rest.first() {
        let column = first[0].floor();
        let length = rest.iter().take_while(|point| point[0].floor() == column).count().max(1);
        let (here, after) = rest.split_at(length);
        if length <= 4 {
            thinned.extend_from_slice(here);
        } else {
            let by_y = |a: &(usize, &[f64; 2]), b: &(usize, &[f64; 2])| a.1[1].total_cmp(&b.1[1]);
            let low = here.iter().enumerate().min_by(by_y).map_or(0, |(at, _)| at);
            let high = here.iter().enumerate().max_by(by_y).map_or(0, |(at, _)| at);
            let mut places = [0, low, high, length - 1];
            places.sort_unstable();
            let mut before = None;
            for place in places {
                if before != Some(place) {
                    thinned.push(here[place]);
                }
                before = Some(place);
            }
        }
        rest = after;
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thinning_keeps_a_single_peak() {
        let mut points: Vec<[f64; 2]> = (0..100_000).map(|at| [f64::from(at) / 200.0, 50.0]).collect();
        points[54_321][1] = 3.0;
        let thinned = thin(&points);
        assert!(thinned.len() <= 4 * 501, "{}", thinned.len());
        assert!(thinned.contains(&points[54_321]));
    }

    proptest! {
        #[test]
        fn thinning_keeps_order_ends_and_extremes(ys in proptest::collection::vec(-1e3..1e3_f64, 0..2000), width in 1.0..300.0_f64) {
            let points: Vec<[f64; 2]> =
                ys.iter().enumerate().map(|(at, &y)| [at as f64 * width / ys.len() as f64, y]).collect();
            let thinned = thin(&points);
            prop_assert_eq!(thinned.first(), points.first());
            prop_assert_eq!(thinned.last(), points.last());
            prop_assert!(thinned.windows(2).all(|pair| pair[0][0] <= pair[1][0]));
            prop_assert!(thinned.len() <= 4 * (width.ceil() as usize + 1));
            let extremes = |points: &[[f64; 2]]| {
                points.iter().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point[1]), high.max(point[1])))
            };
            prop_assert_eq!(extremes(&thinned), extremes(&points));
        }
    }
}
