use proptest::prelude::*;
use units::Bytes;

use super::*;

const DISK: Files<'static> = &|file| std::fs::read_to_string(file);

fn parse(text: &str) -> Result<Profile, String> {
    Profile::parse(text, Path::new("/profiles/p.toml"), DISK).map_err(|error| error.to_string())
}

/// A profile of one class with the lines given.
fn class(lines: &str) -> Result<Profile, String> {
    parse(&format!("name = \"p\"\n[[clients]]\nshare = 1\n{lines}\n"))
}

fn mean_ms(paths: &[ClientPath]) -> f64 {
    paths.iter().map(|path| path.rtt().as_secs_f64() * 1e3).sum::<f64>() / paths.len() as f64
}

#[test]
fn every_built_in_profile_is_one_and_says_where_it_comes_from() {
    let names: Vec<&str> = Profile::names().collect();
    assert_eq!(names, ["lan", "koshien-2001"]);
    for name in names {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.name(), name);
        assert!(!profile.about().is_empty());
    }
    assert!(Profile::builtin("koshien").is_none());
}

#[test]
fn koshien_cut_into_a_hundred_steps_has_the_mean_its_notes_give() {
    let profile = Profile::builtin("koshien-2001").unwrap();
    assert!(profile.about().contains("fitted to published figures, not measured"));
    let paths = profile.clients(100);
    assert!((mean_ms(&paths) - 108.0).abs() < 0.5, "{}", mean_ms(&paths));
    // Steps 49 and 50 lie on both sides of the median; the whole is cut to 1 ms .. 3 s.
    assert!(paths[49].rtt() < Duration::from_millis(48) && paths[50].rtt() > Duration::from_millis(48));
    let paths = profile.clients(65_534);
    assert_eq!(paths[0].rtt(), Duration::from_millis(1));
    assert_eq!(paths[65_533].rtt(), Duration::from_secs(3));
    assert!(paths.is_sorted_by_key(ClientPath::rtt));
}

#[test]
fn the_local_network_and_a_constant_are_the_same_for_all() {
    let paths = Profile::builtin("lan").unwrap().clients(3);
    assert!(paths.iter().all(|path| path.rtt() == Duration::from_micros(200)));
    let paths = Profile::constant(Duration::from_nanos(5)).clients(2);
    assert_eq!((paths.len(), paths[0].up.delay().as_nanos(), paths[0].down.delay().as_nanos()), (2, 3, 2));
}

#[test]
fn a_file_says_everything_the_design_shows() {
    let profile = parse(
        r#"
        name = "adsl-2001"
        about = "made up"
        [[clients]]
        share = 0.7
        rtt = "48ms"
        variation = "2ms"
        up_share = 0.25
        up = { rate = "512kbit", queue = "64KB", loss = 0.001 }
        down = { rate = "8Mbit", queue = "150ms", loss = "1%" }
        [[clients]]
        share = 0.3
        rtt = { lognormal = { median = "20ms", sigma = 0.5 } }
        "#,
    )
    .unwrap();
    let paths = profile.clients(10);
    assert_eq!((profile.name(), profile.about(), paths.len()), ("adsl-2001", "made up", 10));
    let near = &paths[0];
    assert_eq!((near.up.delay(), near.down.delay()), (Duration::from_millis(12), Duration::from_millis(36)));
    assert_eq!(near.up.variation(), Duration::from_millis(2));
    assert_eq!(near.up.rate().value().unwrap().bits_per_second(), 512_000);
    assert_eq!(limit(&near.up), QueueLimit::Bytes(Bytes(64_000)));
    assert_eq!(limit(&near.down), QueueLimit::Time(Duration::from_millis(150)));
    assert_eq!((near.up.loss(), near.down.loss()), (0.001, 0.01));
    assert_eq!(paths[6].rtt(), Duration::from_millis(48));
    assert_eq!(paths[8].rtt(), Duration::from_millis(20), "the middle one of three has the median");
    assert_eq!(paths[7].up, LinkSpec::constant(paths[7].up.delay()));
    let lines = profile.describe();
    assert_eq!(
        lines[0],
        "70% of clients: RTT 48ms, each way +-2ms, 25% of it on the way up; up 512kbit, queue 64KB, loss 0.1%; \
         down 8Mbit, queue 150ms, loss 1%"
    );
    assert!(lines[1].starts_with("30% of clients: RTT log-normal, median 20ms, sigma 0.5"), "{}", lines[1]);
}

