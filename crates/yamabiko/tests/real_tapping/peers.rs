//! A server and compiled programs for tests of the tap.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use crate::support::workspace::Workspace;

/// Reads 1,000 bytes and sends 50,000, on any number of connections, until the test process ends.
pub fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 1000];
                while stream.read_exact(&mut request).is_ok() && stream.write_all(&[b'a'; 50_000]).is_ok() {}
            });
        }
    });
    address
}

/// Compiles a C program.
pub fn compiled(workspace: &Workspace, name: &str, source: &str) -> PathBuf {
    let (file, program) = (workspace.file(&format!("{name}.c")), workspace.file(name));
    fs::write(&file, source).unwrap();
    let built = Command::new("cc").args(["-w", "-o"]).args([&program, &file]).status().unwrap();
    assert!(built.success());
    program
}
