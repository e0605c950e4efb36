use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use super::*;
use crate::folder::Folder;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_second_agent_in_a_folder_is_rejected_with_the_pid_of_the_first() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("tap");
    let folder = DaemonFolder::open(&path).unwrap();
    let error = DaemonFolder::open(&path).unwrap_err();
    assert!(matches!(&error, Error::InUse { pid: Some(pid), .. } if *pid == std::process::id()), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {},", std::process::id())) && text.contains("--folder"), "{text}");
    drop(folder);
    let again = DaemonFolder::open(&path).unwrap();
    assert_eq!(fs::read(again.library()).unwrap(), LIBRARY);
    assert!(path.exists() && again.path() == fs::canonicalize(&path).unwrap(), "it stays");
}

#[test]
fn programs_find_the_daemon_folder_by_their_environment() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("tap");
    let error = DaemonFolder::environment_of(&path, None).unwrap_err().to_string();
    assert!(error.contains("start one (yamabiko tap agent)"), "{error}");
    let folder = DaemonFolder::open(&path).unwrap();
    assert!(DaemonFolder::environment_of(&path, None).is_err(), "no ring exists yet");
    fs::write(folder.ring(), "a ring").unwrap();
    let [(preload, list), (tap, value)] = folder.environment(Some(OsStr::new("/a.so")));
    assert_eq!((preload, tap, Path::new(&value)), ("LD_PRELOAD", "YAMABIKO_TAP", folder.path()));
    assert_eq!(list.to_str().unwrap(), format!("{}:/a.so", folder.library().display()));
    drop(folder);
    let [(_, list), _] = DaemonFolder::environment_of(&path, None).unwrap();
    assert_eq!(Path::new(&list), path.join(LIBRARY_NAME), "the environment is available while no agent runs");
}

#[test]
fn an_old_library_is_replaced_and_running_programs_keep_it() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("tap");
    drop(DaemonFolder::open(&path).unwrap());
    let library = path.join(LIBRARY_NAME);
    let first = fs::metadata(&library).unwrap().ino();
    drop(DaemonFolder::open(&path).unwrap());
    assert_eq!(fs::metadata(&library).unwrap().ino(), first, "an identical library is not replaced");
    fs::write(&library, "an older library").unwrap();
    let mut held = File::open(&library).unwrap();
    drop(DaemonFolder::open(&path).unwrap());
    assert_eq!((fs::read(&library).unwrap(), mode(&library)), (LIBRARY.to_vec(), 0o755));
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!(text, "an older library", "a program that mapped the old library still reads it");
    // A symbolic link, and a folder on noexec.
    fs::remove_file(&library).unwrap();
    symlink("/etc/passwd", &library).unwrap();
    drop(DaemonFolder::open(&path).unwrap());
    assert!(fs::symlink_metadata(&library).unwrap().is_file() && fs::read("/etc/passwd").unwrap() != LIBRARY);
    fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path.join(NEW_LIBRARY), "torn").unwrap();
    drop(DaemonFolder::open(&path).unwrap());
    assert_eq!((mode(&library), path.join(NEW_LIBRARY).exists()), (0o755, false));
}

#[test]
fn a_folder_that_other_users_can_write_to_is_rejected() {
    let parent = tempfile::tempdir().unwrap();
    let why = |path: &Path| match DaemonFolder::open(path) {
        Err(Error::Unsafe { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let real = parent.path().join("real");
    fs::create_dir(&real).unwrap();
    let link = parent.path().join("link");
    symlink(&real, &link).unwrap();
    assert!(why(&link).contains("symbolic link"));
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(why(&file).contains("not a directory"));
    fs::set_permissions(&real, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(why(&real).contains("chmod go-w"));
    assert!(
        why(&real.join("below")).contains("other users may write"),
        "a parent that others can write to is rejected"
    );
    fs::set_permissions(&real, fs::Permissions::from_mode(0o1777)).unwrap();
    drop(DaemonFolder::open(&real.join("below")).unwrap());
    assert!(why(&parent.path().join("a b")).contains("LD_PRELOAD"));
    assert!(why(Path::new("/")).contains("cannot hold a directory"));
    // A folder of another user: root creates one, otherwise an existing one serves.
    let others = parent.path().join("others");
    let others = if geteuid().is_root() {
        fs::create_dir(&others).unwrap();
        std::os::unix::fs::chown(&others, Some(65_534), None).unwrap();
        assert!(why(&others.join("below")).contains("belongs to user 65534"));
        others
    } else {
        PathBuf::from("/usr/lib")
    };
    assert!(why(&others).contains("belongs to user"));
}

#[test]
fn stricter_permissions_of_a_daemon_folder_are_kept() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("tap");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    drop(DaemonFolder::open(&path).unwrap());
    assert_eq!((mode(&path), mode(&path.join(LOCK_NAME))), (0o700, 0o600));
}

#[test]
fn the_clean_up_of_a_run_does_not_remove_a_daemon_folder() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join(format!("{}of-a-daemon", super::super::PREFIX));
    drop(DaemonFolder::open(&path).unwrap());
    drop(Folder::create(Some(parent.path())).unwrap());
    assert!(path.join(LIBRARY_NAME).exists());
}

/// Child process of the next test.
#[test]
fn child_process_that_creates_a_daemon_folder() {
    if let Some(path) = std::env::var_os("TAP_TEST_DAEMON_FOLDER") {
        use crate::rings::{Capacity, Rings};
        let folder = DaemonFolder::open(Path::new(&path)).unwrap();
        let capacity = Capacity { records: 8, slots: 1, small_slots: 0, ready: 1 };
        Rings::adopt(&folder, sys::clock::Clock::of_boot(), capacity, None).unwrap();
    }
}

#[test]
fn file_modes_do_not_depend_on_the_umask() {
    let parent = tempfile::tempdir().unwrap();
    for umask in ["077", "000", "027"] {
        let path = parent.path().join(umask);
        let test_program = std::env::current_exe().unwrap();
        let script = format!(
            "umask {umask}; exec \"$0\" --exact folder::daemon::tests::child_process_that_creates_a_daemon_folder"
        );
        let mut child = Command::new("/bin/sh");
        let output =
            child.arg("-c").arg(script).arg(test_program).env("TAP_TEST_DAEMON_FOLDER", &path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let modes = [path.clone(), path.join(LIBRARY_NAME), path.join(RING_NAME), path.join(LOCK_NAME)];
        assert_eq!(modes.map(|path| mode(&path)), [0o711, 0o755, 0o600, 0o600], "{umask}");
    }
}
