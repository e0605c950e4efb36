//! CPU affinity and scheduling class of a thread.

mod precedence;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

pub use precedence::Precedence;

/// A set of cores by number, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// From any list of core numbers.
    pub fn new(mut cores: Vec<usize>) -> Self {
        cores.sort_unstable();
        cores.dedup();
        Cores(cores)
    }

    /// The cores the calling thread may run on.
    ///
    /// # Errors
    /// The errors of sched_getaffinity(2).
    pub fn allowed() -> io::Result<Self> {
        Cores::of(0)
    }

    /// The cores that a thread may run on, by its number; 0 is the calling one.
    ///
    /// # Errors
    /// The errors of sched_getaffinity(2): there is no such thread.
    pub fn of(thread: i32) -> io::Result<Self> {
        let set = sched_getaffinity(Pid::from_raw(thread))?;
        Ok(Cores((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect()))
    }

    /// The numbers, ascending.
    pub fn list(&self) -> &[usize] {
        &self.0
    }

    /// Restricts the calling thread to these cores.
    ///
    /// # Errors
    /// The errors of sched_setaffinity(2): none of the cores exists or is allowed.
    pub fn pin_this_thread(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        for &core in &self.0 {
            set.set(core)?;
        }
        Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
    }
}

/// Pins the thread that created it to certain cores during its lifetime; then restores the previous affinity.
#[derive(Debug)]
pub struct Pinned {
    before: Cores,
    /// Affinity belongs to a thread.
    _of_one_thread: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread to `cores`; `None`, without a change, if the kernel refuses.
    pub fn to(cores: &Cores) -> Option<Pinned> {
        let before = Cores::allowed().ok()?;
        cores.pin_this_thread().ok()?;
        Some(Pinned { before, _of_one_thread: PhantomData })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.before.pin_this_thread();
    }
}

/// Online cores of this machine, whether or not this process may use them; 1 if unknown.
pub fn cores_online() -> usize {
    let count = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1).max(1)
}

impl fmt::Display for Cores {
    /// `0`, `1,3`, `2-5,7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let [first, ..] = rest {
            let run = rest.iter().enumerate().take_while(|&(i, &core)| core == first + i).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", first + run - 1)?,
            }
            separator = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// The right to run real-time on this machine. Two real-time loops on one core do not take turns: one would stall as
/// long as the other has work. Released when dropped, and by the kernel when the process is killed.
#[derive(Debug)]
pub struct RealTimeLock(#[expect(dead_code, reason = "held, not used")] UnixDatagram);

impl RealTimeLock {
    /// Acquires the right, unless another process in this network namespace has it.
    pub fn acquire() -> Option<Self> {
        // An abstract address exists as long as a socket is bound to it, and needs no cleanup.
        let address = SocketAddr::from_abstract_name("yamabiko-real-time").ok()?;
        UnixDatagram::bind_addr(&address).ok().map(RealTimeLock)
    }
}

/// Scheduling urgency of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// SCHED_FIFO, priority 1: before every ordinary task. A thread that can be busy without end needs a
    /// [`Precedence`]: otherwise the kernel throttles it for 50 ms of every second.
    RealTime,
    /// SCHED_OTHER at nice -20, with a slice of 0.1 ms: since Linux 6.12 a waking thread preempts one with a longer
    /// slice immediately, which otherwise keeps the core to the end of that slice, several milliseconds.
    High,
    /// SCHED_OTHER, nice unchanged, timer slack 1 ns.
    Ordinary,
    /// SCHED_OTHER at nice 10: recording and progress.
    Low,
}

