use super::*;

fn read(text: &str) -> Result<GatewayPlan, String> {
    GatewayPlan::from_toml(text, "plan.toml").map_err(|error| error.to_string())
}

#[test]
fn empty_gateway_table_has_the_five_conditions_and_round_trips() {
    let plan = read("[gateway]").unwrap();
    assert_eq!(plan, GatewayPlan::default());
    assert_eq!(plan.each().len(), 15);
    assert_eq!(plan.each()[1].0, "nat");
    assert_eq!(read(&plan.to_toml()).unwrap(), plan);
}

#[test]
fn example_plan_matches_the_school_gateway_paper() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/gateway-school.toml");
    let plan = read(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((plan.each().len(), plan.trials, &plan.tests[..]), (10, 10, &[TestName::Stream][..]));
    assert_eq!((plan.socket_bytes, plan.message_bytes), (Some(16_384), 16_384));
    assert_eq!(plan.load, ProxyLoading::Wget);
}

#[test]
fn every_key_of_a_gateway_plan_round_trips() {
    let text = "name = \"school\"\nseed = 7\n[gateway]\nconditions = [\"nat\", \"4\"]\nlinks = [\"10Mbit,loss=1%\"]\nshare = \"none\"\n\
                memory = \"64MB\"\ntests = [\"stream\", \"packets\"]\ntrials = 3\nlasts = \"1s\"\ndirection = \"up\"\nsocket_bytes = \"auto\"\n\
                message_bytes = 8192\nsizes = [128]\nloss = \"0.1%\"\nwidth = \"5%\"\nfull = true\nload = \"wget\"\nsetup = \"true\"\n";
    let plan = read(text).unwrap();
    assert_eq!((plan.name.as_str(), plan.seed, plan.share, plan.socket_bytes), ("school", 7, None, None));
    assert_eq!(plan.conditions, [Condition::Nat, Condition::NatProxyLoaded]);
    assert_eq!(plan.load, ProxyLoading::Wget);
    assert_eq!(read(&plan.to_toml()).unwrap(), plan);
}

#[test]
fn plan_of_a_real_gateway_rejects_emulation_keys() {
    let plan = read("[gateway]\nto = \"192.0.2.7\"\nlabel = \"nat\"").unwrap();
    assert_eq!(plan, GatewayPlan { label: Some("nat".into()), ..GatewayPlan::against("192.0.2.7".into()) });
    assert_eq!(plan.each(), [("nat".to_owned(), None)]);
    assert_eq!(read(&plan.to_toml()).unwrap(), plan);
    for labs in
        ["conditions = [\"nat\"]", "links = [\"10Mbit\"]", "share = \"10%\"", "memory = \"64MB\"", "setup = \"true\""]
    {
        let message = read(&format!("[gateway]\nto = \"192.0.2.7\"\n{labs}")).unwrap_err();
        assert!(message.contains("applies to the emulated gateway only"), "{labs}: {message}");
    }
    for remote in ["label = \"x\"", "proxy = \"a:1\"", "gateway_stat = \"x\"", "token_file = \"x\""] {
        let message = read(&format!("[gateway]\n{remote}")).unwrap_err();
        assert!(message.contains("applies to a real gateway only"), "{remote}: {message}");
    }
}

#[test]
fn gateway_plan_limits_are_enforced() {
    let refused = |line: &str| read(&format!("[gateway]\n{line}")).is_err();
    for (inside, outside) in [
        ("sizes = [64, 1500]", "sizes = [63]"),
        ("sizes = [1500]", "sizes = [1501]"),
        ("trials = 1", "trials = 0"),
        ("lasts = \"500ms\"", "lasts = \"499ms\""),
        ("lasts = \"120s\"", "lasts = \"121s\""),
        ("width = \"0.1%\"", "width = \"0.09%\""),
        ("loss = \"50%\"", "loss = \"51%\""),
        ("socket_bytes = 1024", "socket_bytes = 1023"),
        ("socket_bytes = 16777216", "socket_bytes = 16777217"),
        ("message_bytes = 16777216", "message_bytes = 16777217"),
        ("tests = [\"stream\"]", "tests = []"),
        ("tests = [\"stream\"]", "tests = [\"stream\", \"stream\"]"),
        ("tests = [\"stream\"]", "tests = [\"streams\"]"),
        ("load = \"wget\"", "load = \"curl\""),
        ("share = \"1%\"", "share = \"0.9%\""),
        ("conditions = [\"5\"]", "conditions = [\"6\"]"),
        ("message_bytes = 1", "messages_bytes = 1"),
    ] {
        assert!(!refused(inside), "{inside}");
        assert!(refused(outside), "{outside}");
    }
    let message = read("[gateway]\ntrials = 3\nsize = [64]").unwrap_err();
    assert!(message.contains("plan.toml") && message.contains("size"), "{message}");
}
