//! Tokens: made, listed, revoked, and found again when they are shown.
//!
//! A token is `NAME.SECRET`: the name so that people can tell which it is, the secret 32 random bytes in base64url. Only the SHA-256
//! of the whole is kept, so that whoever reads the index cannot come in with what is there. A secret of 256 random bits needs no
//! slow hash: it cannot be guessed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::data::Data;
use crate::error::{Error, Result};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One agent's own: it hands over what it saw, and reads nothing.
    Agent,
    /// Reads what the manager has, and changes settings, groups and rules.
    Operator,
    /// Reads.
    Reader,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Agent, Role::Operator, Role::Reader];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Operator => "operator",
            Role::Reader => "reader",
        }
    }

    /// Of what [`as_str`](Self::as_str) wrote.
    pub fn of(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A token as a list shows it. Moments are ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Whose it is.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// When it was made.
    pub made_at_ns: u64,
    /// When it was revoked; `None`: it is good.
    pub revoked_at_ns: Option<u64>,
    /// When it was last shown, to the minute.
    pub used_at_ns: Option<u64>,
}

/// Makes a token, and returns its text: there is no other way to learn it.
///
/// # Errors
/// The name is none, there is a good token of this name and role, or the index cannot be changed.
pub fn add(data: &Data, name: &str, role: Role, now_ns: u64) -> Result<String> {
    if !tap_protocol::is_name(name) {
        return Err(Error::Refused(
            "a name must be 1 to 63 of a-z, 0-9, `-`, `.` and `_`, and start with a letter or digit: for example \
             shop-7"
                .to_owned(),
        ));
    }
    let mut secret = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut secret).map_err(|_| Error::Random)?;
    let text = format!("{name}.{}", URL_SAFE_NO_PAD.encode(secret));
    data.change(|index| {
        let taken = index
            .query_row(
                "SELECT 1 FROM tokens WHERE name = ?1 AND role = ?2 AND revoked_at IS NULL",
                params![name, role.as_str()],
                |_| Ok(()),
            )
            .optional()?;
        if taken.is_some() {
            return Err(Error::Refused(format!(
                "the {} {name} already has a valid token: revoke it first (token revoke {name}), or choose another \
                 name",
                role.as_str()
            )));
        }
        index.execute(
            "INSERT INTO tokens (name, role, digest, made_at) VALUES (?1, ?2, ?3, ?4)",
            params![name, role.as_str(), digest(text.as_bytes()), signed(now_ns)],
        )?;
        Ok(())
    })?;
    Ok(text)
}

/// All that were ever made, by name; of one name the newest first.
///
/// # Errors
/// SQLite's.
pub fn list(data: &Data) -> Result<Vec<Listed>> {
    data.read(|index| {
        let mut statement = index.prepare(
            "SELECT name, role, made_at, revoked_at, used_at FROM tokens ORDER BY name, role, made_at DESC, rowid DESC",
        )?;
        let rows = statement.query_map([], |row| {
            let moment = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(i64::unsigned_abs));
            Ok(Listed {
                name: row.get(0)?,
                role: Role::of(&row.get::<_, String>(1)?).unwrap_or(Role::Reader),
                made_at_ns: moment(2)?.unwrap_or(0),
                revoked_at_ns: moment(3)?,
                used_at_ns: moment(4)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}

/// Revokes the good tokens of this name, of this role or of any, and returns how many there were. They are worth nothing with the next
/// request, on connections that are open as well.
///
/// # Errors
/// There was none, or the index cannot be changed.
pub fn revoke(data: &Data, name: &str, role: Option<Role>, now_ns: u64) -> Result<usize> {
    let revoked = data.change(|index| {
        index.execute(
            "UPDATE tokens SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL AND (?3 IS NULL OR role = ?3)",
            params![name, signed(now_ns), role.map(Role::as_str)],
        )
    })?;
    match revoked {
        0 => Err(Error::Unknown { kind: "good token", name: tap_protocol::shown(name) }),
        revoked => Ok(revoked),
    }
}

/// SHA-256 of a token's text.
pub(crate) fn digest(text: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whose good token has this digest.
pub(crate) fn find(index: &Connection, digest: &[u8; 32]) -> Result<Option<(String, Role)>> {
    let mut statement =
        index.prepare_cached("SELECT name, role FROM tokens WHERE digest = ?1 AND revoked_at IS NULL")?;
    let found =
        statement.query_row([digest], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).optional()?;
    // A role that this version does not know opens nothing.
    Ok(found.and_then(|(name, role)| Some((name, Role::of(&role)?))))
}

/// Notes that good tokens were shown.
pub(crate) fn note_uses(index: &Connection, uses: &[(String, Role, u64)]) -> rusqlite::Result<()> {
    let mut statement = index.prepare_cached(
        "UPDATE tokens SET used_at = max(coalesce(used_at, 0), ?3) WHERE name = ?1 AND role = ?2 AND revoked_at IS NULL",
    )?;
    uses.iter().try_for_each(|(name, role, at)| statement.execute(params![name, role.as_str(), signed(*at)]).map(drop))
}

/// As SQLite keeps it.
pub(crate) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

const SECRET_BYTES: usize = 32;
/// Bytes of a token's text at most: a name, a point, and 43 characters.
pub(crate) const TEXT_MAX: usize = 63 + 1 + 43;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_revoked_and_only_its_hash_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::beside(folder.path(), true).unwrap();
        let text = add(&data, "shop-7", Role::Agent, 5).unwrap();
        assert!(text.starts_with("shop-7.") && text.len() == "shop-7.".len() + 43 && text.len() <= TEXT_MAX);
        let found = |text: &str| data.read(|index| find(index, &digest(text.as_bytes()))).unwrap();
        assert_eq!(found(&text), Some(("shop-7".to_owned(), Role::Agent)));
        assert_eq!(found(&text[..text.len() - 1]), None);
        assert!(add(&data, "shop-7", Role::Agent, 6).unwrap_err().to_string().contains("revoke it first"));
        let reads = add(&data, "shop-7", Role::Reader, 6).unwrap();
        assert_eq!(revoke(&data, "shop-7", Some(Role::Agent), 7).unwrap(), 1);
        assert_eq!((found(&text), found(&reads).map(|(_, role)| role)), (None, Some(Role::Reader)));
        assert!(matches!(revoke(&data, "shop-7", Some(Role::Agent), 8), Err(Error::Unknown { .. })));
        let again = add(&data, "shop-7", Role::Agent, 9).unwrap();
        assert_ne!(again, text);
        let all = list(&data).unwrap();
        assert_eq!(all.iter().map(|token| token.revoked_at_ns).collect::<Vec<_>>(), [None, Some(7), None]);
        for file in std::fs::read_dir(folder.path()).unwrap().flatten().filter(|file| file.path().is_file()) {
            let bytes = std::fs::read(file.path()).unwrap();
            let secret = text.split_once('.').unwrap().1.as_bytes();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{:?}", file.path());
        }
    }

    #[test]
    fn token_names_are_validated() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::beside(folder.path(), true).unwrap();
        for name in ["", "Shop", "a/b", "a\nb", "é"] {
            assert!(matches!(add(&data, name, Role::Agent, 1), Err(Error::Refused(_))), "{name:?}");
        }
        assert!(list(&data).unwrap().is_empty());
    }
}
