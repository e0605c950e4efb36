//! The tap and other users: attacks by another user, and programs that change their user.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use tap::daemon_reader::DaemonReader;
use tap::daemon_state::DaemonState;
use tap::folder::DaemonFolder;
use tap::rings::Capacity;

use super::peers::{compiled, server};
use crate::support::document::count;
use crate::support::workspace::{Output, Workspace, set_mode, str_of, wait_until};

/// The user `nobody`.
const OTHER_USER: u32 = 65_534;

/// Runs a command under the tap; returns its output and the document.
fn tapped(workspace: &Workspace, command: &[&str]) -> (Output, Value) {
    let file = workspace.file("tap.json");
    let output = workspace.run(&[&["tap", "--json", str_of(&file), "--"], command].concat());
    (output, serde_json::from_slice(&fs::read(&file).unwrap()).unwrap())
}

fn as_other_user(script: &str) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["python3", "-c", script]).uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    command
}

/// Attacks that any user can try on the tap's folder: open, truncate, remove and replace files, and connect to the
/// socket as long as it exists.
const ATTACK: &str = r#"
import os, socket, sys
folder, done = sys.argv[1], 0
for name in ('ring', 'libyamabiko_tap.so', 'ask', '.', 'ring.65534'):
    path = os.path.join(folder, name)
    for attempt in (lambda: os.truncate(path, 8192), lambda: os.open(path, os.O_RDWR), lambda: os.remove(path),
                    lambda: os.symlink('/etc/passwd', path + '.new'), lambda: os.listdir(folder)):
        try:
            attempt(); done += 1
        except OSError:
            pass
held = []
for _ in range(3000):
    try:
        s = socket.socket(socket.AF_UNIX); s.setblocking(False); s.connect(os.path.join(folder, 'ask')); held.append(s)
    except OSError:
        pass
    if len(held) > 500:
        held.pop(0)
print('done', done, len(held) > 0)
"#;

#[test]
fn another_user_cannot_influence_a_run() {
    let workspace = Workspace::concurrent();
    let address = server();
    let (folder, go) = (workspace.file("folder"), workspace.file("go"));
    let script = format!(
        "import os, socket, time\nopen({folder:?}, 'w').write(os.environ['YAMABIKO_TAP'])\nn = 0\n\
         while not os.path.exists({go:?}) or n < 50:\n    s = socket.create_connection(('{}', {}))\n    \
         s.sendall(b'q' * 1000); got = 0\n    while got < 50000: got += len(s.recv(65536))\n    s.close(); n += 1\n    \
         os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)\nprint(n)\n",
        address.ip(),
        address.port(),
    );
    let document = workspace.file("tap.json");
    let running = workspace.start(&["tap", "--json", str_of(&document), "--", "python3", "-c", &script]);
    wait_until("the program runs", || fs::read_to_string(&folder).is_ok_and(|path| !path.is_empty()));
    let path = fs::read_to_string(&folder).unwrap();
    let attack = as_other_user(ATTACK).arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&attack.stdout), "done 0 True\n", "{attack:?}");
    fs::write(&go, "").unwrap();
    let output = running.finish();
    let connections: u64 = output.stdout.trim().parse().unwrap();
    assert_eq!(output.code, Some(0), "{output}");
    let document: Value = serde_json::from_slice(&fs::read(&document).unwrap()).unwrap();
    assert_eq!(document["validity"]["verdict"], "valid", "{document:#}");
    assert_eq!(count(&document["tap"]["client"], "connections"), connections, "all rows belong to the program");
    assert!(!Path::new(&path).exists());
}

#[test]
fn a_program_that_changes_its_user_is_tapped() {
    let workspace = Workspace::concurrent();
    let address = server();
    let script = format!(
        "import socket; s = socket.create_connection(('{}', {})); s.sendall(b'q' * 1000); n = 0\n\
         while n < 50000: n += len(s.recv(65536))\nprint(n)",
        address.ip(),
        address.port()
    );
    let python = "/usr/bin/env";
    let (output, document) = tapped(
        &workspace,
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "python3", "-c", &script],
    );
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "50000\n"), "{output}");
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "received_bytes_total")), (1, 50_000), "{document:#}");
    assert_eq!(document["validity"]["verdict"], "valid", "{document:#}");
}

