//! The folder of served files, and the commands that start servers.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use experiment::ExperimentError;
use experiment::certificate::self_signed;
use experiment::local::free_address;
use experiment::programs::apache::Apache;
use experiment::programs::nginx::Nginx;
use experiment::programs::quoted;

/// The paper's response size, also used for pages of search results.
pub const PAGE_BYTES: usize = 3 << 10;
/// Path of the page.
pub const PAGE: &str = "/index.html";
/// Prefix of the dynamic part's URLs.
pub const APPLICATION: &str = "/app";
/// Worker processes of the application server: as many as share one core well.
const WORKERS: u32 = 2;

/// The application and its entries, from `examples/directory`.
const APPLICATION_FILES: [(&str, &str); 2] = [
    ("directory.py", include_str!("../../../../examples/directory/directory.py")),
    ("names.py", include_str!("../../../../examples/directory/names.py")),
];

/// The folder, removed on drop, and the programs.
pub struct Site {
    folder: tempfile::TempDir,
    program: PathBuf,
    gunicorn: Option<PathBuf>,
    pub apache: Apache,
    pub nginx: Nginx,
}

/// Settings of the dynamic part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicLimits {
    /// CPU limit in percent of a core; absent: none.
    pub cpu_limit_percent: Option<u32>,
    /// Whether the application has the least CPU weight, so that the server never waits for it.
    pub least: bool,
    /// Whether results are cached.
    pub cache: bool,
}

