//! What a sweep cannot mean: contradictions, and what would silently do nothing.

use polymix::CacheWorkload;

use super::{CachePlan, Front, POINT_MIN, POINTS_MAX, SweepPlan, reverse_parts};
use crate::phases::PolygraphSchedule;

impl CachePlan {
    /// The first of what contradicts itself.
    pub(super) fn contradiction(&self) -> Option<String> {
        let cache = &self.cache;
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Some(format!("name `{}`: letters, digits, - and _ are wanted", self.name));
        }
        let front = match self.front() {
            Ok(front) => front,
            Err(why) => return Some(why),
        };
        if let Some(why) = self.front_at_fault(&front) {
            return Some(why);
        }
        if cache.rates.is_empty() || cache.rates.len() > POINTS_MAX {
            return Some(format!("{} rates (--rate): from 1 to {POINTS_MAX} are possible", cache.rates.len()));
        }
        if cache.point < POINT_MIN {
            return Some("point (--duration): a point takes at least 1s".into());
        }
        if cache.warmup.value() > 0.9 {
            return Some("warmup (--warmup): at most 90 % of a point".into());
        }
        if cache.timeout.is_zero() || cache.connect_timeout.is_zero() {
            return Some("a timeout of zero fails every request: give one above zero".into());
        }
        if !(1e-4..=100.0).contains(&cache.time_scale) {
            return Some("time_scale (--time-scale): a factor from 1/10000 to 100".into());
        }
        if cache.schedule != PolygraphSchedule::Constant && !cache.phases.is_empty() {
            return Some("schedule and [[cache.phase]] both say what a point does: leave one of the two out".into());
        }
        if let Some(why) = cache.phases.iter().find_map(|phase| phase.check().err()) {
            return Some(why);
        }
        if !cache.phases.is_empty() && !cache.phases.iter().any(|phase| phase.measured) {
            return Some("no phase is measured: write measured = true in those that are to have figures".into());
        }
        if cache.phases.iter().any(|phase| phase.measured && phase.fill.is_some()) {
            return Some("how long a filling phase takes is not known before: it cannot be measured".into());
        }
        if self.workload.name.is_some() && self.workload.file.is_some() {
            return Some("[workload] name and file both say which workload: leave one of the two out".into());
        }
        if self.workload.secure.is_some() {
            return Some("[workload] secure: where the origin speaks TLS the sweep knows itself; leave it out".into());
        }
        if self.workload.set.contains_key("phases") && !cache.is_constant() {
            return Some(
                "[workload] set.phases: the schedule's phases ([[cache.phase]]) take their place; leave them out"
                    .into(),
            );
        }
        if self.server.is_some() && front == Front::Direct {
            return Some("direct (--direct) asks the origin: there is no cache to start (--server)".into());
        }
        self.origin_at_fault()
    }

    /// What cannot be meant of where the cache stands.
    fn front_at_fault(&self, front: &Front) -> Option<String> {
        let Front::Reverse(url) = front else {
            return self.cache.tls.is_some().then(|| {
                "[cache.tls] (-k, --cacert and others) is how a reverse proxy is spoken to over https: give reverse (--reverse), \
                 or leave it out"
                    .into()
            });
        };
        let Some((secure, _)) = reverse_parts(url) else {
            return Some(format!(
                "reverse = \"{url}\" (--reverse): http://HOST:PORT is wanted, or https, without a path"
            ));
        };
        if self.cache.tls.is_some() && !secure {
            return Some(format!(
                "[cache.tls] (-k, --cacert and others) needs https: reverse = \"{url}\" (--reverse) is http"
            ));
        }
        // Behind a cache of the lab's the origin has an address that can be known beforehand.
        if self.origin.listen.is_none() && self.cache.origin_at.is_none() && self.server.is_none() {
            return Some(
                "a reverse proxy fetches from an address that it was told: say which, so that the origin listens there \
                 (--origin ADDRESS:PORT, [origin] listen)"
                    .into(),
            );
        }
        None
    }

    /// What cannot be meant of the origin.
    fn origin_at_fault(&self) -> Option<String> {
        let origin = &self.origin;
        if self.cache.origin_at.is_some() {
            if self.server.is_some() {
                return Some(
                    "behind a cache that the lab starts the origin is the lab's too: leave origin_at (--origin-at) out"
                        .into(),
                );
            }
            if origin.listen.is_some() || origin.command.is_some() {
                return Some(
                    "origin_at (--origin-at) is an origin that runs already, [origin] listen (--origin) and command are of one \
                     to be started: leave one of the two out"
                        .into(),
                );
            }
        }
        if self.server.is_some() {
            return None;
        }
        if origin.path.is_some() {
            return Some(
                "[origin] path (--origin-rtt, --origin-loss) is between the origin and a cache that the lab starts: give \
                 [server] (--server), or leave it out"
                    .into(),
            );
        }
        (origin.command.is_some() && origin.listen.is_none()).then(|| {
            "[origin] command: say where it listens, too ([origin] listen), for else nobody knows where to ask it"
                .into()
        })
    }

    /// What of a workload this sweep cannot have.
    ///
    /// # Errors
    /// One sentence.
    pub fn check_workload(&self, workload: &CacheWorkload) -> Result<(), String> {
        if workload.https == 0.0 {
            return Ok(());
        }
        let without = "set https = 0 (--set https=0, [workload] set)";
        if let Ok(Front::Reverse(_)) = self.front() {
            return Err(format!(
                "the workload {} asks for {:.0} % inside TLS (https), which a forward proxy cannot see; a reverse proxy sees all: \
                 {without}, and for one that speaks TLS give --reverse https://HOST:PORT",
                workload.name,
                workload.https * 100.0
            ));
        }
        let origin = if self.server.is_some() {
            "behind a cache that the lab starts there is none yet: start the cache yourself"
        } else if self.cache.origin_at.is_some() {
            "one that runs already (origin_at, --origin-at) is asked plainly only: let it be started here"
        } else if self.origin.command.is_some() {
            "one of your own command ([origin] command) is started once: leave the command out"
        } else {
            return Ok(());
        };
        Err(format!(
            "a share of https in the workload needs an origin with TLS beside the plain one; {origin}, or {without}"
        ))
    }
}

