//! A background command that runs at low priority during the steps.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// A running background command. [`Background::finish`] waits for it; a drop kills it.
pub struct Background {
    name: String,
    child: Child,
    /// Its output, which `finish` prints. A file, because a service that a package starts would keep a pipe open.
    output: File,
}

impl Background {
    /// Starts `command` with this niceness; 19 is the lowest priority.
    ///
    /// # Errors
    /// The command or its output file could not be created.
    pub fn start(command: &Command, nice: u8) -> Result<Background> {
        let name = command.get_program().to_string_lossy().into_owned();
        let path = std::env::temp_dir().join(format!("yamabiko-xtask-{}", std::process::id()));
        let reading = || format!("create {}", path.display());
        let output = File::options().read(true).append(true).create_new(true).open(&path).with_context(reading)?;
        // The open file needs no name.
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
        let [out, err] = [output.try_clone(), output.try_clone()];
        niced.stdin(Stdio::null()).stdout(out.with_context(reading)?).stderr(err.with_context(reading)?);
        let child = niced.spawn().with_context(|| format!("start {name} by nice"))?;
        Ok(Background { name, child, output })
    }

    /// Waits until the command ends and prints its output.
    ///
    /// # Errors
    /// The command failed.
    pub fn finish(mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
        print!("{}", self.read_output()?);
        if status.success() { Ok(()) } else { bail!("{}: {status}; its output is above", self.name) }
    }

    fn read_output(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.output.rewind().and_then(|()| self.output.read_to_end(&mut bytes)).context("read the output")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A failure means that the command has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Serialises the tests: the file's name has only the process number.
    static ALONE: Mutex<()> = Mutex::new(());

    fn start(script: &str) -> Background {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("VARIABLE", "value").current_dir("/");
        Background::start(&command, 19).unwrap()
    }

    #[test]
    fn a_background_command_returns_the_status_of_the_command() {
        start("[ $(nice) = 19 ] && [ $VARIABLE$PWD = value/ ]").finish().unwrap();
        let error = start("exit 3").finish().unwrap_err().to_string();
        assert!(error.contains("sh: exit status: 3"), "{error}");
    }

    #[test]
    fn a_background_command_captures_the_output() {
        let mut background = start("echo one; echo two >&2; echo three");
        background.child.wait().unwrap();
        assert_eq!(background.read_output().unwrap(), "one\ntwo\nthree\n");
        assert_eq!(background.read_output().unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn dropping_a_background_command_ends_the_command() {
        let background = start("exec sleep 1000");
        let pid = background.child.id();
        drop(background);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