impl Site {
    /// Writes pages and the application; `application`: with a database of `entries`.
    ///
    /// # Errors
    /// A program is missing, or the folder cannot be written.
    pub fn new(program: &Path, entries: u32, application: bool) -> Result<Site, ExperimentError> {
        let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).map_err(ExperimentError::file(path))
        };
        let www = folder.path().join("www");
        fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
        let mut page = b"<!doctype html><title>A page of 3 KB</title>".to_vec();
        page.resize(PAGE_BYTES, b'y');
        write("www/index.html", &page)?;
        // Every user that a server may run as needs access.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .map_err(ExperimentError::file(folder.path()))?;
        let mut site = Site {
            program: program.to_owned(),
            gunicorn: None,
            apache: Apache::find()?,
            nginx: Nginx::find()?,
            folder,
        };
        if application {
            for (name, text) in APPLICATION_FILES {
                let path = site.folder.path().join(name);
                fs::write(&path, text).map_err(ExperimentError::file(path))?;
            }
            let places = ["/usr/bin/gunicorn", "/usr/local/bin/gunicorn"];
            let missing = ExperimentError::Missing { program: "gunicorn", fix: "apt-get install gunicorn" };
            site.gunicorn = Some(places.map(PathBuf::from).into_iter().find(|place| place.exists()).ok_or(missing)?);
            site.run_python(&["directory.py", "make", "directory.db", &entries.to_string()])?;
        }
        Ok(site)
    }

    /// Runs the system's Python, which gunicorn uses too, in the folder.
    fn run_python(&self, words: &[&str]) -> Result<(), ExperimentError> {
        let output = Command::new("/usr/bin/python3").current_dir(self.folder.path()).args(words).output();
        let output = output.map_err(ExperimentError::file("/usr/bin/python3"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message");
        Err(ExperimentError::Program { program: "python3", why: last.trim().to_owned() })
    }

    /// Path of the error log of the server with this name.
    pub fn log(&self, name: &str) -> PathBuf {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.folder.path().join(format!("{plain}.out"))
    }

    /// A certificate and its key, created once.
    ///
    /// # Errors
    /// openssl is missing or fails.
    pub fn certificate(&self) -> Result<(PathBuf, PathBuf), ExperimentError> {
        self_signed(self.folder.path())
    }

    /// `www`, quoted for a command.
    fn www(&self) -> String {
        quoted(&self.folder.path().join("www"))
    }

    /// `yamabiko serve` for the pages, with options.
    pub fn serve(&self, listen: SocketAddr, options: &str) -> String {
        format!("exec {} serve {} --listen {listen} {options}", quoted(&self.program), self.www())
    }

    /// `yamabiko serve` for the pages, with an access log, as general servers have.
    pub fn serve_and_log(&self, listen: SocketAddr) -> String {
        self.serve(listen, &format!("--log {}", quoted(&self.folder.path().join("yamabiko-access.log"))))
    }

    /// MAX.
    pub fn max(&self, listen: SocketAddr) -> String {
        format!("exec {} serve --max {PAGE_BYTES}B --listen {listen}", quoted(&self.program))
    }

    /// Apache and nginx for the pages.
    pub fn general(&self) -> Result<[(&'static str, SocketAddr, String); 2], ExperimentError> {
        let (apache, nginx) = (free_address()?, free_address()?);
        Ok([
            ("Apache", apache, self.apache.configure_at(self.folder.path(), apache)?),
            ("nginx", nginx, self.nginx.configure_at(self.folder.path(), nginx)?),
        ])
    }

    /// `yamabiko serve` with the application behind it.
    ///
    /// # Errors
    /// No port is available.
    pub fn with_application(
        &self,
        listen: SocketAddr,
        dynamic_limits: DynamicLimits,
    ) -> Result<String, ExperimentError> {
        let behind = free_address()?;
        let gunicorn = self.gunicorn.as_deref().unwrap_or(Path::new("gunicorn"));
        let application = format!(
            "DIRECTORY_DB={database} PYTHONDONTWRITEBYTECODE=1 exec {gunicorn} -w {WORKERS} -k sync -b {behind} \
             --chdir {folder} --log-level warning directory:application",
            database = quoted(&self.folder.path().join("directory.db")),
            gunicorn = quoted(gunicorn),
            folder = quoted(self.folder.path()),
        );
        let mut options =
            format!("--dynamic {APPLICATION}=http://{behind} --dynamic-cmd {}", quoted(Path::new(&application)));
        if let Some(percent) = dynamic_limits.cpu_limit_percent {
            options.push_str(&format!(" --dynamic-cpu {percent}%"));
        }
        options.push_str(if dynamic_limits.least { " --dynamic-weight least" } else { " --dynamic-weight usual" });
        if dynamic_limits.cache {
            options.push_str(" --cache");
        }
        Ok(self.serve(listen, &options))
    }

    /// `count` two-word searches with results, always the same ones: path and query of each.
    pub fn searches(count: usize) -> Vec<String> {
        let names = APPLICATION_FILES[1].1;
        let (first, trade) = (words_of(names, "FIRST = ["), words_of(names, "TRADE = ["));
        // Consecutive searches have different words, so that no run of requests shares one.
        let pairs = first.len() * trade.len();
        (0..count.min(pairs))
            .map(|at| at * VARIATION % pairs)
            .map(|at| format!("{APPLICATION}/search?q={}+{}", first[at % first.len()], trade[at / first.len()]))
            .collect()
    }
}

/// Coprime to the number of pairs: every pair occurs once.
const VARIATION: usize = 1009;

/// The Latin halves of a list of pairs, in lower case.
fn words_of(text: &str, list: &str) -> Vec<String> {
    let Some(start) = text.find(list) else { return Vec::new() };
    let text = &text[start..];
    let text = &text[..text.find("\n]").unwrap_or(text.len())];
    text.split("(\"").skip(1).filter_map(|pair| pair.split('"').next()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_use_existing_words_and_differ() {
        let searches = Site::searches(1000);
        let different: std::collections::BTreeSet<&String> = searches.iter().collect();
        assert_eq!(different.len(), 1000);
        assert_eq!(searches[0], "/app/search?q=akagi+bakery");
        assert!(searches.iter().all(|search| search.is_ascii() && search.matches('+').count() == 1));
        let all = Site::searches(usize::MAX);
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert!(all.len() > 2000);
    }
}
