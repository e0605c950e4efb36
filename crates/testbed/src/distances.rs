//! Makes one [`path::PathSpec`] for all clients from the plan's path.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use path::{
    Change, ChangeKind, ChangedLinks, ClientPath, EffectSpec, Override, PathSpec, Profile, ProfileError, Propagation,
    Rate,
};
use units::time::text::exact;

use plan::{OriginPlan, PathPlan};

/// The name of the path in reports: the profile, or the options that define it, and all replaced parts.
pub fn name(plan: &PathPlan) -> String {
    let mut name = match (&plan.profile, plan.rtt) {
        (Some(profile), _) => profile.clone(),
        (None, Some(rtt)) => format!("constant {}", units::format_duration(rtt)),
        (None, None) => "constant 0s".into(),
    };
    let mut add = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            name.push_str(&format!(", {what}{value}"));
        }
    };
    if plan.profile.is_some() {
        add("rtt ", plan.rtt.map(units::format_duration));
    }
    for effect in plan.effects.iter() {
        add("", Some(effect.label()));
    }
    add("up ", plan.up.as_ref().map(Rate::to_string));
    add("down ", plan.down.as_ref().map(Rate::to_string));
    add("queue ", plan.queue.map(|queue| queue.to_string()));
    add("", plan.aqm.map(|aqm| aqm.to_string()));
    for change in &plan.changes {
        add("", Some(format!("at {change}")));
    }
    name
}

/// The profile with the plan's changes, without the parts that the plan replaces.
///
/// # Errors
/// An unknown profile, an unreadable or invalid file, or a change of links that it does not have.
pub fn profile(plan: &PathPlan) -> Result<Profile, ProfileError> {
    let mut profile = match &plan.profile {
        Some(profile) => named(profile)?,
        None => Profile::constant(plan.rtt.unwrap_or_default()),
    };
    for change in &plan.changes {
        profile.add(change.clone()).map_err(ProfileError::Change)?;
    }
    Ok(profile)
}

/// A built-in profile by name, or one from a file.
///
/// # Errors
/// An unknown profile, or an unreadable or invalid file.
pub fn named(profile: &str) -> Result<Profile, ProfileError> {
    match Profile::builtin(profile) {
        Some(builtin) => Ok(builtin),
        None => Profile::read(Path::new(profile), FILES),
    }
}

const FILES: path::Files<'static> = &|file| std::fs::read_to_string(file);

/// The whole path for this many clients.
///
/// # Errors
/// The errors of [`profile`]; an unreadable trace; a change of something that the path does not have.
pub fn spec(plan: &PathPlan, clients: u32) -> Result<PathSpec, ProfileError> {
    let mut spec = profile(plan)?.path(clients);
    // Files of the plan's rates are relative to the current directory.
    let rate = |rate: &Option<Rate>| rate.as_ref().map(|rate| rate.spec(Path::new(""), FILES)).transpose();
    let replace = Override {
        rtt: plan.rtt,
        effects: plan.effects.clone(),
        up_rate: rate(&plan.up)?,
        down_rate: rate(&plan.down)?,
        queue: plan.queue,
        discipline: plan.aqm,
    };
    for path in &mut spec.clients {
        replace.apply(path);
    }
    check_changes(&spec)?;
    Ok(spec)
}

/// The clients' path with one more client: an origin behind the server (`[origin]`), with its own link. A link shared
/// by all clients is the server's own line, so requests to the origin pass it as well.
///
/// # Errors
/// The errors of [`spec`]; a profile with a shared link or with changes, which the origin's link cannot have.
pub fn with_origin<'a>(clients: &'a PathSpec, origin: Option<&OriginPlan>) -> Result<Cow<'a, PathSpec>, ProfileError> {
    let Some(origin) = origin else { return Ok(Cow::Borrowed(clients)) };
    let own = match &origin.path {
        Some(path) => spec(path, 1)?,
        None => PathSpec::new(vec![ClientPath::constant(Duration::ZERO)]),
    };
    if !own.shared.is_empty() || !own.changes.is_empty() {
        let why =
            "[origin.path]: expected a profile without a shared link and without changes, because one host uses it";
        return Err(ProfileError::Change(why.into()));
    }
    let mut whole = clients.clone();
    let last = whole.clients.len() as u32;
    whole.clients.extend(own.clients);
    for shared in whole.shared.iter_mut().filter(|shared| shared.members == (0..last)) {
        shared.members.end += 1;
    }
    Ok(Cow::Owned(whole))
}

/// Refuses clients that move their QUIC connections where there are none.
///
/// # Errors
/// The path has such a change.
pub fn refuse_migration(spec: &PathSpec) -> Result<(), ProfileError> {
    let change = spec.changes.iter().find(|change| change.kind == ChangeKind::Migrate);
    change.map_or(Ok(()), |change| {
        Err(ProfileError::Change(format!(
            "a migration at {} moves connections of QUIC, which has only a load with HTTP/3 (--http 3); rebind changes \
             the address of any connection",
            exact(change.at)
        )))
    })
}

