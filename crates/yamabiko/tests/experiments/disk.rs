//! `yamabiko disk` on this machine's storage: figures agree with fio, no files remain, the disk is not filled.

use std::fs;
use std::path::Path;

use crate::support::processes;
use crate::support::workspace::{Workspace, str_of, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A folder on the storage of the target folder, not in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn disk_runs_every_test_and_its_figures_match_fio() {
    let (workspace, folder) = (Workspace::concurrent(), folder());
    let output = workspace.run(&["disk", str_of(folder.path()), "-s", "16MiB", "-d", "200ms", "--json"]);
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output}"));
    let disk = document["disk"].as_object().unwrap();
    assert_eq!(disk.len(), 11, "{}", document["validity"]);
    let dir = Path::new(document["run"]["dir"].as_str().unwrap());
    for (name, figures) in disk {
        let own = fs::read_to_string(dir.join(format!("{name}.fio.json"))).unwrap();
        let own: Value = serde_json::from_str(&own).unwrap();
        let sum = |way: &str, of: &str| -> f64 {
            own["jobs"].as_array().unwrap().iter().map(|job| job[way][of].as_f64().unwrap()).sum()
        };
        let ways: &[&str] = match name.as_str() {
            "rewrite" => &["write"],
            "seeks" => &["read"],
            _ => &["read", "write"],
        };
        let of = |of: &str| ways.iter().map(|way| sum(way, of)).sum::<f64>();
        assert!((figures["bytes_per_s"].as_f64().unwrap() - of("bw_bytes")).abs() < 1e-3, "{name}: {figures}");
        assert!((figures["iops"].as_f64().unwrap() - of("iops")).abs() < 1e-3, "{name}: {figures}");
        assert!(of("iops") > 0.0, "{name}: {figures}");
        let version = own["fio version"].as_str().unwrap();
        assert_eq!(document["run"]["host"]["settings"]["fio"], version);
    }
    // A complete pass covers the complete file.
    for name in ["write_per_block", "rewrite"] {
        assert_eq!(disk[name]["written_bytes"], 16 << 20, "{name}");
    }
    for name in ["rewrite", "read_per_block"] {
        assert_eq!(disk[name]["read_bytes"], 16 << 20, "{name}");
    }
    assert_eq!(disk["seeks"]["read_bytes"], 16 << 20, "each block is read once");
    assert!(disk["commits"]["latency_ns"]["p99"].as_u64().unwrap() > 0);
    assert!(is_empty(folder.path()));
    // Reported again from the run store.
    let again = workspace.run(&["report", "last"]);
    assert!(again.stdout.contains("seeks, 3 concurrent") && again.stdout.contains("fdatasync"), "{}", again.stdout);
    // The page is written with the run, and again by report.
    let page = workspace.file("disk.html");
    workspace.run(&["report", "last", "--html", str_of(&page)]);
    for page in [dir.join("report.html"), page] {
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.contains("random 4 KiB reads/s"), "{}", page.display());
    }
}

#[test]
fn disk_refuses_a_memory_file_system() {
    let workspace = Workspace::concurrent();
    let page = workspace.file("memory.html");
    let output = workspace.run(&[
        "disk",
        "/dev/shm",
        "--no-save",
        "--html",
        str_of(&page),
        "-s",
        "16MiB",
        "-d",
        "100ms",
        "-t",
        "read_per_block,write_per_block",
        "--strict",
    ]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stdout.contains("SUSPECT") && output.stdout.contains("tmpfs"), "{}", output.stdout);
    assert!(output.stdout.contains("page cache"), "{}", output.stdout);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("None of these figures is the speed of a disk") && html.contains("(PAGE CACHE)"));
}

#[test]
fn invalid_disk_options_are_refused_by_name() {
    let (workspace, folder) = (Workspace::concurrent(), folder());
    let path = str_of(folder.path());
    workspace.run(&["disk", path, "-s", "900TB"]).refused(2, &["would fill the disk", "--size"]);
    workspace.run(&["disk", path, "-s", "1KB"]).refused(1, &["--size", "16"]);
    workspace.run(&["disk", path, "-d", "1ms"]).refused(1, &["--duration"]);
    workspace.run(&["disk", path, "-t", "speed"]).refused(1, &["speed", "commits"]);
    workspace.run(&["disk", "/no/such/folder"]).refused(2, &["/no/such/folder"]);
    assert!(is_empty(folder.path()));
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "the run store is empty");
}

/// After SIGKILL of the program fio ends too, and the unnamed test file leaves nothing.
#[test]
fn disk_leaves_no_files_after_sigkill() {
    let (workspace, folder) = (Workspace::concurrent(), folder());
    let running = workspace.start(&["disk", str_of(folder.path()), "-s", "16MiB", "-d", "60s", "-t", "commits"]);
    let mut fio = None;
    wait_until("fio commits", || {
        let mut children_of_program = processes::children(running.pid()).into_iter();
        // The third fio: the first prints its version, the second writes the file.
        fio = children_of_program.find(|&pid| processes::command_line(pid).contains("--name=commits"));
        fio.is_some()
    });
    assert!(is_empty(folder.path()), "the file has no name");
    running.signal(Signal::SIGKILL);
    wait_until("fio has exited", || processes::stat(fio.unwrap()).is_none_or(|stat| stat.state == 'Z'));
    assert!(is_empty(folder.path()));
}

/// Completed tests are stored, and the run is marked as incomplete.
#[test]
fn an_interrupted_disk_test_stores_completed_tests() {
    let (workspace, folder) = (Workspace::concurrent(), folder());
    let running = workspace.start(&[
        "disk",
        str_of(folder.path()),
        "-s",
        "16MiB",
        "-d",
        "60s",
        "-t",
        "write_per_block,commits",
        "--json",
    ]);
    wait_until("fio commits", || {
        let children_of_program = processes::children(running.pid());
        children_of_program.iter().any(|&pid| processes::command_line(pid).contains("--name=commits"))
    });
    running.signal(Signal::SIGINT);
    let output = running.finish();
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output}"));
    assert_eq!(document["run"]["interrupted"], true);
    assert_eq!(document["disk"].as_object().unwrap().keys().collect::<Vec<_>>(), ["write_per_block"]);
}
