//! Archives copy runs, and only runs, from one run store to another.

#[path = "store/support.rs"]
#[allow(dead_code, reason = "a part of what the tests of the run_store share")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use store::archive::{Import, export, import};
use store::{RunStore, StoreError, change_tags, imported_with, remove};
use support::{document, fresh_run, morning, requests};

/// A run that ended, with tables, parts and tags.
fn run(run_store: &RunStore, name: &str) -> PathBuf {
    let run = run_store.create(name, morning(), 3).unwrap();
    run.write_plan("seed = 1\n").unwrap();
    let mut writer = run.requests();
    writer.push(&requests(0..1000)).unwrap();
    writer.close_part().unwrap();
    run.write_summary(&document(run.id())).unwrap();
    change_tags(run_store.root(), run.path(), &["kept".into()], &[]).unwrap();
    fs::write(run.path().join("server.log"), "x".repeat(1024)).unwrap();
    fs::write(run.path().join("empty"), "").unwrap();
    run.path().to_owned()
}

fn packed(dirs: &[PathBuf]) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(dirs, &mut bytes, Path::new("x.tar.gz")).unwrap();
    bytes
}

/// Every file below a folder with its contents, except the marker of an import.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name() != Some("imported.txt".as_ref()) {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Whether the run store has no files, as after a refused import.
fn empty(run_store: &RunStore) -> bool {
    fs::read_dir(run_store.root()).map_or(true, |entries| entries.count() == 0)
}

#[test]
fn exported_runs_are_imported_unchanged() {
    let (_dir, run_store, _) = fresh_run();
    let dirs = [run(&run_store, "one"), run(&run_store, "two")];
    let bytes = packed(&dirs);
    assert_eq!(bytes, packed(&dirs), "archives of the same runs are identical");
    let there = tempfile::tempdir().unwrap();
    let other = RunStore::at(there.path().join("not there yet"));
    let imported = import(&other, &bytes[..], "x.tar.gz", Import::default()).unwrap();
    assert_eq!(imported.len(), 2);
    let back: Vec<PathBuf> = imported.iter().map(|run| other.root().join(&run.id)).collect();
    for (from, to) in dirs.iter().zip(&back) {
        assert_eq!(contents(from), contents(to));
    }
    assert_eq!(bytes, packed(&back), "an archive of the imported runs is identical");
    assert_eq!(other.list().unwrap()[0].tags, ["kept"]);
    // Runs of one import have the same marker; a later import has another.
    let marks = [&dirs[0], &back[0], &back[1]].map(|run| imported_with(run));
    assert!(marks[0].is_none() && marks[1].is_some() && marks[1] == marks[2], "{marks:?}");
    let again = import(&other, &bytes[..], "x.tar.gz", Import { rename: true, ..Import::default() }).unwrap();
    assert_ne!(imported_with(&other.root().join(&again[0].id)), marks[1]);
    for run in again {
        remove(&other, &other.root().join(run.id)).unwrap();
    }
    // The run store has only the two runs and the catalogue.
    assert_eq!(fs::read_dir(other.root()).unwrap().count(), 3);
}

#[test]
fn import_does_not_overwrite_an_existing_run() {
    let (_dir, run_store, _) = fresh_run();
    let (one, two) = (run(&run_store, "one"), run(&run_store, "two"));
    let bytes = packed(&[one.clone(), two.clone()]);
    fs::remove_dir_all(&one).unwrap();
    let before = contents(run_store.root());
    let refused = import(&run_store, &bytes[..], "x", Import::default()).unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { why, .. } if why.contains("--rename")), "{refused}");
    assert_eq!(contents(run_store.root()), before);
    let imported = import(&run_store, &bytes[..], "x", Import { rename: true, ..Import::default() }).unwrap();
    assert_eq!(imported[0].id, imported[0].was);
    assert_ne!(imported[1].id, imported[1].was);
    assert_eq!(contents(&two), contents(&run_store.root().join(&imported[1].id)));
}

