//! Apache as a server under test, with its defaults and its own directory, without the machine's configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, Uid, User};

use crate::error::ExperimentError;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 4] = ["/usr/sbin/apache2", "/usr/sbin/httpd", "/usr/local/apache2/bin/httpd", "/usr/bin/httpd"];
/// Directories of Apache's modules in distributions.
const MODULES: [&str; 4] =
    ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/local/apache2/modules", "/usr/lib/httpd/modules"];
/// Modules of a plain file server; compiled-in modules have no file and need no loading.
const REQUIRED_MODULES: [&str; 5] = ["mpm_event", "unixd", "authz_core", "log_config", "logio"];
/// The common log format, as in a configuration file.
const COMMON_LOG_FORMAT: &str = r#"%h %l %u %t \"%r\" %>s %b"#;
/// Accounts that distributions create for Apache.
const ACCOUNTS: [&str; 4] = ["www-data", "apache", "httpd", "nobody"];

/// An installed Apache.
#[derive(Clone, Debug)]
pub struct Apache {
    program: PathBuf,
    modules: PathBuf,
}

impl Apache {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Apache, ExperimentError> {
        let there = |places: &[&str]| places.iter().map(PathBuf::from).find(|place| place.exists());
        match (there(&PROGRAMS), there(&MODULES)) {
            (Some(program), Some(modules)) => Ok(Apache { program, modules }),
            _ => Err(ExperimentError::Missing { program: "Apache", fix: "apt-get install apache2" }),
        }
    }

    /// The program's version as printed, such as `Apache/2.4.66 (Debian)`; empty if it prints none.
    pub fn version(&self) -> String {
        let output = std::process::Command::new(&self.program).arg("-v").output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        output.lines().find_map(|line| line.strip_prefix("Server version: ")).unwrap_or_default().trim().to_owned()
    }

    /// Apache's access log, in Apache's directory.
    pub fn access_log(&self, folder: &Path) -> PathBuf {
        folder.join("access.log")
    }

    /// The file that it writes when it listens.
    pub fn pid_file(&self, folder: &Path) -> PathBuf {
        folder.join("apache.pid")
    }

    /// Like [`Apache::configure_at`], on `198.18.0.1:port`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure(&self, folder: &Path, port: u16) -> Result<String, ExperimentError> {
        self.configure_at(folder, SocketAddr::from(([198, 18, 0, 1], port)))
    }

    /// Writes a configuration into `folder`, for `folder`'s own `www`, and returns the shell command that starts it in
    /// the foreground at `listen`. Every limit is the compiled-in one; each request is a line of an access log, as in
    /// its default configuration.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure_at(&self, folder: &Path, listen: SocketAddr) -> Result<String, ExperimentError> {
        self.configure_logging(folder, listen, COMMON_LOG_FORMAT)
    }

    /// Like [`Apache::configure_at`], with another `format` of the access log's lines, by its own LogFormat.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn configure_logging(
        &self,
        folder: &Path,
        listen: SocketAddr,
        format: &str,
    ) -> Result<String, ExperimentError> {
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        let mut text = format!(
            "ServerName server\nServerRoot {root}\nPidFile {pid}\nDefaultRuntimeDir {root}\nMutex file:{plain} default\n\
             Listen {listen}\n",
            root = quoted(folder),
            pid = quoted(&folder.join("apache.pid")),
            plain = folder.display(),
        );
        for name in REQUIRED_MODULES {
            let file = self.modules.join(format!("mod_{name}.so"));
            if file.exists() {
                text.push_str(&format!("LoadModule {name}_module {}\n", quoted(&file)));
            }
        }
        // Apache started as root changes to another account; an ordinary user cannot.
        if Uid::effective().is_root()
            && let Some((user, group)) = account()
        {
            text.push_str(&format!("User {user}\nGroup {group}\n"));
        }
        text.push_str(&format!(
            "DocumentRoot {www}\nErrorLog {errors}\n\
             LogFormat \"{format}\" own\nCustomLog {access} own\n\
             <Directory {www}>\n  Require all granted\n</Directory>\n",
            www = quoted(&folder.join("www")),
            errors = quoted(&folder.join("error.log")),
            access = quoted(&self.access_log(folder)),
        ));
        let file = folder.join("apache.conf");
        fs::write(&file, text).map_err(ExperimentError::file(&file))?;
        Ok(format!("exec {} -DFOREGROUND -f '{}'", self.program.display(), file.display()))
    }
}

/// The account of Apache, and its group.
fn account() -> Option<(String, String)> {
    let user = ACCOUNTS.iter().find_map(|name| User::from_name(name).ok().flatten())?;
    let group = Group::from_gid(user.gid).ok().flatten()?;
    Some((user.name, group.name))
}
