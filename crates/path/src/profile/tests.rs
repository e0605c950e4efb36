use proptest::prelude::*;
use units::Bytes;

use super::*;
use crate::spec::{ChangeKind, EffectSpec, LinkSpec, Propagation, QueueLimit, RateSpec};

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
fn built_in_profiles_parse_and_state_their_sources() {
    for name in Profile::names() {
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(profile.name(), name);
        assert!(!profile.about().is_empty());
        let text = Profile::builtin_text(name).unwrap();
        let has_sources = text.contains("# Sources") || text.contains("ssumed") || text.contains("# Published");
        assert!(has_sources, "{name}: no source of its figures");
        let years = (1990..2030).filter(|year| text.contains(&year.to_string())).count();
        assert!(years > 0, "{name}: no year of its figures");
    }
    assert!(Profile::builtin("koshien").is_none());
}

/// The order of distances and rates is plausible.
#[test]
fn built_in_profiles_have_a_plausible_order_of_rtts_and_rates() {
    let median = |name: &str| Profile::builtin(name).unwrap().clients(101)[50].rtt();
    let rtts: Vec<Duration> = ["lan", "fiber", "cable", "5g", "4g", "dialup-56k", "3g"].map(median).to_vec();
    assert!(rtts.is_sorted_by(|a, b| a < b), "{rtts:?}");
    assert!(median("leo-satellite") < median("4g"));
    let near = Profile::builtin("geo-satellite").unwrap().clients(1000);
    assert!(near.iter().all(|client| client.rtt() > Duration::from_millis(477)), "faster than light");
    let down = |name: &str| {
        let clients = Profile::builtin(name).unwrap().clients(1);
        clients[0].down.rate().value().unwrap().bits_per_second()
    };
    let rates = ["dialup-56k", "3g", "geo-satellite", "dsl", "4g", "leo-satellite", "5g", "cable", "fiber"].map(down);
    assert!(rates.is_sorted_by(|a, b| a < b), "{rates:?}");
    let mean = |name: &str| mean_ms(&Profile::builtin(name).unwrap().clients(1000));
    let mixes = ["country-high-income", "world", "country-low-income"].map(mean);
    assert!(mixes.is_sorted_by(|a, b| a < b), "{mixes:?}");
}

#[test]
fn koshien_profile_with_100_clients_has_the_mean_rtt_of_its_notes() {
    let profile = Profile::builtin("koshien-2001").unwrap();
    assert!(profile.about().contains("fitted to published figures, not measured"));
    let paths = profile.clients(100);
    assert!((mean_ms(&paths) - 108.0).abs() < 0.5, "{}", mean_ms(&paths));
    // Steps 49 and 50 lie on both sides of the median; all values are cut to 1 ms .. 3 s.
    assert!(paths[49].rtt() < Duration::from_millis(48) && paths[50].rtt() > Duration::from_millis(48));
    let paths = profile.clients(65_534);
    assert_eq!(paths[0].rtt(), Duration::from_millis(1));
    assert_eq!(paths[65_533].rtt(), Duration::from_secs(3));
    assert!(paths.is_sorted_by_key(ClientPath::rtt));
}

#[test]
fn lan_and_constant_profiles_have_one_rtt_for_all_clients() {
    let paths = Profile::builtin("lan").unwrap().clients(3);
    assert!(paths.iter().all(|path| path.rtt() == Duration::from_micros(200)));
    let paths = Profile::constant(Duration::from_nanos(5)).clients(2);
    assert_eq!((paths.len(), paths[0].up.delay().as_nanos(), paths[0].down.delay().as_nanos()), (2, 3, 2));
}

