//! What is told of the time that a search takes.

use super::*;
use crate::search::estimate;

/// How long a search will take is said before it, and after every trial: of the time that it then takes, by servers and starts.
#[test]
fn the_time_that_is_left_is_told() {
    let servers = [(200.0, Server::four()), (2000.0, Server::exponential(2000.0)), (500.0, Server::one(500.0))];
    for (capacity, server) in servers {
        for seed in 0..4 {
            let start = capacity * (0.2 + 0.3 * seed as f64);
            let mut simulated = Simulated::new(server.clone(), OBJECTIVE, seed);
            let rules = simulated.rules(CapacityPlan { overload: true, ..plan(start) });
            let mut course = Course::new(&rules);
            let told = [estimate::rest(&rules, &course)];
            assert_eq!(drive(&mut course, &mut simulated).unwrap(), Some(End::Found));
            let took = |from: usize| -> Duration {
                let made = simulated.asked.iter().zip(course.made()).skip(from);
                made.map(|(asked, trial)| estimate::takes(asked, &trial.verdict)).sum()
            };
            let after = (1..course.made().len()).map(|made| {
                let mut begun = Course::new(&rules);
                course.made()[..made].iter().for_each(|trial| begun.add(trial.clone()));
                estimate::rest(&rules, &begun)
            });
            for (made, told) in told.into_iter().chain(after).enumerate() {
                let (told, took) = (told.as_secs_f64(), took(made).as_secs_f64());
                // Near the end one trial more is much of what is left.
                let near = (told / took - 1.0).abs() <= 0.3 || (told - took).abs() <= 100.0;
                assert!(near, "{capacity}/s, seed {seed}, after {made} trials: told {told:.0} s, took {took:.0} s");
            }
        }
    }
}
