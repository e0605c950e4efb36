//! Guards reads of a file that another process may truncate, which would otherwise end this process with SIGBUS.
//! Missing pages are replaced by zeros, and the reader is informed.
//!
//! Programs cannot be prevented from truncating: they must be able to open the file by name under any user, and files
//! with a name cannot be sealed.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A guarded mapping. A slot is free while `end` is 0.
struct GuardedMapping {
    begin: AtomicUsize,
    end: AtomicUsize,
    cut: AtomicBool,
}

/// The guarded mappings: one ring per user of a run; tests create several at the same time.
static MAPPINGS: [GuardedMapping; 64] = [const { GuardedMapping::free() }; 64];
/// The previous signal handler.
static PREVIOUS_HANDLER: OnceLock<libc::sigaction> = OnceLock::new();

impl GuardedMapping {
    const fn free() -> GuardedMapping {
        GuardedMapping { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), cut: AtomicBool::new(false) }
    }
}

/// Guards a mapping until it is dropped.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Guards `bytes` from `begin`, a whole mapping of a file.
    ///
    /// # Errors
    /// Too many guarded mappings, or sigaction(2) failed.
    pub fn new(begin: usize, bytes: usize) -> io::Result<Guard> {
        install()?;
        for (number, place) in MAPPINGS.iter().enumerate() {
            // An entry is claimed by its end. No address matches while the begin is larger.
            if place.end.load(Ordering::Relaxed) == 0
                && place.end.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                place.cut.store(false, Ordering::Relaxed);
                place.begin.store(begin, Ordering::Release);
                place.end.store(begin + bytes, Ordering::Release);
                return Ok(Guard(number));
            }
        }
        Err(io::Error::other("too many rings in one process"))
    }

    /// Whether missing pages were read.
    pub fn is_truncated(&self) -> bool {
        MAPPINGS[self.0].cut.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        MAPPINGS[self.0].begin.store(usize::MAX, Ordering::Release);
        MAPPINGS[self.0].end.store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    if PREVIOUS_HANDLER.get().is_some() {
        return Ok(());
    }
    // SAFETY: all zeros is a sigaction; the first call only reads what is there.
    let (before, result) = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before);
        (before, result)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if PREVIOUS_HANDLER.set(before).is_err() {
        // Another thread installed the handler first.
        return Ok(());
    }
    // SAFETY: the handler touches atomics and makes async-signal-safe calls only. It runs on the alternative stack if
    // there is one, as the previous handler may need.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a valid pointer; SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: errno belongs to the calling thread, and is restored below, since the interrupted code may be about to
    // read it.
    let errno = unsafe { *libc::__errno_location() };
    for place in &MAPPINGS {
        let (begin, end) = (place.begin.load(Ordering::Acquire), place.end.load(Ordering::Acquire));
        if begin <= address && address < end {
            let page = address & !4095;
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: the range lies inside a mapping whose owner reads it through atomics only; zeros are numbers.
            let at = unsafe { libc::mmap(page as *mut libc::c_void, end - page, protection, flags, -1, 0) };
            if at != libc::MAP_FAILED {
                place.cut.store(true, Ordering::Release);
                // SAFETY: as above.
                unsafe { *libc::__errno_location() = errno };
                return;
            }
        }
    }
    call_previous_handler(signal, info, context);
}

/// Calls the previous handler, for an address outside of the guarded mappings.
fn call_previous_handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = PREVIOUS_HANDLER.get() else { return };
    let is_function = before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN;
    if is_function && before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the function was installed as a handler of this kind, and gets the original arguments.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: restores the previous action; the instruction is retried and reaches it.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}