#[test]
fn export_omits_links_and_refuses_a_running_run() {
    let (_dir, run_store, going_on) = fresh_run();
    let dir = run(&run_store, "one");
    symlink("/etc/passwd", dir.join("passwd")).unwrap();
    symlink("/etc", dir.join("etc")).unwrap();
    let mut bytes = Vec::new();
    let exported = export(std::slice::from_ref(&dir), &mut bytes, Path::new("x")).unwrap();
    assert_eq!(exported.left_out, [dir.join("etc"), dir.join("passwd")]);
    let refused = export(&[going_on.path().to_owned()], &mut bytes, Path::new("x")).unwrap_err();
    assert!(refused.to_string().contains("still running"), "{refused}");
    assert!(export(&[dir.clone(), dir], &mut bytes, Path::new("x")).is_err());
}

/// The system's tar reads exported archives, and imports read archives of the system's tar.
#[test]
fn archives_are_interchangeable_with_gnu_tar() {
    let (_dir, run_store, _) = fresh_run();
    let dir = run(&run_store, "one");
    let there = tempfile::tempdir().unwrap();
    fs::write(there.path().join("x.tar.gz"), packed(std::slice::from_ref(&dir))).unwrap();
    let tar = |arguments: &[&str]| {
        let status = Command::new("tar").current_dir(there.path()).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    tar(&["xzf", "x.tar.gz"]);
    let id = dir.file_name().unwrap().to_str().unwrap();
    assert_eq!(contents(&there.path().join(id)), contents(&dir));
    for (name, format) in [("gnu.tgz", "--format=gnu"), ("ustar.tgz", "--format=ustar"), ("v.tgz", "--format=ustar")] {
        let what = if name == "v.tgz" { format!("./{id}") } else { id.to_owned() };
        tar(&[format, "-czf", name, &what]);
        let other = RunStore::at(there.path().join(format!("run_store of {name}")));
        let archive = fs::File::open(there.path().join(name)).unwrap();
        let imported = import(&other, archive, name, Import::default()).unwrap();
        assert_eq!(contents(&other.root().join(&imported[0].id)), contents(&dir));
    }
}

/// One entry of a tar, with any contents.
struct Entry<'a>(&'a str, u8, &'a [u8]);

const RUN: &str = "20261120-093005-bench-abcd";

fn tar(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Entry(name, kind, contents) in entries {
        let mut block = [0_u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o}\0", contents.len()).as_bytes());
        block[148..156].copy_from_slice(b"        ");
        block[156] = *kind;
        block[157..168].copy_from_slice(b"/etc/passwd");
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn refused(bytes: &[u8], how: Import, words: &str) {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    let run_store = RunStore::at(dir.path().join("deep/run_store"));
    let error = import(&run_store, bytes, "x.tar.gz", how).unwrap_err().to_string();
    assert!(error.contains(words), "`{error}` does not contain `{words}`");
    assert!(empty(&run_store) && !outside.exists(), "{words}");
}

#[test]
fn import_refuses_paths_outside_the_run_folder() {
    let plan = &format!("{RUN}/plan.toml");
    for (name, words) in [
        ("/etc/passwd", "has an absolute path"),
        ("../outside", "leaves its folder (..)"),
        (&format!("{RUN}/../../outside"), "leaves its folder (..)"),
        (&format!("{RUN}/.."), "leaves its folder (..)"),
        (&format!("{RUN}//plan.toml"), "empty part"),
        (&format!("{RUN}/./plan.toml"), "empty part"),
        (&format!("{RUN}/a\u{1b}[31m"), "control characters"),
        (&format!("{RUN}/a/b/c/d"), "folders deep"),
        ("catalogue.sqlite", "not in a folder with the name of a run"),
        (".import-1/plan.toml", "not in a folder with the name of a run"),
        ("20261120-093005-be\\nch-abcd/plan.toml", "not in a folder with the name of a run"),
        (RUN, "is a file, not a run's folder"),
    ] {
        let bytes = gzip(&tar(&[Entry(plan, b'0', b"x"), Entry(name, b'0', b"x")]));
        refused(&bytes, Import::default(), words);
    }
}

#[test]
fn import_refuses_links_devices_and_pipes() {
    let (plan, other) = (&format!("{RUN}/plan.toml"), &format!("{RUN}/x"));
    for (kind, words) in [
        (b'1', "a link"),
        (b'2', "a link"),
        (b'3', "a device"),
        (b'4', "a device"),
        (b'6', "a pipe"),
        (b'x', "--format=ustar"),
        (b'7', "of an unknown kind"),
    ] {
        let bytes = gzip(&tar(&[Entry(plan, b'0', b"x"), Entry(other, kind, b"")]));
        refused(&bytes, Import::default(), words);
    }
    refused(&gzip(&tar(&[Entry(plan, b'0', b"x"), Entry(plan, b'0', b"y")])), Import::default(), "comes twice");
    let below = &format!("{plan}/x");
    refused(&gzip(&tar(&[Entry(plan, b'0', b"x"), Entry(below, b'0', b"y")])), Import::default(), "comes twice");
    refused(&gzip(&tar(&[Entry(other, b'0', b"x")])), Import::default(), "is not a run");
    refused(&gzip(&tar(&[])), Import::default(), "contains no run");
}

#[test]
fn import_refuses_damaged_archives() {
    let good = tar(&[Entry(&format!("{RUN}/plan.toml"), b'0', &b"plan ".repeat(1000))]);
    let bytes = gzip(&good);
    refused(b"", Import::default(), "is truncated");
    refused(b"plain text, no gzip at all", Import::default(), "not a valid gzip file");
    for cut in [bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
        refused(&bytes[..cut], Import::default(), "");
    }
    let mut flipped = bytes.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    refused(&flipped, Import::default(), "not a valid gzip file");
    refused(&[&bytes[..], b"more"].concat(), Import::default(), "data after its end");
    refused(&gzip(&[&good[..], b"more"].concat()), Import::default(), "data after its end");
    refused(&gzip(&good[..good.len() - 1024]), Import::default(), "is truncated");
}

#[test]
fn import_refuses_decompression_bombs_within_the_limit() {
    let plan = &format!("{RUN}/plan.toml");
    let zeros = vec![0; 100 << 20];
    let bomb = gzip(&tar(&[Entry(plan, b'0', &zeros)]));
    assert!(bomb.len() < 1 << 20);
    refused(&bomb, Import::default(), "--limit allows more");
    refused(
        &gzip(&tar(&[Entry(plan, b'0', &zeros[..5000])])),
        Import { bytes_max: Some(5000), ..Import::default() },
        "5000",
    );
    // A higher limit accepts the archive.
    let dir = tempfile::tempdir().unwrap();
    let how = Import { bytes_max: Some(1 << 30), ..Import::default() };
    assert_eq!(import(&RunStore::at(dir.path()), &bomb[..], "x", how).unwrap().len(), 1);
    // A header with a size beyond the end of the archive.
    let mut promising = tar(&[Entry(plan, b'0', b"x")]);
    promising[124..136].copy_from_slice(b"77777777777\0");
    promising[148..156].copy_from_slice(b"        ");
    let sum: u32 = promising[..512].iter().map(|&byte| u32::from(byte)).sum();
    promising[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    refused(&gzip(&promising), Import::default(), "is truncated");
}

#[test]
fn remains_of_a_killed_import_are_removed() {
    let (_dir, run_store, _) = fresh_run();
    let bytes = packed(&[run(&run_store, "one")]);
    let there = tempfile::tempdir().unwrap();
    let other = RunStore::at(there.path());
    fs::create_dir_all(there.path().join(".import-77/x")).unwrap();
    import(&other, &bytes[..], "x", Import::default()).unwrap();
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 1);
}
