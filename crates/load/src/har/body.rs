//! The body of a recorded request, rebuilt where the archive has only its parts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A body and, where it was built here, the Content-Type that fits it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) content_type: Option<String>,
}

/// The body as recorded; empty where there was none, or where the archive does not hold it.
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
        // What is sent is the recorded header; the archive's own word on the type may leave the boundary out.
        let named = header(request, "content-type").as_deref().and_then(boundary).or_else(|| boundary(&media_type));
        return multipart(params, named);
    }
    let pairs =
        params.iter().filter_map(|param| Some((field(param, "name")?, field(param, "value").unwrap_or_default())));
    let encoded: Vec<String> = pairs.map(|(name, value)| format!("{}={}", form(&name), form(&value))).collect();
    Body { bytes: encoded.join("&").into_bytes(), content_type: None }
}

/// RFC 7578, with names as browsers write them (HTML, multipart/form-data encoding algorithm). `named`: the recorded boundary,
/// which is kept unless a value holds it.
fn multipart(params: &[Value], named: Option<String>) -> Body {
    let values: Vec<String> = params.iter().map(|param| field(param, "value").unwrap_or_default()).collect();
    let is_free = |boundary: &String| values.iter().all(|value| !value.contains(&format!("--{boundary}")));
    let made = (0..).map(|number| format!("----yamabiko-boundary-{number}")).find(is_free).unwrap_or_default();
    let boundary = named.filter(|named| is_boundary(named)).filter(is_free).unwrap_or(made);
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
    // RFC 2046, section 5.1.1: characters that a token does not hold need quotes.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+'".contains(&byte);
    let written = if boundary.bytes().all(is_token) { boundary } else { format!("\"{boundary}\"") };
    Body { bytes, content_type: Some(format!("multipart/form-data; boundary={written}")) }
}

/// The boundary that a media type names.
fn boundary(media_type: &str) -> Option<String> {
    let parameters = media_type.split(';').skip(1);
    let named = parameters.filter_map(|parameter| parameter.split_once('='));
    let (_, value) = named.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim();
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value).to_owned())
}

/// RFC 2046, section 5.1.1, without the space.
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

/// application/x-www-form-urlencoded. Recorders write values encoded already or not; `%` is taken as already.
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
