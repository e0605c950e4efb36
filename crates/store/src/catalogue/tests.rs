use std::fs;

use super::*;

fn row(id: &str) -> Row {
    Row { id: id.into(), key: format!("key of {id}"), body: format!("{{\"tags\":[\"{id}\"]}}") }
}

fn write(root: &Path, ids: &[&str]) {
    let rows: Vec<Row> = ids.iter().map(|id| row(id)).collect();
    Catalogue::open(root).unwrap().0.change(&rows, &[]).unwrap();
}

fn ids(root: &Path) -> Vec<String> {
    let mut ids: Vec<String> = Catalogue::open(root).unwrap().1.into_keys().collect();
    ids.sort();
    ids
}

#[test]
fn catalogue_rows_round_trip_and_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ids(dir.path()), [""; 0]);
    write(dir.path(), &["a", "b"]);
    let newer = Row { key: "another".into(), ..row("a") };
    let (catalogue, _) = Catalogue::open(dir.path()).unwrap();
    catalogue.change(std::slice::from_ref(&newer), &["b".into(), "never there".into()]).unwrap();
    let (_, rows) = Catalogue::open(dir.path()).unwrap();
    assert_eq!(rows.values().collect::<Vec<_>>(), [&newer]);
    Catalogue::create_empty(dir.path()).unwrap();
    assert_eq!(ids(dir.path()), [""; 0]);
}

#[test]
fn a_catalogue_row_with_a_wrong_checksum_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["a", "b", "c"]);
    let other = Connection::open(dir.path().join(CATALOGUE)).unwrap();
    other.execute("UPDATE entries SET body = '{}' WHERE id = 'a'", []).unwrap();
    other.execute("UPDATE entries SET key = x'ff' WHERE id = 'b'", []).unwrap();
    assert_eq!(ids(dir.path()), ["c"]);
}

#[test]
fn a_broken_catalogue_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(CATALOGUE);
    fs::write(&path, b"no database at all, but long enough to have a head: ".repeat(40)).unwrap();
    write(dir.path(), &["a"]);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(ids(dir.path()).is_empty());
    write(dir.path(), &["a"]);
    assert_eq!(ids(dir.path()), ["a"]);
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA user_version = 99; DROP VIEW runs; DROP TABLE entries;")
        .unwrap();
    write(dir.path(), &["a"]);
    Connection::open(&path).unwrap().execute_batch("DROP TABLE entries;").unwrap();
    write(dir.path(), &["a"]);
    fs::write(&path, b"").unwrap();
    write(dir.path(), &["b"]);
    assert_eq!(ids(dir.path()), ["b"]);
}

#[test]
fn a_file_of_another_program_is_left_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(CATALOGUE);
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x);").unwrap();
    let theirs = fs::read(&path).unwrap();
    assert!(Catalogue::open(dir.path()).is_err_and(|why| why.contains("belongs to another program")));
    assert!(Catalogue::create_empty(dir.path()).is_err());
    fs::rename(&path, dir.path().join("mine")).unwrap();
    std::os::unix::fs::symlink("mine", &path).unwrap();
    assert!(Catalogue::open(dir.path()).is_err());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(Catalogue::open(dir.path()).is_err());
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), theirs);
}

/// With one byte of the file changed, the rows that are read are correct, or none.
#[test]
fn a_changed_byte_in_the_catalogue_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(CATALOGUE);
    write(dir.path(), &["a", "b"]);
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(61) {
        let mut other = whole.clone();
        other[at] ^= 0x15;
        fs::write(&path, &other).unwrap();
        let rows = Catalogue::open(dir.path()).map(|(_, rows)| rows).unwrap_or_default();
        assert!(rows.iter().all(|(id, found)| *found == row(id)), "byte {at}: {rows:?}");
    }
}

#[test]
fn a_locked_catalogue_is_skipped_and_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &["a"]);
    let other = Connection::open(dir.path().join(CATALOGUE)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(Catalogue::open(dir.path()).is_err());
    assert!(Catalogue::create_empty(dir.path()).is_err());
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(ids(dir.path()), ["a"]);
    // A broken catalogue that another process has open is not deleted either.
    let open_elsewhere = Catalogue::open(dir.path()).unwrap();
    fs::write(dir.path().join(CATALOGUE), b"broken".repeat(500)).unwrap();
    assert!(Catalogue::open(dir.path()).is_err_and(|why| why.contains("another program has it open")));
    drop(open_elsewhere);
    assert!(ids(dir.path()).is_empty());
}

#[test]
fn concurrent_writers_keep_the_catalogue_intact() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = dir.path();
            scope.spawn(move || {
                for turn in 0..5 {
                    // A writer that waits too long works without the catalogue, which is not an error.
                    let Ok((catalogue, rows)) = Catalogue::open(path) else { continue };
                    assert!(rows.iter().all(|(id, found)| *found == row(id)));
                    let _ = catalogue.change(&[row(&format!("{number}-{turn}"))], &[]);
                }
            });
        }
    });
    assert!(!ids(dir.path()).is_empty());
}
