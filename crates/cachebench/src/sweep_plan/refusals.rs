//! Rejects contradictory sweep plans and keys without effect.

use polymix::CacheWorkload;

use super::{CachePlan, CachePosition, POINT_MIN, POINTS_MAX, SweepPlan, reverse_parts};
use crate::phases::PolygraphSchedule;

impl CachePlan {
    /// The first contradiction.
    pub(super) fn contradiction(&self) -> Option<String> {
        let cache = &self.cache;
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Some(format!("name `{}`: expected letters, digits, - and _", self.name));
        }
        let position = match self.position() {
            Ok(position) => position,
            Err(why) => return Some(why),
        };
        if let Some(why) = self.front_contradiction(&position) {
            return Some(why);
        }
        if cache.rates.is_empty() || cache.rates.len() > POINTS_MAX {
            return Some(format!("{} rates (--rate): expected 1 to {POINTS_MAX}", cache.rates.len()));
        }
        if cache.point < POINT_MIN {
            return Some("point (--duration): expected at least 1s".into());
        }
        if cache.warmup.value() > 0.9 {
            return Some("warmup (--warmup): expected at most 90 % of a point".into());
        }
        if cache.timeout.is_zero() || cache.connect_timeout.is_zero() {
            return Some("a timeout of zero fails every request: give one above zero".into());
        }
        if !(1e-4..=100.0).contains(&cache.time_scale) {
            return Some("time_scale (--time-scale): expected a factor from 1/10000 to 100".into());
        }
        if cache.schedule != PolygraphSchedule::Constant && !cache.phases.is_empty() {
            return Some("schedule and [[cache.phase]] exclude each other: leave one out".into());
        }
        if let Some(why) = cache.phases.iter().find_map(|phase| phase.check().err()) {
            return Some(why);
        }
        if !cache.phases.is_empty() && !cache.phases.iter().any(|phase| phase.measured) {
            return Some("no phase is measured: set measured = true in at least one [[cache.phase]]".into());
        }
        if cache.phases.iter().any(|phase| phase.measured && phase.fill.is_some()) {
            return Some("a phase with fill cannot be measured, since its length is not known beforehand".into());
        }
        if self.workload.name.is_some() && self.workload.file.is_some() {
            return Some("[workload] name and file exclude each other: leave one out".into());
        }
        if self.workload.secure.is_some() {
            return Some(
                "[workload] secure: the sweep sets the address of the origin's TLS listener itself; leave it out"
                    .into(),
            );
        }
        if self.workload.set.contains_key("phases") && !cache.is_constant() {
            return Some(
                "[workload] set.phases: replaced by the phases of the schedule or of [[cache.phase]]; leave them out"
                    .into(),
            );
        }
        if self.server.is_some() && position == CachePosition::Direct {
            return Some("direct (--direct) is without a cache: leave [server] (--server) out".into());
        }
        self.origin_contradiction()
    }

    /// Contradictions of the cache's position.
    fn front_contradiction(&self, position: &CachePosition) -> Option<String> {
        let CachePosition::Reverse(url) = position else {
            return self.cache.tls.is_some().then(|| {
                "[cache.tls] (-k, --cacert and others) requires a reverse proxy with https: give reverse (--reverse), \
                 or leave it out"
                    .into()
            });
        };
        let Some((secure, _)) = reverse_parts(url) else {
            return Some(format!(
                "reverse = \"{url}\" (--reverse): expected http://HOST:PORT or https://HOST:PORT, without a path"
            ));
        };
        if self.cache.tls.is_some() && !secure {
            return Some(format!(
                "[cache.tls] (-k, --cacert and others) needs https: reverse = \"{url}\" (--reverse) is http"
            ));
        }
        // Behind a cache in the testbed the origin's address is known beforehand.
        if self.origin.listen.is_none() && self.cache.origin_at.is_none() && self.server.is_none() {
            return Some(
                "a reverse proxy fetches from a configured address: give it, so that the origin listens there \
                 (--origin ADDRESS:PORT, [origin] listen)"
                    .into(),
            );
        }
        None
    }

    /// Contradictions of the origin.
    fn origin_contradiction(&self) -> Option<String> {
        let origin = &self.origin;
        if self.cache.origin_at.is_some() {
            if self.server.is_some() {
                return Some(
                    "behind a cache of [server] (--server) the origin is started, too: leave origin_at (--origin-at) out"
                        .into(),
                );
            }
            if origin.listen.is_some() || origin.command.is_some() {
                return Some(
                    "origin_at (--origin-at) is an origin that runs already, [origin] listen (--origin) and command start \
                     one: leave one of the two out"
                        .into(),
                );
            }
        }
        if self.server.is_some() {
            return None;
        }
        if origin.path.is_some() {
            return Some(
                "[origin] path (--origin-rtt, --origin-loss) is the link between the origin and a cache of [server]: give \
                 [server] (--server), or leave it out"
                    .into(),
            );
        }
        (origin.command.is_some() && origin.listen.is_none())
            .then(|| "[origin] command: give the address on which it listens, too ([origin] listen)".into())
    }

    /// Rejects a workload that this sweep does not support.
    ///
    /// # Errors
    /// One sentence.
    pub fn check_workload(&self, workload: &CacheWorkload) -> Result<(), String> {
        if workload.https == 0.0 {
            return Ok(());
        }
        let without = "set https = 0 (--set https=0, [workload] set)";
        if let Ok(CachePosition::Reverse(_)) = self.position() {
            return Err(format!(
                "the workload {} has {:.0} % inside TLS (https), which a forward proxy cannot see; a reverse proxy sees all: \
                 {without}, and for one that speaks TLS give --reverse https://HOST:PORT",
                workload.name,
                workload.https * 100.0
            ));
        }
        let origin = if self.server.is_some() {
            "behind a cache of [server] this is not supported: start the cache yourself"
        } else if self.cache.origin_at.is_some() {
            "one that runs already (origin_at, --origin-at) is used without TLS only: let the sweep start the origin"
        } else if self.origin.command.is_some() {
            "[origin] command starts only one: leave the command out"
        } else {
            return Ok(());
        };
        Err(format!("a share of https in the workload needs a second origin with TLS; {origin}, or {without}"))
    }
}

