//! nginx as a server under test: one worker, its defaults, its own directory, without the machine's configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::error::ExperimentError;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 3] = ["/usr/sbin/nginx", "/usr/local/nginx/sbin/nginx", "/usr/bin/nginx"];

/// An installed nginx.
#[derive(Clone, Debug)]
pub struct Nginx {
    program: PathBuf,
}

impl Nginx {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Nginx, ExperimentError> {
        PROGRAMS
            .iter()
            .map(PathBuf::from)
            .find(|place| place.exists())
            .map(|program| Nginx { program })
            .ok_or(ExperimentError::Missing { program: "nginx", fix: "apt-get install nginx-light" })
    }

    /// The program's version as printed, such as `nginx/1.22.1`; empty if it prints none.
    pub fn version(&self) -> String {
        let output = std::process::Command::new(&self.program).arg("-v").output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
        output.lines().find_map(|line| line.strip_prefix("nginx version: ")).unwrap_or_default().trim().to_owned()
    }

    /// Path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// nginx's access log, in nginx's directory.
    pub fn access_log(&self, folder: &Path) -> PathBuf {
        folder.join("nginx-access.log")
    }

    /// The file that it writes when it listens.
    pub fn pid_file(&self, folder: &Path) -> PathBuf {
        folder.join("nginx.pid")
    }

    /// Writes a configuration into `folder`, for `folder`'s own `www`, and returns the shell command that starts it in
    /// the foreground at `listen`, with one worker. It sends files with sendfile and writes a line per request to an
    /// access log, as in the configuration of distributions; every limit is the compiled-in one.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure_at(&self, folder: &Path, listen: SocketAddr) -> Result<String, ExperimentError> {
        self.configure_logging(folder, listen, None)
    }

    /// Like [`Nginx::configure_at`], with another `format` of the access log's lines, by its own `log_format`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure_logging(
        &self,
        folder: &Path,
        listen: SocketAddr,
        format: Option<&str>,
    ) -> Result<String, ExperimentError> {
        let root = folder.display();
        // `combined` is nginx's name of its default format.
        let (define, name) = match format {
            None => (String::new(), "combined"),
            Some(format) => (format!("log_format own '{format}';\n  "), "own"),
        };
        let text = format!(
            "daemon off;\nworker_processes 1;\npid {root}/nginx.pid;\nerror_log {root}/nginx-error.log;\n\
             events {{ worker_connections 4096; }}\nhttp {{\n  {define}access_log {root}/nginx-access.log {name};\n\
             sendfile on;\n\
             tcp_nopush on;\n  client_body_temp_path {root}/nginx-body;\n  proxy_temp_path {root}/nginx-proxy;\n\
             fastcgi_temp_path {root}/nginx-fastcgi;\n  uwsgi_temp_path {root}/nginx-uwsgi;\n\
             scgi_temp_path {root}/nginx-scgi;\n  server {{ listen {listen}; root {root}/www; }}\n}}\n"
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, text).map_err(ExperimentError::file(&file))?;
        Ok(format!("exec {} -p '{root}' -c '{}' -e '{root}/nginx-error.log'", self.program.display(), file.display()))
    }
}
