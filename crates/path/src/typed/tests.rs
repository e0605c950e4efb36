//! Printed values read back; an invalid value is rejected with the expected form.

use std::time::Duration;

use proptest::prelude::*;
use units::{BitRate, Bytes, Probability};

use super::*;
use crate::spec::{ChangeKind, CoDel, Discipline, Factor, GilbertElliott, Pie, QueueLimit, Reorder};

fn probability() -> impl Strategy<Value = Probability> {
    (0.0f64..=1.0).prop_filter_map("in range", Probability::new)
}

fn time() -> impl Strategy<Value = Duration> {
    (1u64..1_000_000_000_000).prop_map(Duration::from_nanos)
}

fn change() -> impl Strategy<Value = PlannedChange> {
    let factor = || (1e-6f64..1e6).prop_filter_map("in range", Factor::new);
    let kind = prop_oneof![
        Just(ChangeKind::Outage),
        factor().prop_map(ChangeKind::Rate),
        probability().prop_map(ChangeKind::Loss)
    ];
    let class = proptest::option::of("[a-z0-9_.-]{1,8}".prop_filter("a name", |name| name != "shared"));
    let whole = (time(), proptest::option::of(time()), class.clone(), any::<bool>(), kind)
        .prop_map(|(at, duration, class, shared, kind)| PlannedChange { at, duration, class, shared, kind });
    let rtt = (time(), class, factor()).prop_map(|(at, class, factor)| PlannedChange {
        at,
        duration: None,
        class,
        shared: false,
        kind: ChangeKind::Delay(factor),
    });
    let kind = prop_oneof![Just(ChangeKind::Rebind), Just(ChangeKind::Migrate)];
    let class = proptest::option::of("[a-z0-9_.-]{1,8}".prop_filter("a name", |name| name != "shared"));
    let moves = (time(), class, kind).prop_map(|(at, class, kind)| PlannedChange {
        at,
        duration: None,
        class,
        shared: false,
        kind,
    });
    prop_oneof![whole, rtt, moves]
}

/// A value in a file.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct File<T> {
    value: T,
}

fn through_file<T: serde::Serialize + serde::de::DeserializeOwned>(value: T) -> T {
    let text = toml::to_string(&File { value }).unwrap();
    toml::from_str::<File<T>>(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).value
}

proptest! {
    #[test]
    fn printed_loss_reads_back_to_the_same_value(p in probability(), r in probability(), bad in probability(), good in probability()) {
        let bursts = Loss::Bursts(GilbertElliott { to_bad: p, to_good: r, loss_bad: bad, loss_good: good });
        for loss in [Loss::Even(p), bursts] {
            prop_assert_eq!(loss.to_string().parse::<Loss>().unwrap(), loss);
            prop_assert_eq!(through_file(loss), loss);
        }
    }

    #[test]
    fn printed_queue_and_rate_read_back_to_the_same_value(
        bytes in 0u64..1_000_000_000_000_000,
        packets in 1u32..,
        first in time(),
        second in time(),
        p in probability(),
        rate in 1u64..1_000_000_000_000,
    ) {
        for limit in [QueueLimit::Bytes(Bytes(bytes)), QueueLimit::Packets(packets), QueueLimit::Time(first)] {
            prop_assert_eq!(limit.to_string().parse::<QueueLimit>().unwrap(), limit);
            prop_assert_eq!(through_file(limit), limit);
        }
        let disciplines = [
            Discipline::DropTail,
            Discipline::CoDel(CoDel { target: first, interval: second }),
            Discipline::Pie(Pie { target: first, update: second.max(Duration::from_micros(100)) }),
            Discipline::Pie(Pie::default()),
        ];
        for discipline in disciplines {
            prop_assert_eq!(discipline.to_string().parse::<Discipline>().unwrap(), discipline);
            prop_assert_eq!(through_file(discipline), discipline);
        }
        let reorder = Reorder { probability: p, by: first };
        prop_assert_eq!(reorder.to_string().parse::<Reorder>().unwrap(), reorder);
        prop_assert_eq!(through_file(reorder), reorder);
        for rate in [Rate::Constant(BitRate::from_bits_per_second(rate).unwrap()), Rate::Trace("a folder/t.txt".into())] {
            prop_assert_eq!(&rate.to_string().parse::<Rate>().unwrap(), &rate);
            prop_assert_eq!(through_file(rate.clone()), rate);
        }
    }

    #[test]
    fn printed_change_reads_back_to_the_same_value(change in change()) {
        prop_assert_eq!(&change.to_string().parse::<PlannedChange>().unwrap(), &change);
        prop_assert_eq!(through_file(change.clone()), change);
    }
}

