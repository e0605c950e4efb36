//! A command that goes on beside the steps, in the time that they leave.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};

/// A command that was started; [`Beside::finish`] waits for it. It ends when this is dropped.
pub struct Beside {
    shown: String,
    child: Child,
    /// All that it says, for when it is waited for: meanwhile others speak.
    said: Option<JoinHandle<String>>,
}

impl Beside {
    /// Starts it with the lowest priority, so that what goes on beside it hardly notices.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(command: &Command) -> Result<Beside> {
        let shown = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            nice.current_dir(folder);
        }
        let mut child = nice
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start nice, to build beside the tests")?;
        let said = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut said = Vec::new();
                // What was read before an error is shown all the same.
                let _ = stderr.read_to_end(&mut said);
                String::from_utf8_lossy(&said).into_owned()
            })
        });
        Ok(Beside { shown, child, said })
    }

    /// Waits for its end and shows what it said.
    ///
    /// # Errors
    /// It failed.
    pub fn finish(mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.shown))?;
        if let Some(said) = self.said.take().and_then(|thread| thread.join().ok()) {
            print!("{said}");
        }
        if status.success() { Ok(()) } else { bail!("{}: {status}", self.shown) }
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
    use super::*;

    fn start(script: &str) -> Beside {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("ASKED", "for").current_dir("/");
        Beside::start(&command).unwrap()
    }

    #[test]
    fn it_ends_as_the_command_does() {
        start("[ $(nice) = 19 ] && [ $ASKED$PWD = for/ ] && echo said >&2").finish().unwrap();
        let error = start("exit 3").finish().unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn it_ends_when_nobody_waits_for_it() {
        let beside = start("exec sleep 1000");
        let pid = beside.child.id();
        drop(beside);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
