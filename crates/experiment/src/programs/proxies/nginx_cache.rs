//! nginx's proxy_cache as a reverse proxy: one worker, its own directory.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use nix::unistd::Uid;

use super::{ProxyCounters, Sizes, mebibytes};
use crate::error::ExperimentError;
use crate::programs::nginx::Nginx;

/// Values of `$upstream_cache_status` for responses from the cache, fresh or validated.
const HITS: [&str; 4] = ["HIT", "REVALIDATED", "STALE", "UPDATING"];

/// An installed nginx, as a cache.
#[derive(Clone, Debug)]
pub struct NginxCache {
    nginx: Nginx,
}

impl NginxCache {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<NginxCache, ExperimentError> {
        Ok(NginxCache { nginx: Nginx::find()? })
    }

    /// The program's version as printed, such as `nginx/1.22.1`; empty if it prints none.
    pub fn version(&self) -> String {
        self.nginx.version()
    }

    /// Writes a configuration into a directory `nginx` of `folder`, and returns the shell command that starts it in the
    /// foreground at `listen`, in front of `origin`, with persistent connections to it. Lifetimes in responses are
    /// obeyed; in addition
    ///
    /// - a reload (`no-cache` of a request) goes to the origin, which is not nginx's default;
    /// - a stale response is validated (`proxy_cache_revalidate`);
    /// - requests are not collapsed (`proxy_cache_lock` off, the default).
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
        let own = folder.join("nginx");
        fs::create_dir_all(&own).map_err(ExperimentError::file(&own))?;
        let root = own.display();
        // nginx started as root would change to an account that may not enter the directory.
        let user = if Uid::effective().is_root() { "user root;\n" } else { "" };
        let bound = sizes.disk.map_or(String::new(), |disk| format!(" max_size={}m", mebibytes(disk)));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("  {kind}_temp_path {root}/{kind};\n"))
            .concat();
        let text = format!(
            "{user}daemon off;\nworker_processes 1;\nworker_rlimit_nofile 16384;\npid {root}/nginx.pid;\n\
             error_log {root}/error.log;\nevents {{ worker_connections 8000; }}\nhttp {{\n\
             \x20 log_format own '$request_method $upstream_cache_status';\n  access_log {root}/access.log own;\n{temporary}\
             \x20 proxy_cache_path {root}/store levels=1:2 keys_zone=own:{keys}m inactive=1y use_temp_path=off{bound};\n\
             \x20 upstream origin {{ server {origin}; keepalive 64; keepalive_requests 1000000; }}\n\
             \x20 map $http_cache_control $fresh {{ default 0; ~no-cache 1; }}\n\
             \x20 server {{\n    listen {listen} backlog=4096;\n    keepalive_requests 1000000;\n    location / {{\n\
             \x20     proxy_pass http://origin;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n\
             \x20     proxy_set_header Host $http_host;\n      proxy_cache own;\n      proxy_cache_key $request_uri;\n\
             \x20     proxy_cache_revalidate on;\n      proxy_cache_bypass $fresh;\n    }}\n  }}\n}}\n",
            keys = mebibytes(sizes.memory),
        );
        let file = own.join("nginx.conf");
        fs::write(&file, text).map_err(ExperimentError::file(&file))?;
        Ok(format!("exec {} -p '{root}' -c '{}' -e '{root}/error.log'", self.nginx.program().display(), file.display()))
    }

    /// Counters of the nginx configured in `folder`: lines of its access log, by `$upstream_cache_status`. A line is
    /// written after the response was sent.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn counters(&self, folder: &Path) -> Result<ProxyCounters, ExperimentError> {
        let log = folder.join("nginx/access.log");
        Ok(count(&fs::read_to_string(&log).map_err(ExperimentError::file(&log))?))
    }
}

fn count(log: &str) -> ProxyCounters {
    // An incomplete last line is not counted.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let hits = whole.lines().filter(|line| line.rsplit(' ').next().is_some_and(|status| HITS.contains(&status)));
    ProxyCounters { requests: whole.lines().count() as u64, hits: hits.count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_lines_of_the_access_log_are_counted_by_cache_status() {
        let log = "GET HIT\nGET MISS\nGET REVALIDATED\nGET EXPIRED\nPOST -\nGET BYPASS\nGET HI";
        assert_eq!(count(log), ProxyCounters { requests: 6, hits: 2 });
        assert_eq!(count(""), ProxyCounters::default());
    }
}
