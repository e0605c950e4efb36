//! Tokens: created, listed, revoked, and verified.
//!
//! A token is `NAME.SECRET`: the name for people, the secret 32 random bytes in base64url. Only the SHA-256 of the
//! whole token is stored, so a reader of the index cannot use it. A secret of 256 random bits needs no slow hash: it
//! cannot be guessed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::data::Data;
use crate::error::{Error, Result};

/// Role of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One agent: sends its own data, and reads nothing.
    Agent,
    /// Reads data, and changes settings, groups and rules.
    Operator,
    /// Reads data.
    Reader,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Agent, Role::Operator, Role::Reader];

    /// Name as written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Operator => "operator",
            Role::Reader => "reader",
        }
    }

    /// Parses a name of [`as_str`](Self::as_str).
    pub fn of(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A token in a list. Times are ns since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the token.
    pub name: String,
    /// Role of the token.
    pub role: Role,
    /// When it was created.
    pub made_at_ns: u64,
    /// When it was revoked; `None`: it is valid.
    pub revoked_at_ns: Option<u64>,
    /// When it was last used, to the minute.
    pub used_at_ns: Option<u64>,
}

/// Creates a token, and returns its text, which is available only here.
///
/// # Errors
/// The name is invalid, it already has a valid token of this role, or the index cannot be changed.
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

/// All tokens ever created, by name; of one name the newest first.
///
/// # Errors
/// SQLite's.
pub fn list(data: &Data) -> Result<Vec<Listed>> {
    data.read(|index| {
        let mut statement = index.prepare(
            "SELECT name, role, made_at, revoked_at, used_at FROM tokens ORDER BY name, role, made_at DESC, rowid DESC",
        )?;
        let rows = statement.query_map([], |row| {
            let unix_ns = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(i64::unsigned_abs));
            Ok(Listed {
                name: row.get(0)?,
                role: Role::of(&row.get::<_, String>(1)?).unwrap_or(Role::Reader),
                made_at_ns: unix_ns(2)?.unwrap_or(0),
                revoked_at_ns: unix_ns(3)?,
                used_at_ns: unix_ns(4)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}

/// Revokes the valid tokens of this name, of one role or of any, and returns their number. They are rejected from the
/// next request on, on open connections as well.
///
/// # Errors
/// No valid token has this name, or the index cannot be changed.
pub fn revoke(data: &Data, name: &str, role: Option<Role>, now_ns: u64) -> Result<usize> {
    let revoked = data.change(|index| {
        index.execute(
            "UPDATE tokens SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL AND (?3 IS NULL OR role = ?3)",
            params![name, signed(now_ns), role.map(Role::as_str)],
        )
    })?;
    match revoked {
        0 => Err(Error::Unknown { kind: "active token", name: tap_protocol::printable(name) }),
        revoked => Ok(revoked),
    }
}

/// SHA-256 of a token's text.
pub(crate) fn digest(text: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The name and role of the valid token with this digest.
pub(crate) fn find(index: &Connection, digest: &[u8; 32]) -> Result<Option<(String, Role)>> {
    let mut statement =
        index.prepare_cached("SELECT name, role FROM tokens WHERE digest = ?1 AND revoked_at IS NULL")?;
    let found =
        statement.query_row([digest], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).optional()?;
    // A role that this version does not know gives no access.
    Ok(found.and_then(|(name, role)| Some((name, Role::of(&role)?))))
}

/// Records the use of valid tokens.
pub(crate) fn note_uses(index: &Connection, uses: &[(String, Role, u64)]) -> rusqlite::Result<()> {
    let mut statement = index.prepare_cached(
        "UPDATE tokens SET used_at = max(coalesce(used_at, 0), ?3) WHERE name = ?1 AND role = ?2 AND revoked_at IS NULL",
    )?;
    uses.iter().try_for_each(|(name, role, at)| statement.execute(params![name, role.as_str(), signed(*at)]).map(drop))
}

/// Converts to a signed integer of SQLite.
pub(crate) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Maximum bytes of a token: a name, a point, and 43 characters.
pub(crate) const TEXT_MAX: usize = 63 + 1 + 43;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_revoked_and_only_its_hash_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open_shared(folder.path(), true).unwrap();
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
        let data = Data::open_shared(folder.path(), true).unwrap();
        for name in ["", "Shop", "a/b", "a\nb", "é"] {
            assert!(matches!(add(&data, name, Role::Agent, 1), Err(Error::Refused(_))), "{name:?}");
        }
        assert!(list(&data).unwrap().is_empty());
    }
}
