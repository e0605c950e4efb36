//! A plan survives printing and reading, and contradictions are refused.

mod reference;

use std::path::PathBuf;
use std::time::Duration;

use proptest::option;
use proptest::prelude::*;

use ::path::{
    ChangeKind, CoDel, Discipline, EffectSpec, Factor, GilbertElliott, Loss, Pie, PlannedChange, QueueLimit, Rate,
    Reorder,
};
use schema::Method;
use units::{BitRate, Bytes, Probability, RequestRate};

use super::*;

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![1u64..1_000_000_000_000, (1u64..100_000).prop_map(|ms| ms * 1_000_000)].prop_map(Duration::from_nanos)
}

fn bit_rate() -> impl Strategy<Value = BitRate> {
    (1u64..1_000_000_000_000).prop_filter_map("in range", BitRate::from_bits_per_second)
}

fn arrival_kind() -> impl Strategy<Value = ArrivalKind> {
    let bursts = (1.0f64..1.5, 1u64..1000, 1000u64..5000).prop_map(|(factor, on, off)| {
        ArrivalKind::Bursts(BurstsPlan { factor, on: Duration::from_millis(on), off: Duration::from_millis(off) })
    });
    let similar = (1u32..10_000, 1.05f64..1.95, time(), time())
        .prop_map(|(sources, alpha, on, off)| ArrivalKind::SelfSimilar(SelfSimilarPlan { sources, alpha, on, off }));
    prop_oneof![Just(ArrivalKind::Constant), Just(ArrivalKind::Poisson), bursts, similar]
}

fn url() -> impl Strategy<Value = String> {
    "http://([a-z]{1,8}|\\[2001:db8::1\\])(:[1-9][0-9]{0,3})?(/[a-z0-9?=&#%.]{0,20}|/u/\\{client\\}\\?\\{\\{x)?"
}

fn header() -> impl Strategy<Value = String> {
    "X-[a-z]{1,5}: [^\\p{C}{}]{0,20}(\\{random 1\\.\\.6\\})?"
}

fn load() -> impl Strategy<Value = LoadPlan> {
    let method = prop::sample::select(&Method::ALL[..]);
    let http = prop_oneof![Just(HttpVersion::Http10), Just(HttpVersion::Http11)];
    let rate = (1e-6f64..1e9).prop_filter_map("in range", RequestRate::from_per_second);
    let arrivals = arrival_kind();
    let what =
        (url(), method, option::of("[^\\x00]{1,20}"), prop::collection::vec(header(), 0..3), http, any::<bool>());
    let how_much =
        (option::of(rate), arrivals, option::of(1u32..100_000), 1u32..60_000, option::of(1u64..), option::of(time()));
    (what, how_much, [time(), time(), time()]).prop_map(|(what, how_much, [warmup, connect_timeout, timeout])| {
        let (url, method, body, headers, http, close) = what;
        let (rate, arrivals, connections, clients, requests, duration) = how_much;
        LoadPlan {
            url,
            proxy: close.then(|| "[2001:db8::1]:3128".parse().unwrap()),
            body: body.map(PathBuf::from).or_else(|| (method == Method::Post).then(|| "body".into())),
            method,
            headers,
            http,
            close,
            rate,
            arrivals: if rate.is_some() { arrivals } else { ArrivalKind::Constant },
            connections,
            clients,
            duration: duration.or_else(|| requests.is_none().then_some(Duration::from_secs(10))),
            requests,
            warmup,
            connect_timeout,
            timeout,
            tls: None,
            ..LoadPlan::get("")
        }
    })
}

fn probability() -> impl Strategy<Value = Probability> {
    (0.0f64..=1.0).prop_filter_map("in range", Probability::new)
}

fn loss() -> impl Strategy<Value = Loss> {
    let bursts = [probability(), probability(), probability(), probability()].prop_map(|[p, r, bad, good]| {
        Loss::Bursts(GilbertElliott { to_bad: p, to_good: r, loss_bad: bad, loss_good: good })
    });
    prop_oneof![probability().prop_map(Loss::Even), bursts]
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![bit_rate().prop_map(Rate::Constant), "[a-z./-]{1,20}".prop_map(|file| Rate::Trace(file.into()))]
}