#[test]
fn profile_file_sets_all_properties_of_its_classes() {
    let profile = parse(
        r#"
        name = "adsl-2001"
        about = "made up"
        [[clients]]
        share = 0.7
        rtt = "48ms"
        jitter = "2ms"
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
    assert_eq!(near.up.jitter(), Duration::from_millis(2));
    assert_eq!(near.up.rate().value().unwrap().bits_per_second(), 512_000);
    assert_eq!(limit(&near.up), QueueLimit::Bytes(Bytes(64_000)));
    assert_eq!(limit(&near.down), QueueLimit::Time(Duration::from_millis(150)));
    assert_eq!((near.up.loss(), near.down.loss()), (0.001, 0.01));
    assert_eq!(paths[6].rtt(), Duration::from_millis(48));
    assert_eq!(paths[8].rtt(), Duration::from_millis(20), "the middle client of three has the median");
    assert_eq!(paths[7].up, LinkSpec::constant(paths[7].up.delay()));
    let lines = profile.describe();
    assert_eq!(
        lines[0],
        "70% of clients: RTT 48ms, each way +-2ms, 25% of it on the way up; up loss 0.1%, 512kbit, queue 64KB; \
         down loss 1%, 8Mbit, queue 150ms"
    );
    assert!(lines[1].starts_with("30% of clients: RTT log-normal, median 20ms, sigma 0.5"), "{}", lines[1]);
}

fn limit(link: &LinkSpec) -> QueueLimit {
    link.bottlenecks().next().unwrap().queue.limit
}

#[test]
fn curve_and_sample_files_are_found_in_the_directory_of_the_profile() {
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
fn quantile_rows_may_be_inline_in_the_profile() {
    let rtts = |lines: &str| -> Vec<u128> {
        class(lines).unwrap().clients(2).iter().map(|path| path.rtt().as_micros()).collect()
    };
    assert_eq!(rtts("rtt = { quantiles = [[0, \"10ms\"], [1, \"30ms\"]] }"), [15_000, 25_000]);
    assert_eq!(rtts("rtt.quantiles = [\n  [0.5, \"7ms\"], # a comment\n]"), [7_000, 7_000]);
    for (rows, expected) in [
        ("[]", "[[clients]] number 1: quantiles, row 1: it has no point"),
        ("[[0.5, \"2ms\"], [0.5, \"3ms\"]]", "row 2: quantile 0.5 is not above its predecessor 0.5"),
        ("[[0.5, \"2ms\"], [0.6, \"1ms\"]]", "row 2: the RTT is below"),
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
fn profile_shares_must_add_to_one() {
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
fn invalid_profile_is_rejected_with_file_line_and_reason() {
    let cases = [
        ("rtt = \"48\"", ":4: `48` has no unit"),
        ("rtt = 48", ":4: invalid type: integer `48`, expected an RTT such as"),
        ("rtt = \"-48ms\"", ":4: `-48ms` is out of range"),
        ("", "missing field `rtt`"),
        ("rtt = \"48ms\"\ndelay = \"1ms\"", ":5: unknown field `delay`"),
        ("rtt = \"48ms\"\ndown = { speed = \"1Mbit\" }", ":5: unknown field `speed`"),
        ("rtt = \"48ms\"\ndown = { rate = \"10\" }", ":5: `10` has no unit"),
        ("rtt = \"48ms\"\ndown = { queue = \"64KB\" }", "down: a queue without a rate"),
        ("rtt = \"48ms\"\ndown = { rate = \"1Mbit\", queue = \"64\" }", ":5: `64` has no unit; a queue limit"),
        ("rtt = \"48ms\"\nup = { loss = 1.5 }", ":5: `1.5` is ambiguous as a share"),
        ("rtt = \"48ms\"\nup = { loss = { gilbert_elliott = {} } }", ":5: missing field `to_bad`"),
        ("rtt = \"48ms\"\nup = { loss = { x = 1 } }", ":5: unknown field `x`, expected `gilbert_elliott`"),
        ("rtt = \"48ms\"\nup_share = 1.1", ":5: "),
        ("rtt = { pareto = 1 }", ":4: unknown field `pareto`"),
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
    /// All clients are assigned, and no class's count differs from its quota by a whole client.
    #[test]
    fn apportioned_clients_differ_from_their_quota_by_less_than_one(weights in prop::collection::vec(0.0f64..1.0, 1..8), n in 0u32..70_000) {
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

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn link_array_keeps_the_written_order_of_effects() {
    let profile = class(
        r#"
        rtt = "40ms"
        jitter = "2ms"
        up = { duplicate = "1%", loss = 0.01, reorder = "1%,7ms", rate = "1Mbit", corrupt = 0.001, queue = "100 packets" }
        down = [
            { rate = "8Mbit", queue = { limit = "256KB", codel = { target = "6ms" } } },
            { loss = { gilbert_elliott = { to_bad = 0.01, to_good = 0.3 } } },
            { reorder = { probability = "1%" } },
            { delay = "3ms" },
            { rate = "4Mbit" },
        ]
        "#,
    )
    .unwrap();
    let client = &profile.clients(1)[0];
    let kinds = |link: &LinkSpec| -> Vec<&'static str> {
        let kind = |effect: &EffectSpec| match effect {
            EffectSpec::GilbertElliott(_) => "bursts",
            other => other.key(),
        };
        link.effects.iter().map(kind).collect()
    };
    assert_eq!(kinds(&client.up), ["loss", "corrupt", "duplicate", "rate", "reorder", "jitter"]);
    assert_eq!(kinds(&client.down), ["rate", "bursts", "reorder", "delay", "rate", "jitter"]);
    assert_eq!((client.up.delay(), client.down.delay()), (ms(20), ms(23)));
    let bursts = 0.01 / 0.31;
    assert!((client.down.loss() - bursts).abs() < 1e-12);
    let line = &profile.describe()[0];
    assert!(
        line.ends_with(
            "RTT 40ms, each way +-2ms; up loss 1%, 0.1% corrupted, 1% duplicated, 1Mbit, queue 100 packets, 1% reordered by \
             7ms; down 8Mbit, queue 256KB codel:6ms,100ms, loss in bursts, mean 3.2258% (bad after 1% of packets, good \
             after 30%), 1% reordered by 5ms, delay 3ms, 4Mbit, queue 200ms"
        ),
        "{line}"
    );
}

#[test]
fn profile_has_shared_links_and_changes() {
    let profile = parse(
        r#"
        name = "p"
        [[clients]]
        name = "far"
        share = 0.5
        rtt = "100ms"
        shared = { up = { rate = "2Mbit" }, down = { rate = "5Mbit", queue = "1MB" } }
        [[clients]]
        share = 0.5
        rtt = { over_time = [["0s", "10ms"], ["10s", "30ms"]], between = "lines", repeats = true }
        up_share = 0.25
        [shared]
        down = { rate = "100Mbit", loss = "1%" }
        [[changes]]
        at = "10s"
        for = "3s"
        outage = true
        [[changes]]
        at = "1s"
        clients = "far"
        rtt = "x2"
        [[changes]]
        at = "2s"
        clients = 2
        loss = "5%"
        [[changes]]
        at = "3s"
        shared = true
        rate = "x0.5"
        [[changes]]
        at = "4s"
        shared = true
        clients = "far"
        outage = true
        "#,
    )
    .unwrap();
    let path = profile.path(5);
    assert_eq!((path.shared.len(), &path.shared[0].members, &path.shared[1].members), (2, &(0..3), &(0..5)));
    assert_eq!((path.shared[0].up.len(), path.shared[1].up.len(), path.shared[1].down.len()), (1, 0, 2));
    let places: Vec<ChangedLinks> = path.changes.iter().map(|change| change.place.clone()).collect();
    let (all, far, second) = (ChangedLinks::Clients(0..5), ChangedLinks::Clients(0..3), ChangedLinks::Clients(3..5));
    assert_eq!(places, [all, far, second, ChangedLinks::Shared(1), ChangedLinks::Shared(0)]);
    assert_eq!((path.changes[0].at, path.changes[0].duration), (ms(10_000), Some(ms(3000))));
    assert!(matches!(path.changes[1].kind, ChangeKind::Delay(factor) if factor.value() == 2.0));
    let last = &path.clients[4];
    assert_eq!((last.rtt(), last.up.delay()), (ms(20), ms(5)));
    assert!(matches!(&last.down.propagation, Propagation::OverTime(series) if series.at(ms(5000)) == ms(15)));
    // With one client the first class has it, and the second class has no client to change.
    let one = profile.path(1);
    assert_eq!((one.shared.len(), one.changes.len()), (2, 5));
    assert_eq!(one.changes[2].place, ChangedLinks::Clients(1..1));
    assert_eq!(
        profile.describe()[2..],
        [
            "shared by all, down: loss 1%, 100Mbit, queue 200ms",
            "at 10s for 3s: outage",
            "at 1s in far: rtt x2",
            "at 2s in 2: loss 0.05",
            "at 3s in shared: rate x0.5",
            "at 4s in shared far: outage"
        ]
    );
}

#[test]
fn invalid_shared_links_and_changes_are_rejected() {
    let rtt = "rtt = \"48ms\"\n";
    for (lines, expected) in [
        ("down = [ { rate = \"1Mbit\", loss = 0.1 } ]", "number 1: down: step 1: expected one effect in each step"),
        ("down = [ {} ]", "found 0"),
        ("down = [ { queue = \"64KB\" } ]", "down: step 1: a queue without a rate"),
        ("down = 3", ":5: invalid type: integer `3`, expected a link: a table"),
        ("down = { rate = \"1Mbit\", queue = \"0 packets\" }", ":5: `0 packets` is not a queue limit"),
        (
            "down = { rate = \"1Mbit\", queue = { codel = {}, pie = {} } }",
            ":5: a queue may have codel or pie, not both",
        ),
        ("down = { rate = \"1Mbit\", queue = { codel = { target = \"0ms\" } } }", "must be above 0"),
        ("down = { rate = \"1Mbit\", queue = { red = {} } }", ":5: unknown field `red`"),
        ("down = { rate = { trace = \"none.txt\" } }", "cannot read trace of a link `/profiles/none.txt`"),
        ("jitter = \"1ms\"\ndown = { jitter = \"1ms\" }", "down: jitter is given here and for the whole class"),
        ("name = \"a b\"", "letters, digits"),
        ("name = \"shared\"", "`shared` cannot be the name"),
        ("name = \"7\"", "could be the number of a class"),
        ("shared = { down = { delay = \"1ms\" } }", "number 1: shared down: a shared link has no delay"),
        ("[shared]\nup = { jitter = \"1ms\" }", "[shared] up: a shared link has no delay or jitter"),
        ("[[changes]]\nat = \"1s\"", ":5: a change is one of"),
        ("[[changes]]\nat = \"1s\"\noutage = true\nrtt = \"x2\"", ":5: a change is one of"),
        ("[[changes]]\nat = \"1s\"\nrtt = \"2\"", "`2` is not a factor"),
        ("[[changes]]\nat = \"1s\"\nrtt = \"x0\"", "`x0` is not a factor"),
        ("[[changes]]\nat = \"1s\"\nfor = \"0s\"\noutage = true", "the duration is 0"),
        (
            "[[changes]]\nat = \"1s\"\nshared = true\noutage = true",
            "[[changes]] number 1: `1s in shared: outage`: the profile has no [shared] link",
        ),
        ("[[changes]]\nat = \"1s\"\nclients = \"far\"\noutage = true", "no class `far`; the classes are 1 to 1"),
        ("[[changes]]\nat = \"1s\"\nclients = 2\noutage = true", "no class `2`"),
        ("[[changes]]\nat = \"1s\"\nshared = true\nrtt = \"x2\"", "a shared link has no RTT of its own"),
    ] {
        let error = class(&format!("{rtt}{lines}")).unwrap_err();
        assert!(error.starts_with("/profiles/") || error.starts_with("cannot read"), "{error}");
        assert!(error.contains(expected), "{lines}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    for (rtt, expected) in [
        ("{ over_time = [[\"1s\", \"1ms\"]] }", "over_time, row 1: the first time must be 0"),
        ("{ over_time = [[\"0s\", \"1ms\"]], repeats = true }", "at least two points"),
        ("{ over_time = 3 }", "over_time is the name of a CSV file, or rows"),
        ("{ quantiles = \"c.csv\", repeats = true }", "between and repeats belong to over_time"),
        ("{ quantiles = \"c.csv\", file = \"s\" }", "exactly one of"),
        ("{}", "exactly one of"),
    ] {
        let error = class(&format!("rtt = {rtt}")).unwrap_err();
        assert!(error.starts_with("/profiles/p.toml") && error.contains(expected), "{rtt}: {error}");
    }
}

#[test]
fn trace_files_are_found_in_the_directory_of_the_profile() {
    let files: Files<'_> = &|file| {
        assert_eq!(file, Path::new("/profiles/link.trace"));
        Ok("1\n2\n3\n".to_owned())
    };
    let text = "name = 'p'\n[[clients]]\nshare = 1\nrtt = '0ms'\ndown = { rate = { trace = 'link.trace' } }";
    let profile = Profile::parse(text, Path::new("/profiles/p.toml"), files).unwrap();
    let clients = profile.clients(1);
    let bottleneck = clients[0].down.bottlenecks().next().unwrap();
    assert!(matches!(&bottleneck.rate, RateSpec::Trace(trace) if trace.times_ms() == [1, 2, 3]));
    assert!(
        profile.describe()[0].ends_with("down trace of 3ms, mean 12.032Mbit, queue 200ms"),
        "{:?}",
        profile.describe()
    );
}

/// A link with the maximum number of steps, and every added effect, is simulated; more steps are rejected.
#[test]
fn link_with_more_than_200_steps_is_rejected() {
    let link = |steps: usize| {
        let steps = "{ corrupt = 0.5 }, ".repeat(steps);
        class(&format!("rtt = \"48ms\"\njitter = \"1ms\"\nup = [ {steps} ]\n[[changes]]\nat = \"1s\"\nloss = 0.5"))
    };
    let error = link(201).unwrap_err();
    assert!(error.contains("up: 201 steps: a link may have at most 200"), "{error}");
    let addresses = crate::AddressPlan::new(1).unwrap();
    crate::Network::new(addresses, &link(200).unwrap().path(1), 1);
}
