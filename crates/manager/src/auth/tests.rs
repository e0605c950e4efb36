use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, WWW_AUTHENTICATE};
use tap_protocol::Refusal;

use super::*;

#[test]
fn a_token_is_accepted_in_one_authorization_header_only() {
    let headers = |fields: &[&str]| {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, HeaderValue::from_str(field).unwrap());
        }
        headers
    };
    assert_eq!(token_of(&headers(&["Bearer a.b"])), Some(&b"a.b"[..]));
    assert_eq!(token_of(&headers(&["bearer a.b"])), Some(&b"a.b"[..]));
    let long = format!("Bearer {}", "x".repeat(tokens::TEXT_MAX + 1));
    for wrong in [&[][..], &["a.b"], &["Basic a.b"], &["Bear"], &["Bearer a", "Bearer b"], &[&long]] {
        assert_eq!(token_of(&headers(wrong)), None, "{wrong:?}");
    }
}

#[test]
fn a_refusal_has_the_json_format_of_the_protocol() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut refused = Refused::new(RefusalReason::AlreadyStored, "It is stored.");
        refused.stored_through = Some(7);
        let response = refused.clone().into_response();
        assert_eq!(response.status().as_u16(), 409);
        assert_eq!(response.extensions().get::<Refused>(), Some(&refused));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let refusal: Refusal = serde_json::from_slice(&body).unwrap();
        assert_eq!((refusal.error, refusal.stored_through), (RefusalReason::AlreadyStored, Some(7)));

        let response = Refused::new(RefusalReason::Unauthenticated, "").into_response();
        assert_eq!(response.headers()[WWW_AUTHENTICATE], "Bearer");
        assert_eq!(response.headers()[CONNECTION], "close");
        assert_eq!(Refused::new(RefusalReason::Unavailable, "").into_response().headers()[RETRY_AFTER], "5");
    });
}

#[test]
fn each_refusal_reason_maps_to_its_http_status() {
    for why in [
        RefusalReason::Unauthenticated,
        RefusalReason::Forbidden,
        RefusalReason::NotFound,
        RefusalReason::MethodNotAllowed,
        RefusalReason::TooLarge,
        RefusalReason::UnsupportedMediaType,
        RefusalReason::Malformed,
    ] {
        assert_eq!(by_status(StatusCode::from_u16(why.status()).unwrap()).why, why);
    }
    assert_eq!(by_status(StatusCode::INTERNAL_SERVER_ERROR).why, RefusalReason::Unavailable);
}

#[test]
fn roles_allow_only_their_operations() {
    let all =
        [Identity::Agent("a".into()), Identity::Reader("r".into()), Identity::Operator("o".into()), Identity::Page];
    assert_eq!(all.each_ref().map(Identity::reads), [false, true, true, true]);
    assert_eq!(all.each_ref().map(Identity::changes), [false, false, true, true]);
}