fn aqm() -> impl Strategy<Value = Discipline> {
    prop_oneof![
        Just(Discipline::DropTail),
        [time(), time()].prop_map(|[target, interval]| Discipline::CoDel(CoDel { target, interval })),
        [time(), time()].prop_map(|[target, update]| {
            Discipline::Pie(Pie { target, update: update.max(Duration::from_micros(100)) })
        }),
    ]
}

fn change() -> impl Strategy<Value = PlannedChange> {
    let factor = || (1e-6f64..=1e6).prop_filter_map("in range", Factor::new);
    let kind = prop_oneof![
        Just(ChangeKind::Outage),
        factor().prop_map(ChangeKind::Delay),
        factor().prop_map(ChangeKind::Rate),
        probability().prop_map(ChangeKind::Loss)
    ];
    // Without a profile there is one class, and no link is shared.
    (time(), option::of(time()), option::of(Just("1".to_owned())), kind)
        .prop_map(|(at, lasts, class, kind)| PlannedChange { at, duration: lasts, class, shared: false, kind })
}

fn path() -> impl Strategy<Value = PathPlan> {
    let queue = prop_oneof![
        (0u64..1_000_000_000_000_000).prop_map(|bytes| QueueLimit::Bytes(Bytes(bytes))),
        (1u32..).prop_map(QueueLimit::Packets),
        time().prop_map(QueueLimit::Time)
    ];
    let reorder = (probability(), time()).prop_map(|(probability, by)| Reorder { probability, by });
    let distance = (option::of("[a-z./-]{1,20}"), option::of(time()), option::of(time()));
    let chances = (option::of(loss()), option::of(probability()), option::of(probability()), option::of(reorder));
    let rates = (option::of(rate()), rate(), option::of(queue), option::of(aqm()));
    (distance, chances, rates, any::<bool>(), prop::collection::vec(change(), 0..4)).prop_map(
        |((profile, rtt, jitter), (loss, corrupt, duplicate, reorder), (up, down, queue, aqm), offload, changes)| {
            // Without a profile a jitter lies within the RTT.
            let most = if profile.is_none() { rtt.unwrap_or_default() / 2 } else { Duration::MAX };
            let effects = [
                jitter.map(|time| EffectSpec::Jitter(time.min(most))),
                loss.map(Loss::effect),
                corrupt.map(EffectSpec::Corrupt),
                duplicate.map(EffectSpec::Duplicate),
                reorder.map(EffectSpec::Reorder),
            ];
            let effects = effects.into_iter().flatten().collect();
            PathPlan { profile, rtt, effects, up, down: Some(down), queue, aqm, offload, changes }
        },
    )
}

fn server() -> impl Strategy<Value = ServerPlan> {
    let share = (1_000_000u64..100_000_000_000)
        .prop_filter_map("in range", |micro| format!("{}%", micro as f64 / 1e6).parse().ok());
    (
        " *[a-z'\"\\\\$]{1,40}",
        (option::of(share.clone()), option::of(share), option::of((1u64 << 20..1 << 40).prop_map(Bytes))),
        option::of(1u32..1000),
        option::of("[a-z]{1,8}"),
        time(),
        names(),
        1u32..=250,
    )
        .prop_map(|(command, (cpu, cpu_measured, memory), initcwnd, cc, start_timeout, names, addresses)| {
            ServerPlan {
                command,
                names,
                addresses,
                cpu,
                cpu_measured,
                memory,
                tcp: ServerTcp { initcwnd, cc },
                start_timeout,
            }
        })
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z0-9.-]{1,20}", 0..3)
}

