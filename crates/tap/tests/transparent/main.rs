//! A program under the tap behaves as without it, and the hooks record what the kernel counted.

mod real;
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use support::{Tapped, compare, compare_with, compiled, server, succeeded, talk};
use tap::coverage::{self, Unseen};
use tap::event::{EventKind, Role};
use tap::rings::Capacity;

/// Request and response of the program `talk`.
const REQUEST: u64 = 23;
const RESPONSE: u64 = 20_000 + 61;

fn mode(mode: &str, port: u16, argument: &str) -> Command {
    let mut command = Command::new(talk());
    command.args([mode, &port.to_string(), argument]);
    command
}

fn compare_mode(name: &str, argument: &str) -> Tapped {
    let port = server();
    compare(&|| mode(name, port, argument))
}

#[test]
fn a_plain_exchange_is_recorded_completely() {
    let tapped = compare_mode("plain", "");
    let connections = tapped.assert_complete();
    let [connection] = connections.as_slice() else { panic!("{connections:?}") };
    assert_eq!((connection.sent, connection.received), (REQUEST, RESPONSE));
    assert!(connection.ended && connection.connected == 1 && connection.closed == 1 && connection.leaving == 0);
    assert_eq!(connection.runs.iter().map(|run| run.0).collect::<String>(), "sr");
    let (role, peer, local) = connection.opened[0];
    assert_eq!(role, Role::Connected);
    assert!(peer.ip().is_loopback() && local.ip().is_loopback() && local.port() != 0);
    assert!(tapped.loaded()[0].starts_with("talk"));
}

#[test]
fn the_waiting_time_of_a_nonblocking_program_counts_for_its_socket() {
    let tapped = compare_mode("nonblocking", "");
    let connections = tapped.assert_complete();
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].connected, 1);
    let polled = tapped.events.iter().filter(|event| matches!(event.what, EventKind::Polled { .. })).count();
    assert!(polled >= 1);
}

#[test]
fn two_hundred_ended_threads_release_their_rings() {
    let mut tapped = compare_mode("threads", "200");
    let connections = tapped.connections();
    let (complete, recorded) = (tapped.lost() == 0, connections.len());
    assert!(recorded <= 200);
    if complete {
        assert_eq!(tapped.assert_complete().len(), 200);
    }
    assert_eq!(tapped.reclaim(), 0, "all rings of the ended process are free again");
}

#[test]
fn vfork_children_do_not_disturb_the_records_of_their_parent() {
    for name in ["vfork", "spawn"] {
        let tapped = compare_mode(name, "");
        let connections = tapped.assert_complete();
        assert_eq!(connections.len(), 1, "{name}");
        assert_eq!((connections[0].sent, connections[0].closed), (REQUEST, 1), "{name}");
        let executing: Vec<_> = tapped
            .events
            .iter()
            .filter_map(|event| match &event.what {
                EventKind::Executing { pid, path, preloaded, .. } => Some((*pid != 0, path.as_str(), *preloaded)),
                _ => None,
            })
            .collect();
        let path = if name == "vfork" { "/bin/sh" } else { "sh" };
        assert_eq!(executing, [(true, path, true)]);
        assert_eq!(tapped.loaded().len(), 2, "{name}");
    }
}

#[test]
fn duplicated_descriptors_may_be_closed_in_any_order() {
    let tapped = compare_mode("dups", "");
    let connections = tapped.assert_complete();
    assert_eq!((connections.len(), connections[0].closed, connections[0].opened.len()), (1, 1, 1));
}

#[test]
fn every_call_that_transfers_bytes_is_recorded() {
    let tapped = compare_mode("messages", "");
    let connections = tapped.assert_complete();
    assert_eq!((connections[0].sent, connections[0].received), (REQUEST, RESPONSE));
}

#[test]
fn two_threads_on_one_connection_lose_no_bytes() {
    let port = server();
    // Each change of direction is a record, and there is at most one per call.
    let tapped_with_capacity = Tapped::with(Capacity { records: 1 << 15, slots: 4, small_slots: 0, ready: 4 });
    let tapped = compare_with(tapped_with_capacity, &|| mode("duplex", port, ""));
    let connections = tapped.assert_complete();
    assert_eq!((connections[0].sent, connections[0].received), (3_000_008, 3_000_000));
}

