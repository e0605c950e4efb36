//! Settings of an auxiliary process that must not disturb the run and ends with it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::sched::Cores;

/// How an auxiliary process shares its cores with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// It runs only when no other thread needs its core (SCHED_IDLE, and nice 19 if that is refused): on a busy machine
    /// it may wait for seconds.
    Idle,
    /// On a core that is shared with threads of ordinary priority it has a tenth of the share of one (nice 10). For a
    /// process that others wait for, and that needs little time.
    Low,
}

/// Gives `command` this priority and its own process group, so that Ctrl-C at the terminal does not reach it; it
/// receives SIGTERM when the calling thread ends. Call it from a thread that exists as long as the process.
pub fn deprioritize(command: &mut Command, priority: Priority) {
    command.process_group(0);
    let settle = move || {
        set_pdeathsig(Signal::SIGTERM)?;
        let parameter = libc::sched_param { sched_priority: 0 };
        let nice = match priority {
            Priority::Idle => LOWEST_NICE_PRIORITY,
            Priority::Low => LOW_NICE_PRIORITY,
        };
        // SAFETY: `parameter` outlives both calls. A process whose priority cannot be lowered keeps its priority.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            if priority == Priority::Idle {
                // At nice 19 a thread keeps its slice on some kernels after another thread wakes up; at SCHED_IDLE it
                // yields immediately.
                libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter);
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(settle) };
}

/// Limits every thread of a process to these cores; threads that it creates later inherit the setting.
///
/// # Errors
/// The errors of sched_setaffinity(2), and of an unknown process.
pub fn pin_to(pid: u32, cores: &Cores) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.list() {
        set.set(core)?;
    }
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = task?.file_name();
        if let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) {
            sched_setaffinity(Pid::from_raw(thread), &set)?;
        }
    }
    Ok(())
}

const LOWEST_NICE_PRIORITY: libc::c_int = 19;
const LOW_NICE_PRIORITY: libc::c_int = 10;

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Nice value and scheduling policy of a process that was started with this priority.
    fn started(priority: Priority) -> [String; 2] {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        deprioritize(&mut command, priority);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        let core = Cores::new(Cores::allowed().unwrap().list()[..1].to_vec());
        let cores_after = pin_to(pid, &core).and_then(|()| Cores::of(pid.cast_signed()));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(cores_after.unwrap(), core);
        // Fields after the name: state, parent, group; nice is the sixteenth field after the state.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(fields[2], pid.to_string());
        [fields[16], fields[38]].map(str::to_owned)
    }

    #[test]
    fn auxiliary_process_has_its_priority_its_own_group_and_limited_cores() {
        let [nice, policy] = started(Priority::Idle);
        assert_eq!((nice.as_str(), policy), ("19", libc::SCHED_IDLE.to_string()));
        let [nice, policy] = started(Priority::Low);
        assert_eq!((nice.as_str(), policy), ("10", libc::SCHED_OTHER.to_string()));
    }
}