fn target() -> impl Strategy<Value = TargetPlan> {
    let family = prop_oneof![
        Just(AddressFamily::Any),
        Just(AddressFamily::Ipv4),
        Just(AddressFamily::Ipv6),
        Just(AddressFamily::Both)
    ];
    (family, prop::collection::vec(any::<std::net::IpAddr>(), 0..3), names(), option::of(1u32..1000)).prop_map(
        |(family, addresses, owned, initcwnd)| TargetPlan {
            family,
            addresses,
            owned,
            tcp: ServerTcp { initcwnd, cc: None },
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let wait = prop_oneof![Just(Wait::Sleep), Just(Wait::Hybrid), Just(Wait::Spin)];
    let engine = prop_oneof![Just(Engine::Auto), Just(Engine::IoUring), Just(Engine::Epoll)];
    let placement = prop_oneof![Just(Placement::Split), Just(Placement::Float)];
    let slo = prop_oneof![Just("p99 < 200ms"), Just("p99.9<=1s , errors < 0.1%"), Just("mean < 3us")];
    // A path with a server of the testbed, a path with a service that already runs, or neither.
    let lab = prop_oneof![
        (path(), server()).prop_map(|(path, server)| (Some(path), Some(server), TargetPlan::default())),
        (path(), target()).prop_map(|(path, target)| (Some(path), None, target)),
        target().prop_map(|target| (None, None, TargetPlan { tcp: ServerTcp::default(), ..target })),
    ];
    let at = prop_oneof![Just(WatchAt::Server), Just(WatchAt::Both), Just(WatchAt::None)];
    let watch = (at, 128u64..=65_536, 65_536u64..=1 << 30);
    ("[a-zA-Z0-9_-]{1,40}", any::<u64>(), load(), lab, watch, (wait, engine), placement, option::of(slo)).prop_map(
        |(name, seed, load, (path, server, target), (at, snaplen, ring), (wait, engine), placement, slo)| {
            let at = Some(if path.is_some() { at } else { WatchAt::None });
            let watch = WatchPlan {
                at,
                snaplen: (seed % 5 > 0).then_some(Bytes(snaplen)),
                ring: Bytes(ring),
                keep: seed % 4 == 0 && at == Some(WatchAt::Both),
                tap: seed % 2 == 0 && engine != Engine::IoUring,
            };
            let idle = if seed % 3 == 0 { Idle::Sleep } else { Idle::Awake };
            let slo = slo.map(|typed| typed.parse().unwrap());
            let addresses = if load.proxy.is_none() { target.addresses } else { Vec::new() };
            let target = TargetPlan { addresses, ..target };
            let shard = ShardPlan {
                shard: (seed % 5 == 0 && server.is_none()).then_some(ShardOf { index: 0, count: 1 }),
                start_at: (seed % 5 == 0 && server.is_none()).then_some(StartAt::of_unix_ns(seed)),
            };
            Plan {
                name,
                seed,
                load,
                path,
                server,
                target,
                watch,
                host: HostPlan { wait, idle, engine, placement, threads: 1 + seed as u32 % 4 },
                shard,
                origin: None,
                capacity: None,
                components: None,
                slo,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_plan_survives_printing_and_reading(plan in plan()) {
        prop_assert_eq!(plan.check().map_err(|error| error.to_string()), Ok(()));
        let text = plan.to_toml();
        let back = Plan::from_toml(&text, "printed").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&back, &plan, "\n{}", text);
        prop_assert_eq!(back.to_toml(), text);
    }

    /// Any text is a plan, or refused on one line.
    #[test]
    fn any_text_is_a_plan_or_an_error_on_one_line(text in "(\\[(load|path|server)\\]\n|[a-z]{1,8} = [-0-9a-z\"{}\\[\\]]{0,12}\n|.){0,12}") {
        if let Err(error) = Plan::from_toml(&text, "plan.toml") {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}

/// By default packets are captured at the server's end of a path, if there is one.
#[test]
fn packets_are_captured_at_the_servers_end_by_default() {
    let load = "[load]\nurl = \"http://server/\"\nduration = \"1s\"\n";
    let lab = format!("{load}[path]\nrtt = \"1ms\"\n[server]\ncommand = \"true\"\n");
    let read = |text: &str| Plan::from_toml(text, "test");
    assert_eq!(read(load).unwrap().watch.at, Some(WatchAt::None));
    assert_eq!(read(&lab).unwrap().watch.at, Some(WatchAt::Server));
    let message = |at: &str| read(&format!("{lab}[watch]\nat = \"{at}\"\n")).map(|plan| plan.watch.at);
    assert_eq!(message("both").unwrap(), Some(WatchAt::Both));
    assert!(message("client").unwrap_err().to_string().contains("client"));
    let refused = |text: String, word: &str| {
        let message = read(&text).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    };
    refused(format!("{load}[watch]\nat = \"server\"\n"), "--rtt 0ms");
    refused(format!("{lab}[watch]\nsnaplen = \"127B\"\n"), "--watch-snaplen");
    refused(format!("{lab}[watch]\nring = \"1KiB\"\n"), "ring");
    refused(format!("{lab}[watch]\ncolour = \"red\"\n"), "colour");
    refused(format!("{load}[watch]\ntap = true\n[host]\nengine = \"io_uring\"\n"), "--tap");
    let unix = load.replacen("[load]\n", "[load]\nunix = \"/s\"\n", 1);
    refused(format!("{unix}[watch]\ntap = true\n"), "Unix socket");
    Plan::from_toml(&format!("{load}[watch]\ntap = true\n[host]\nengine = \"epoll\"\n"), "test").unwrap();
}

/// io_uring would deliver TLS records as the response, and every request would end by its timeout.
#[test]
fn io_uring_is_refused_with_tls() {
    let read = |url: &str, engine: &str| {
        Plan::from_toml(&format!("[load]\nurl = \"{url}\"\nduration = \"1s\"\n[host]\nengine = \"{engine}\"\n"), "test")
    };
    let refused = read("https://h/", "io_uring").unwrap_err().to_string();
    assert!(refused.contains("--engine") && refused.contains("epoll"), "{refused}");
    for (url, engine) in [("http://h/", "io_uring"), ("https://h/", "auto"), ("https://h/", "epoll")] {
        read(url, engine).unwrap();
    }
}

#[test]
fn a_proxy_excludes_addresses_of_the_url_host() {
    let read = |load: &str, target: &str| {
        Plan::from_toml(
            &format!("[load]\nurl = \"http://h/\"\nduration = \"1s\"\n{load}\n[target]\n{target}\n"),
            "test",
        )
    };
    let (proxy, addresses) = ("proxy = \"me:secret@p:3128\"", "addresses = [\"192.0.2.7\"]");
    let refused = read(proxy, addresses).unwrap_err().to_string();
    assert!(refused.contains("--to") && refused.contains("--proxy") && !refused.contains("secret"), "{refused}");
    assert!(read(proxy, "").is_ok() && read("", addresses).is_ok());
}

/// Effects of a path are options and keys of the same names; an unknown key is refused with the list of keys, on its
/// line.
#[cfg(feature = "cli")]
#[test]
fn path_effects_are_options_and_keys_of_the_same_name() {
    use clap::{Args, FromArgMatches};

    let command = || PathPlan::augment_args(clap::Command::new("bench").no_binary_name(true));
    let parse = |words: &[&str]| command().try_get_matches_from(words).map_err(|error| error.to_string());
    let words = ["--rtt", "48ms", "--reorder", "1%", "--corrupt", "0.1%", "--loss", "ge:1%,30%", "--jitter", "2ms"];
    let plan = PathPlan::from_arg_matches(&parse(&words).unwrap()).unwrap();
    let text = toml::to_string(&plan).unwrap();
    let expected = "rtt = \"48ms\"\njitter = \"2ms\"\nloss = \"ge:0.01,0.3,100%,0\"\ncorrupt = 0.001\n\
                    reorder = \"0.01,5ms\"\noffload = true\n";
    assert_eq!(text, expected);
    assert_eq!(toml::from_str::<PathPlan>(&text).unwrap(), plan);
    let refused = parse(&["--corrupt", "1"]).unwrap_err();
    assert!(refused.contains("'--corrupt <P>'") && refused.contains("1% or 100%?"), "{refused}");
    let error = toml::from_str::<PathPlan>("rtt = \"1ms\"\nspeed = 1\n").unwrap_err();
    assert_eq!(error.span().map(|span| span.start), Some(12), "{error}");
    assert!(error.message().starts_with("unknown field `speed`, expected one of `profile`, `rtt`"), "{error}");
    assert!(error.message().contains("`reorder`") && !error.message().contains("`delay`"), "{error}");
    let help = command().render_help().to_string();
    let order = ["--rtt", "--jitter", "--loss", "--corrupt", "--duplicate", "--reorder", "--up"];
    let places: Vec<usize> = order.iter().map(|option| help.find(&format!(" {option} <")).unwrap()).collect();
    assert!(places.is_sorted(), "{help}");
}
