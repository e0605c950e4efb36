use super::*;

fn share(text: &str) -> CpuShare {
    text.parse().unwrap()
}

#[test]
fn small_cpu_share_lengthens_the_enforcement_period() {
    let configured = Duration::from_millis(5);
    assert_eq!(enforcement_period(share("50%"), configured), configured);
    assert_eq!(enforcement_period(share("20%"), configured), configured);
    assert_eq!(enforcement_period(share("19%"), configured), Duration::from_micros(5264));
    assert_eq!(enforcement_period(share("1%"), configured), Duration::from_millis(100));
    assert_eq!(enforcement_period(share("100%"), Duration::ZERO), PERIOD_MIN);
    assert_eq!(enforcement_period(share("100%"), Duration::from_secs(5)), PERIOD_MAX);
}

#[test]
fn user_and_system_split_keeps_the_total() {
    let ns = Duration::from_nanos;
    assert_eq!(split_by_ticks(1000, 0, 0), (ns(1000), ns(0)));
    assert_eq!(split_by_ticks(1000, 1, 3), (ns(250), ns(750)));
    assert_eq!(split_by_ticks(u64::MAX, 1, 1), (ns(u64::MAX / 2 + 1), ns(u64::MAX / 2)));
}

#[test]
fn pressure_is_the_total_of_the_line_some() {
    let text = "some avg10=0.12 avg60=0.05 avg300=0.00 total=1234567\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    assert_eq!(pressure_total(text), Some(Duration::from_micros(1_234_567)));
    assert_eq!((pressure_total(""), pressure_total("full total=7\n")), (None, None));
}

#[test]
fn keyed_figures_match_complete_keys() {
    let stat = "usage_usec 3\nuser_usec 1\nsystem_usec 2\n";
    assert_eq!(keyed(stat, "user_usec"), Some(1));
    assert_eq!(keyed(stat, "user"), None);
    assert_eq!(keyed(stat, "throttled_usec"), None);
}

#[test]
fn cgroup_v2_group_uses_the_files_of_version_two() {
    let mount = tempfile::tempdir().unwrap();
    let session = mount.path().join("user.slice/session.scope");
    fs::create_dir_all(&session).unwrap();
    for (folder, controllers) in [(mount.path(), "cpuset cpu io"), (session.as_path(), "")] {
        fs::write(folder.join("cgroup.subtree_control"), controllers).unwrap();
        fs::write(folder.join("cgroup.procs"), "").unwrap();
    }
    let hierarchies = Hierarchies::two_for_tests(mount.path(), &session);
    let limits = Limits { cpu: Some(share("50%")), weight: Weight::Least, ..Limits::default() };
    let mut group = Cgroup::create_named(&hierarchies, "yamabiko-1-2-server", limits).unwrap();
    // The session enables no controller, so the group is created next to the session that does.
    let directory = mount.path().join("yamabiko-1-2-server");
    assert_eq!(group.procs_paths(), [directory.join("cgroup.procs")]);
    assert_eq!(fs::read_to_string(directory.join("cpu.max")).unwrap(), "2500 5000");
    let stat = "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 4\nnr_throttled 1\nthrottled_usec 7\n";
    fs::write(directory.join("cpu.stat"), stat).unwrap();
    fs::write(directory.join("memory.peak"), "4096\n").unwrap();
    let us = Duration::from_micros;
    assert_eq!(fs::read_to_string(directory.join("cpu.idle")).unwrap(), "1");
    let periods = Some(Periods { all: 4, throttled: 1 });
    let expected = CgroupUsage { user: us(3), system: us(2), throttled: Some(us(7)), periods, memory_max: Some(4096) };
    assert_eq!(group.usage().unwrap(), expected);
    assert_eq!(group.usage_clock().unwrap().read(), GroupTime::Total(us(5)));
    fs::write(directory.join("cgroup.threads"), "12\n13\n").unwrap();
    assert_eq!((group.threads(), group.pressure()), (vec![12, 13], None));
    for (weight, idle) in [(Weight::Usual, "0"), (Weight::Least, "1")] {
        group.set_weight(weight).unwrap();
        assert_eq!(fs::read_to_string(directory.join("cpu.idle")).unwrap(), idle);
        assert_eq!(fs::read_to_string(directory.join("cpu.max")).unwrap(), "2500 5000");
    }
    for (limit, expected) in [("1%", "1000 100000"), ("20%", "1000 5000")] {
        group.set_cpu_limit(share(limit)).unwrap();
        assert_eq!(fs::read_to_string(directory.join("cpu.max")).unwrap(), expected);
    }
    group.remove_cpu_limit();
    assert_eq!(fs::read_to_string(directory.join("cpu.idle")).unwrap(), "0");
    assert_eq!(fs::read_to_string(directory.join("cpu.max")).unwrap(), "max");
}

#[test]
fn new_group_gets_another_name_while_an_old_one_exists() {
    let mount = tempfile::tempdir().unwrap();
    for name in ["cgroup.subtree_control", "cgroup.procs"] {
        fs::write(mount.path().join(name), "cpu").unwrap();
    }
    let hierarchies = Hierarchies::two_for_tests(mount.path(), mount.path());
    let name = |group: Cgroup| {
        let folder = group.procs_paths()[0].parent().unwrap().to_owned();
        // Like a group in which a program is ending: it cannot be removed.
        fs::write(folder.join("busy"), "").unwrap();
        folder.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let made = [(); 3].map(|()| name(Cgroup::create_in(&hierarchies, "server", Limits::default()).unwrap()));
    let own = crate::owner::own_name("server").unwrap();
    assert_eq!(made, [own.clone(), format!("{own}_2"), format!("{own}_3")]);
    assert!(made.iter().all(|name| !crate::owner::is_of_dead_process(name)));
}

#[test]
fn memory_limit_uses_the_files_of_its_version_or_fails() {
    let folder = tempfile::tempdir().unwrap();
    let group = |version| Cgroup {
        version,
        directories: Vec::new(),
        configured_period: Duration::ZERO,
        period: Duration::ZERO,
    };
    let file = |name: &str| folder.path().join(name);
    let two = || group(Version::Two { directory: folder.path().to_owned() });
    let error = two().limit_memory(64 << 20).unwrap_err().to_string();
    assert!(error.contains("memory controller is not enabled"), "{error}");
    for name in ["memory.max", "memory.limit_in_bytes"] {
        fs::write(file(name), "").unwrap();
    }
    two().limit_memory(64 << 20).unwrap();
    assert_eq!(fs::read_to_string(file("memory.max")).unwrap(), "67108864");
    assert!(!file("memory.swap.max").exists(), "a kernel without swap accounting has no such file");
    fs::write(file("memory.swap.max"), "max").unwrap();
    two().limit_memory(4096).unwrap();
    assert_eq!(fs::read_to_string(file("memory.swap.max")).unwrap(), "0");

    let place = || PathBuf::from(folder.path());
    let one = |memory| group(Version::One { cpu: place(), cpuacct: place(), memory });
    one(Some(place())).limit_memory(32 << 20).unwrap();
    assert_eq!(fs::read_to_string(file("memory.limit_in_bytes")).unwrap(), "33554432");
    assert!(!file("memory.memsw.limit_in_bytes").exists());
    assert!(one(None).limit_memory(4096).unwrap_err().to_string().contains("no memory controller"));
}
