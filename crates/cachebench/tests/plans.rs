//! Every published example is valid: sweeps and workloads in `plans/`, and the workload on the documentation page.

use std::fs;
use std::path::Path;

use cachebench::{CachePlan, time};
use plan::CacheWorkloadPlan;
use polymix::CacheWorkload;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Files of a folder whose names begin with `prefix`.
fn files(folder: &str, prefix: &str) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(workspace().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    files.sort();
    files
}

#[test]
fn example_cache_plans_round_trip() {
    let files = files("plans", "cache-");
    assert_eq!(files.len(), 8, "{files:?}");
    for file in files {
        let origin = file.display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let mut plan = CachePlan::from_toml(&text, &origin).unwrap_or_else(|error| panic!("{origin}: {error}"));
        let printed = plan.to_toml();
        let back =
            CachePlan::from_toml(&printed, "printed").unwrap_or_else(|error| panic!("{origin}: {error}\n{printed}"));
        assert_eq!(back, plan, "{origin}");
        plan.find_files_from(file.parent().unwrap());
        // The workload is valid, and the time of the sweep can be estimated.
        let lasts = time(&plan).unwrap_or_else(|error| panic!("{origin}: {error}"));
        assert!((30..1800).contains(&lasts.as_secs()), "{origin}: {lasts:?}");
    }
}

#[test]
fn example_workload_files_are_valid() {
    let files = files("plans/workloads", "");
    assert!(!files.is_empty());
    for file in files {
        let plan = CacheWorkloadPlan { file: Some(file.clone()), ..CacheWorkloadPlan::default() };
        plan.spec().unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    }
}

#[test]
fn workload_on_the_documentation_page_is_valid() {
    let page = fs::read_to_string(workspace().join("docs/concepts/polymix.md")).unwrap();
    let examples: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 1);
    let workload: CacheWorkload = toml::from_str(examples[0]).unwrap();
    workload.check().unwrap();
}

#[test]
fn workloads_aim_at_the_documented_hit_ratios() {
    for (name, hits) in
        [("polymix-1", 0.55), ("polymix-2", 0.55), ("polymix-4", 0.55), ("gateway-prepared", 0.9), ("gateway-new", 0.0)]
    {
        let spec = CacheWorkload::named(name).unwrap();
        let aims = spec.document_hit_ratio();
        assert!((aims - hits).abs() < 0.01, "{name} aims at {aims}");
    }
}
