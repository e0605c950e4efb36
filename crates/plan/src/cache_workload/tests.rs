use polymix::{Distribution, Popularity};

use super::*;
use crate::Plan;

const HEAD: &str = "[load]\nurl = \"http://origin.example:8080/\"\nrate = \"40/s\"\nduration = \"1s\"\n";

fn read(rest: &str) -> Result<Plan, String> {
    Plan::from_toml(&format!("{HEAD}{rest}"), "test").map_err(|error| error.to_string())
}

fn mix(rest: &str) -> CacheWorkloadPlan {
    read(&format!("[load.workload]\n{rest}")).unwrap().load.cache_workload.unwrap()
}

#[test]
fn any_field_of_a_built_in_workload_can_be_overridden() {
    let plain = mix("name = \"polymix-4\"").spec().unwrap();
    assert_eq!(plain, CacheWorkload::polymix(4));
    let set = mix("name = \"polymix-4\"\n\
                   set.recurrence = 0.5\n\
                   set.think = \"norm(1s,0.5s)\"\n\
                   set.popularity = { zipf = { alpha = 0.7, objects = 1000 } }\n\
                   set.forms = { reload = 0.25 }\n\
                   set.kinds = [{ name = \"image\", cacheable = 0.5, life = { variance = 0.1 } }]")
    .spec()
    .unwrap();
    assert_eq!(set.recurrence, 0.5);
    assert_eq!(set.think, Some(Distribution::Normal { mean: 1.0, sd: 0.5 }));
    assert!(matches!(set.popularity, Popularity::Zipf { alpha: 0.7, objects: 1000 }), "{:?}", set.popularity);
    assert_eq!((set.forms.reload, set.forms.ims304), (0.25, plain.forms.ims304));
    for (kind, before) in set.kinds.iter().zip(&plain.kinds) {
        let is_image = kind.name == "image";
        assert_eq!(kind.cacheable, if is_image { 0.5 } else { before.cacheable });
        assert_eq!((&kind.size, &kind.life.cycle), (&before.size, &before.life.cycle));
    }
    assert_eq!(set.kinds.len(), plain.kinds.len());
}

#[test]
fn workload_is_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(&file, toml::to_string(&CacheWorkload::polymix(2)).unwrap()).unwrap();
    let mut plan = CacheWorkloadPlan { file: Some(file.clone()), ..CacheWorkloadPlan::default() };
    assert_eq!(plan.spec().unwrap(), CacheWorkload::polymix(2));
    plan.set.insert("name".into(), "mine".into());
    assert_eq!(plan.spec().unwrap().name, "mine");
    std::fs::write(&file, "name = \"bad\"\nrecurrence = 0.1\nnothing = 1\n").unwrap();
    let message = plan.spec().unwrap_err();
    assert!(message.contains("own.toml") && message.contains("nothing"), "{message}");
    plan.file = Some(folder.path().join("none.toml"));
    assert!(plan.spec().unwrap_err().contains("none.toml"));
}

#[test]
fn plan_with_a_workload_round_trips() {
    let plan = read(
        "[load.workload]\nname = \"modern\"\nworld = 77\nsecure = \"127.0.0.1:8443\"\nverify = { one_in = 10 }\n\
         [load.workload.set]\nrecurrence = 0.25\n[load.workload.set.forms]\nreload = 0.5\n",
    )
    .unwrap();
    assert_eq!(Plan::from_toml(&plan.to_toml(), "printed").unwrap(), plan);
    let mix = plan.load.cache_workload.unwrap();
    assert_eq!((mix.world, mix.verify), (Some(77), Verify::OneIn(10)));
}

