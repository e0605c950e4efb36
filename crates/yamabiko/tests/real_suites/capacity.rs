//! `yamabiko capacity` in the lab, of a server whose capacity is known: 4 workers of 20 ms carry 200/s.

use std::path::Path;

use crate::support::lab::Room;

#[test]
fn a_known_capacity_is_bracketed() {
    let room = Room::new();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/model-server/model.py");
    let server = format!("exec python3 {} --listen 0.0.0.0:8080", model.display());
    let document = room.run_json(&[
        "capacity",
        "http://server:8080/",
        "--server",
        &server,
        "--slo",
        "p90 < 60ms, errors < 1%",
        "--start",
        "120/s",
        "--short",
        "1s",
        "--trial",
        "2s",
        "--confirm",
        "0s",
        "--width",
        "5%",
        "--searches",
        "1",
        "--warmup",
        "300ms",
        "--no-overload",
        "--no-limit",
        "--watch",
        "none",
        "--json",
    ]);
    let part = &document["capacity"];
    let trials = part["trials"].as_array().unwrap();
    if trials.iter().any(|trial| trial["verdict"] == "void") {
        // The machine was busy with something else: then every doubt is told, and no figure is relied upon.
        let said = part["regular"] == true || part["notes"].as_array().is_some_and(|notes| !notes.is_empty());
        assert!(said, "{document:#}");
        return;
    }
    assert_eq!(part["regular"], true, "{document:#}");
    let (lower, upper) =
        (part["searches"][0]["lower"].as_f64().unwrap(), part["searches"][0]["upper"].as_f64().unwrap());
    assert!(lower / 200.0 > 0.94 && upper / 200.0 < 1.06 && lower < upper, "{lower} {upper}");
    // Its processor is idle: what binds it is its number of workers, by Little's law four.
    assert_eq!(part["bound_by"]["name"], "workers", "{part:#}");
    let at_once = part["bound_by"]["figures"]["at_once"].as_f64().unwrap();
    assert!((3.0..6.0).contains(&at_once), "{at_once}");
}
