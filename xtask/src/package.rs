//! `cargo xtask package`: builds a tarball and a Debian package.
//!
//! ```text
//!   the binary (built, or --binary FILE) ──strip──> packaging/staging/yamabiko
//!      ├── `yamabiko man`, `yamabiko completions`  ─> staging/man, staging/completions
//!      └── cargo metadata ──> [`licences`]         ─> staging/THIRD-PARTY-LICENCES.txt
//!                                        │
//!                       [`tarball`] <────┴────> cargo deb (its list is in crates/yamabiko/Cargo.toml)
//! ```

mod licences;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Builds both packages. Options: `--binary FILE` (packs this file instead of building), `--out FOLDER` (default
/// target/package), `--no-deb`.
///
/// # Errors
/// A tool is missing or failed; the message names what to install.
pub fn run(root: &Path, options: &[&str]) -> Result<()> {
    let options = Options::parse(options)?;
    let staging = root.join("packaging/staging");
    let out = options.out.clone().unwrap_or_else(|| root.join("target/package"));
    match fs::remove_dir_all(&staging) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("empty the staging folder");
        }
        _ => {}
    }
    fs::create_dir_all(&staging).and_then(|()| fs::create_dir_all(&out)).context("make the folders of the package")?;
    let built = match options.binary {
        Some(binary) => binary,
        None => build(root)?,
    };
    stage(root, &built, &staging)?;
    println!("{}", tarball(root, &staging, &out)?.display());
    if !options.no_deb {
        println!("{}", deb(root, &out)?.display());
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Options {
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    no_deb: bool,
}

impl Options {
    fn parse(mut words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        while let Some((word, rest)) = words.split_first() {
            words = rest;
            match *word {
                "--no-deb" => options.no_deb = true,
                "--binary" | "--out" => {
                    let (path, rest) = words.split_first().with_context(|| format!("{word} is followed by a path"))?;
                    words = rest;
                    let path = Some(std::path::absolute(path)?);
                    if *word == "--binary" { options.binary = path } else { options.out = path }
                }
                other => bail!("`{other}` is no option of package; there are --binary FILE, --out FOLDER, --no-deb"),
            }
        }
        Ok(options)
    }
}

/// Builds the binary with the profile `dist`.
fn build(root: &Path) -> Result<PathBuf> {
    run_command(Command::new("cargo").current_dir(root).args([
        "build",
        "--profile",
        "dist",
        "--locked",
        "-p",
        "yamabiko",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(root.join(target).join("dist/yamabiko"))
}

/// Collects all files of both packages in `staging`.
fn stage(root: &Path, built: &Path, staging: &Path) -> Result<()> {
    let binary = staging.join("yamabiko");
    fs::copy(built, &binary).with_context(|| format!("copy {}", built.display()))?;
    // Line tables are useful only with the source, and are 90 % of the file.
    run_command(Command::new("strip").arg(&binary)).context("binutils has `strip`: apt-get install binutils")?;
    let man = staging.join("man");
    run_command(Command::new(&binary).arg("man").arg(&man))?;
    // Read all names first: gzip creates new files in the folder.
    let pages = fs::read_dir(&man)?.map(|page| Ok(page?.path())).collect::<Result<Vec<PathBuf>>>()?;
    for page in pages {
        run_command(Command::new("gzip").args(["-9", "-n"]).arg(page))?;
    }
    let completions = staging.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, name) in [("bash", "yamabiko"), ("zsh", "_yamabiko"), ("fish", "yamabiko.fish")] {
        let script = Command::new(&binary).args(["completions", shell]).output()?;
        if !script.status.success() || script.stdout.is_empty() {
            bail!("yamabiko completions {shell}: {}", script.status);
        }
        fs::write(completions.join(name), script.stdout)?;
    }
    fs::write(staging.join("THIRD-PARTY-LICENCES.txt"), licences::page(root)?)?;
    let texts =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"];
    for name in texts {
        fs::copy(root.join(name), staging.join(name)).with_context(|| format!("copy {name}"))?;
    }
    let agent = staging.join("agent");
    fs::create_dir_all(&agent)?;
    for file in fs::read_dir(root.join("packaging/agent"))? {
        let file = file?;
        fs::copy(file.path(), agent.join(file.file_name())).context("copy what a machine with an agent needs")?;
    }
    // Plans start servers of examples/, relative to their own folder. README's links lead to docs.
    for folder in ["plans", "examples/shop", "examples/model-server", "docs"] {
        copy_folder(&root.join(folder), &staging.join(folder))?;
    }
    let mut changelog = Command::new("gzip")
        .args(["-9", "-n", "-c", "CHANGELOG.md"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = File::create(staging.join("changelog.gz"))?;
    std::io::copy(&mut changelog.stdout.take().context("the pipe of gzip")?, &mut to)?;
    if !changelog.wait()?.success() {
        bail!("gzip CHANGELOG.md failed");
    }
    Ok(())
}

/// Copies a folder recursively, without Python's cache files.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if path.ends_with("__pycache__") {
            continue;
        }
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes `yamabiko-VERSION-ARCH-linux-gnu.tar.gz` with one folder. The same input gives the same bytes.
fn tarball(root: &Path, staging: &Path, out: &Path) -> Result<PathBuf> {
    let name = format!("yamabiko-{}-{}-linux-gnu", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let path = out.join(format!("{name}.tar.gz"));
    let modified_unix_s = modified_unix_s(root);
    let mut tar = Command::new("tar")
        .args([
            "--format=ustar",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u+rw,go+r,go-w,a+X",
        ])
        .arg(format!("--mtime=@{modified_unix_s}"))
        .args(["--exclude=./changelog.gz", "--transform", &format!("s,^\\.,{name},"), "-C"])
        .arg(staging)
        .args(["-cf", "-", "."])
        .stdout(Stdio::piped())
        .spawn()
        .context("run tar")?;
    let stream = tar.stdout.take().context("the pipe of tar")?;
    let mut file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let gzip = Command::new("gzip").args(["-9", "-n"]).stdin(stream).stderr(Stdio::inherit()).output()?;
    if !tar.wait()?.success() || !gzip.status.success() {
        bail!("tar or gzip failed");
    }
    file.write_all(&gzip.stdout)?;
    Ok(path)
}

/// The modification time of files in packages, in seconds since 1970: SOURCE_DATE_EPOCH, or the time of the last
/// commit.
fn modified_unix_s(root: &Path) -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let committed = || {
        let git = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output().ok()?;
        String::from_utf8(git.stdout).ok()?.trim().parse().ok()
    };
    given.or_else(committed).unwrap_or(0)
}

/// Builds the Debian package with cargo-deb.
fn deb(root: &Path, out: &Path) -> Result<PathBuf> {
    let known = Command::new("cargo").args(["deb", "--version"]).stderr(Stdio::null()).stdout(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        bail!("cargo-deb is missing: cargo install cargo-deb --locked (or --no-deb for the tarball alone)");
    }
    if !Command::new("dpkg-shlibdeps")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        bail!("dpkg-shlibdeps, which finds the package's dependencies, is missing: apt-get install dpkg-dev");
    }
    let path = out.join(format!("yamabiko_{}-1_{}.deb", env!("CARGO_PKG_VERSION"), architecture()?));
    run_command(
        Command::new("cargo")
            .current_dir(root)
            .env("SOURCE_DATE_EPOCH", modified_unix_s(root).to_string())
            .args(["deb", "--no-build", "--no-strip", "--locked", "-p", "yamabiko", "--output"])
            .arg(&path),
    )?;
    Ok(path)
}

/// The machine's architecture by Debian's name.
fn architecture() -> Result<String> {
    let output = Command::new("dpkg").arg("--print-architecture").output().context("run dpkg")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn run_command(command: &mut Command) -> Result<()> {
    let command_line = format!("{command:?}");
    let status = command.status().with_context(|| format!("run {command_line}"))?;
    if !status.success() {
        bail!("{command_line}: {status}");
    }
    Ok(())
}
