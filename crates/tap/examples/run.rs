//! Runs a command under the interposer and prints every event: `cargo run -p tap --example run -- curl ..`.

use std::process::Command;
use std::time::Duration;

use tap::folder::Folder;
use tap::rings::{Capacity, Rings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or("usage: run COMMAND ..")?;
    let folder = Folder::create(None)?;
    let mut rings = Rings::create(&folder, sys::clock::Clock::start(), Capacity::default())?;
    let preload = std::env::var_os("LD_PRELOAD");
    let mut child = Command::new(program).args(arguments).envs(folder.environment(preload.as_deref())).spawn()?;
    let quiet = std::env::var_os("QUIET").is_some();
    let mut events = 0_usize;
    loop {
        let ended = child.try_wait()?.is_some();
        events += rings.drain(&mut |event| {
            if !quiet {
                eprintln!("{}.{} {:?}", event.origin.image, event.origin.tid, event.what);
            }
        });
        if ended {
            break;
        }
        #[allow(clippy::disallowed_methods, reason = "an example waits for its child")]
        std::thread::sleep(Duration::from_millis(2));
    }
    eprintln!("{events} events");
    Ok(())
}
