use path::{Discipline, QueueLimit};

use super::*;

fn plan(lines: &str) -> PathPlan {
    toml::from_str(lines).unwrap_or_else(|error| panic!("{error}\n{lines}"))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn the_name_of_a_path_has_all_replaced_parts() {
    let plan = plan(
        r#"
        profile = "lan"
        rtt = "30ms"
        jitter = "1ms"
        loss = { gilbert_elliott = { to_bad = 0.01, to_good = 0.5 } }
        corrupt = "1%"
        duplicate = 0.02
        reorder = "1%,2ms"
        up = "1Mbit"
        down = "10Mbit"
        queue = "64 packets"
        aqm = "codel"
        changes = [{ at = "10s", for = "3s", outage = true }, { at = "2s", rtt = "x2" }]
        "#,
    );
    assert_eq!(
        name(&plan),
        "lan, rtt 30ms, jitter 1ms, loss ge:0.01,0.5,100%,0, corrupt 1%, duplicate 2%, reorder 1% by 2ms, up 1Mbit, \
         down 10Mbit, queue 64 packets, codel, at 10s for 3s: outage, at 2s: rtt x2"
    );
    let spec = spec(&plan, 3).unwrap();
    assert_eq!((spec.clients.len(), spec.changes.len()), (3, 2));
    let link = &spec.clients[2].down;
    assert_eq!((link.effects.len(), link.jitter(), link.delay()), (6, ms(1), ms(15)));
    assert!((link.loss() - 0.01 / 0.51).abs() < 1e-12);
    let queue = link.bottlenecks().next().unwrap().queue;
    assert_eq!((queue.limit, queue.discipline), (QueueLimit::Packets(64), "codel".parse::<Discipline>().unwrap()));
}

#[test]
fn the_longest_rtt_includes_changes() {
    let longest = |lines: &str| longest_rtt(&spec(&plan(lines), 2).unwrap());
    assert_eq!(longest("rtt = \"30ms\""), ms(30));
    assert_eq!(longest("rtt = \"30ms\"\njitter = \"2ms\"\nreorder = \"1%,5ms\""), ms(44));
    assert_eq!(
        longest("rtt = \"30ms\"\nchanges = [{ at = \"1s\", rtt = \"x2\" }, { at = \"2s\", rtt = \"x0.1\" }]"),
        ms(60)
    );
    assert_eq!(longest("rtt = \"30ms\"\nchanges = [{ at = \"1s\", rtt = \"x1000000\" }]"), RTT_MAX);
    let two = |second: &str| {
        longest(&format!(
            "rtt = \"30ms\"\nchanges = [{{ at = \"1s\", for = \"1s\", rtt = \"x2\" }}, {{ at = \"{second}\", rtt = \"x3\" }}]"
        ))
    };
    assert_eq!((two("2s"), two("1999ms")), (ms(90), ms(180)), "changes one after the other, and simultaneous changes");
    let grace = grace(&spec(&plan("rtt = \"30ms\""), 1).unwrap());
    assert_eq!(grace, ms(145));
}

#[test]
fn changes_without_effect_are_refused() {
    let refused = |lines: &str| spec(&plan(lines), 2).unwrap_err().to_string();
    assert!(refused("rtt = \"3ms\"\nchanges = [{ at = \"1s\", rate = \"x2\" }]").contains("without a rate"));
    assert!(refused("rtt = \"0s\"\nchanges = [{ at = \"1s\", rtt = \"x2\" }]").contains("RTT is 0"));
    assert!(
        refused("rtt = \"3ms\"\nchanges = [{ at = \"1s\", clients = \"far\", rtt = \"x2\" }]")
            .contains("no class `far`")
    );
    assert!(
        refused("rtt = \"3ms\"\nchanges = [{ at = \"1s\", shared = true, outage = true }]")
            .contains("no [shared] link")
    );
    assert!(refused("rtt = \"3ms\"\ndown = \"trace:/nowhere/t\"").contains("/nowhere/t"));
    assert!(spec(&plan("rtt = \"3ms\"\nup = \"1Mbit\"\nchanges = [{ at = \"1s\", rate = \"x2\" }]"), 2).is_ok());
}

#[test]
fn an_origin_is_one_more_client() {
    let clients = spec(&plan("rtt = \"30ms\""), 3).unwrap();
    let origin = |lines: &str| toml::from_str::<OriginPlan>(lines).unwrap();
    let far = with_origin(&clients, Some(&origin("path = { rtt = \"80ms\", loss = 0.0005 }"))).unwrap();
    assert_eq!((far.clients.len(), &far.clients[..3]), (4, &clients.clients[..]));
    assert_eq!((far.clients[3].rtt(), far.clients[3].up.loss(), far.clients[3].down.loss()), (ms(80), 0.0005, 0.0005));
    let near = with_origin(&clients, Some(&origin(""))).unwrap();
    assert!(near.clients[3].rtt().is_zero());
    assert_eq!(with_origin(&clients, None).unwrap().clients.len(), 3);
    // A link shared by all clients also carries the origin's packets; a link of some clients does not.
    let shared = |members| path::SharedSpec { members, up: Vec::new(), down: Vec::new() };
    let lines = PathSpec { shared: vec![shared(0..3), shared(0..2)], ..clients };
    let both = with_origin(&lines, Some(&origin(""))).unwrap();
    assert_eq!(both.shared.iter().map(|shared| shared.members.clone()).collect::<Vec<_>>(), [0..4, 0..2]);
    let changing = origin("path = { rtt = \"80ms\", changes = [{ at = \"1s\", rtt = \"x2\" }] }");
    assert!(with_origin(&lines, Some(&changing)).is_err());
}
