//! An operator of NATS with one account and one user, whose credentials are a file: what `nsc` makes for a cluster.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::workspace::{Workspace, str_of};

/// Files of a server and a client.
pub struct Accounts {
    /// nats-server's configuration, with JetStream.
    pub config: PathBuf,
    /// The user's credentials, for `NATS_CREDS`.
    pub credentials: PathBuf,
    /// Credentials of a user whose account the operator did not sign.
    pub foreign: PathBuf,
}

impl Accounts {
    /// Makes the files in the workspace.
    pub fn new(workspace: &Workspace) -> Accounts {
        let operator = KeyPair::new_operator();
        let [account, system, other] = [(); 3].map(|()| KeyPair::new_account());
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let of_account = |key: &KeyPair, name: &str, limits: &Value| {
            let claims = json!({ "limits": limits, "type": "account", "version": 2 });
            token(&operator, &key.public_key(), name, claims)
        };
        // The system's account has no JetStream.
        let mut without = limits.clone();
        for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
            without[limit] = 0.into();
        }
        let claims = json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
        let config = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n\
             jetstream {{ store_dir: {} }}\n",
            token(&operator, &operator.public_key(), "operator", claims),
            system.public_key(),
            system.public_key(),
            of_account(&system, "system", &without),
            account.public_key(),
            of_account(&account, "load", &limits),
            str_of(&workspace.file("nats-accounts")),
        );
        let write = |name: &str, text: String| {
            let file = workspace.file(name);
            fs::write(&file, text).unwrap();
            file
        };
        Accounts {
            config: write("nats.conf", config),
            credentials: write("load.creds", credentials(&account)),
            foreign: write("foreign.creds", credentials(&other)),
        }
    }
}

/// A user of this account.
fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = json!({
        "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
    });
    let token = token(account, &user.public_key(), "shard", claims);
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    )
}

/// A signed token (JWT) with these claims of NATS.
fn token(issuer: &KeyPair, subject: &str, name: &str, claims: Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let head = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let body = json!({
        "jti": name, "iat": now, "iss": issuer.public_key(), "name": name, "sub": subject, "nats": claims,
    });
    let signed = [head, body].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}
