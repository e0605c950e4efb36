//! Predicted remaining time of a search.

use super::*;
use crate::search::estimate;

/// The predicted time before a search and after each trial is close to the time that the rest takes, by server and
/// seed.
#[test]
fn remaining_time_of_a_search_is_predicted() {
    let servers = [(200.0, Server::four()), (2000.0, Server::exponential(2000.0)), (500.0, Server::one(500.0))];
    for (capacity, server) in servers {
        for seed in 0..4 {
            let start = capacity * (0.2 + 0.3 * seed as f64);
            let mut simulated = Simulated::new(server.clone(), OBJECTIVE, seed);
            let rules = simulated.rules(CapacityPlan { overload: true, ..plan(start) });
            let mut sequence = TrialSequence::new(&rules);
            let predicted = [estimate::rest(&rules, &sequence)];
            assert_eq!(drive(&mut sequence, &mut simulated).unwrap(), Some(End::Found));
            let took = |from: usize| -> Duration {
                let rest = simulated.requests.iter().zip(sequence.trials()).skip(from);
                rest.map(|(request, trial)| estimate::takes(request, &trial.verdict, 1)).sum()
            };
            let after = (1..sequence.trials().len()).map(|count| {
                let mut begun = TrialSequence::new(&rules);
                sequence.trials()[..count].iter().for_each(|trial| begun.add(trial.clone()));
                estimate::rest(&rules, &begun)
            });
            for (count, predicted) in predicted.into_iter().chain(after).enumerate() {
                let (predicted, took) = (predicted.as_secs_f64(), took(count).as_secs_f64());
                // Near the end one more trial is a large share of the remaining time.
                let near = (predicted / took - 1.0).abs() <= 0.3 || (predicted - took).abs() <= 100.0;
                assert!(
                    near,
                    "{capacity}/s, seed {seed}, after {count} trials: predicted {predicted:.0} s, took {took:.0} s"
                );
            }
        }
    }
}
