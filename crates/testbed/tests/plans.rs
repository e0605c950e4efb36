//! Every plan shown to readers is valid: those in plans/, and those in the pages on workloads.

use std::fs;
use std::path::Path;

use plan::Plan;
use sys::signal::Interrupts;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read_plan(text: &str, origin: &str) -> Plan {
    let plan = Plan::from_toml(text, origin).unwrap_or_else(|error| panic!("{origin}: {error}"));
    let printed = plan.to_toml();
    let back = Plan::from_toml(&printed, "printed").unwrap_or_else(|error| panic!("{origin}: {error}\n{printed}"));
    assert_eq!(back, plan, "{origin}");
    plan
}

#[test]
fn every_example_plan_is_valid() {
    let mut read = 0;
    for entry in fs::read_dir(workspace().join("plans")).unwrap() {
        let path = entry.unwrap().path();
        // Sweeps of caches and plans of a gateway are checked by the tests of the crates cachebench and gateway.
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_of_an_experiment = name.starts_with("cache-") || name.starts_with("gateway-");
        if name.ends_with(".toml") && !is_of_an_experiment {
            let mut plan = read_plan(&fs::read_to_string(&path).unwrap(), &path.display().to_string());
            plan.find_files_from(path.parent().unwrap());
            assert_files_exist(&plan, &name);
            read += 1;
        }
    }
    assert!(read >= 8, "{read} plans");
}

/// Checks that the files of the profile and of the server's command exist, whatever the current directory is.
fn assert_files_exist(plan: &Plan, name: &str) {
    let profile = plan.path.iter().filter_map(|path| path.profile.as_ref()).filter(|profile| profile.contains('/'));
    let command = plan.server.as_ref().map_or("", |server| &server.command);
    assert!(!command.contains("$PLAN_FOLDER"), "{name}: {command}");
    let quoted = command.split('"').filter(|word| word.starts_with('/')).map(str::to_owned);
    for file in profile.cloned().chain(quoted) {
        assert!(Path::new(&file).is_absolute() && Path::new(&file).exists(), "{name}: {file}");
    }
}

#[test]
fn every_plan_on_the_page_of_workloads_is_valid() {
    let page = fs::read_to_string(workspace().join("docs/concepts/workloads.md")).unwrap();
    let examples: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 4);
    for (number, example) in examples.iter().enumerate() {
        let plan = read_plan(example, &format!("example {number}"));
        plan.load.workload().unwrap();
    }
}

#[test]
fn a_plan_with_a_capacity_search_is_not_a_run() {
    let plan = read_plan("slo = \"p99 < 1s\"\n[load]\nurl = \"http://127.0.0.1:9/\"\n[capacity]\n", "capacity");
    let interrupts = Interrupts::install().unwrap();
    let error = testbed::bench(&plan, "", None, &interrupts, &mut testbed::NoObserver).unwrap_err().to_string();
    assert!(error.contains("use yamabiko capacity"), "{error}");
}
