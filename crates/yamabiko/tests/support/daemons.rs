//! Servers other than web servers: configuration files in the workspace, the start command and the port. The servers
//! run as children of the testbed from a folder of the test, not as services of the machine.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use nix::unistd::User;

use super::workspace::{Workspace, set_mode, str_of};

/// A server's command and its port.
pub struct Daemon {
    pub command: String,
    pub port: u16,
}

/// Makes another user the owner of a file or folder.
fn set_owner(path: &Path, name: &str) {
    let user = User::from_name(name)
        .unwrap()
        .unwrap_or_else(|| panic!("user {name} does not exist: is its package installed?"));
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
}

fn folder(workspace: &Workspace, name: &str, owner: &str) -> String {
    let path = workspace.path().join(name);
    fs::create_dir_all(&path).unwrap();
    set_owner(&path, owner);
    str_of(&path).to_owned()
}

/// POP3 by dovecot, with three messages of 20 KB; any user, password `secret`.
pub fn dovecot(workspace: &Workspace) -> Daemon {
    let home = folder(workspace, "dovecot", "root");
    for kind in ["mail", "mail/new", "mail/cur", "mail/tmp"] {
        folder(workspace, &format!("dovecot/{kind}"), "nobody");
    }
    for number in 1..=3 {
        let file = workspace.path().join(format!("dovecot/mail/new/{number}.host"));
        let line = format!("{number} of three: every line of this message says so\r\n");
        let text = format!("From: a@server\r\nTo: b@server\r\nSubject: {number}\r\n\r\n{}", line.repeat(400));
        fs::write(&file, text).unwrap();
        set_owner(&file, "nobody");
    }
    let text = format!(
        "base_dir = {home}/run\nstate_dir = {home}/state\nlog_path = {home}/log\nprotocols = pop3\nlisten = *\nssl = no\n\
         disable_plaintext_auth = no\nmail_location = maildir:{home}/mail\nfirst_valid_uid = 1\n\
         passdb {{\n  driver = static\n  args = password=secret\n}}\n\
         userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home={home}\n}}\n\
         service pop3-login {{\n  inet_listener pop3 {{\n    port = 1110\n  }}\n  \
         inet_listener pop3s {{\n    port = 0\n  }}\n}}\n"
    );
    let configuration = workspace.path().join("dovecot.conf");
    fs::write(&configuration, text).unwrap();
    Daemon { command: format!("exec dovecot -F -c {}", str_of(&configuration)), port: 1110 }
}

/// SMTP by postfix, which accepts and discards every message.
pub fn postfix(workspace: &Workspace) -> Daemon {
    let home = folder(workspace, "postfix", "root");
    folder(workspace, "postfix/etc", "root");
    folder(workspace, "postfix/spool", "root");
    folder(workspace, "postfix/data", "postfix");
    let main = format!(
        "compatibility_level = 3.6\nqueue_directory = {home}/spool\ndata_directory = {home}/data\n\
         command_directory = /usr/sbin\ndaemon_directory = /usr/lib/postfix/sbin\nmail_owner = postfix\n\
         setgid_group = postdrop\nmyhostname = server\nmydestination = server\ninet_interfaces = all\n\
         inet_protocols = ipv4\nmynetworks = 127.0.0.0/8 198.18.0.0/15\nalias_maps =\nalias_database =\n\
         local_recipient_maps =\nlocal_transport = discard:\ndefault_transport = discard:\n\
         smtpd_tls_security_level = none\nsmtpd_peername_lookup = no\nmaillog_file = {home}/log\n\
         maillog_file_prefixes = /\n"
    );
    let services = [
        "2525 inet n - n - - smtpd",
        "cleanup unix n - n - 0 cleanup",
        "qmgr unix n - n 300 1 qmgr",
        "rewrite unix - - n - - trivial-rewrite",
        "bounce unix - - n - 0 bounce",
        "defer unix - - n - 0 bounce",
        "trace unix - - n - 0 bounce",
        "proxymap unix - - n - - proxymap",
        "anvil unix - - n - 1 anvil",
        "discard unix - - n - - discard",
        "error unix - - n - - error",
        "retry unix - - n - - error",
        "scache unix - - n - 1 scache",
        "postlog unix-dgram n - n - 1 postlogd",
    ];
    fs::write(format!("{home}/etc/main.cf"), main).unwrap();
    fs::write(format!("{home}/etc/master.cf"), services.join("\n") + "\n").unwrap();
    // `postfix check` makes the folders of the queue. The master process stays in the foreground.
    let command = format!("postfix -c {home}/etc check && exec /usr/lib/postfix/sbin/master -s -c {home}/etc");
    Daemon { command, port: 2525 }
}

/// sshd, for root with the key `ssh/key`; its host key is in `ssh/known`.
pub fn sshd(workspace: &Workspace) -> Daemon {
    let home = folder(workspace, "ssh", "root");
    set_mode(Path::new(&home), 0o700);
    for key in ["host", "key"] {
        let file = format!("{home}/{key}");
        let status = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file]).status().unwrap();
        assert!(status.success());
    }
    let public = |key: &str| fs::read_to_string(format!("{home}/{key}.pub")).unwrap();
    fs::write(format!("{home}/authorized"), public("key")).unwrap();
    fs::write(format!("{home}/known"), format!("[server]:2222 {}", public("host"))).unwrap();
    let text = format!(
        "Port 2222\nHostKey {home}/host\nAuthorizedKeysFile {home}/authorized\nPermitRootLogin yes\nStrictModes no\n\
         UsePAM no\nPidFile none\nUseDNS no\n"
    );
    fs::write(format!("{home}/sshd_config"), text).unwrap();
    Daemon { command: format!("mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e -f {home}/sshd_config"), port: 2222 }
}

/// Redis, without persistence.
pub fn redis(workspace: &Workspace) -> Daemon {
    let home = folder(workspace, "redis", "root");
    let options = "--port 6379 --bind 0.0.0.0 --protected-mode no --save '' --appendonly no --daemonize no";
    Daemon { command: format!("exec redis-server {options} --dir {home}"), port: 6379 }
}

/// PostgreSQL with a new database, without authentication.
pub fn postgres(workspace: &Workspace) -> Daemon {
    let home = folder(workspace, "postgres", "postgres");
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed").flatten();
    let programs = versions.map(|entry| entry.path().join("bin")).max().unwrap();
    let as_user = |command: &str| {
        format!("setpriv --reuid postgres --regid postgres --clear-groups {}/{command}", programs.display())
    };
    let initialise = as_user(&format!("initdb -D {home}/data -A trust -N"));
    let status = Command::new("sh").args(["-c", &format!("{initialise} > {home}/log 2>&1")]).status().unwrap();
    assert!(status.success(), "{}", fs::read_to_string(format!("{home}/log")).unwrap());
    fs::write(format!("{home}/data/pg_hba.conf"), "host all all all trust\n").unwrap();
    // A server killed with its namespace would leave files in /dev/shm.
    let memory = "-c dynamic_shared_memory_type=mmap";
    let options =
        format!("-D {home}/data -c listen_addresses=* -c unix_socket_directories={home} -c fsync=off {memory}");
    Daemon { command: format!("exec {}", as_user(&format!("postgres {options}"))), port: 5432 }
}