fn limit(link: &LinkSpec) -> QueueLimit {
    link.bottlenecks().next().unwrap().queue.limit
}

#[test]
fn curves_and_samples_are_found_beside_the_profile() {
    let folder = std::env::temp_dir().join(format!("yamabiko-profile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("c.csv"), "quantile,rtt\n0,10ms\n1,30ms\n").unwrap();
    std::fs::write(folder.join("s.txt"), "3ms\n1ms\n2ms\n").unwrap();
    let text = "name = \"p\"\n[[clients]]\nshare = 0.5\nrtt = { quantiles = \"c.csv\" }\n[[clients]]\nshare = 0.5\nrtt = { file = \"s.txt\" }\n";
    std::fs::write(folder.join("p.toml"), text).unwrap();
    let profile = Profile::read(&folder.join("p.toml"), DISK);
    let missing = Profile::parse("name='p'\nclients=[{share=1,rtt={file='no.txt'}}]", &folder.join("q.toml"), DISK);
    std::fs::remove_dir_all(&folder).unwrap();
    let rtts: Vec<u128> = profile.unwrap().clients(6).iter().map(|path| path.rtt().as_micros()).collect();
    assert_eq!(rtts, [13_333, 20_000, 26_666, 1_000, 2_000, 3_000]);
    let missing = missing.unwrap_err().to_string();
    assert!(missing.starts_with("cannot read sample of RTTs `") && missing.contains("no.txt"), "{missing}");
}

#[test]
fn the_rows_of_a_curve_may_stand_in_the_profile() {
    let rtts = |lines: &str| -> Vec<u128> {
        class(lines).unwrap().clients(2).iter().map(|path| path.rtt().as_micros()).collect()
    };
    assert_eq!(rtts("rtt = { quantiles = [[0, \"10ms\"], [1, \"30ms\"]] }"), [15_000, 25_000]);
    assert_eq!(rtts("rtt.quantiles = [\n  [0.5, \"7ms\"], # a comment\n]"), [7_000, 7_000]);
    for (rows, expected) in [
        ("[]", "[[clients]] number 1: quantiles, row 1: there is no point in it"),
        ("[[0.5, \"2ms\"], [0.5, \"3ms\"]]", "row 2: quantile 0.5 does not rise above the 0.5"),
        ("[[0.5, \"2ms\"], [0.6, \"1ms\"]]", "row 2: the RTT is smaller"),
        ("[[1.5, \"2ms\"]]", "row 1: `1.5` is not a quantile"),
        ("[[nan, \"2ms\"]]", "row 1: `NaN` is not a quantile"),
        ("[[0.5, \"2\"]]", ":4: `2` has no unit"),
        ("[[0.5]]", ":4: "),
        ("7", "expected the name of a CSV file, or rows such as"),
    ] {
        let error = class(&format!("rtt = {{ quantiles = {rows} }}")).unwrap_err();
        assert!(error.starts_with("/profiles/p.toml:") && error.contains(expected), "{rows}: {error}");
    }
}

#[test]
fn shares_must_add_to_one() {
    let shares = |a: f64, b: f64| {
        parse(&format!("name='p'\nclients = [{{ share = {a}, rtt = '1ms' }}, {{ share = {b}, rtt = '1ms' }}]"))
    };
    assert!(shares(0.3333335, 0.6666665).is_ok());
    assert!(shares(0.3, 0.7000009).is_ok());
    assert!(shares(0.3, 0.7000011).unwrap_err().contains("add to 1.0000011"));
    assert!(shares(0.5, 0.4).unwrap_err().starts_with("/profiles/p.toml: the shares of all [[clients]] add to 0.9"));
    assert!(parse("name = 'p'\nclients = []").unwrap_err().contains("add to 0, not to 1"));
}

#[test]
fn what_is_wrong_is_refused_with_file_line_and_reason() {
    let cases = [
        ("rtt = \"48\"", ":4: `48` has no unit"),
        ("rtt = 48", ":4: invalid type: integer `48`, expected an RTT such as"),
        ("rtt = \"-48ms\"", ":4: `-48ms` is out of range"),
        ("", "missing field `rtt`"),
        ("rtt = \"48ms\"\ndelay = \"1ms\"", ":5: unknown field `delay`"),
        ("rtt = \"48ms\"\ndown = { speed = \"1Mbit\" }", ":5: unknown field `speed`"),
        ("rtt = \"48ms\"\ndown = { rate = \"10\" }", ":5: `10` has no unit"),
        ("rtt = \"48ms\"\ndown = { queue = \"64KB\" }", "down: a queue without a rate"),
        ("rtt = \"48ms\"\ndown = { rate = \"1Mbit\", queue = \"64\" }", ":5: `64` is not a queue limit"),
        ("rtt = \"48ms\"\nup = { loss = 1.5 }", ":5: 1.5 is not a probability"),
        (
            "rtt = \"48ms\"\nup = { loss = { gilbert_elliott = {} } }",
            ":5: loss by gilbert_elliott is not supported yet",
        ),
        ("rtt = \"48ms\"\nup = { loss = { x = 1 } }", ":5: loss is a probability"),
        ("rtt = \"48ms\"\nup_share = 1.1", ":5: "),
        (
            "rtt = \"48ms\"\n[shared]\ndown = { rate = \"1Mbit\" }",
            "[shared] (an access link all clients share) is not supported yet",
        ),
        ("rtt = { pareto = 1 }", ":4: unknown variant `pareto`"),
        ("rtt = { lognormal = { median = \"1ms\", sigma = 1.3, mode = 1 } }", ":4: unknown field `mode`"),
        ("rtt = { lognormal = { median = \"0\", sigma = 1.3 } }", "number 1: lognormal: the median must be above 0"),
        ("rtt = { lognormal = { median = \"1ms\", sigma = -1 } }", "sigma is -1, but must be from 0 to 10"),
        ("rtt = { lognormal = { median = \"1ms\", sigma = nan } }", "sigma is NaN"),
        ("rtt = { lognormal = { median = \"1ms\", sigma = 1, min = \"3ms\", max = \"2ms\" } }", "min is above max"),
        ("rtt = ", ":4: "),
    ];
    for (lines, expected) in cases {
        let error = class(lines).unwrap_err();
        assert!(error.starts_with("/profiles/p.toml:") && error.contains(expected), "{lines}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    assert!(parse("clients = []").unwrap_err().contains("missing field `name`"));
    let missing = Profile::read(Path::new("/nowhere/p.toml"), DISK).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read profile `/nowhere/p.toml`: No such file"), "{missing}");
}

proptest! {
    /// Everyone is placed, nobody's count is a whole client away from their due.
    #[test]
    fn clients_are_apportioned_fairly(weights in prop::collection::vec(0.0f64..1.0, 1..8), n in 0u32..70_000) {
        let total: f64 = weights.iter().sum::<f64>().max(1e-9);
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        prop_assume!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let counts = apportion(&shares, n);
        prop_assert_eq!(counts.iter().sum::<u32>(), n);
        for (share, count) in shares.iter().zip(counts) {
            prop_assert!((share * f64::from(n) - f64::from(count)).abs() < 1.0 + 1e-6);
        }
    }
}