/// A tap daemon's folder in the workspace. Workspaces are below /tmp, which is sticky; every user may enter them.
fn reader(workspace: &Workspace) -> (DaemonReader, DaemonState, PathBuf) {
    let path = workspace.path().join("agent");
    let state = DaemonState::new(Vec::new());
    let capacity = Capacity { records: 1024, slots: 32, small_slots: 0, ready: 1 };
    let reader = DaemonReader::open(&path, capacity, &state).unwrap();
    (reader, state, path)
}

/// Makes connections under the tap of the folder `agent`, as another user, until it is killed.
fn other_user_under_tap(agent: &Path, address: SocketAddr) -> Child {
    let script = format!(
        "import socket, time\nwhile True:\n    s = socket.create_connection(('{}', {})); s.sendall(b'q' * 1000); n = 0\n    \
         while n < 50000: n += len(s.recv(65536))\n    s.close(); time.sleep(0.02)",
        address.ip(),
        address.port()
    );
    let mut command = as_other_user(&script);
    command.envs(DaemonFolder::environment_of(agent, None).unwrap()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// A program that writes into its own ring a record of process 1 with a connection that never existed, and then
/// overwrites the header.
const FORGES_RECORDS: &str = r#"
import mmap, os, struct, sys
fd = os.open(sys.argv[1] + '/ring.65534', os.O_RDWR)
m = mmap.mmap(fd, os.fstat(fd).st_size)
slots, large, records, small = struct.unpack_from('<4I', m, 8)
base = struct.unpack_from('<I', m, 104)[0]
slot = 20; s = 4096 + slot * 256
at = (4096 + slots * 256 + 4095) // 4096 * 4096 + slot * records * 64
space = int(os.readlink('/proc/self/ns/pid')[5:-1])
struct.pack_into('<BBHIQQQIIIB', m, at, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0)
m[at + 40:at + 45] = b'nginx'
struct.pack_into('<BBHIQQ', m, at + 64, 5, 0, 0, 0, 4711, 1)
struct.pack_into('<BBHIQQ', m, at + 128, 8, 0, 0, 1, 4711, 1)
struct.pack_into('<I', m, s + 8, base | 0xffff); struct.pack_into('<I', m, s + 32, space)
struct.pack_into('<Q', m, s, 1 << 32 | 1); struct.pack_into('<I', m, 64, slot + 1)
struct.pack_into('<Q', m, s + 64, 3)
m[8:28] = bytes(20)
print('forged')
"#;

#[test]
fn a_user_affects_only_records_and_ring_of_its_own_processes() {
    let workspace = Workspace::concurrent();
    let address = server();
    let (mut reader, mut state, path) = reader(&workspace);
    let mut child = other_user_under_tap(&path, address);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let mut round = |reader: &mut DaemonReader, rows: &mut Vec<_>, notes: &mut Vec<String>| {
        if let Some(entry) = reader.round(&state) {
            reader.commit(&entry);
            state.apply(&entry, rows);
        }
        notes.extend(reader.take_notes());
        state.images().map(|(_, owner, _)| owner.pid).collect::<Vec<_>>()
    };
    wait_until("the other user's connections are stored as rows", || {
        round(&mut reader, &mut rows, &mut notes);
        rows.len() > 5
    });
    assert_eq!(notes, Vec::<String>::new());
    let mode = |name: &str| {
        use std::os::unix::fs::MetadataExt as _;
        let file = fs::metadata(path.join(name)).unwrap();
        (file.uid(), file.mode() & 0o777)
    };
    assert_eq!((mode("ring"), mode("ring.65534")), ((0, 0o600), (OTHER_USER, 0o600)));
    let forged = as_other_user(FORGES_RECORDS).arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&forged.stdout), "forged\n", "{forged:?}");
    wait_until("both attacks are reported", || {
        let pids = round(&mut reader, &mut rows, &mut notes);
        assert!(!pids.contains(&1), "process 1 belongs to root");
        notes.iter().any(|note| note.contains("processes of other users"))
            && notes.iter().any(|note| note.contains("header"))
    });
    // The user's own programs continue, and a truncated ring is recreated.
    let before = rows.len();
    wait_until("new rows are stored", || {
        round(&mut reader, &mut rows, &mut notes);
        rows.len() > before + 5
    });
    assert!(rows.iter().all(|row| row.pid == child.id() && row.program.as_deref() != Some("nginx")), "{rows:?}");
    let cut = as_other_user("import os, sys; os.truncate(sys.argv[1] + '/ring.65534', 8192)").arg(&path).status();
    assert!(cut.unwrap().success());
    let _ = child.kill();
    let _ = child.wait();
    wait_until("the attack is reported", || {
        round(&mut reader, &mut rows, &mut notes);
        notes.iter().any(|note| note.contains("truncated"))
    });
    let before = rows.len();
    let mut child = other_user_under_tap(&path, address);
    wait_until("the program has a new ring", || {
        round(&mut reader, &mut rows, &mut notes);
        rows.len() > before + 5
    });
    // A restarted agent continues with the ring.
    drop(reader);
    let capacity = Capacity { records: 1024, slots: 32, small_slots: 0, ready: 1 };
    let mut reader = DaemonReader::open(&path, capacity, &state).unwrap();
    let before = rows.len();
    wait_until("the restarted agent reads the ring", || {
        if let Some(entry) = reader.round(&state) {
            reader.commit(&entry);
            state.apply(&entry, &mut rows);
        }
        rows.len() > before + 5
    });
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn root_loads_no_tap_library_that_another_user_can_replace() {
    let workspace = Workspace::concurrent();
    // A folder below one that every user may write to is refused.
    let folder = workspace.path().join("theirs");
    fs::create_dir(&folder).unwrap();
    let library = compiled(&workspace, "foreign", "#include <stdlib.h>\nint main(void) { return 0; }");
    fs::copy(library, folder.join("libyamabiko_tap.so")).unwrap();
    fs::write(folder.join("ring"), "").unwrap();
    for path in [folder.join("libyamabiko_tap.so"), folder.join("ring"), folder.clone()] {
        std::os::unix::fs::chown(&path, Some(OTHER_USER), None).unwrap();
    }
    let option = format!("--agent={}", folder.display());
    let refused = |words: &str| {
        let output = workspace.run(&["tap", &option, "--", "echo", "started"]);
        assert!(output.code != Some(0) && output.stdout.is_empty() && output.stderr.contains(words), "{output}");
    };
    refused("belongs to user 65534");
    // A folder of root that every user may write to, and then a file that belongs to another user.
    std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    set_mode(&folder, 0o777);
    refused("other users may write to");
    set_mode(&folder, 0o755);
    refused("belongs to user 65534");
}

#[test]
fn the_next_tap_removes_the_folder_of_a_killed_tap() {
    let workspace = Workspace::concurrent();
    let at = workspace.file("folder");
    let script = format!("echo $$ $YAMABIKO_TAP > {}; exec sleep 1000", at.display());
    let running = workspace.start(&["tap", "--no-save", "--", "sh", "-c", &script]);
    wait_until("the program runs", || fs::read_to_string(&at).is_ok_and(|text| text.ends_with('\n')));
    let text = fs::read_to_string(&at).unwrap();
    let (child, folder) = text.trim_end().split_once(' ').unwrap();
    let (child, folder): (i32, PathBuf) = (child.parse().unwrap(), folder.into());
    running.signal(Signal::SIGKILL);
    running.finish();
    assert!(folder.exists(), "the program still uses the folder");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), Signal::SIGKILL).unwrap();
    wait_until("the program has exited", || !Path::new(&format!("/proc/{child}/maps")).exists());
    workspace.run(&["tap", "--no-save", "--", "true"]).success();
    assert!(!folder.exists());
}
