//! The job of `manifests`, validated against the OpenAPI schema of Kubernetes.

use std::fs;

use crate::support::readers::{python, script};
use crate::support::workspace::{Workspace, str_of};

/// The oldest version that has all fields of the job (`appArmorProfile`), and the newest.
const VERSIONS: [&str; 2] = ["1.30", "1.37"];

const LOAD: &str = "[load]\nurl = \"https://shop.example/\"\nrate = \"100/s\"\nduration = \"5s\"\n";

#[test]
fn kubernetes_jobs_are_valid_by_the_api_s_schema() {
    let workspace = Workspace::concurrent_as_root();
    for (more, kind) in [
        ("", "ConfigMap"),
        // A path needs devices and capabilities.
        ("clients = 40\n[path]\nrtt = \"30ms\"\n[host]\nthreads = 2\n", "ConfigMap"),
        ("headers = [\"Authorization: Bearer secret\"]\n", "Secret"),
    ] {
        let (plan, job) = (workspace.file("plan.toml"), workspace.file("job.json"));
        fs::write(&plan, format!("{LOAD}{more}")).unwrap();
        let options = ["manifests", str_of(&plan), "--shards", "8", "--start-at", "2030-01-01T08:00:00Z"];
        fs::write(&job, workspace.run(&options).success().stdout).unwrap();
        let arguments = [&[str_of(&job)][..], &VERSIONS].concat();
        let output = python(&workspace, &script("kubernetes.py"), &arguments, &[]);
        for version in VERSIONS {
            for kind in [kind, "Job"] {
                assert!(output.stdout.contains(&format!("{version} {kind} is valid")), "{output}");
            }
        }
    }
}
