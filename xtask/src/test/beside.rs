//! A command that goes on beside the steps, in the time that they leave.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// A command that was started; [`Beside::finish`] waits for it. It ends when this is dropped.
pub struct Beside {
    shown: String,
    child: Child,
    /// All that it says, for when it is waited for: meanwhile others speak. A file, because a service that a package starts would
    /// keep a pipe open.
    said: File,
}

impl Beside {
    /// Starts it; with 19 for `nice` what goes on beside it hardly notices.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(command: &Command, nice: u8) -> Result<Beside> {
        let shown = command.get_program().to_string_lossy().into_owned();
        let path = std::env::temp_dir().join(format!("yamabiko-xtask-{}", std::process::id()));
        let reading = || format!("create {}", path.display());
        let said = File::options().read(true).append(true).create_new(true).open(&path).with_context(reading)?;
        // Nobody needs its name.
        fs::remove_file(&path).with_context(reading)?;

        let mut niced = Command::new("nice");
        niced.args(["-n", &nice.to_string()]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => niced.env(name, value),
                None => niced.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            niced.current_dir(folder);
        }
        let [out, err] = [said.try_clone(), said.try_clone()];
        niced.stdin(Stdio::null()).stdout(out.with_context(reading)?).stderr(err.with_context(reading)?);
        let child = niced.spawn().with_context(|| format!("start {shown} by nice"))?;
        Ok(Beside { shown, child, said })
    }

    /// Waits for its end and shows what it said.
    ///
    /// # Errors
    /// It failed.
    pub fn finish(mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.shown))?;
        print!("{}", self.said()?);
        if status.success() { Ok(()) } else { bail!("{}: {status}; its own words are above", self.shown) }
    }

    fn said(&mut self) -> Result<String> {
        let mut said = Vec::new();
        self.said.rewind().and_then(|()| self.said.read_to_end(&mut said)).context("read what it said")?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// One at a time: the file's name is the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    fn start(script: &str) -> Beside {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("ASKED", "for").current_dir("/");
        Beside::start(&command, 19).unwrap()
    }

    #[test]
    fn a_background_command_returns_the_status_of_the_command() {
        start("[ $(nice) = 19 ] && [ $ASKED$PWD = for/ ]").finish().unwrap();
        let error = start("exit 3").finish().unwrap_err().to_string();
        assert!(error.contains("sh: exit status: 3"), "{error}");
    }

    #[test]
    fn a_background_command_captures_the_output() {
        let mut beside = start("echo one; echo two >&2; echo three");
        beside.child.wait().unwrap();
        assert_eq!(beside.said().unwrap(), "one\ntwo\nthree\n");
        assert_eq!(beside.said().unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn dropping_a_background_command_ends_the_command() {
        let beside = start("exec sleep 1000");
        let pid = beside.child.id();
        drop(beside);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
