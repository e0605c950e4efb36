//! The script of `manifests --slurm`, run by a real Slurm: munged, slurmctld and two nodes' slurmd, all of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::machines::{Lan, SERVER, served};
use crate::support::document::{assert_checks_passed, count};
use crate::support::workspace::{Running, Workspace, set_mode, str_of, wait_until, yamabiko};

const ADDRESS: &str = "192.0.2.20";
const NODES: usize = 2;

/// Slurm in one machine's network; its processes end with the test, the tasks' too.
struct Slurm {
    configuration: PathBuf,
    _daemons: Vec<Running>,
}

impl Slurm {
    fn start(workspace: &Workspace, lan: &Lan) -> Slurm {
        let dir = workspace.path().join("slurm");
        for folder in ["", "state", "spool", "munge"] {
            fs::create_dir(dir.join(folder)).unwrap();
            set_mode(&dir.join(folder), 0o755);
        }
        let configuration = dir.join("slurm.conf");
        fs::write(&configuration, configuration_of(&dir)).unwrap();
        let mut daemons = vec![munged(workspace, lan, &dir)];
        let settings = ["-D", "-f", str_of(&configuration)];
        daemons.push(workspace.start_command(lan.machines[0].command("slurmctld", &settings)));
        for node in 0..NODES {
            let name = format!("n{node}");
            // In a PID namespace, so that its tasks end with it.
            let own = ["-f", "-p", "--mount-proc", "--kill-child", "slurmd", "-N", &name];
            daemons.push(workspace.start_command(lan.machines[0].command("unshare", &[&own[..], &settings].concat())));
        }
        let slurm = Slurm { configuration, _daemons: daemons };
        wait_until("both nodes are idle", || {
            let listed = slurm.run(workspace, lan, &["sinfo", "-h", "-o", "%T %D"]).finish();
            listed.stdout.trim() == format!("idle {NODES}")
        });
        slurm
    }

    /// Starts one of Slurm's commands.
    fn run(&self, workspace: &Workspace, lan: &Lan, words: &[&str]) -> Running {
        let configuration = format!("SLURM_CONF={}", self.configuration.display());
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/bin", yamabiko().parent().unwrap().display());
        let arguments = [&[configuration.as_str(), &path][..], words].concat();
        workspace.start_command(lan.machines[0].command("env", &arguments))
    }
}

fn munged(workspace: &Workspace, lan: &Lan, dir: &Path) -> Running {
    let file = |name: &str| dir.join("munge").join(name).display().to_string();
    fs::write(file("key"), [7; 1024]).unwrap();
    set_mode(Path::new(&file("key")), 0o400);
    let names =
        [("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed")];
    let options = names.map(|(option, name)| format!("--{option}={}", file(name)));
    let arguments: Vec<&str> =
        ["--foreground", "--force"].into_iter().chain(options.iter().map(String::as_str)).collect();
    let running = workspace.start_command(lan.machines[0].command("munged", &arguments));
    wait_until("munged listens", || Path::new(&file("socket")).exists());
    running
}

fn configuration_of(dir: &Path) -> String {
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let dir = dir.display();
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}({ADDRESS})\nSlurmctldPort=16817\nAuthType=auth/munge\n\
         AuthInfo=socket={dir}/munge/socket\nCryptoType=crypto/munge\nMpiDefault=none\n\
         ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nReturnToService=2\nSlurmUser=root\nSlurmdUser=root\n\
         StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool/%n\nSlurmctldPidFile={dir}/slurmctld.pid\n\
         SlurmdPidFile={dir}/%n.pid\nSlurmdParameters=config_overrides\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\nAccountingStorageType=accounting_storage/none\n\
         JobAcctGatherType=jobacct_gather/none\nPartitionName=test Nodes=ALL Default=YES State=UP\n"
    );
    for node in 0..NODES {
        text += &format!("NodeName=n{node} NodeHostname={host} NodeAddr={ADDRESS} Port={} CPUs=4\n", 17_001 + node);
    }
    text
}

#[test]
fn slurm_runs_the_array_and_its_runs_merge_into_one_load() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let slurm = Slurm::start(&workspace, &lan);
    let plan = workspace.file("plan.toml");
    let text =
        format!("[load]\nurl = \"http://{SERVER}/10k.bin\"\nrate = \"100/s\"\nduration = \"3s\"\nwarmup = \"0s\"\n");
    fs::write(&plan, text).unwrap();
    let at = SystemTime::now() + Duration::from_secs(15);
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
    let count_of_shards = NODES.to_string();
    let script = workspace
        .run(&["manifests", str_of(&plan), "--shards", &count_of_shards, "--start-at", &at, "--slurm"])
        .success();
    let file = workspace.file("job.sh");
    fs::write(&file, script.stdout).unwrap();
    let out = workspace.file("");
    let batch = slurm.run(&workspace, &lan, &["sbatch", "--wait", "-D", str_of(&out), str_of(&file)]).finish();
    let outputs = || {
        let files = fs::read_dir(workspace.file("")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| str_of(path).contains("slurm-")).map(|path| fs::read_to_string(path).unwrap())
    };
    // 3: a run that the machine's noise made invalid.
    assert!(matches!(batch.code, Some(0 | 3)), "{batch}\n{}", outputs().collect::<String>());
    let runs: Vec<PathBuf> = fs::read_dir(workspace.runs()).unwrap().map(|run| run.unwrap().path()).collect();
    assert_eq!(runs.len(), NODES, "{}", outputs().collect::<String>());
    let arguments: Vec<&str> = ["merge", "--json"].into_iter().chain(runs.iter().map(str_of)).collect();
    let merged = workspace.run_json(&arguments);
    assert_checks_passed(&merged, &["shards_complete", "shards_ended_together", "shards_cover_schedule"]);
    assert_eq!((count(&merged, "load.offered_requests"), served(&workspace)), (300, 300));
}
