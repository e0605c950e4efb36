//! Trials that show what this process may do, without leaving a change.
//!
//! For `yamabiko doctor`. Each trial is the same call that a verb makes, or the smallest one that the kernel checks by
//! the same rule.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{AccessFlags, ForkResult, fork, pipe2};

use crate::error::{Error, Result};

/// Opens a capture socket in the calling thread's network namespace and closes it. It receives nothing.
///
/// # Errors
/// No CAP_NET_RAW over the namespace; a kernel without AF_PACKET.
pub fn packet_socket() -> Result<()> {
    // SAFETY: no pointers; the returned descriptor has no other owner.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    Errno::result(fd).map_err(|errno| {
        Error::of("socket AF_PACKET")(errno)
            .remedy(&[Errno::EPERM, Errno::EACCES], "run as root")
            .remedy(&[Errno::EAFNOSUPPORT], "load the driver (modprobe af_packet)")
    })?;
    // SAFETY: `fd` was just returned by the kernel and is open.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Checks whether devices and routes of the calling thread's network namespace may be changed. Requests an empty change
/// of a device number that does not exist: with the permission, the kernel reports the missing device.
///
/// # Errors
/// The permission, or netlink, is missing.
pub fn change_network() -> Result<()> {
    const CALL: &str = "RTM_SETLINK";
    let mut socket = Socket::new(netlink_sys::protocols::NETLINK_ROUTE).map_err(Error::of("socket NETLINK_ROUTE"))?;
    socket.bind_auto().map_err(Error::of("bind NETLINK_ROUTE"))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(Error::of("connect NETLINK_ROUTE"))?;
    let mut message = LinkMessage::default();
    message.header.index = NO_DEVICE;
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::SetLink(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0).map_err(Error::of(CALL))?;
    let (answer, _) = socket.recv_from_full().map_err(Error::of(CALL))?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(|error| Error::Unexpected { call: CALL.to_owned(), answer: error.to_string() })?;
    match answer.payload {
        NetlinkPayload::Error(error) => match error.code.map(|code| Errno::from_raw(-code.get())) {
            None | Some(Errno::ENODEV | Errno::EINVAL) => Ok(()),
            Some(errno) => Err(Error::of(CALL)(errno).remedy(&[Errno::EPERM, Errno::EACCES], "run as root")),
        },
        other => Err(Error::Unexpected { call: CALL.to_owned(), answer: format!("{other:?}") }),
    }
}

/// Sets up an io_uring and closes it: returns the feature bits of this kernel.
///
/// # Errors
/// An old kernel (ENOSYS), or a disabled io_uring (EPERM: sysctl kernel.io_uring_disabled, or a container).
pub fn io_uring() -> Result<u32> {
    // struct io_uring_params: 120 bytes, `features` at 20.
    let mut parameters = [0u32; 30];
    // SAFETY: the call reads and writes one io_uring_params, whose size and alignment `parameters` has.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4u32, parameters.as_mut_ptr()) };
    Errno::result(fd).map_err(|errno| {
        Error::of("io_uring_setup")(errno).remedy(&[Errno::EPERM], "set sysctl kernel.io_uring_disabled=0")
    })?;
    // SAFETY: `fd` was just returned by the kernel and is open.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(parameters[5])
}

/// Tries what user 65534 may do here. Only for root: a forked child becomes that user and tries the first steps of an
/// ordinary user's run: a user namespace, a network namespace in it, /dev/net/tun.
///
/// # Errors
/// The first refused step, by name.
pub fn ordinary_user() -> Result<()> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(Error::of("pipe2"))?;
    // SAFETY: the child makes system calls only, no allocation, so it may follow a fork even when this process has
    // other threads.
    match unsafe { fork() }.map_err(Error::of("fork"))? {
        ForkResult::Child => {
            let failed = become_ordinary_user();
            let (step, errno) = failed.unwrap_or((u8::MAX, Errno::UnknownErrno));
            // A failed write means that the parent has ended.
            let _ = File::from(writer).write_all(&[step, errno as i32 as u8]);
            // SAFETY: ends the child immediately, without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut outcome = [0; 2];
            let received = File::from(reader).read_exact(&mut outcome);
            while waitpid(child, None) == Err(Errno::EINTR) {}
            received.map_err(Error::of("read from the child"))?;
            match outcome {
                [u8::MAX, _] => Ok(()),
                [step, errno] => Err(Error::of(STEPS[usize::from(step) % STEPS.len()])(Errno::from_raw(errno.into()))
                    .remedy(&[Errno::EACCES], "chmod 666 /dev/net/tun")
                    .remedy(&[Errno::ENOENT, Errno::ENODEV, Errno::ENXIO], crate::tun::NO_DRIVER)),
            }
        }
    }
}