#[test]
fn bytes_that_bypass_the_hooks_show_in_the_tcp_counters() {
    let tapped = compare_mode("round", "");
    let connections = tapped.connections();
    let tcp_counts = connections[0].tcp_counts.unwrap();
    assert_eq!((connections[0].sent, connections[0].received), (REQUEST, 0));
    assert_eq!((tcp_counts.sent, tcp_counts.received), (REQUEST, RESPONSE));
}

#[test]
fn stdio_on_a_socket_is_reported() {
    let tapped = compare_mode("stdio", "");
    let connections = tapped.connections();
    assert_eq!(connections.len(), 2);
    let (stdio, plain): (Vec<_>, Vec<_>) = connections.into_iter().partition(|connection| connection.caveats.stdio);
    assert_eq!((stdio[0].sent, stdio[0].closed, stdio[0].tcp_counts.unwrap().received), (0, 1, RESPONSE));
    assert_eq!(plain[0].received, RESPONSE);
}

#[test]
fn a_connection_passed_over_a_unix_socket_keeps_its_number() {
    let tapped = compare_mode("passes", "");
    let connections = tapped.assert_complete();
    let [connection] = connections.as_slice() else { panic!("{connections:?}") };
    assert_eq!((connection.sent, connection.received), (REQUEST, RESPONSE));
    assert_eq!(connection.images.len(), 2);
    assert!(connection.opened.iter().any(|(role, ..)| *role == Role::Found));
}

#[test]
fn a_process_forked_by_a_raw_system_call_gets_a_new_image() {
    let tapped = compare_mode("raw-fork", "");
    let connections = tapped.assert_complete();
    assert_eq!((connections.len(), connections[0].sent), (1, REQUEST));
    assert_eq!(connections[0].images.len(), 2);
    assert!(tapped.events.iter().any(|event| matches!(event.what, EventKind::Forked { parent_image: 0, .. })));
}

#[test]
fn close_and_seccomp_through_syscall_are_recorded() {
    let tapped = compare_mode("uring", "");
    let connections = tapped.assert_complete();
    assert_eq!((connections.len(), connections[0].closed), (1, 1));
    let creates_ring = |what: &EventKind| matches!(what, EventKind::Aside { uring_setups: 1, .. });
    assert!(tapped.events.iter().any(|event| creates_ring(&event.what)));
}

#[test]
fn after_seccomp_the_library_makes_no_system_calls() {
    for by_syscall in ["0", "1"] {
        let tapped = compare_mode("sandboxed", by_syscall);
        let connections = tapped.connections();
        assert_eq!((connections[0].sent, connections[0].received), (REQUEST, RESPONSE));
        assert!(connections[0].caveats.sandboxed && connections[0].tcp_counts.is_none());
    }
}

#[test]
fn a_program_started_with_a_seccomp_filter_reports_that_it_is_not_recorded() {
    let tapped = compare_mode("filtered", "");
    assert_eq!(tapped.connections().len(), 0);
    let is_filtered = |event: &&tap::event::Event| matches!(&event.what, EventKind::Filtered { .. });
    let filtered: Vec<_> = tapped.events.iter().filter(is_filtered).collect();
    let [event] = filtered.as_slice() else { panic!("{:?}", tapped.events) };
    assert_eq!(event.origin.pid, tapped.events[0].origin.pid, "exec keeps the process number");
    let EventKind::Filtered { program, parent_pid, .. } = &event.what else { unreachable!() };
    assert_eq!(*parent_pid, std::process::id());
    assert!(!program.is_empty());
    // Programs of the same run without a filter are recorded as usual.
    let port = server();
    let mut tapped = Tapped::new();
    let script = format!("{0} filtered {port}; {0} plain {port}", talk().display());
    assert!(succeeded(tapped.run(Command::new("/bin/sh").args(["-c", &script])).status));
    assert_eq!(tapped.assert_complete().len(), 1);
}

#[test]
fn three_hundred_threads_started_together_lose_no_records() {
    // The capacity that `yamabiko tap` uses.
    let tapped_with_capacity = Tapped::with(Capacity { records: 1 << 14, slots: 192, small_slots: 1024, ready: 16 });
    let port = server();
    let tapped = compare_with(tapped_with_capacity, &|| mode("threads", port, "300"));
    assert_eq!(tapped.assert_complete().len(), 300);
}