/// Refuses changes without effect: a test of half a rate must not use a link without a rate.
fn check_changes(spec: &PathSpec) -> Result<(), ProfileError> {
    let refuse = |why: String| Err(ProfileError::Change(why));
    for change in &spec.changes {
        let links: Vec<&[EffectSpec]> = match &change.place {
            ChangedLinks::Clients(members) if members.is_empty() => continue,
            ChangedLinks::Clients(members) => {
                let members = &spec.clients[members.start as usize..members.end as usize];
                if matches!(change.kind, ChangeKind::Delay(_)) && members.iter().all(is_near) {
                    return refuse(format!("a change of the RTT at {} affects links whose RTT is 0", exact(change.at)));
                }
                members.iter().flat_map(|client| [&client.up.effects[..], &client.down.effects[..]]).collect()
            }
            ChangedLinks::Shared(index) => vec![&spec.shared[*index].up, &spec.shared[*index].down],
        };
        let has_rate =
            |effects: &&[EffectSpec]| effects.iter().any(|effect| matches!(effect, EffectSpec::Bottleneck(_)));
        if matches!(change.kind, ChangeKind::Rate(_)) && !links.iter().any(has_rate) {
            return refuse(format!("a change of the rate at {} affects links without a rate", exact(change.at)));
        }
    }
    Ok(())
}

fn is_near(client: &ClientPath) -> bool {
    [&client.up, &client.down]
        .iter()
        .all(|link| matches!(link.propagation, Propagation::Constant(_)) && link.delay().is_zero())
}

/// The longest RTT by delays of any client at any time: with delays from a file the longest in it, multiplied by
/// simultaneous changes. Queueing is not included.
pub fn longest_rtt(spec: &PathSpec) -> Duration {
    // Of each link: the delays that changes multiply, and the other delays.
    let longest = |link: &path::LinkSpec| {
        let (mean, most) = match &link.propagation {
            Propagation::Constant(delay) => (*delay, *delay),
            Propagation::OverTime(series) => {
                (series.mean(), series.points().iter().map(|&(_, delay)| delay).max().unwrap_or_default())
            }
        };
        let reorder_delays = link.effects.iter().map(|effect| effect.expected().reorder_delay);
        let delays = most.saturating_add(link.delay().saturating_sub(mean));
        (delays, reorder_delays.fold(link.jitter(), Duration::saturating_add))
    };
    // Neighbouring clients mostly have the same changes, so the last factor is often the next one, too.
    let mut last_factor = (Vec::new(), 1.0);
    let rtts = (0u32..).zip(&spec.clients).map(|(number, client)| {
        let affects =
            |change: &&Change| matches!(&change.place, ChangedLinks::Clients(members) if members.contains(&number));
        let numbered = spec.changes.iter().enumerate().filter(|(_, change)| affects(change));
        let indices: Vec<usize> = numbered.map(|(index, _)| index).collect();
        if indices != last_factor.0 {
            let factor = largest_factor(indices.iter().map(|&index| &spec.changes[index]));
            last_factor = (indices, factor);
        }
        let factor = last_factor.1;
        let ((up, up_added), (down, down_added)) = (longest(&client.up), longest(&client.down));
        // Limited, because a very large factor would overflow a Duration.
        let seconds = ((up + down).as_secs_f64() * factor).min(RTT_MAX.as_secs_f64());
        Duration::from_secs_f64(seconds).saturating_add(up_added).saturating_add(down_added)
    });
    rtts.max().unwrap_or_default()
}

/// The largest product, at least 1, of simultaneous changes of delays.
fn largest_factor<'a>(changes: impl Iterator<Item = &'a Change>) -> f64 {
    let spans: Vec<(Duration, Option<Duration>, f64)> = changes
        .filter_map(|change| match change.kind {
            ChangeKind::Delay(factor) => {
                let end = change.duration.map(|duration| change.at.saturating_add(duration));
                Some((change.at, end, factor.value().max(1.0)))
            }
            _ => None,
        })
        .collect();
    // The product has its maximum at the start of a change.
    let at = |time: Duration| {
        let is_active =
            |&&(from, end, _): &&(Duration, Option<Duration>, f64)| from <= time && end.is_none_or(|end| time < end);
        spans.iter().filter(is_active).map(|(_, _, factor)| factor).product()
    };
    spans.iter().map(|&(from, _, _)| at(from)).fold(1.0, f64::max)
}

/// Upper limit of the longest RTT: an hour.
const RTT_MAX: Duration = Duration::from_secs(3600);

/// Whether the path delays any packet: otherwise being on time has no meaning, and a path that is not real-time reads
/// packets in batches, which carries more (docs/decisions/0009).
pub fn keeps_time(spec: &PathSpec) -> bool {
    let waits = |effects: &[EffectSpec]| effects.iter().any(EffectSpec::delays);
    !spec.clients.iter().all(is_near)
        || spec.clients.iter().any(|client| waits(&client.up.effects) || waits(&client.down.effects))
        || spec.shared.iter().any(|shared| waits(&shared.up) || waits(&shared.down))
}

/// Time for which the path continues after the run, so that both ends see the last connections closed: one and a half
/// times the longest RTT, and time for the ends to respond.
pub fn grace(spec: &PathSpec) -> Duration {
    let longest = longest_rtt(spec);
    (longest + longest / 2 + PROCESSING_TIME).min(GRACE_MAX)
}

/// Upper limit of [`grace`], for distant clients.
const GRACE_MAX: Duration = Duration::from_secs(60);

/// Time for the ends' programs to respond; their kernels acknowledge a FIN within microseconds.
const PROCESSING_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
