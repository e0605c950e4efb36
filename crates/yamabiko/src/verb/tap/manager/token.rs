//! `tap manager token`: adds, lists and revokes the tokens of agents and users, also while a manager runs.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use manager::Data;
use manager::tokens::{self, Listed};
use sys::clock::realtime_ns;

use crate::args::{Token, TokenAdd};
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::print;

/// Adds a token, lists tokens, or revokes one.
pub fn run(token: &Token) -> Result<Exit> {
    match token {
        Token::Add(add) => create(add)?,
        Token::List(list) => print(&table(&tokens::list(&*Data::open_shared(&list.data, false)?)?))?,
        Token::Revoke(revoke) => {
            let data = Data::open_shared(&revoke.data, false)?;
            let count = tokens::revoke(&data, &revoke.name, revoke.role.map(Into::into), realtime_ns())?;
            print_message(format_args!("{count} revoked"));
        }
    }
    Ok(Exit::Success)
}

fn create(add: &TokenAdd) -> Result<()> {
    let data = Data::open_shared(&add.data, true)?;
    let now = realtime_ns();
    let Some(path) = &add.output else {
        let text = tokens::add(&data, &add.name, add.role.into(), now)?;
        return print(&(text + "\n"));
    };
    // The file is created first: otherwise a failure would leave a valid token that is written nowhere.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("creating {} (it must not be there yet)", path.display()))?;
    let outcome = tokens::add(&data, &add.name, add.role.into(), now).map_err(anyhow::Error::from).and_then(|text| {
        let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
        written.or_else(|error| {
            // The token could not be written, so it is of no use.
            tokens::revoke(&data, &add.name, Some(add.role.into()), now)?;
            Err(anyhow::Error::from(error).context(format!("writing {}; the token was revoked again", path.display())))
        })
    });
    if outcome.is_err() {
        remove(path);
    }
    outcome
}

/// Removes a file and ignores failures: the error that led here is the one to report.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn table(listed: &[Listed]) -> String {
    let time = |ns: Option<u64>, absent: &str| match ns {
        Some(ns) => store::rfc3339(UNIX_EPOCH + Duration::from_nanos(ns))[..19].replace('T', " "),
        None => absent.to_owned(),
    };
    let width = listed.iter().map(|token| token.name.len()).max().unwrap_or(0).max("NAME".len());
    let mut text = format!("{:width$}  {:8}  {:19}  {:19}  NOW\n", "NAME", "ROLE", "MADE (UTC)", "LAST USED (UTC)");
    for token in listed {
        let _ = writeln!(
            text,
            "{:width$}  {:8}  {:19}  {:19}  {}",
            token.name,
            token.role.as_str(),
            time(Some(token.made_at_ns), "-"),
            time(token.used_at_ns, "never"),
            token.revoked_at_ns.map_or("active".to_owned(), |at| format!("revoked {}", time(Some(at), ""))),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use manager::tokens::Role;

    use super::*;

    #[test]
    fn token_list_is_a_table() {
        let listed = [
            Listed { name: "shop-7".into(), role: Role::Agent, made_at_ns: 0, revoked_at_ns: None, used_at_ns: None },
            Listed {
                name: "a".into(),
                role: Role::Operator,
                made_at_ns: 0,
                revoked_at_ns: Some(1),
                used_at_ns: Some(0),
            },
        ];
        let text = table(&listed);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "shop-7  agent     1970-01-01 00:00:00  never                active");
        assert_eq!(lines[2], "a       operator  1970-01-01 00:00:00  1970-01-01 00:00:00  revoked 1970-01-01 00:00:00");
    }
}