#[test]
fn a_ring_grows_without_a_reader() {
    const EXCHANGES: u64 = 4000;
    let mut tapped = Tapped::with(Capacity { records: 1 << 15, slots: 1, small_slots: 0, ready: 0 });
    let started = tapped.start(&mut mode("pingpong", 0, &EXCHANGES.to_string()));
    assert!(succeeded(started.output().status));
    tapped.drain();
    assert_eq!(tapped.assert_complete().len(), 2);
    assert_eq!(tapped.events.len() as u64, 6 + 4 * EXCHANGES);
}

#[test]
fn closed_standard_descriptors_can_be_reused_for_sockets() {
    let port = server();
    let folder = tempfile::tempdir().unwrap();
    let output_path = folder.path().join("answer");
    let tapped = compare(&|| mode("closes", port, output_path.to_str().unwrap()));
    assert_eq!(std::fs::read_to_string(output_path).unwrap(), format!("0 {}\n", 2 * RESPONSE));
    let connections = tapped.assert_complete();
    assert_eq!(connections.iter().map(|connection| connection.closed).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn signal_handlers_may_write_to_sockets_at_any_time() {
    let tapped = compare_mode("interrupted", "");
    // A handler that interrupts the writing of a record cannot write its own; the byte is reported later.
    let connections = tapped.connections();
    assert_eq!(connections.len(), 51);
    let complete = connections.iter().filter(|one| (one.sent, one.received) == (REQUEST, RESPONSE));
    assert_eq!(complete.count(), 50);
}

#[test]
fn errno_is_preserved_and_connect_attempts_on_one_socket_are_separate() {
    let tapped = compare_mode("errnos", "");
    let connections = tapped.connections();
    let refused: Vec<_> = connections.iter().filter(|connection| !connection.failed.is_empty()).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].failed, [111]);
    // The listening socket was never a client, and has no row.
    let withdrawn: Vec<_> = connections.iter().filter(|connection| connection.withdrawn > 0).collect();
    assert!(withdrawn.iter().all(|one| (one.connected, one.closed, one.leaving) == (0, 0, 0)), "{withdrawn:?}");
    assert_eq!(connections.iter().filter(|one| one.connected == 1 && one.received == RESPONSE).count(), 3);
    let second_attempt = connections.iter().find(|other| other.number == refused[0].number + (1 << 56)).unwrap();
    assert_eq!((second_attempt.connected, second_attempt.received), (1, RESPONSE));
}

#[test]
fn a_blocking_connect_is_recorded_before_it_returns() {
    // The connect times out after 0.3 s, as without the tap.
    let tapped = compare(&|| mode("knocks", 0, ""));
    let waited = tapped.connections().into_iter().find(|one| one.closed == 1 && one.connected == 0).unwrap();
    assert_eq!((waited.opened.len(), waited.failed.len(), waited.withdrawn), (1, 0, 0), "{waited:?}");
    // A longer connect is reported while it lasts. Seven attempts came before, of which one is closed.
    let mut tapped = Tapped::new();
    let started = tapped.start(&mut mode("knocks", 1, ""));
    let opened = |tapped: &Tapped| tapped.connections().iter().filter(|one| !one.opened.is_empty()).count();
    let clock = sys::clock::Clock::start();
    while opened(&tapped) < 8 {
        assert!(clock.now().as_nanos() < 60_000_000_000, "{:?}", tapped.connections());
        tapped.drain();
        std::thread::yield_now();
    }
    let connections = tapped.connections();
    assert!(connections.iter().filter(|one| one.closed == 0).all(|one| one.failed.is_empty()), "{connections:?}");
    drop(started);
}

