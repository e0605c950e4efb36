//! Differences between two machines, fact by fact.

use std::collections::BTreeMap;

use schema::compare_part::HostDifference;
use schema::document::Host;

/// The facts in which two machines or their settings differ. CPU steal is a measured figure and not included.
pub(crate) fn differences(a: &Host, b: &Host) -> Vec<HostDifference> {
    let (a, b) = (facts(a), facts(b));
    let mut differ = Vec::new();
    for (fact, machine) in a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>() {
        let key = (fact.clone(), *machine);
        if a.get(&key) != b.get(&key) {
            differ.push(HostDifference {
                fact: fact.clone(),
                a: a.get(&key).cloned(),
                b: b.get(&key).cloned(),
                machine: *machine,
            });
        }
    }
    // Facts that make it another machine come first.
    differ.sort_by_key(|one| !one.machine);
    differ
}

/// By name, and whether the fact belongs to the machine itself.
fn facts(host: &Host) -> BTreeMap<(String, bool), String> {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, machine: bool, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert((name.to_owned(), machine), value);
        }
    };
    fact("kernel", true, Some(host.kernel.clone()));
    fact("cpu", true, Some(host.cpu.clone()));
    fact("cores", true, Some(host.cores.to_string()));
    fact("memory_bytes", true, Some(host.memory_bytes.to_string()));
    fact("client_cores", false, host.client_cores.clone());
    fact("server_cores", false, host.server_cores.clone());
    for (name, value) in host.settings.iter().filter(|(name, _)| !FIGURES.contains(&name.as_str())) {
        fact(&format!("settings.{name}"), false, Some(value.clone()));
    }
    facts
}

/// Settings that are measured figures of the run.
const FIGURES: [&str; 2] = ["loop_busy", "watch"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_differences_list_the_machine_first_and_exclude_figures() {
        let setting = |value: &str| BTreeMap::from([("class".to_owned(), value.to_owned())]);
        let mut a = Host { kernel: "6.1".into(), cores: 2, settings: setting("fifo"), ..Host::default() };
        a.settings.insert("loop_busy".to_owned(), "11 %".to_owned());
        let b = Host {
            kernel: "6.18".into(),
            client_cores: Some("1".into()),
            settings: setting("other"),
            steal_share: Some(0.5),
            ..a.clone()
        };
        let differing = differences(&a, &b);
        let names: Vec<&str> = differing.iter().map(|one| one.fact.as_str()).collect();
        assert_eq!(names, ["kernel", "client_cores", "settings.class"]);
        assert_eq!(
            (differing[1].a.as_deref(), differing[1].b.as_deref(), differing[1].machine),
            (None, Some("1"), false)
        );
        assert!(differences(&a, &Host { steal_share: Some(0.1), ..a.clone() }).is_empty());
    }
}
