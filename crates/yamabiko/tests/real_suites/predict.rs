//! `yamabiko predict` of its own server, held to a tenth of a core: what binds it is known beforehand. How near the figure comes is for the
//! bench to say, which has a quiet machine.

use crate::support::document::number;
use crate::support::lab::Room;
use crate::support::servers::own;

#[test]
fn the_share_of_a_core_binds() {
    let room = Room::new();
    let server = format!("{} --threads 1", own(&room));
    let mut words = vec!["predict", "http://server:8080/10k.bin", "--server", &server, "--server-cpu", "10%"];
    words.extend(["--loads", "3", "--load-time", "300ms", "--warmup", "100ms", "--no-memory", "--json"]);
    let document = room.run_json(&words);
    let predict = &document["predict"];
    let kinds: Vec<&str> =
        predict["loads"].as_array().unwrap().iter().map(|load| load["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "light").count(), 3, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "held").count(), 3, "{kinds:?}");
    assert_eq!(predict["bound_by"], "cpu_quota", "{predict}");
    let rate = number(&document, "predict.rate_per_s");
    assert!(rate > 0.0);
    let limits = predict["limits"].as_array().unwrap();
    assert!(
        limits.iter().any(|limit| limit["resource"] == "cores" && limit["rate_per_s"].as_f64().unwrap() >= rate),
        "{limits:?}"
    );
    // Of three loads on a busy machine the interval may have no upper end, and is then absent.
    if let Some(interval) = predict["interval"].as_array() {
        let [low, high] = [0, 1].map(|end| interval[end].as_f64().unwrap());
        assert!(low <= rate && rate <= high, "{low} {rate} {high}");
    }
    // A request costs something, and less than the whole share in a second. Where the generator could not keep up no load counts as held.
    let demands = predict["demands"].as_array().unwrap();
    let of = |loads: &str| demands.iter().find(|demand| demand["loads"] == loads && demand["resource"] == "processes");
    let seconds = of("held").or_else(|| of("light")).unwrap()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < 0.1, "{demands:?}");
}
