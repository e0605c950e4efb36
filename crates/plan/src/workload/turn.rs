//! The mean session of a closed-loop user, from its start to the start of the next: its length without response times,
//! and its number of requests.

use std::time::Duration;

use super::{DrawnThink, LoadPlan, RequestPlan, SessionPlan, StepPlan, ThinkPlan, Time};

/// A user's session: the mean over the sessions of a plan by weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Length of the session, if all responses came immediately.
    pub lasts: Duration,
    /// Steps: pages, without their embedded objects.
    pub steps: f64,
    /// Requests, including embedded objects.
    pub requests: f64,
    /// Whether users who start together are spread from the start, because each session begins with an exponential
    /// think time.
    pub begins_spread: bool,
}

impl ThinkPlan {
    /// Mean think time; of a log-normal one that of the distribution before `max` applies.
    pub fn mean(&self) -> Duration {
        match self {
            ThinkPlan::Constant(time) => time.0,
            ThinkPlan::Drawn(DrawnThink::Uniform([from, to])) => (from.0 + to.0) / 2,
            // Values above the longest become the longest.
            ThinkPlan::Drawn(DrawnThink::Exponential { mean, max }) => {
                mean.0.mul_f64(1.0 - (-max.0.as_secs_f64() / mean.0.as_secs_f64()).exp())
            }
            ThinkPlan::Drawn(DrawnThink::LogNormal { median, sigma, max }) => {
                let mean_s = median.0.as_secs_f64() * (sigma * sigma / 2.0).exp();
                Duration::try_from_secs_f64(mean_s).map_or(max.0, |mean| mean.min(max.0))
            }
        }
    }

    /// Exponential with this mean, limited to ten times of it, as in TPC-W.
    pub fn exponential(mean: Duration) -> Self {
        ThinkPlan::Drawn(DrawnThink::Exponential { mean: Time(mean), max: Time(mean * 10) })
    }
}

impl SessionPlan {
    /// Time of a session that its think times and fixed times define.
    fn lasts(&self) -> Duration {
        let thought: Duration = self.steps.iter().filter_map(|step| step.think.as_ref()).map(ThinkPlan::mean).sum();
        self.steps.iter().filter_map(|step| step.at).fold(thought, Duration::max)
    }
}

impl LoadPlan {
    /// The mean session of its users; none without sessions.
    pub fn turn(&self) -> Option<Turn> {
        let weight = |session: &SessionPlan| session.weight.unwrap_or(1.0);
        let all: f64 = self.session.iter().map(weight).sum();
        let mean = |of: &dyn Fn(&SessionPlan) -> f64| -> f64 {
            self.session.iter().map(|session| weight(session) * of(session)).sum::<f64>() / all
        };
        let embedded = |session: &SessionPlan| session.steps.iter().map(|step| step.embedded.len()).sum::<usize>();
        let has_no_memory = |session: &SessionPlan| {
            let first = session.steps.first().and_then(|step| step.think.as_ref());
            matches!(first, Some(ThinkPlan::Drawn(DrawnThink::Exponential { .. })))
        };
        (!self.session.is_empty() && all > 0.0).then(|| Turn {
            lasts: Duration::from_secs_f64(mean(&|session| session.lasts().as_secs_f64())),
            steps: mean(&|session| session.steps.len() as f64),
            requests: mean(&|session| (session.steps.len() + embedded(session)) as f64),
            begins_spread: self.session.iter().all(has_no_memory),
        })
    }

    /// Adds sessions of users who think, request and wait: with one request the same again and again, with several each
    /// time one that is drawn by weight.
    pub fn ask_thinking(&mut self, think: &ThinkPlan) {
        if self.request.is_empty() {
            let method = Some(std::mem::take(&mut self.method)).filter(|&method| method != schema::Method::Get);
            let url = std::mem::take(&mut self.url);
            self.request = vec![RequestPlan { method, ..self.with_body(RequestPlan::get(url)) }];
            (self.body, self.body_text) = (None, None);
        }
        self.choice = None;
        let session = |request: &mut RequestPlan| SessionPlan {
            name: None,
            weight: request.weight.take(),
            on_failure: super::OnFailure::default(),
            steps: vec![StepPlan {
                request: request.label().to_owned(),
                think: Some(think.clone()),
                at: None,
                embedded: Vec::new(),
                parallel: None,
            }],
        };
        self.session = self.request.iter_mut().map(session).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn think_times_have_their_means() {
        assert_eq!(ThinkPlan::Constant(seconds(7)).mean(), Duration::from_secs(7));
        assert_eq!(ThinkPlan::Drawn(DrawnThink::Uniform([seconds(1), seconds(5)])).mean(), Duration::from_secs(3));
        // Limited to ten times the mean: 1 - exp(-10) of it.
        let cut = ThinkPlan::exponential(Duration::from_secs(7)).mean().as_secs_f64();
        assert!((cut / 7.0 - (1.0 - 4.54e-5)).abs() < 1e-6, "{cut}");
        let log = DrawnThink::LogNormal { median: seconds(2), sigma: 1.0, max: seconds(100) };
        assert!((ThinkPlan::Drawn(log).mean().as_secs_f64() - 2.0 * 0.5_f64.exp()).abs() < 1e-6);
    }

    #[test]
    fn a_turn_is_the_weighted_mean_over_sessions() {
        let load: LoadPlan = toml::from_str(
            "url = \"http://127.0.0.1:1\"\n[[request]]\nname = \"a\"\nurl = \"/a\"\n[[request]]\nname = \"b\"\nurl = \"/b\"\n\
             [[session]]\nweight = 3\nsteps = [{ request = \"a\", think = \"2s\" }, { request = \"a\", think = \"2s\", embedded = [\"b\", \"b\"] }]\n\
             [[session]]\nsteps = [{ request = \"b\", at = \"8s\" }]\n",
        )
        .unwrap();
        let turn = load.turn().unwrap();
        assert_eq!((turn.lasts, turn.steps, turn.requests), (Duration::from_secs(5), 1.75, 3.25));
        assert!(!turn.begins_spread && LoadPlan::get("http://a/").turn().is_none());
    }

    #[test]
    fn users_without_sessions_repeat_one_url_or_draw_by_weight() {
        let mut load = LoadPlan::get("http://127.0.0.1:1/page?of={client}");
        load.ask_thinking(&ThinkPlan::exponential(Duration::from_secs(1)));
        load.workload().unwrap();
        assert!(load.turn().unwrap().begins_spread);
        assert_eq!((load.session.len(), load.stated_urls().len()), (1, 1));
        // With several requests, each is drawn by weight.
        let mut load = LoadPlan::get("http://127.0.0.1:1");
        load.request = ["/a", "/b"].map(RequestPlan::get).into();
        load.request[1].weight = Some(3.0);
        load.ask_thinking(&ThinkPlan::Constant(seconds(1)));
        load.workload().unwrap();
        assert_eq!(load.session[1].weight, Some(3.0));
    }
}