/// The library with a table of 14 connections. The installed library has 65,534 entries.
#[test]
fn connections_beyond_the_table_are_counted_for_the_reader() {
    let parent = tempfile::tempdir().unwrap();
    let library = parent.path().join("libyamabiko_tap.so");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("interposer/interposer.c");
    let flags =
        "-std=gnu11 -O1 -w -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -fno-builtin -U_FORTIFY_SOURCE";
    let built =
        Command::new("cc").args(flags.split(' ')).arg("-DCONNECTIONS=16u").arg("-o").args([&library, &source]).status();
    assert!(built.unwrap().success());
    let port = server();
    let mut tapped = Tapped::new();
    let mut command = mode("many", port, "20");
    let started = tapped.start_with(&mut command, &library);
    let output = tapped.wait(started);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", 21 * RESPONSE));
    assert_eq!(tapped.unfollowed(), 6);
    assert_eq!(tapped.assert_complete().len(), 15, "connections are followed again once entries are free");
    let reported = tapped.events.iter().rev().find_map(|event| match event.what {
        EventKind::Aside { unfollowed, .. } => Some(unfollowed),
        _ => None,
    });
    assert_eq!(reported, Some(6));
}

#[test]
fn sockets_used_in_constructors_before_main_are_recorded() {
    let port = server();
    let tapped = compare(&|| {
        let mut command = mode("plain", port, "");
        command.env("TALK_EARLY", port.to_string());
        command
    });
    assert_eq!(tapped.assert_complete().len(), 2);
}

#[test]
fn a_forking_server_is_recorded_with_its_children() {
    let mut tapped = Tapped::new();
    let mut started = tapped.start(&mut mode("serves", 0, "3"));
    let child = started.0.as_mut().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        assert_eq!(response, b"hello");
    }
    child.stdout = Some(output.into_inner());
    let output = tapped.wait(started);
    assert!(succeeded(output.status));
    let connections = tapped.connections();
    assert_eq!(connections.len(), 3);
    for connection in &connections {
        assert_eq!((connection.sent, connection.received, connection.images.len()), (5, 5, 2), "{connection:?}");
        assert_eq!(connection.opened[0].0, Role::Accepted);
    }
    assert_eq!(
        connections.iter().map(|connection| connection.leaving).sum::<u32>(),
        1,
        "one connection was left open at the exit"
    );
    let forked = tapped.events.iter().filter(|event| matches!(event.what, EventKind::Forked { parent_image: 1.., .. }));
    assert_eq!(forked.count(), 3);
}

#[test]
fn records_of_a_killed_program_survive_it() {
    let port = server();
    let mut tapped = Tapped::new();
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", &format!("http://127.0.0.1:{port}/endless")]);
    let mut started = tapped.start(&mut curl);
    let received = |tapped: &Tapped| tapped.connections().iter().map(|connection| connection.received).sum::<u64>();
    while received(&tapped) < 1_000_000 {
        tapped.drain();
        std::thread::yield_now();
    }
    started.0.as_mut().unwrap().kill().unwrap();
    let output = tapped.wait(started);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9));
    let connections = tapped.connections();
    assert_eq!((connections[0].closed, connections[0].leaving), (0, 0));
    assert_eq!(tapped.reclaim(), 0);
}

#[test]
fn a_full_ring_and_a_missing_collector_do_not_affect_the_program() {
    let port = server();
    let mut tapped = Tapped::with(Capacity { records: 2, slots: 1, small_slots: 0, ready: 1 });
    let started = tapped.start(&mut mode("threads", port, "20"));
    // The program runs without a reader.
    let output = started.output();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", 20 * RESPONSE));
    tapped.drain();
    assert!(tapped.lost() > 50);
    let mut command = mode("plain", port, "");
    command.envs(tapped.folder.environment(None));
    drop(tapped);
    // The folder is removed: the loader reports it on stderr, and the program runs.
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{RESPONSE}\n"));
}

#[test]
fn a_static_program_is_reported_as_unseen() {
    let program = compiled("talk", &["-static"]);
    let port = server();
    let tapped = compare(&|| {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{} plain {port}; exit 4", program.display()));
        command
    });
    assert_eq!(coverage::why_not(&program), Some(Unseen::Static));
    assert_eq!(tapped.loaded(), ["sh"]);
    let expected = program.display().to_string();
    let named = tapped
        .events
        .iter()
        .any(|event| matches!(&event.what, EventKind::Executing { path, preloaded: true, .. } if *path == expected));
    assert!(named, "the shell reported the program that it started");
}