impl Urgency {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Urgency::RealTime => "real-time (SCHED_FIFO)",
            Urgency::High => "nice -20",
            Urgency::Ordinary => "ordinary",
            Urgency::Low => "nice 10",
        }
    }

    /// Applies to the calling thread as much of `self` as is allowed, falling back from real-time to high to ordinary,
    /// and returns the result. Timer slack becomes 1 ns except for `Low`.
    pub fn apply_to_this_thread(self) -> Urgency {
        let given = match self {
            Urgency::RealTime if set_fifo() => Urgency::RealTime,
            Urgency::RealTime | Urgency::High if set_nice(-20) => {
                set_slice(-20);
                Urgency::High
            }
            Urgency::Low if set_nice(10) => return Urgency::Low,
            _ => Urgency::Ordinary,
        };
        // SAFETY: PR_SET_TIMERSLACK takes a number; it cannot fail for the calling thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        given
    }
}

fn set_fifo() -> bool {
    // SAFETY: an all-zero sched_param is valid on every libc.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SCHED_RESET_ON_FORK: children of this thread must not inherit the class.
    // SAFETY: `parameter` outlives the call; pid 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameter) == 0 }
}

fn set_nice(nice: i32) -> bool {
    // On Linux setpriority with PRIO_PROCESS and 0 acts on the calling thread alone.
    // SAFETY: no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// Requests a slice of 0.1 ms for the calling thread, its nice value unchanged: see [`Urgency::High`]. For a thread
/// that waits only briefly behind others on its core; its share of the core does not grow. The thread is an ordinary
/// one afterwards, even if it was real-time; false when the kernel refuses, without a change.
pub fn shorten_slice() -> bool {
    // SAFETY: no pointers. -1 is a nice value as well as a failure, which is impossible: the calling thread exists.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    set_slice(nice)
}

/// Makes the calling thread run only when no other thread needs its core (SCHED_IDLE); false when the kernel refuses.
/// Needs no privilege, and is permanent.
pub fn make_idle() -> bool {
    // SAFETY: an all-zero sched_param is valid on every libc, and its priority is the one that an idle thread has.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `parameter` outlives the call; pid 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) == 0 }
}

/// Makes the calling thread an ordinary one; false when the kernel refuses.
fn set_other() -> bool {
    // SAFETY: an all-zero sched_param is valid on every libc, and its priority is the one that an ordinary thread has.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `parameter` outlives the call; pid 0 is the calling thread. The flag as in `set_slice`.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &parameter) == 0 }
}

/// Requests a slice of 0.1 ms at the nice value of the calling thread. Kernels before 6.12 ignore the slice; false when
/// the kernel refuses the call.
fn set_slice(nice: i32) -> bool {
    /// The first version of the kernel's sched_attr, which every kernel since 3.14 accepts.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        // As set by `set_fifo`: clearing it needs a privilege that the real-time class alone does not.
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice,
        priority: 0,
        runtime_ns: 100_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    // A refused call changes nothing.
    // SAFETY: `attributes` has the size that it states and outlives the call; pid 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_print_as_ranges() {
        assert_eq!(Cores::new(vec![3, 1]).to_string(), "1,3");
        assert_eq!(Cores::new(vec![7, 2, 3, 4, 5]).to_string(), "2-5,7");
        assert_eq!(Cores::new(vec![]).to_string(), "");
    }

    #[test]
    fn real_time_right_has_one_holder() {
        // Another run on this machine may have it: then the second try must fail as well.
        let first = RealTimeLock::acquire();
        assert!(RealTimeLock::acquire().is_none());
        drop(first);
    }

    #[test]
    fn shorten_slice_keeps_the_nice_value() {
        let nice = || {
            // SAFETY: no pointers.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
        };
        let before = nice();
        set_slice(before);
        assert_eq!(nice(), before);
    }

    #[test]
    fn allowed_cores_of_this_thread_are_not_empty() {
        let cores = Cores::allowed().unwrap();
        assert!(!cores.list().is_empty());
        cores.pin_this_thread().unwrap();
        let first = Cores::new(vec![cores.list()[0]]);
        let pinned = Pinned::to(&first).unwrap();
        assert_eq!(Cores::allowed().unwrap(), first);
        drop(pinned);
        assert_eq!(Cores::allowed().unwrap(), cores);
    }
}