#[test]
fn typed_forms_parse_to_the_expected_values() {
    let half = Probability::new(0.5).unwrap();
    let bursts = Loss::Bursts(GilbertElliott {
        to_bad: Probability::new(0.01).unwrap(),
        to_good: half,
        loss_bad: Probability::new(1.0).unwrap(),
        loss_good: Probability::ZERO,
    });
    assert_eq!("ge:1%, 50%".parse(), Ok(bursts));
    let table = "value = { gilbert_elliott = { to_bad = 0.01, to_good = \"50%\" } }";
    assert_eq!(toml::from_str(table), Ok(File { value: bursts }));
    assert_eq!(toml::from_str("value = 0.5"), Ok(File { value: Loss::Even(half) }));
    assert_eq!(toml::from_str("value = \"100%\""), Ok(File { value: Loss::Even(Probability::new(1.0).unwrap()) }));
    assert_eq!("100packets".parse(), Ok(QueueLimit::Packets(100)));
    assert_eq!("1%".parse(), Ok(Reorder { probability: Probability::new(0.01).unwrap(), by: REORDER_BY }));
    assert_eq!("codel".parse(), Ok(Discipline::CoDel(CoDel::default())));
    let target = Duration::from_millis(20);
    assert_eq!("pie:20ms".parse(), Ok(Discipline::Pie(Pie { target, ..Pie::default() })));
    assert_eq!(
        toml::from_str("value = { pie = { target = \"20ms\" } }"),
        Ok(File { value: "pie:20ms".parse::<Discipline>().unwrap() })
    );
    assert_eq!("trace:t".parse(), Ok(Rate::Trace("t".into())));
    let change: PlannedChange = "10s for 3s: outage".parse().unwrap();
    assert_eq!((change.at, change.duration), (Duration::from_secs(10), Some(Duration::from_secs(3))));
    assert_eq!((change.class, change.shared, change.kind), (None, false, ChangeKind::Outage));
    let change: PlannedChange = "10s in far: rebind".parse().unwrap();
    assert_eq!((change.class.as_deref(), change.kind), (Some("far"), ChangeKind::Rebind));
    for typed in ["10s for 3s: rebind", "10s in shared: migrate"] {
        assert!(typed.parse::<PlannedChange>().unwrap_err().contains("leave `for` and `shared` out"), "{typed}");
    }
}

#[test]
fn invalid_value_is_rejected_with_the_expected_form() {
    for (typed, part) in [
        ("ge:1%", "from 2 to 4"),
        ("ge:1%,2", "2% or 200%?"),
        ("1", "1% or 100%?"),
        ("100%", ""),
        ("x", "gilbert_elliott"),
    ] {
        match typed.parse::<Loss>() {
            Ok(_) => assert!(part.is_empty(), "{typed}"),
            Err(error) => assert!(!part.is_empty() && error.contains(part) && error.contains("ge:P,R"), "{error}"),
        }
    }
    for typed in ["fq", "codel:", "codel:0ms", "codel:1ms,2ms,3ms", "drop-tail:1ms", "pie:5", "pie:15ms,99us"] {
        assert!(typed.parse::<Discipline>().unwrap_err().contains("codel[:TARGET[,INTERVAL]]"), "{typed}");
    }
    let table = "value = { pie = { update = \"1ns\" } }";
    assert!(toml::from_str::<File<Discipline>>(table).unwrap_err().message().contains("100us"));
    for typed in ["0 packets", "-1 packets", "10", "x"] {
        assert!(typed.parse::<QueueLimit>().unwrap_err().contains("100 packets"), "{typed}");
    }
    assert!("2,5ms".parse::<Reorder>().unwrap_err().contains("1%,5ms"));
    assert!("1%,5".parse::<Reorder>().unwrap_err().contains("1%,5ms"));
    assert!("trace:".parse::<Rate>().unwrap_err().contains("names no file"));
    for typed in [
        "outage",
        "10: outage",
        "10s: outages",
        "10s for: outage",
        "10s for 0s: outage",
        "10s in: outage",
        "10s far: outage",
        "10s in far away: outage",
        "10s: rtt 2",
        "10s: rtt x0",
        "10s: rate xNaN",
        "10s: loss 101%",
        "10s in shared: rtt x2",
    ] {
        let error = typed.parse::<PlannedChange>().unwrap_err();
        assert!(error.contains(&format!("`{typed}`")) && error.contains("AT [for TIME]"), "{error}");
    }
}
