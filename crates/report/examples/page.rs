//! Prints the page of a run, without the command line program: `cargo run -p report --example page -- RUN_FOLDER >
//! page.html`.

use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("expected the folder of a run")?;
    let sources = report::run_page::Sources::read(Path::new(&dir))?;
    std::io::stdout().write_all(report::run_page::page(&sources).into_html().as_bytes())?;
    Ok(())
}
