//! A batch script of Slurm: an array with a task for each shard.

use anyhow::{Result, ensure};
use plan::Plan;

use crate::args::Manifests;

/// Ends the plan in the script.
const END: &str = "YAMABIKO_PLAN";

/// The script. It contains the plan; files that the plan names must exist on every node.
///
/// # Errors
/// A plan with a line that would end the plan in the script.
pub(super) fn script(plan: &Plan, manifests: &Manifests) -> Result<String> {
    let text = plan.to_toml();
    ensure!(text.lines().all(|line| line != END), "the plan has a line `{END}`, which ends the plan in the script");
    let (name, last, cores) = (&plan.name, manifests.shards - 1, plan.host.threads + 1);
    let (count, at, text) = (manifests.shards, manifests.start_at, text.trim_end());
    Ok(format!(
        "#!/bin/sh\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --array=0-{last}\n\
         #SBATCH --nodes=1\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --cpus-per-task={cores}\n\
         #SBATCH --exclusive\n\
         #SBATCH --no-requeue\n\
         # Each task stores the run of one shard in $YAMABIKO_RUNS; then: yamabiko merge RUN..\n\
         set -eu\n\
         umask 077\n\
         plan=$(mktemp)\n\
         trap 'rm -f \"$plan\"' EXIT\n\
         cat > \"$plan\" <<'{END}'\n{text}\n{END}\n\
         yamabiko run \"$plan\" --shard \"$SLURM_ARRAY_TASK_ID/{count}\" --start-at {at}\n"
    ))
}
