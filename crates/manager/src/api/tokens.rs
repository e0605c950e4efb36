//! Tokens in the API. Only for operators: a reader could otherwise learn the names of agents to imitate.

use axum::extract::{Request, State as With};
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};

use super::parameters::{Named, Parameters};
use super::responses::{ApiResponse, body, done, json, refused};
use super::{State, now_ns};
use crate::tokens::{self, Listed, Role};
use tap_protocol::RefusalReason;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    #[serde(default)]
    role: Option<String>,
}

#[derive(Serialize)]
struct CreatedToken {
    name: String,
    role: &'static str,
    /// The token, shown only once.
    token: String,
}

#[derive(Serialize)]
struct Token {
    name: String,
    role: &'static str,
    made_unix_ns: u64,
    revoked_unix_ns: Option<u64>,
    used_unix_ns: Option<u64>,
}

impl From<Listed> for Token {
    fn from(listed: Listed) -> Token {
        let Listed { name, role, made_at_ns, revoked_at_ns, used_at_ns } = listed;
        Token {
            name,
            role: role.as_str(),
            made_unix_ns: made_at_ns,
            revoked_unix_ns: revoked_at_ns,
            used_unix_ns: used_at_ns,
        }
    }
}

#[derive(Serialize)]
struct Tokens {
    tokens: Vec<Token>,
}

/// `GET /api/1/tokens`
pub(super) async fn list(With(state): With<State>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let all = state.change(tokens::list).await?;
    let mut tokens: Vec<Token> = all.into_iter().map(Token::from).collect();
    // Valid tokens first, then the most recently revoked.
    tokens.sort_by_key(|token| (token.revoked_unix_ns.is_some(), std::cmp::Reverse(token.revoked_unix_ns)));
    tokens.truncate(TOKENS_MAX);
    Ok(json(&Tokens { tokens }))
}

/// `POST /api/1/tokens`
pub(super) async fn make(With(state): With<State>, uri: Uri, request: Request) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    let request_body: NewToken = body(request).await?;
    let role = match request_body.role.as_deref() {
        None => Role::Agent,
        Some(text) => Role::of(text).ok_or_else(|| {
            refused(
                RefusalReason::InvalidValue,
                "`role`: expected agent, operator or \
         reader.",
            )
        })?,
    };
    let name = request_body.name.clone();
    let token = state.change(move |data| tokens::add(data, &name, role, now_ns())).await?;
    let created = CreatedToken { name: request_body.name, role: role.as_str(), token };
    Ok((StatusCode::CREATED, json(&created)).into_response())
}

/// `DELETE /api/1/tokens/{name}`
pub(super) async fn revoke(With(state): With<State>, Named(name): Named<String>, uri: Uri) -> ApiResponse<Response> {
    Parameters::of(&uri, &[])?;
    state.change(move |data| tokens::revoke(data, &name, None, now_ns())).await?;
    Ok(done())
}

/// Maximum listed tokens, without those revoked long ago.
const TOKENS_MAX: usize = 10_000;