#[test]
fn settings_that_contradict_a_workload_are_rejected_by_name() {
    for (rest, named) in [
        ("cookies = true\n", "cookies"),
        ("redirects = 2\n", "redirects"),
        ("http = \"2\"\n", "http = \"2\""),
        ("headers = [\"Cache-Control: no-store\"]\n", "Cache-Control"),
        ("headers = [\"accept-encoding: br\"]\n", "accept-encoding"),
        ("basic_auth = \"a:b\"\n", "basic_auth"),
        ("urls = \"list\"\n", "urls"),
        ("expect = { status = \"200\" }\n", "expect"),
    ] {
        let message = read(&format!("{rest}[load.workload]\nname = \"polymix-1\"\n")).unwrap_err();
        assert!(message.contains("[load.workload]") && message.contains(named), "{rest}: {message}");
    }
    for (mix, named) in [
        ("", "name"),
        ("name = \"polymix-1\"\nfile = \"x\"\n", "file"),
        ("name = \"polymix-9\"\n", "polymix-9"),
        ("name = \"polymix-1\"\nset.recurence = 1.0\n", "recurence"),
        ("name = \"polymix-1\"\nset.recurrence = 2.0\n", "polymix-1"),
        ("name = \"polymix-1\"\nset.kinds = [{ name = \"new\" }]\n", "polymix-1"),
        ("name = \"polymix-1\"\nverify = { one_in = 0 }\n", "one_in"),
        ("name = \"polymix-1\"\nseeed = 1\n", "seeed"),
    ] {
        let message = read(&format!("[load.workload]\n{mix}")).unwrap_err();
        assert!(message.contains(named), "{mix}: {message}");
    }
    let closed =
        "[load]\nurl = \"http://o/\"\nduration = \"1s\"\nconnections = 1\n[load.workload]\nname = \"polymix-1\"\n";
    assert!(Plan::from_toml(closed, "test").unwrap_err().to_string().contains("open loop"));
    for url in ["https://o/path", "http://o/path", "ftp://o/"] {
        let text = format!(
            "[load]\nurl = \"{url}\"\nrate = \"1/s\"\nduration = \"1s\"\n[load.workload]\nname = \"polymix-1\"\n"
        );
        assert!(Plan::from_toml(&text, "test").unwrap_err().to_string().contains("HOST:PORT"), "{url}");
    }
}

#[test]
fn reverse_proxy_with_https_uses_tls_for_all_requests() {
    let text = |rest: &str| {
        format!(
            "[load]\nurl = \"https://o/\"\nrate = \"1/s\"\nduration = \"1s\"\n{rest}[load.workload]\nname = \"polymix-4\"\n"
        )
    };
    let plan = Plan::from_toml(&text(""), "test").unwrap();
    plan.check().unwrap();
    assert!(plan.load.secure() && plan.load.tls.is_some(), "as with any https URL");
    let workload = plan.load.cache_workload.as_ref().unwrap().workload(&plan.load, 3, 9).unwrap();
    assert_eq!(workload.requests.len(), CacheWorkload::polymix(4).kinds.len());
    assert!(workload.requests.iter().all(|request| request.target.secure && request.target.port == 443));
    let message = Plan::from_toml(&text("proxy = \"p:1\"\n"), "test").unwrap_err().to_string();
    assert!(message.contains("forward proxy"), "{message}");
    let twice = Plan::from_toml(&format!("{}set.https = 0.5\n", text("")), "test").unwrap();
    let message = twice.load.cache_workload.as_ref().unwrap().workload(&twice.load, 3, 9).unwrap_err();
    assert!(message.contains("set.https"), "{message}");
}

#[test]
fn workload_has_one_request_per_kind_and_scheme() {
    let plan =
        read("[load.workload]\nname = \"polymix-4\"\nset.https = 0.5\nsecure = \"origin.example:8443\"\n").unwrap();
    let workload = plan.load.cache_workload.as_ref().unwrap().workload(&plan.load, 3, 9).unwrap();
    let labels: Vec<&str> = workload.requests.iter().map(RequestSpec::label).collect();
    assert_eq!(labels.len(), 2 * CacheWorkload::polymix(4).kinds.len());
    assert_eq!(labels[labels.len() / 2], format!("{} (https)", labels[0]));
    let (targets, _) = workload.endpoints();
    assert_eq!(
        targets.iter().map(Target::url).collect::<Vec<_>>(),
        ["http://origin.example:8080/", "https://origin.example:8443/"]
    );
    let Choice::CacheWorkload(mix) = workload.choice else { panic!("a mix") };
    assert_eq!((mix.world.seed, mix.world.id, mix.run, mix.requests()), (3, 9, 9, labels.len()));
}
