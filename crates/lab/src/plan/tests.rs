//! A plan is printed and read back without change, and what contradicts itself is refused.

use proptest::option;
use proptest::prelude::*;

use units::{BitRate, Bytes, Probability};

use super::*;

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![1u64..1_000_000_000_000, (1u64..100_000).prop_map(|ms| ms * 1_000_000)].prop_map(Duration::from_nanos)
}

fn bit_rate() -> impl Strategy<Value = BitRate> {
    (1u64..1_000_000_000_000).prop_filter_map("in range", BitRate::from_bits_per_second)
}

fn load() -> impl Strategy<Value = LoadPlan> {
    let method = prop_oneof![Just(Method::Get), Just(Method::Head), Just(Method::Post)];
    let http = prop_oneof![Just(HttpVersion::Http10), Just(HttpVersion::Http11)];
    let rate = (1e-6f64..1e9).prop_filter_map("in range", RequestRate::from_per_second);
    let arrivals = prop_oneof![Just(ArrivalKind::Constant), Just(ArrivalKind::Poisson)];
    let what =
        (".{0,40}", method, option::of("[^\\x00]{1,20}"), prop::collection::vec(".{0,20}", 0..3), http, any::<bool>());
    let how_much =
        (option::of(rate), arrivals, option::of(1u32..100_000), 1u32..60_000, option::of(1u64..), option::of(time()));
    (what, how_much, [time(), time(), time()]).prop_map(|(what, how_much, [warmup, connect_timeout, timeout])| {
        let (url, method, body, headers, http, close) = what;
        let (rate, arrivals, connections, clients, requests, duration) = how_much;
        LoadPlan {
            url,
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
        }
    })
}

fn path() -> impl Strategy<Value = PathPlan> {
    let queue = prop_oneof![
        (0u64..1_000_000_000_000_000).prop_map(|bytes| Queue::Bytes(Bytes(bytes))),
        time().prop_map(Queue::Time)
    ];
    let loss = (0.0f64..=1.0).prop_filter_map("in range", Probability::new);
    let profile = option::of("[a-z./-]{1,20}");
    (
        profile,
        option::of(time()),
        option::of(time()),
        option::of(loss),
        option::of(bit_rate()),
        bit_rate(),
        option::of(queue),
        any::<bool>(),
    )
        .prop_map(|(profile, rtt, variation, loss, up, down, queue, offload)| PathPlan {
            // Without a profile a variation lies within the RTT.
            variation: if profile.is_none() {
                variation.map(|time| time.min(rtt.unwrap_or_default() / 2))
            } else {
                variation
            },
            profile,
            rtt,
            loss,
            up,
            down: Some(down),
            queue,
            offload,
        })
}

fn server() -> impl Strategy<Value = ServerPlan> {
    let share = (1_000_000u64..100_000_000_000)
        .prop_filter_map("in range", |micro| format!("{}%", micro as f64 / 1e6).parse().ok());
    (" *[a-z'\"\\\\$]{1,40}", option::of(share), option::of(1u32..1000), option::of("[a-z]{1,8}"), time()).prop_map(
        |(command, cpu, initcwnd, cc, start_timeout)| ServerPlan {
            command,
            cpu,
            tcp: ServerTcp { initcwnd, cc },
            start_timeout,
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let wait = prop_oneof![Just(Wait::Sleep), Just(Wait::Hybrid), Just(Wait::Spin)];
    let placement = prop_oneof![Just(Placement::Split), Just(Placement::Float)];
    let slo = prop_oneof![Just("p99 < 200ms"), Just("p99.9<=1s , errors < 0.1%"), Just("mean < 3us")];
    let lab = option::of((path(), server()));
    let at = prop_oneof![Just(WatchAt::Server), Just(WatchAt::Both), Just(WatchAt::None)];
    let watch = (at, 128u64..=65_536, 65_536u64..=1 << 30);
    ("[a-zA-Z0-9_-]{1,40}", any::<u64>(), load(), lab, watch, wait, placement, option::of(slo)).prop_map(
        |(name, seed, load, lab, (at, snap, ring), wait, placement, slo)| {
            let (path, server) = lab.unzip();
            let at = Some(if server.is_some() { at } else { WatchAt::None });
            let watch = WatchPlan { at, snap: Bytes(snap), ring: Bytes(ring) };
            let slo = slo.map(|typed| typed.parse().unwrap());
            Plan { name, seed, load, path, server, watch, host: HostPlan { wait, placement }, slo }
        },
    )
}

proptest! {
    #[test]
    fn a_plan_reads_back(plan in plan()) {
        prop_assert_eq!(plan.check().map_err(|error| error.to_string()), Ok(()));
        let text = plan.to_toml();
        let back = Plan::from_toml(&text, "printed").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&back, &plan, "\n{}", text);
        prop_assert_eq!(back.to_toml(), text);
    }

    /// Whatever is in the file, reading it is a refusal on one line or a plan.
    #[test]
    fn no_text_is_too_much(text in "(\\[(load|path|server)\\]\n|[a-z]{1,8} = [-0-9a-z\"{}\\[\\]]{0,12}\n|.){0,12}") {
        if let Err(error) = Plan::from_toml(&text, "plan.toml") {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}

/// Where nothing is said, the wire is watched where there is an end to watch it at.
#[test]
fn the_witness_follows_the_server() {
    let load = "[load]\nurl = \"http://server/\"\nduration = \"1s\"\n";
    let lab = format!("{load}[path]\nrtt = \"1ms\"\n[server]\ncommand = \"true\"\n");
    let read = |text: &str| Plan::from_toml(text, "test");
    assert_eq!(read(load).unwrap().watch.at, Some(WatchAt::None));
    assert_eq!(read(&lab).unwrap().watch.at, Some(WatchAt::Server));
    let said = |at: &str| read(&format!("{lab}[watch]\nat = \"{at}\"\n")).map(|plan| plan.watch.at);
    assert_eq!(said("both").unwrap(), Some(WatchAt::Both));
    assert!(said("client").unwrap_err().to_string().contains("client"));
    let refused = |text: String, word: &str| {
        let said = read(&text).unwrap_err().to_string();
        assert!(said.contains(word), "{said}");
    };
    refused(format!("{load}[watch]\nat = \"server\"\n"), "--server");
    refused(format!("{lab}[watch]\nsnap = \"127B\"\n"), "--watch-snap");
    refused(format!("{lab}[watch]\nring = \"1KiB\"\n"), "ring");
    refused(format!("{lab}[watch]\ncolour = \"red\"\n"), "colour");
}