impl SweepPlan {
    /// Keys without effect on these points.
    pub(super) fn unused_keys(&self) -> &'static [&'static str] {
        match self.schedule {
            PolygraphSchedule::Constant if self.phases.is_empty() => &["time_scale"],
            PolygraphSchedule::Constant => &["point", "warmup", "time_scale"],
            _ => &["point", "warmup"],
        }
    }

    /// Why such a key has no effect.
    pub(super) fn unused(&self, key: &str) -> String {
        let option = match key {
            "point" => "--duration",
            "warmup" => "--warmup",
            _ => "--time-scale",
        };
        let why = match (key, self.schedule) {
            ("time_scale", _) if self.phases.is_empty() => "scales a schedule (--schedule), but none is given",
            ("time_scale", _) => "scales a schedule; phases have their own lengths",
            (_, PolygraphSchedule::Constant) => "applies to points without phases; these have their own lengths",
            _ => "applies to points without a schedule; a schedule is scaled by time_scale (--time-scale)",
        };
        format!("{key} ({option}) {why}: leave it out")
    }

    /// Rejects given keys without effect: `point`, `warmup` and `time_scale`.
    ///
    /// # Errors
    /// One sentence.
    pub fn reject_unused(&self, given: &[&str]) -> Result<(), String> {
        self.unused_keys().iter().find(|key| given.contains(key)).map_or(Ok(()), |key| Err(self.unused(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CachePlan, String> {
        CachePlan::from_toml(text, "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn contradictory_sweep_plans_are_rejected() {
        let refused = |rest: &str| read(&format!("[cache]\n{rest}")).unwrap_err();
        assert!(refused("").contains("no cache is given"));
        assert!(refused("proxy = \"h:1\"\ndirect = true").contains("exclude each other"));
        assert!(refused("reverse = \"http://h:1\"").contains("--origin"));
        assert!(refused("reverse = \"h:1\"").contains("http://HOST:PORT"));
        for url in
            ["http://h:1/x", "http://h:1?x", "http://h:1#x", "http://me:pw@h:1", "ftp://h:1", "http:///", "https://"]
        {
            assert!(refused(&format!("reverse = \"{url}\"")).contains("without a path"), "{url}");
        }
        let forward = |rest: &str| refused(&format!("proxy = \"h:1\"\n{rest}"));
        assert!(forward("rates = []").contains("0 rates"));
        assert!(forward("point = \"999ms\"").contains("at least 1s"));
        assert!(forward("stop_errors = \"0%\"").contains("`none` disables"));
        assert!(forward("schedule = \"polymix-4\"\ntime_scale = 0.0").contains("1/10000"));
        assert!(forward("rate = \"5/s\"").contains("unknown field"));
        let phase = "[[cache.phase]]\nname = \"a\"\nduration = \"1s\"\n";
        assert!(forward(phase).contains("no phase is measured"));
        assert!(forward(&format!("schedule = \"polymix-4\"\n{phase}")).contains("leave one"));
        assert!(forward("[[cache.phase]]\nname = \"a\"\nfill = \"1MB\"\nmeasured = true\n").contains("not known"));
        assert!(forward("[workload]\nname = \"polymix-1\"\nfile = \"x\"").contains("leave one"));
        assert!(refused("direct = true\n[server]\ncommand = \"x\"").contains("without a cache"));
    }

    #[test]
    fn keys_without_effect_are_rejected_by_name() {
        let forward = |rest: &str| read(&format!("[cache]\nproxy = \"h:1\"\n{rest}"));
        let refused = |rest: &str| forward(rest).unwrap_err();
        let phase = "[[cache.phase]]\nname = \"a\"\nduration = \"1s\"\nmeasured = true\n";
        for (rest, named) in [
            ("schedule = \"polymix-4\"\npoint = \"60s\"\n", "--duration"),
            ("schedule = \"polymix-4\"\nwarmup = \"10%\"\n", "--warmup"),
            ("time_scale = 0.1\n", "--time-scale"),
            (&format!("point = \"60s\"\n{phase}"), "--duration"),
            (&format!("warmup = \"10%\"\n{phase}"), "--warmup"),
            (&format!("time_scale = 0.1\n{phase}"), "--time-scale"),
            ("[workload]\nsecure = \"h:443\"\n", "[workload] secure"),
            (&format!("{phase}[workload]\nset = {{ phases = [] }}\n"), "set.phases"),
            ("[origin]\npath = { rtt = \"9ms\" }\n", "--origin-rtt"),
            ("[origin]\ncommand = \"o\"\n", "[origin] command"),
            ("origin_at = \"127.0.0.1:1\"\n[origin]\nlisten = \"127.0.0.1:2\"\n", "--origin-at"),
            ("origin_at = \"127.0.0.1:1\"\n[origin]\ncommand = \"o\"\n", "--origin-at"),
            ("[cache.tls]\ninsecure = true\n", "[cache.tls]"),
        ] {
            let message = refused(rest);
            assert!(message.contains(named), "{rest}: {message}");
        }
        let reverse = |url: &str, rest: &str| {
            read(&format!("[cache]\nreverse = \"{url}\"\n{rest}\n[origin]\nlisten = \"127.0.0.1:2\"\n"))
        };
        assert!(reverse("http://h", "[cache.tls]\ninsecure = true").unwrap_err().contains("needs https"));
        let secure = reverse("https://h", "[cache.tls]\ninsecure = true").unwrap();
        assert!(secure.cache.tls.as_ref().is_some_and(|tls| tls.insecure));
        assert_eq!(read(&secure.to_toml()).unwrap(), secure);
        // Rejected keys are not printed either.
        for rest in ["schedule = \"polymix-4\"\n", phase, ""] {
            let plan = forward(rest).unwrap();
            assert_eq!(read(&plan.to_toml()).unwrap(), plan, "{rest}");
        }
        assert!(forward("schedule = \"polymix-4\"\ntime_scale = 0.1\n").is_ok());
    }

    #[test]
    fn reverse_proxy_needs_an_origin_address_and_rejects_a_share_of_https() {
        let reverse = |rest: &str| read(&format!("[cache]\nreverse = \"http://h:1\"\n{rest}"));
        assert!(
            reverse("[path]\nrtt = \"1ms\"\n").unwrap_err().contains("--origin"),
            "a path does not determine the origin's address"
        );
        assert!(reverse("[path]\nrtt = \"1ms\"\n[server]\ncommand = \"x\"\n").is_ok());
        let plan = reverse("[origin]\nlisten = \"127.0.0.1:2\"\n").unwrap();
        let https = CacheWorkload { https: 0.5, ..CacheWorkload::polymix(1) };
        assert!(plan.check_workload(&https).unwrap_err().contains("a reverse proxy sees all"));
        assert_eq!(plan.check_workload(&CacheWorkload::polymix(1)), Ok(()));
        let forward = |rest: &str| read(&format!("[cache]\nproxy = \"h:1\"\n{rest}")).unwrap();
        assert_eq!(forward("").check_workload(&https), Ok(()));
        let own = "[origin]\nlisten = \"127.0.0.1:2\"\ncommand = \"o\"\n";
        for (rest, named) in [
            ("origin_at = \"127.0.0.1:1\"\n", "--origin-at"),
            ("[path]\nrtt = \"1ms\"\n[server]\ncommand = \"x\"\n", "cache of [server]"),
            (own, "[origin] command"),
        ] {
            let message = forward(rest).check_workload(&https).unwrap_err();
            assert!(message.contains(named) && message.contains("https=0"), "{rest}: {message}");
        }
    }
}
