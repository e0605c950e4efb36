//! Extracts the body of a recorded request, and rebuilds it if the archive has only its parts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A body and, if it was rebuilt, its Content-Type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) content_type: Option<String>,
}

/// The recorded body; empty if the request had none or the archive does not contain it.
pub(super) fn of(request: &Value) -> Body {
    let Some(post) = request.get("postData") else { return Body::default() };
    let text = field(post, "text").unwrap_or_default();
    if field(post, "encoding").as_deref() == Some("base64") {
        return Body { bytes: STANDARD.decode(&text).unwrap_or_default(), content_type: None };
    }
    if !text.is_empty() {
        return Body { bytes: text.into_bytes(), content_type: None };
    }
    let params = post.get("params").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let media_type = field(post, "mimeType").or_else(|| header(request, "content-type")).unwrap_or_default();
    let kind = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "multipart/form-data" && !params.is_empty() {
        // The recorded header is preferred: the archive's mimeType may lack the boundary.
        let named = header(request, "content-type").as_deref().and_then(boundary).or_else(|| boundary(&media_type));
        return multipart(params, named);
    }
    let pairs =
        params.iter().filter_map(|param| Some((field(param, "name")?, field(param, "value").unwrap_or_default())));
    let encoded: Vec<String> = pairs.map(|(name, value)| format!("{}={}", form(&name), form(&value))).collect();
    Body { bytes: encoded.join("&").into_bytes(), content_type: None }
}

/// Builds a multipart body (RFC 7578), with names escaped as by browsers (HTML, multipart/form-data encoding
/// algorithm). Uses the recorded boundary `named` unless it is invalid or occurs in a value.
fn multipart(params: &[Value], named: Option<String>) -> Body {
    let values: Vec<String> = params.iter().map(|param| field(param, "value").unwrap_or_default()).collect();
    let is_free = |boundary: &String| values.iter().all(|value| !value.contains(&format!("--{boundary}")));
    let generated = (0..).map(|number| format!("----yamabiko-boundary-{number}")).find(is_free).unwrap_or_default();
    let boundary = named.filter(|named| is_boundary(named)).filter(is_free).unwrap_or(generated);
    let mut bytes = Vec::new();
    for (param, value) in params.iter().zip(&values) {
        let Some(name) = field(param, "name") else { continue };
        let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", quoted(&name));
        let file = field(param, "fileName");
        if let Some(file) = &file {
            head += &format!("; filename=\"{}\"", quoted(file));
        }
        let own = field(param, "contentType").filter(|own| http::HeaderValue::from_str(own).is_ok());
        if let Some(kind) = own.or_else(|| file.is_some().then(|| "application/octet-stream".to_owned())) {
            head += &format!("\r\nContent-Type: {kind}");
        }
        bytes.extend_from_slice(format!("{head}\r\n\r\n{value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    // RFC 2046, section 5.1.1: a boundary with characters that are invalid in a token needs quotes.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+'".contains(&byte);
    let written = if boundary.bytes().all(is_token) { boundary } else { format!("\"{boundary}\"") };
    Body { bytes, content_type: Some(format!("multipart/form-data; boundary={written}")) }
}

/// The boundary parameter of a media type.
fn boundary(media_type: &str) -> Option<String> {
    let parameters = media_type.split(';').skip(1);
    let named = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, value) = named.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim();
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value).to_owned())
}

/// Whether a text is a valid boundary (RFC 2046, section 5.1.1), without spaces.
fn is_boundary(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&byte);
    (1..=70).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

fn header(request: &Value, name: &str) -> Option<String> {
    let headers = request.get("headers").and_then(Value::as_array)?;
    let named =
        headers.iter().find(|header| field(header, "name").is_some_and(|this| this.eq_ignore_ascii_case(name)))?;
    field(named, "value")
}

fn field(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// Encodes a value as application/x-www-form-urlencoded. Some recorders encode values already, so `%` stays unchanged.
fn form(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' | b'%' | b'+' => out.push(byte as char),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn multipart_of(header: &str, params: &Value) -> (String, String) {
        let request = json!({
            "headers": [{"name": "content-TYPE", "value": header}],
            "postData": {"mimeType": "multipart/form-data", "params": params},
        });
        let body = of(&request);
        (String::from_utf8(body.bytes).unwrap(), body.content_type.unwrap())
    }

    #[test]
    fn har_multipart_parameters_become_a_body_with_the_recorded_boundary() {
        let params = json!([
            {"name": "f", "fileName": "a.txt", "contentType": "text/plain", "value": "hi"},
            {"name": "a\"b\r\n", "value": "ü"},
            {"name": "empty", "fileName": "x.bin"},
            {"value": "without a name"},
        ]);
        let (body, content_type) = multipart_of("multipart/form-data; boundary=XX", &params);
        assert_eq!(content_type, "multipart/form-data; boundary=XX");
        assert_eq!(
            body,
            "--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhi\r\n\
             --XX\r\nContent-Disposition: form-data; name=\"a%22b%0D%0A\"\r\n\r\nü\r\n\
             --XX\r\nContent-Disposition: form-data; name=\"empty\"; filename=\"x.bin\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n\r\n--XX--\r\n"
        );
        assert!(
            multipart_of("multipart/form-data; charset=x; Boundary=\"a/b\"", &params).1.ends_with("boundary=\"a/b\"")
        );
    }

    #[test]
    fn a_missing_invalid_or_colliding_multipart_boundary_is_replaced() {
        let params = json!([{"name": "f", "value": "--XX"}]);
        for header in
            ["multipart/form-data", "multipart/form-data; boundary=XX", "multipart/form-data; boundary=\"a b\""]
        {
            let (body, content_type) = multipart_of(header, &params);
            assert_eq!(content_type, "multipart/form-data; boundary=----yamabiko-boundary-0", "{header}");
            assert!(body.ends_with("\r\n--XX\r\n------yamabiko-boundary-0--\r\n"), "{body}");
        }
        let taken = json!([{"name": "f", "value": "------yamabiko-boundary-0"}]);
        assert!(multipart_of("multipart/form-data", &taken).1.ends_with("-boundary-1"));
    }
}