#[test]
fn records_lost_by_short_lived_threads_are_counted() {
    // Few rings, and no waiting: records without a ring are counted, and nothing is reported twice.
    let port = server();
    let mut tapped = Tapped::with(Capacity { records: 8, slots: 4, small_slots: 0, ready: 2 });
    let output = tapped.run(&mut mode("threads", port, "150"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", 150 * RESPONSE));
    let is_record =
        |event: &&tap::event::Event| !matches!(event.what, EventKind::Lost { .. } | EventKind::Loaded { .. });
    let records = tapped.events.iter().filter(is_record).count() as u64;
    // Opened, connected, sent, received, the end, closed; a long run is reported in pieces.
    assert!(records + tapped.lost() >= 150 * 6, "{records} {}", tapped.lost());
    for connection in tapped.connections() {
        assert!(connection.opened.len() <= 1 && connection.closed <= 1);
        assert!(connection.sent <= REQUEST && connection.received <= RESPONSE, "{connection:?}");
    }
}

#[test]
fn another_preloaded_library_keeps_working() {
    let port = server();
    let other = compiled("chained", &["-shared", "-fPIC", "-ldl"]);
    let alone = mode("plain", port, "").env("LD_PRELOAD", &other).output().unwrap();
    let mut tapped = Tapped::new();
    let [(_, both), (name, folder)] = tapped.folder.environment(Some(other.as_os_str()));
    let mut command = mode("plain", port, "");
    // Calls follow the order of LD_PRELOAD: the tap library first, then the other one.
    let output = command.env("LD_PRELOAD", both).env(name, folder).output().unwrap();
    tapped.drain();
    let lines =
        |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let (alone, with) = (lines(&alone.stdout), lines(&output.stdout));
    assert_eq!(alone[0], with[0]);
    assert!(with[1].starts_with("reads ") && with[1] != "reads 0");
    assert_eq!(tapped.assert_complete()[0].received, RESPONSE);
}

#[test]
fn without_a_ring_the_library_only_forwards_calls() {
    let port = server();
    let folder = Tapped::new().folder;
    let run = |tap: Option<&str>| {
        let mut command = mode("plain", port, "");
        command.env("LD_PRELOAD", folder.library()).env_remove("YAMABIKO_TAP");
        if let Some(tap) = tap {
            command.env("YAMABIKO_TAP", tap);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let long = "x".repeat(5000);
    let broken = tempfile::tempdir().unwrap();
    std::fs::write(broken.path().join("ring"), "no ring at all").unwrap();
    for tap in [None, Some(""), Some("/no/such/folder"), Some(long.as_str()), broken.path().to_str()] {
        assert_eq!(run(tap), (Some(0), format!("{RESPONSE}\n"), Vec::new()), "{tap:?}");
    }
}

#[test]
fn a_thousand_processes_reuse_few_rings() {
    let mut tapped = Tapped::with(Capacity { records: 64, slots: 8, small_slots: 0, ready: 8 });
    let script = "i=0; while [ $i -lt 100 ]; do (exit 1); /bin/true; i=$((i+1)); done";
    let output = tapped.run(Command::new("/bin/sh").args(["-c", script]));
    assert!(succeeded(output.status));
    // The shell itself and, at most, children that are just ending.
    tapped.drain();
    assert_eq!(tapped.owners(), 0);
    assert!(tapped.loaded().len() as u64 + tapped.lost() >= 101);
}

#[test]
fn each_record_is_read_once_in_order_or_counted_as_lost() {
    const EXCHANGES: u64 = 4000;
    // A ring of few records, which the reader empties while the writer fills it, and a larger one than needed.
    for records in [4, 64, 1 << 15] {
        let mut tapped = Tapped::with(Capacity { records, slots: 2, small_slots: 0, ready: 2 });
        assert!(succeeded(tapped.run(&mut mode("pingpong", 0, &EXCHANGES.to_string())).status));
        let events =
            tapped.events.len() as u64 - tapped.events.iter().filter(|event| is_lost(&event.what)).count() as u64;
        // Loaded; opened twice and connected once; four runs an exchange; closed twice.
        assert_eq!(events + tapped.lost(), 6 + 4 * EXCHANGES, "{records}");
        let mut last = (0, 0);
        for event in &tapped.events {
            match event.what {
                EventKind::Sent(run) if run.bytes > 1 => {
                    assert!(run.bytes > last.0);
                    last.0 = run.bytes;
                }
                EventKind::Received(run) if run.bytes > 1 => {
                    assert!(run.bytes > last.1);
                    last.1 = run.bytes;
                }
                _ => {}
            }
        }
        if records == 1 << 15 {
            assert_eq!(tapped.assert_complete().len(), 2);
        }
    }
}

fn is_lost(what: &EventKind) -> bool {
    matches!(what, EventKind::Lost { .. })
}

/// The libc symbols of the library, which must load wherever a program does: no symbol of the newest libc, and none
/// that allocates or prints.
#[test]
fn the_library_imports_only_listed_libc_symbols() {
    const KNOWN: &[&str] = &[
        "__cxa_finalize",
        "__environ",
        "environ",
        "__errno_location",
        "__h_errno_location",
        "clock_gettime",
        "dlerror",
        "dlsym",
        "fflush",
        "fileno_unlocked",
        "getenv",
        "memcpy",
        "memset",
        "pthread_key_create",
        "pthread_setspecific",
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
    ];
    let folder = Tapped::new().folder;
    let symbols = |which: &str| {
        let output = Command::new("nm").args(["-D", which]).arg(folder.library()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let name = |line: &str| line.split_whitespace().last().map(|name| name.split('@').next().unwrap().to_owned());
        text.lines().filter_map(name).collect::<Vec<_>>()
    };
    let unknown: Vec<_> = symbols("--undefined-only").into_iter().filter(|name| !KNOWN.contains(&&**name)).collect();
    assert_eq!(unknown, Vec::<String>::new());
    let defined = symbols("--defined-only");
    for name in HOOKS.split_whitespace() {
        assert!(defined.iter().any(|defined| defined == name), "{name}");
    }
    // Only hooks are visible to programs: any other visible name could replace a program's own function.
    assert!(!defined.iter().any(|name| name == "push" || name == "real_syscall"));
}

/// Names by which programs call the hooked functions. vfork is not among them: a call that returns twice on one stack
/// cannot be wrapped, and its child is recognized by its process number.
const HOOKS: &str = "connect accept accept4 close shutdown dup dup2 dup3 fcntl fcntl64 read readv recv recvfrom recvmsg \
    recvmmsg write writev send sendto sendmsg sendmmsg sendfile sendfile64 splice preadv2 preadv64v2 pwritev2 pwritev64v2 \
    poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 \
    __read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk __dprintf_chk __vdprintf_chk \
    __read __write __send __connect __close __dup2 __fcntl __poll __select __fork \
    getaddrinfo gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r \
    fork daemon posix_spawn posix_spawnp execve execv execvp execvpe execveat fexecve execl execlp execle _exit _Exit \
    dprintf vdprintf fdopen fclose close_range closefrom getsockopt socket prctl syscall";

#[test]
fn a_process_without_memory_for_the_ring_is_reported_with_the_reason() {
    // The ring is larger than what one of the programs may map.
    let tapped = Tapped::with(Capacity { records: 2048, slots: 1024, small_slots: 0, ready: 8 });
    let port = server();
    let shell = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    };
    let reason = |command: &mut Command| {
        let started = tapped.start(command);
        let pid = i32::try_from(started.0.as_ref().unwrap().id()).unwrap();
        // Waits until the shell runs the program, and the program waits for a response that never comes.
        loop {
            let Some(process) = coverage::living(pid).into_iter().find(|one| one.program.starts_with("talk")) else {
                std::thread::yield_now();
                continue;
            };
            if std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).is_ok_and(|stat| stat.contains(") S ")) {
                return coverage::reason(&process);
            }
        }
    };
    let endless = format!("{} waits {port}", talk().display());
    assert_eq!(reason(&mut shell(&format!("exec {endless}"))), None);
    assert_eq!(reason(&mut shell(&format!("ulimit -v 60000; exec {endless}"))), Some(Unseen::NoRing));
    assert_eq!(reason(&mut shell(&format!("exec env -i {endless}"))), Some(Unseen::NotPreloaded));
    let program = compiled("talk", &["-static"]);
    assert_eq!(reason(&mut shell(&format!("exec {} waits {port}", program.display()))), Some(Unseen::Static));
}
