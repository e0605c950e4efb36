//! Varnish as a reverse proxy, with its defaults and its own directory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ProxyCounters, Sizes, mebibytes};
use crate::error::ExperimentError;
use crate::programs::quoted;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 3] = ["/usr/sbin/varnishd", "/usr/local/sbin/varnishd", "/usr/bin/varnishd"];
/// Paths of the program that reads Varnish's counters.
const STATS: [&str; 2] = ["/usr/bin/varnishstat", "/usr/local/bin/varnishstat"];

/// Counter of clients' requests.
const REQUESTS: &str = "MAIN.client_req";
/// Counter of requests that [`REQUESTS`] counts twice.
const COUNTED_TWICE: &str = "MAIN.busy_wakeup";
/// Counter of responses from the cache.
const HITS: &str = "MAIN.cache_hit";

/// An installed Varnish.
#[derive(Clone, Debug)]
pub struct Varnish {
    program: PathBuf,
    stat: PathBuf,
}

impl Varnish {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Varnish, ExperimentError> {
        let there = |places: &[&str]| places.iter().map(PathBuf::from).find(|place| place.exists());
        match (there(&PROGRAMS), there(&STATS)) {
            (Some(program), Some(stat)) => Ok(Varnish { program, stat }),
            _ => Err(ExperimentError::Missing { program: "Varnish", fix: "apt-get install varnish" }),
        }
    }

    /// The program's version as printed, such as `varnish-7.1.1`; empty if it prints none.
    pub fn version(&self) -> String {
        let output = Command::new(&self.program).arg("-V").output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
        let version = output.split_once('(').and_then(|(_, rest)| rest.split_once([' ', ')']));
        version.map_or(String::new(), |(version, _)| version.to_owned())
    }

    /// Writes a configuration into a directory `varnish` of `folder`, and returns the shell command that starts it in
    /// the foreground at `listen`, in front of `origin`. Its rules are the built-in ones, except that
    ///
    /// - a reload (`no-cache` of a request) goes to the origin, which is not Varnish's default;
    /// - stale responses are not sent (`default_grace` 0), which it would do for 10 s while it fetches again.
    ///
    /// Varnish's disk storage has the size `sizes.disk`; without it, everything is in memory.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure(
        &self,
        folder: &Path,
        listen: SocketAddr,
        origin: SocketAddr,
        sizes: Sizes,
    ) -> Result<String, ExperimentError> {
        let own = folder.join("varnish");
        fs::create_dir_all(&own).map_err(ExperimentError::file(&own))?;
        let file = own.join("own.vcl");
        let text = format!(
            "vcl 4.1;\nbackend origin {{ .host = \"{}\"; .port = \"{}\"; }}\n\
             sub vcl_recv {{\n  if (req.http.Cache-Control ~ \"no-cache\" || req.http.Pragma ~ \"no-cache\") {{\n    \
             set req.hash_always_miss = true;\n  }}\n}}\n",
            origin.ip(),
            origin.port()
        );
        fs::write(&file, text).map_err(ExperimentError::file(&file))?;
        let storage = match sizes.disk {
            Some(disk) => format!("file,{},{}M", own.join("store").display(), mebibytes(disk)),
            None => format!("malloc,{}M", mebibytes(sizes.memory)),
        };
        // Without a jail Varnish runs as this user, so its directory needs no other account.
        Ok(format!(
            "exec {} -F -j none -n {} -a {listen} -f {} -s {} -T none -l 8m -p default_grace=0 \
             -p thread_pools=1 -p thread_pool_min=50 -p thread_stats_rate=1",
            quoted(&self.program),
            quoted(&own.join("work")),
            quoted(&file),
            quoted(Path::new(&storage)),
        ))
    }

    /// Counters of the Varnish configured in `folder`, by varnishstat: `MAIN.cache_hit`, and `MAIN.client_req` less
    /// `MAIN.busy_wakeup`, because a request that waited for another's fetch is counted again when it continues. Its
    /// threads add their counters after each request (`thread_stats_rate` 1), so the sum may be slightly late.
    ///
    /// # Errors
    /// varnishstat does not run, or its output cannot be parsed.
    pub fn counters(&self, folder: &Path) -> Result<ProxyCounters, ExperimentError> {
        let wrong = |why: String| ExperimentError::Program { program: "varnishstat", why };
        let output = Command::new(&self.stat)
            .args(["-1", "-j", "-t", "5", "-n"])
            .arg(folder.join("varnish/work"))
            .args(["-f", REQUESTS, "-f", COUNTED_TWICE, "-f", HITS])
            .output()
            .map_err(ExperimentError::file(&self.stat))?;
        if !output.status.success() {
            return Err(wrong(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")));
        }
        read_counters(&output.stdout).ok_or_else(|| wrong(format!("it lacks {REQUESTS}, {COUNTED_TWICE} or {HITS}")))
    }
}

/// Parses varnishstat's JSON, which has the counters in their own object since version 7, and before that at the top.
fn read_counters(json: &[u8]) -> Option<ProxyCounters> {
    let output: serde_json::Value = serde_json::from_slice(json).ok()?;
    let counters = output.get("counters").unwrap_or(&output);
    let of = |name: &str| counters.get(name)?.get("value")?.as_u64();
    Some(ProxyCounters { requests: of(REQUESTS)?.saturating_sub(of(COUNTED_TWICE)?), hits: of(HITS)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_parsed_from_both_forms_of_varnishstat() {
        let counters =
            r#""MAIN.client_req": {"value": 15}, "MAIN.busy_wakeup": {"value": 3}, "MAIN.cache_hit": {"value": 5}"#;
        let expected = Some(ProxyCounters { requests: 12, hits: 5 });
        assert_eq!(read_counters(format!(r#"{{"version": 1, "counters": {{{counters}}}}}"#).as_bytes()), expected);
        assert_eq!(read_counters(format!("{{{counters}}}").as_bytes()), expected);
        assert_eq!(read_counters(br#"{"MAIN.cache_hit": {"value": 5}}"#), None);
        assert_eq!(read_counters(b"no"), None);
    }
}
