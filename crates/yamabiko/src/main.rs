//! yamabiko: measures how a web-serving system performs for users who are far away.
//!
//! This crate is the command: it turns arguments into a plan, runs one verb, and prints the result. Each verb has a
//! file in [`verb`]; start with [`verb::bench`].

mod args;
mod command_line;
mod exit;
mod foreign_options;
mod help;
mod left_out;
mod live_child;
mod page_file;
mod progress;
mod several;
mod terminal;
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "only a receiver checks tokens"))]
mod token;
mod verb;

use std::process::ExitCode;

use crate::args::Verb;

fn main() -> ExitCode {
    // The command line of ab is not parsed by clap.
    if let Some(words) = args::ab::words(std::env::args_os()) {
        return exit::code(verb::ab::run(&words));
    }
    if let Some(auto) = args::Auto::of(std::env::args_os()) {
        return match verb::auto::run(&auto) {
            Ok(outcome) => exit::code(outcome),
            Err((error, words)) => exit::usage(&error, &words),
        };
    }
    match args::Matrix::of(std::env::args_os()) {
        Ok(None) => {}
        Ok(Some(matrix)) => {
            return match verb::protocols::parse(matrix) {
                Ok(runs) => exit::code(verb::protocols::run(&runs)),
                Err((error, words)) => exit::usage(&error, &words),
            };
        }
        Err(why) => return exit::code(Err(anyhow::Error::msg(why))),
    }
    let arguments = match help::parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            return exit::usage(&error, &words);
        }
    };
    let outcome = match arguments.verb {
        Verb::Demo(demo) => verb::demo::run(&demo),
        Verb::Bench(bench) => verb::bench::run(&bench),
        Verb::Ab(ab) => verb::ab::run(&ab.words),
        #[cfg(feature = "experiments")]
        Verb::Cache(cache) => verb::cache::run(&cache),
        #[cfg(feature = "experiments")]
        Verb::Disk(disk) => verb::disk::run(&disk),
        #[cfg(feature = "experiments")]
        Verb::Gateway(gateway) => verb::gateway::run(&gateway),
        #[cfg(feature = "experiments")]
        Verb::Capacity(capacity) => verb::capacity::run(*capacity),
        Verb::Explain(explain) => verb::explain::run(&explain),
        #[cfg(feature = "experiments")]
        Verb::Predict(mut predict) => verb::predict::run(&mut predict),
        Verb::Run(run) => verb::run::run(&run),
        Verb::Net(net) => verb::net::run(&net),
        Verb::Profile(profile) => verb::profile::run(&profile),
        Verb::Serve(serve) => verb::serve::run(&serve),
        Verb::Doctor(doctor) => verb::doctor::run(&doctor),
        #[cfg(feature = "experiments")]
        Verb::Compare(compare) => verb::compare::run(*compare),
        Verb::Manifests(manifests) => verb::manifests::run(&manifests),
        #[cfg(feature = "coordination")]
        Verb::Coordinate => verb::coordinate::run(),
        Verb::Merge(merge) => verb::merge::run(&merge),
        Verb::Runs(runs) => verb::runs::run(&runs),
        #[cfg(feature = "web")]
        Verb::Live(live) => verb::live::run(&live),
        Verb::Watch(watch) => verb::watch::run(&watch),
        Verb::Tap(tap) => verb::tap::run(&tap),
        Verb::Report(report) => verb::report::run(&report),
        #[cfg(feature = "export")]
        Verb::Export(export) => verb::export::run(&export),
        Verb::Completions(completions) => verb::completions::run(&completions),
        Verb::Man(man) => verb::man::run(&man),
        #[cfg(feature = "experiments")]
        Verb::Reproduce(reproduce) => verb::reproduce::run(&reproduce),
    };
    exit::code(outcome)
}
