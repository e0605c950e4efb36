//! Every plan that is shown to a reader is one: those in plans/, and those in the pages on workloads.

use std::fs;
use std::path::Path;

use lab::plan::Plan;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn reads(text: &str, origin: &str) -> Plan {
    let plan = Plan::from_toml(text, origin).unwrap_or_else(|error| panic!("{origin}: {error}"));
    let printed = plan.to_toml();
    let back = Plan::from_toml(&printed, "printed").unwrap_or_else(|error| panic!("{origin}: {error}\n{printed}"));
    assert_eq!(back, plan, "{origin}");
    plan
}

#[test]
fn every_example_plan_can_be_read() {
    let mut read = 0;
    for entry in fs::read_dir(workspace().join("plans")).unwrap() {
        let path = entry.unwrap().path();
        // Sweeps of caches are read by the tests of the suites.
        let is_sweep = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cache-"));
        if path.extension().is_some_and(|extension| extension == "toml") && !is_sweep {
            reads(&fs::read_to_string(&path).unwrap(), &path.display().to_string());
            read += 1;
        }
    }
    assert!(read >= 8, "{read} plans");
}

#[test]
fn every_plan_on_the_page_of_workloads_can_be_read() {
    let page = fs::read_to_string(workspace().join("docs/concepts/workloads.md")).unwrap();
    let examples: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 4);
    for (number, example) in examples.iter().enumerate() {
        let plan = reads(example, &format!("example {number}"));
        plan.load.workload().unwrap();
    }
}
