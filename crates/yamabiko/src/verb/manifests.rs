//! `yamabiko manifests`: what another scheduler needs to run the shards of a load. It prints, and contacts nothing.

mod kubernetes;
mod slurm;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use plan::Plan;

use super::bench::print;
use crate::args;
use crate::exit::Exit;

/// Prints the manifests of a plan.
pub fn run(manifests: &args::Manifests) -> Result<Exit> {
    let origin = manifests.plan.display().to_string();
    let text = std::fs::read_to_string(&manifests.plan)
        .map_err(|error| anyhow::anyhow!("cannot read the plan {origin}: {error}"))?;
    let plan = Plan::from_toml(&text, &origin)?;
    check(&plan, manifests)?;
    print(&text_of(&plan, manifests)?)?;
    Ok(Exit::Success)
}

fn text_of(plan: &Plan, manifests: &args::Manifests) -> Result<String> {
    if manifests.slurm {
        return slurm::script(plan, manifests);
    }
    let list = kubernetes::list(plan, manifests)?;
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// Refuses a plan that its shards would refuse when they begin.
fn check(plan: &Plan, manifests: &args::Manifests) -> Result<()> {
    ensure!(
        plan.shard.shard.is_none(),
        "the plan is that of one shard ([shard] shard): expected the plan of the whole load"
    );
    let mut last = plan.clone();
    let count = manifests.shards;
    last.shard.shard = Some(plan::ShardOf { index: count - 1, count });
    last.shard.start_at = Some(manifests.start_at);
    last.check().with_context(|| format!("{} shards of this plan", manifests.shards))?;
    Ok(())
}

/// Files that the plan names: only the plan itself is carried to the shards.
pub fn files(plan: &Plan) -> Vec<String> {
    let mut plan = plan.clone();
    let mut files: Vec<String> = plan.load.files_mut().map(|file| file.display().to_string()).collect();
    let profile = plan.path.as_ref().and_then(|path| path.profile.clone());
    files.extend(profile.filter(|profile| profile.contains('/') || Path::new(profile).extension().is_some()));
    files
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Verb};

    const PLAN: &str =
        "[load]\nurl = \"http://server.example/\"\nrate = \"80000/s\"\nduration = \"60s\"\nclients = 16\n";
    const PATH: &str = "[path]\nrtt = \"48ms\"\n[host]\nthreads = 3\n";

    pub(super) fn manifests(plan: &str, options: &str) -> Result<String> {
        let words = ["yamabiko", "manifests", "plan.toml", "--start-at", "2030-01-01T00:00:00Z"];
        let arguments = Arguments::try_parse_from(words.into_iter().chain(options.split_whitespace()))?;
        let Verb::Manifests(manifests) = arguments.verb else { unreachable!("manifests was typed") };
        let plan = Plan::from_toml(plan, "plan.toml")?;
        check(&plan, &manifests)?;
        text_of(&plan, &manifests)
    }

    fn list(plan: &str, options: &str) -> serde_json::Value {
        serde_json::from_str(&manifests(plan, options).unwrap()).unwrap()
    }

    #[test]
    fn a_plan_without_a_path_becomes_an_indexed_job_without_privilege() {
        let list = list(PLAN, "--shards 8");
        let [config, job] = &list["items"].as_array().unwrap()[..] else { panic!("{list}") };
        assert_eq!((&list["kind"], &config["kind"]), (&"List".into(), &"ConfigMap".into()));
        let back = Plan::from_toml(config["data"]["plan.toml"].as_str().unwrap(), "carried").unwrap();
        assert_eq!(back, Plan::from_toml(PLAN, "typed").unwrap(), "the plan is carried whole");
        assert_eq!((&job["apiVersion"], &job["kind"]), (&"batch/v1".into(), &"Job".into()));
        let spec = &job["spec"];
        assert_eq!(spec["completionMode"], "Indexed");
        assert_eq!(
            (&spec["completions"], &spec["parallelism"], &spec["backoffLimit"]),
            (&8.into(), &8.into(), &0.into())
        );
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        let container = &pod["containers"][0];
        assert_eq!(
            container["args"],
            serde_json::json!([
                "run",
                "/plan/plan.toml",
                "--shard=$(JOB_COMPLETION_INDEX)/8",
                "--start-at=2030-01-01T00:00:00Z"
            ])
        );
        let names: Vec<&str> =
            container["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["JOB_COMPLETION_INDEX", "YAMABIKO_RUNS"]);
        // Every mount has its volume.
        let named = |list: &serde_json::Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(named(&container["volumeMounts"]), named(&pod["volumes"]));
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"], serde_json::json!({"drop": ["ALL"]}));
        assert_eq!(container["resources"]["requests"], container["resources"]["limits"]);
        let apart = &pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(apart["labelSelector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    }

    #[test]
    fn a_path_needs_the_tun_device_and_its_capabilities() {
        let list = list(&format!("{PLAN}{PATH}"), "--shards 4 --image registry.example/y:1 --results claim");
        let pod = &list["items"][1]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let tun = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "tun").unwrap();
        assert_eq!(tun["hostPath"], serde_json::json!({"path": "/dev/net/tun", "type": "CharDevice"}));
        let added = container["securityContext"]["capabilities"]["add"].as_array().unwrap();
        assert!(added.contains(&"NET_ADMIN".into()) && added.contains(&"SYS_ADMIN".into()));
        assert_eq!(container["resources"]["limits"]["cpu"], "4", "a core for each thread and one for the recorder");
        assert_eq!(container["image"], "registry.example/y:1");
        let runs = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "runs").unwrap();
        assert_eq!(runs["persistentVolumeClaim"]["claimName"], "claim");
    }

    #[test]
    fn a_plan_with_credentials_is_a_secret() {
        let list = list(&format!("{PLAN}basic_auth = \"user:word\"\n"), "--shards 2");
        assert_eq!(list["items"][0]["kind"], "Secret");
        assert!(list["items"][0]["stringData"]["plan.toml"].as_str().unwrap().contains("user:word"));
        assert!(list["items"][1].to_string().contains("\"secretName\":\"run\""));
        assert!(!list["items"][1].to_string().contains("user:word"));
    }

    #[test]
    fn a_slurm_script_is_an_array_with_the_plan_in_it() {
        let script = manifests(PLAN, "--shards 3 --slurm").unwrap();
        assert!(script.starts_with("#!/bin/sh\n#SBATCH --job-name=run\n#SBATCH --array=0-2\n"), "{script}");
        assert!(script.contains("--shard \"$SLURM_ARRAY_TASK_ID/3\" --start-at 2030-01-01T00:00:00Z\n"), "{script}");
        let (_, rest) = script.split_once("<<'YAMABIKO_PLAN'\n").unwrap();
        let (plan, _) = rest.split_once("\nYAMABIKO_PLAN\n").unwrap();
        assert_eq!(Plan::from_toml(plan, "carried").unwrap(), Plan::from_toml(PLAN, "typed").unwrap());
    }

    #[test]
    fn plans_that_shards_would_refuse_are_refused() {
        for (plan, options, words) in [
            (PLAN, "--shards 0", "0 is not in 1..=10000"),
            (&format!("{PLAN}{PATH}"), "--shards 17", "clients = 16"),
            (&format!("{PLAN}urls = \"urls.txt\"\n"), "--shards 2", "urls.txt"),
            (&format!("{PLAN}{PATH}[server]\ncommand = \"x\"\n"), "--shards 2", "--server"),
            (
                &format!("{PLAN}[shard]\nshard = \"0/2\"\nstart_at = \"2030-01-01T00:00:00Z\"\n"),
                "--shards 2",
                "whole load",
            ),
        ] {
            let error = format!("{:#}", manifests(plan, options).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