impl SweepPlan {
    /// Keys that say nothing of these points.
    pub(super) fn idle_keys(&self) -> &'static [&'static str] {
        match self.schedule {
            PolygraphSchedule::Constant if self.phases.is_empty() => &["time_scale"],
            PolygraphSchedule::Constant => &["point", "warmup", "time_scale"],
            _ => &["point", "warmup"],
        }
    }

    /// Why such a key says nothing.
    pub(super) fn idle(&self, key: &str) -> String {
        let option = match key {
            "point" => "--duration",
            "warmup" => "--warmup",
            _ => "--time-scale",
        };
        let why = match (key, self.schedule) {
            ("time_scale", _) if self.phases.is_empty() => "scales a schedule (--schedule), and there is none",
            ("time_scale", _) => "scales a schedule; phases last as long as they say",
            (_, PolygraphSchedule::Constant) => "is of a point without phases; these last as long as they say",
            _ => "is of a point without a schedule; that one's length is changed by time_scale (--time-scale)",
        };
        format!("{key} ({option}) {why}: leave it out")
    }

    /// Refuses what was given and would do nothing: `point`, `warmup` and `time_scale` by their keys.
    ///
    /// # Errors
    /// One sentence.
    pub fn refuse_idle(&self, given: &[&str]) -> Result<(), String> {
        self.idle_keys().iter().find(|key| given.contains(key)).map_or(Ok(()), |key| Err(self.idle(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CachePlan, String> {
        CachePlan::from_toml(text, "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |rest: &str| read(&format!("[cache]\n{rest}")).unwrap_err();
        assert!(refused("").contains("where is the cache"));
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
        assert!(forward("stop_errors = \"0%\"").contains("`none` ends none"));
        assert!(forward("schedule = \"polymix-4\"\ntime_scale = 0.0").contains("1/10000"));
        assert!(forward("rate = \"5/s\"").contains("unknown field"));
        let phase = "[[cache.phase]]\nname = \"a\"\nduration = \"1s\"\n";
        assert!(forward(phase).contains("no phase is measured"));
        assert!(forward(&format!("schedule = \"polymix-4\"\n{phase}")).contains("leave one"));
        assert!(forward("[[cache.phase]]\nname = \"a\"\nfill = \"1MB\"\nmeasured = true\n").contains("not known"));
        assert!(forward("[workload]\nname = \"polymix-1\"\nfile = \"x\"").contains("leave one"));
        assert!(refused("direct = true\n[server]\ncommand = \"x\"").contains("no cache to start"));
    }

    #[test]
    fn what_would_do_nothing_is_refused_by_its_name() {
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
            let said = refused(rest);
            assert!(said.contains(named), "{rest}: {said}");
        }
        let reverse = |url: &str, rest: &str| {
            read(&format!("[cache]\nreverse = \"{url}\"\n{rest}\n[origin]\nlisten = \"127.0.0.1:2\"\n"))
        };
        assert!(reverse("http://h", "[cache.tls]\ninsecure = true").unwrap_err().contains("needs https"));
        let secure = reverse("https://h", "[cache.tls]\ninsecure = true").unwrap();
        assert!(secure.cache.tls.as_ref().is_some_and(|tls| tls.insecure));
        assert_eq!(read(&secure.to_toml()).unwrap(), secure);
        // What is refused is not printed, either.
        for rest in ["schedule = \"polymix-4\"\n", phase, ""] {
            let plan = forward(rest).unwrap();
            assert_eq!(read(&plan.to_toml()).unwrap(), plan, "{rest}");
        }
        assert!(forward("schedule = \"polymix-4\"\ntime_scale = 0.1\n").is_ok());
    }

    #[test]
    fn a_reverse_proxy_is_told_where_the_origin_is_and_sees_everything() {
        let reverse = |rest: &str| read(&format!("[cache]\nreverse = \"http://h:1\"\n{rest}"));
        assert!(reverse("[path]\nrtt = \"1ms\"\n").unwrap_err().contains("--origin"), "a path tells nobody");
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
            ("[path]\nrtt = \"1ms\"\n[server]\ncommand = \"x\"\n", "the lab starts"),
            (own, "[origin] command"),
        ] {
            let said = forward(rest).check_workload(&https).unwrap_err();
            assert!(said.contains(named) && said.contains("https=0"), "{rest}: {said}");
        }
    }
}
