//! From the plan's path to one [`path::ClientPath`] for each virtual client.

use std::time::Duration;

use path::{ClientPath, Override, PathSpec, Profile, ProfileError, QueueLimit};

use crate::plan::{PathPlan, Queue};

/// The name under which the path is reported: the profile's, or how it was given.
pub fn name(plan: &PathPlan) -> String {
    let mut name = match (&plan.profile, plan.rtt) {
        (Some(profile), _) => profile.clone(),
        (None, Some(rtt)) => format!("constant {}", units::format_duration(rtt)),
        (None, None) => "constant 0s".into(),
    };
    let mut add = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            name.push_str(&format!(", {what} {value}"));
        }
    };
    if plan.profile.is_some() {
        add("rtt", plan.rtt.map(units::format_duration));
    }
    add("variation", plan.variation.map(units::format_duration));
    add("loss", plan.loss.map(|loss| format!("{}%", loss.value() * 100.0)));
    add("up", plan.up.map(|rate| rate.to_string()));
    add("down", plan.down.map(|rate| rate.to_string()));
    add("queue", plan.queue.map(|queue| queue.to_string()));
    name
}

/// The profile itself, without what the plan replaces.
///
/// # Errors
/// No such profile, or a file that cannot be read or does not parse.
pub fn profile(plan: &PathPlan) -> Result<Profile, ProfileError> {
    match &plan.profile {
        Some(profile) => named(profile),
        None => Ok(Profile::constant(plan.rtt.unwrap_or_default())),
    }
}

/// A built-in profile by name, or one from a file.
///
/// # Errors
/// No such profile, or a file that cannot be read or does not parse.
pub fn named(profile: &str) -> Result<Profile, ProfileError> {
    match Profile::builtin(profile) {
        Some(builtin) => Ok(builtin),
        None => Profile::read(std::path::Path::new(profile), &|file| std::fs::read_to_string(file)),
    }
}

/// The whole path, for so many clients.
///
/// # Errors
/// Those of [`profile`].
pub fn spec(plan: &PathPlan, clients: u32) -> Result<PathSpec, ProfileError> {
    let mut spec = profile(plan)?.path(clients);
    let replace = Override {
        rtt: plan.rtt,
        variation: plan.variation,
        loss: plan.loss,
        up_rate: plan.up,
        down_rate: plan.down,
        queue: plan.queue.map(|queue| match queue {
            Queue::Bytes(bytes) => QueueLimit::Bytes(bytes),
            Queue::Time(time) => QueueLimit::Time(time),
        }),
    };
    for path in &mut spec.clients {
        replace.apply(path);
    }
    Ok(spec)
}

/// How long the path goes on after everything, so that both ends see the last connections closed: the longest way
/// there and back, half of it again, and time for the ends to answer.
pub fn grace(clients: &[ClientPath]) -> Duration {
    let longest = clients.iter().map(ClientPath::rtt).max().unwrap_or_default();
    longest + longest / 2 + ANSWER
}

/// The ends' kernels answer a FIN within microseconds; their programs, within this.
const ANSWER: Duration = Duration::from_millis(100);
