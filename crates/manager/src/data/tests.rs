use super::*;

#[test]
fn a_data_folder_accepts_one_manager_and_concurrent_commands() {
    let folder = tempfile::tempdir().unwrap();
    let data = Data::open(folder.path()).unwrap();
    assert!(matches!(Data::open(folder.path()), Err(Error::InUse(_))));
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!([mode("index.sqlite"), mode("index.sqlite-wal"), mode("days")], [0o600, 0o600, 0o700]);
    let shared = Data::open_shared(folder.path(), false).unwrap();
    shared.set_fact("a", "1").unwrap();
    assert_eq!(data.fact("a").unwrap().as_deref(), Some("1"));
    data.checkpoint();
    drop((data, shared));
    let again = Data::open(folder.path()).unwrap();
    assert_eq!((again.fact("a").unwrap().as_deref(), again.fact("b").unwrap()), (Some("1"), None));
    let nothing = tempfile::tempdir().unwrap();
    assert!(matches!(Data::open_shared(nothing.path(), false), Err(Error::NoData(_))));
}

#[test]
fn an_index_of_another_version_or_format_is_rejected_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    drop(Data::open(folder.path()).unwrap());
    let path = folder.path().join("index.sqlite");
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let error = Data::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Version { found: 99, known: VERSION, .. }), "{error}");
    assert!(error.to_string().contains("index.sqlite has version 99"), "{error}");

    let other = tempfile::tempdir().unwrap();
    let path = other.path().join("index.sqlite");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert!(matches!(Data::open(other.path()), Err(Error::Foreign(_))));
    std::fs::write(&path, "this is no database, and long enough to be looked at as one".repeat(20)).unwrap();
    assert!(matches!(Data::open(other.path()), Err(Error::Foreign(_))));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(Data::open(other.path()), Err(Error::Foreign(_))));
}

#[test]
fn index_changes_are_atomic_and_reads_are_consistent() {
    let folder = tempfile::tempdir().unwrap();
    let data = Data::open(folder.path()).unwrap();
    let enter = |index: &Transaction<'_>, name: &str| index.execute("INSERT INTO facts VALUES (?1, '')", [name]);
    let outcome: Result<()> = data.change(|index| {
        enter(index, "a")?;
        Err(Error::Random)
    });
    assert!(outcome.is_err() && data.fact("a").unwrap().is_none());
    let count = |index: &Connection| index.query_row("SELECT count(*) FROM facts", [], |row| row.get::<_, i64>(0));
    data.read(|index| {
        assert_eq!(count(index)?, 0);
        data.change(|index| enter(index, "b"))?;
        assert_eq!(count(index)?, 0, "a read transaction sees the state of its start");
        Ok::<_, rusqlite::Error>(())
    })
    .unwrap();
    assert_eq!(data.read(count).unwrap(), 1);
    let written = data.read(|index| index.execute("INSERT INTO facts VALUES ('c', '')", []));
    assert!(written.is_err(), "a reading connection cannot write");
}
