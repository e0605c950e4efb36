//! Distances as text: `lan`, `koshien-2001`, a profile's file, or `rtt:48ms+loss:1%`.

use path::Effects;
use plan::{PathPlan, Plan};
use units::parse_duration;

/// The plan at a distance.
///
/// # Errors
/// The text is not a distance; the reason as a sentence.
pub fn at(plan: &Plan, words: &str) -> Result<Plan, String> {
    let offload = plan.path.as_ref().is_none_or(|path| path.offload);
    let mut path = PathPlan { offload, ..PathPlan::default() };
    for word in words.split('+').map(str::trim) {
        let named = word.split_once(':');
        if let Some((key, typed)) = named
            && let Some(effect) = Effects::parse(key, typed)
        {
            path.effects.set(effect.map_err(|error| format!("{key}:{typed}: {error}"))?);
            continue;
        }
        match named {
            Some(("rtt", time)) => path.rtt = Some(parse_duration(time).map_err(|error| error.to_string())?),
            Some(("up", rate)) => path.up = Some(rate.parse().map_err(|error| format!("up:{rate}: {error}"))?),
            Some(("down", rate)) => path.down = Some(rate.parse().map_err(|error| format!("down:{rate}: {error}"))?),
            Some(("queue", limit)) => {
                path.queue = Some(limit.parse().map_err(|error| format!("queue:{limit}: {error}"))?)
            }
            _ if word.is_empty() => {
                return Err(format!(
                    "--each {words}: expected a profile (lan, koshien-2001, a file), or rtt:48ms+loss:1%"
                ));
            }
            _ if path.profile.is_some() => return Err(format!("--each {words}: at most one profile is possible")),
            _ => path.profile = Some(word.to_owned()),
        }
    }
    if path.profile.is_none() {
        path.rtt.get_or_insert_default();
    }
    let mut plan = plan.clone();
    plan.path = Some(path);
    // A profile that stands alone needs no further path to check.
    plan.watch.at = Some(plan.watch_at());
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(words: &str) -> Result<PathPlan, String> {
        let plan =
            Plan::from_toml("slo = \"p99 < 1s\"\n[load]\nurl = \"http://127.0.0.1:8080/\"\n[capacity]\n", "plan")
                .unwrap();
        at(&plan, words).map(|plan| plan.path.unwrap())
    }

    #[test]
    fn distance_text_becomes_a_path() {
        assert_eq!(path("koshien-2001").unwrap().profile.as_deref(), Some("koshien-2001"));
        let both = path("rtt:48ms+loss:1%").unwrap();
        assert_eq!((both.rtt, both.profile), (Some(std::time::Duration::from_millis(48)), None));
        assert!(both.effects.get("loss").is_some());
        assert_eq!(path("loss:1%").unwrap().rtt, Some(std::time::Duration::ZERO));
        let over = path("4g+loss:2%").unwrap();
        assert!(over.profile.as_deref() == Some("4g") && over.effects.get("loss").is_some() && over.rtt.is_none());
    }

    #[test]
    fn invalid_distance_is_refused() {
        for wrong in ["", "rtt:48", "loss:200%", "lan+4g", "rtt:48ms+"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }
}
