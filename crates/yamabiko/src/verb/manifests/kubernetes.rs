//! A Kubernetes Indexed Job: each pod is a shard, by its completion index. As JSON, which `kubectl apply` reads.

use anyhow::{Result, ensure};
use plan::Plan;
use serde_json::{Value, json};

use super::files;
use crate::args::Manifests;

/// Largest plan in a ConfigMap or Secret.
const PLAN_BYTES_MAX: usize = 1 << 20;
/// Memory of a pod: a shard's histograms, queues and connections.
const MEMORY: &str = "2Gi";
/// User of pods without privilege.
const NOBODY: u32 = 65_534;

/// The plan's ConfigMap (a Secret, if the plan has credentials) and the Job.
///
/// # Errors
/// A plan that names files, or is too large.
pub(super) fn list(plan: &Plan, manifests: &Manifests) -> Result<Value> {
    let files = files(plan);
    ensure!(
        files.is_empty(),
        "the plan reads files ({}), which a ConfigMap of the plan does not have: put their contents into the plan, or the \
         files into the image",
        files.join(", ")
    );
    let text = plan.to_toml();
    ensure!(text.len() <= PLAN_BYTES_MAX, "the plan has {} bytes: expected at most {PLAN_BYTES_MAX}", text.len());
    let name = name(plan);
    let is_secret = schema::withheld::plan(&text) != text;
    let (kind, data) = if is_secret { ("Secret", "stringData") } else { ("ConfigMap", "data") };
    let mut carried = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    carried[data] = json!({"plan.toml": text});
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": [carried, job(plan, manifests, &name, is_secret)]}))
}

/// A name as Kubernetes allows it: lower case, digits and `-`, at most 52 characters, so that the pods' names fit.
fn name(plan: &Plan) -> String {
    let lower = plan.name.to_ascii_lowercase().replace('_', "-");
    let short: String = lower.trim_matches('-').chars().take(52).collect();
    let short = short.trim_end_matches('-');
    if short.is_empty() { "yamabiko".into() } else { short.to_owned() }
}

fn job(plan: &Plan, manifests: &Manifests, name: &str, is_secret: bool) -> Value {
    let labels = json!({"app.kubernetes.io/name": "yamabiko", "app.kubernetes.io/instance": name});
    let image = manifests.image.clone().unwrap_or_else(|| format!("yamabiko:{}", env!("CARGO_PKG_VERSION")));
    // A core for each loop and one for the recorder. Whole cores with equal limits are exclusive where the node's CPU
    // manager is static.
    let resources = json!({"cpu": (plan.host.threads + 1).to_string(), "memory": MEMORY});
    let plan_volume = if is_secret {
        json!({"name": "plan", "secret": {"secretName": name}})
    } else {
        json!({"name": "plan", "configMap": {"name": name}})
    };
    let mut volumes =
        vec![plan_volume, json!({"name": "runs", "persistentVolumeClaim": {"claimName": manifests.results}})];
    let mut mounts = vec![
        json!({"name": "plan", "mountPath": "/plan", "readOnly": true}),
        json!({"name": "runs", "mountPath": "/runs"}),
    ];
    if plan.path.is_some() {
        volumes.push(json!({"name": "tun", "hostPath": {"path": "/dev/net/tun", "type": "CharDevice"}}));
        mounts.push(json!({"name": "tun", "mountPath": "/dev/net/tun"}));
    }
    let (count, at) = (manifests.shards, manifests.start_at);
    let container = json!({
        "name": "yamabiko",
        "image": image,
        "args": [
            "run", "/plan/plan.toml", format!("--shard=$(JOB_COMPLETION_INDEX)/{count}"), format!("--start-at={at}")
        ],
        "env": [
            // The job's controller sets it; declared, it is certain to be expanded in the arguments.
            {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
                "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            }}},
            {"name": "YAMABIKO_RUNS", "value": "/runs"}
        ],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": security(plan),
        "volumeMounts": mounts
    });
    // One shard a node: two would share its cores and its network.
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            // A shard that is started again would come after the start.
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "securityContext": pod_security(plan),
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
                    "containers": [container],
                    "volumes": volumes
                }
            }
        }
    })
}

/// What a container may do: with a path, create network namespaces and TUN devices and schedule its loop; otherwise
/// nothing.
fn security(plan: &Plan) -> Value {
    if plan.path.is_some() {
        return json!({"runAsUser": 0, "capabilities": {"add": PATH_CAPABILITIES}});
    }
    json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}})
}

/// Capabilities of a run with a path, in addition to those of a container: the same that the Dockerfile names.
const PATH_CAPABILITIES: [&str; 2] = ["SYS_ADMIN", "NET_ADMIN"];

fn pod_security(plan: &Plan) -> Value {
    if plan.path.is_some() {
        // The default profile forbids the mounts of a network namespace.
        return json!({"appArmorProfile": {"type": "Unconfined"}});
    }
    json!({
        "runAsUser": NOBODY, "runAsGroup": NOBODY, "fsGroup": NOBODY, "seccompProfile": {"type": "RuntimeDefault"}
    })
}