/// Runs the steps of a child of [`ordinary_user`]; returns the first that failed.
fn become_ordinary_user() -> Option<(u8, Errno)> {
    let ordinary_user = libc::c_long::from(NOBODY);
    let none = 0 as libc::c_long;
    // System calls instead of libc's functions, which would notify threads that only the parent has.
    let calls: [(libc::c_long, [libc::c_long; 3]); 5] = [
        (libc::SYS_setgroups, [none, none, none]),
        (libc::SYS_setresgid, [ordinary_user, ordinary_user, ordinary_user]),
        (libc::SYS_setresuid, [ordinary_user, ordinary_user, ordinary_user]),
        (libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), none, none]),
        (libc::SYS_unshare, [libc::CLONE_NEWNET.into(), none, none]),
    ];
    for (at, (call, [a, b, c])) in calls.into_iter().enumerate() {
        // SAFETY: none of these calls takes a pointer that is not null, and they act on this child alone.
        if unsafe { libc::syscall(call, a, b, c) } < 0 {
            return Some((at as u8, Errno::last()));
        }
    }
    // SAFETY: the path is a C string, and the child ends with the descriptor.
    let fd = unsafe { libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    (fd < 0).then(|| (calls.len() as u8, Errno::last()))
}

/// Whether this process may write to `path`.
pub fn writable(path: &Path) -> bool {
    nix::unistd::access(path, AccessFlags::W_OK).is_ok()
}

/// Free bytes for this user on the file system of `path`.
///
/// # Errors
/// The errors of statvfs(3).
pub fn free_bytes(path: &Path) -> Result<u64> {
    let found = nix::sys::statvfs::statvfs(path).map_err(Error::of(format!("statvfs {}", path.display())))?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// The effective user of this process.
pub fn user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Names of the steps of [`become_ordinary_user`].
const STEPS: [&str; 6] = [
    "setgroups",
    "setresgid 65534",
    "setresuid 65534",
    "unshare CLONE_NEWUSER",
    "unshare CLONE_NEWNET in a user namespace",
    "open /dev/net/tun",
];

const NOBODY: u16 = 65534;

/// Device numbers count up from 1; the kernel's are positive ints.
const NO_DEVICE: u32 = i32::MAX as u32;

const _: () = assert!(size_of::<[u32; 30]>() == 120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{NetNamespace, Privilege, privilege};

    #[test]
    fn network_permission_is_detected() {
        // Root has the permission here and in new namespaces; for other users the error names the missing permission.
        match (privilege(), change_network()) {
            (Privilege::Root, outcome) => {
                outcome.unwrap();
                NetNamespace::create().unwrap().run(change_network).unwrap().unwrap();
            }
            (_, Ok(())) => {}
            (_, Err(error)) => assert!(error.to_string().contains("RTM_SETLINK"), "{error}"),
        }
    }

    #[test]
    fn probe_errors_name_their_system_call() {
        for (call, outcome) in
            [("socket AF_PACKET", packet_socket()), ("io_uring_setup", io_uring().map(drop)), ("", ordinary_user())]
        {
            if let Err(error) = outcome {
                assert!(error.to_string().contains(call), "{call}: {error}");
            }
        }
    }

    #[test]
    fn free_bytes_of_a_directory_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(folder.path()).unwrap() > 0 && writable(folder.path()));
        assert!(free_bytes(Path::new("/no/such/folder")).is_err() && !writable(Path::new("/no/such/folder")));
    }
}
