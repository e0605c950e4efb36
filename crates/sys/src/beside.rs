//! A process beside this one that serves who looks on: it must cost the run nothing, and ends with it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::sched::Cores;

/// `command` will run when nothing else wants its core (SCHED_IDLE, and nice 19 where that is refused), in a process group of its own, so that Ctrl-C at the terminal is not
/// for it, and is sent SIGTERM when the calling thread ends, however it does. Call it from a thread that lives as long as the
/// process.
pub fn stand_aside(command: &mut Command) {
    command.process_group(0);
    let settle = || {
        set_pdeathsig(Signal::SIGTERM)?;
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: `parameter` lives until both have returned. What cannot be lowered serves at the priority it has.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST);
            // Who is at nice 19 still has its slice to the end before some kernels look who woke up; who is idle gives way at once.
            libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter);
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(settle) };
}

/// Holds every thread of a process to these cores; those that it makes later have their maker's.
///
/// # Errors
/// Those of sched_setaffinity(2), and of a process that is not there.
pub fn hold_to(pid: u32, cores: &Cores) -> io::Result<()> {
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

const LOWEST: libc::c_int = 19;

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn it_has_the_lowest_priority_a_group_of_its_own_and_the_cores_it_is_held_to() {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        stand_aside(&mut command);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        let core = Cores::new(Cores::allowed().unwrap().list()[..1].to_vec());
        let held = hold_to(pid, &core).and_then(|()| Cores::of(pid.cast_signed()));
        // Fields after the name: state, parent, group; nice is the sixteenth after the state's.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<String> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(held.unwrap(), core);
        assert_eq!((fields[2].as_str(), fields[16].as_str()), (pid.to_string().as_str(), "19"));
        // The policy.
        assert_eq!(fields[38], libc::SCHED_IDLE.to_string());
    }
}
