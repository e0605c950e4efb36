//! Properties of any input: called by the fuzz target `request` (see `fuzz/` and docs/notes/watch-fuzzing.md) and by
//! the test that replays its corpus. Not part of the library's interface.

use crate::request::{Body, Chunks, Parsed, Request, Step, parse};
use crate::response::Status;
use crate::spec::Limits;

/// Any bytes as the input of a connection: requests with their bodies, until one is refused or incomplete.
///
/// # Panics
/// An accepted head is not strictly valid, changes its meaning when it is written again, or is accepted before it is
/// complete; a chunked body depends on its fragmentation, or a second parser reads it differently.
pub fn request(input: &[u8]) {
    let limits = Limits { head_bytes: 4 << 10, ..Limits::default() };
    let mut rest = input;
    while !rest.is_empty() {
        let Parsed::Complete(request) = parse(rest, &limits) else { return };
        head(rest, &request, &limits);
        rest = &rest[request.length..];
        match request.body {
            Body::None => {}
            Body::Bytes(bytes) => rest = rest.get(usize::try_from(bytes).unwrap_or(usize::MAX)..).unwrap_or_default(),
            Body::Chunked => match chunks(rest) {
                Some(length) => rest = &rest[length..],
                None => return,
            },
        }
    }
}

/// An accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRequest {
    /// As sent.
    pub method: Vec<u8>,
    /// Bytes of head and body, without preceding empty lines.
    pub length: usize,
}

/// The complete requests at the front of `input`, until one is refused or incomplete.
pub fn taken(input: &[u8]) -> Vec<AcceptedRequest> {
    let limits = Limits::default();
    let (mut rest, mut taken) = (input, Vec::new());
    while !rest.is_empty() {
        let Parsed::Complete(request) = parse(rest, &limits) else { break };
        let after = &rest[request.length..];
        let body = match request.body {
            Body::None => Some(0),
            Body::Bytes(bytes) => usize::try_from(bytes).ok().filter(|&bytes| bytes <= after.len()),
            Body::Chunked => chunks(after),
        };
        let Some(body) = body else { break };
        taken.push(AcceptedRequest { method: request.method_name().to_vec(), length: request.head.len() + body });
        rest = &after[body..];
    }
    taken
}

fn head(input: &[u8], request: &Request<'_>, limits: &Limits) {
    let head = request.head;
    assert!(request.length <= limits.head_bytes && input[..request.length].ends_with(head));
    let lines = head.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
    let text = String::from_utf8_lossy(lines);
    // Lines end with CRLF, none is empty or folded, and all bytes are text.
    for line in text.split("\r\n") {
        assert!(!line.is_empty() && !line.starts_with([' ', '\t']), "{text:?}");
        assert!(!line.contains(|c: char| c != '\t' && (c < ' ' || c == '\x7f')), "{text:?}");
    }
    let mut anew =
        [request.method_name(), b" ", request.target, if request.old { b" HTTP/1.0" } else { b" HTTP/1.1" }].concat();
    let (mut lengths, mut codings, mut hosts) = (0, 0, 0);
    let mut count = 0;
    for (name, value) in request.fields.lines() {
        anew.extend_from_slice(&[b"\r\n", name, b": ", value].concat());
        lengths += usize::from(name.eq_ignore_ascii_case(b"content-length"));
        codings += usize::from(name.eq_ignore_ascii_case(b"transfer-encoding"));
        hosts += usize::from(name.eq_ignore_ascii_case(b"host"));
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic), "{text:?}");
        count += 1;
    }
    assert_eq!(count + 1, text.split("\r\n").count(), "every line is a field");
    assert!(lengths + codings <= 1 || (lengths == 0 && !request.old), "{text:?}");
    assert!(hosts <= 1 && (hosts == 1 || request.old), "{text:?}");
    assert_eq!(request.body == Body::Chunked, codings > 0, "{text:?}");
    anew.extend_from_slice(b"\r\n\r\n");
    if anew.len() <= limits.head_bytes {
        let again = parse(&anew, limits);
        let Parsed::Complete(again) = again else { panic!("{text:?}: {again:?}") };
        let meaning = |request: &Request<'_>| {
            let fields =
                request.fields.lines().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>();
            let values = (request.fields.host.map(<[u8]>::to_vec), request.fields.range.map(<[u8]>::to_vec));
            let flags = (request.keep_alive, request.old, request.expects_continue, request.fields.conditional);
            (
                request.method,
                request.path.to_vec(),
                request.query.map(<[u8]>::to_vec),
                request.body,
                fields,
                values,
                flags,
            )
        };
        assert_eq!(meaning(request), meaning(&again));
    }
    // No prefix is complete. Every prefix of a short head, some of a long one.
    for cut in (1..request.length).step_by(1 + request.length / 256) {
        assert_eq!(parse(&input[..cut], limits), Parsed::Incomplete, "{text:?} cut at {cut}");
    }
}

/// The end of a chunked body; `None` if it has none or is refused.
fn chunks(input: &[u8]) -> Option<usize> {
    let most = 1 << 20;
    let whole = in_pieces(input, input.len(), most);
    for piece in [1, 3, 61] {
        assert_eq!(in_pieces(input, piece, most), whole, "in pieces of {piece}");
    }
    if let Ok(Some((data, length))) = &whole {
        assert_eq!(
            decode_by_lines(&input[..*length]).as_ref(),
            Some(data),
            "{:?}",
            String::from_utf8_lossy(&input[..*length])
        );
    }
    whole.ok().flatten().map(|(_, length)| length)
}

fn in_pieces(input: &[u8], piece: usize, most: u64) -> Result<Option<(Vec<u8>, usize)>, Status> {
    let mut chunks = Chunks::new(most);
    let (mut data, mut at) = (Vec::new(), 0);
    while at < input.len() {
        let part = &input[at..(at + piece.max(1)).min(input.len())];
        match chunks.step(part)? {
            Step::More => at += part.len(),
            Step::Data(range) => {
                data.extend_from_slice(&part[range.clone()]);
                at += range.end;
            }
            Step::End(end) => return Ok(Some((data, at + end))),
        }
    }
    Ok(None)
}

/// A second parser of chunks, which needs the complete body: line by line, as RFC 9112, section 7.1, defines it.
fn decode_by_lines(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&body[..end]).ok().map(str::to_owned);
        let line = line.unwrap_or_else(|| String::from_utf8_lossy(&body[..end]).into_owned());
        body = &body[end + 2..];
        let digits = line.split([';', ' ', '\t']).next()?;
        let size = usize::from_str_radix(digits, 16).ok()?;
        if size == 0 {
            break;
        }
        data.extend_from_slice(body.get(..size)?);
        body = body[size..].strip_prefix(b"\r\n")?;
    }
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &body[..end];
        body = &body[end + 2..];
        if line.is_empty() {
            return body.is_empty().then_some(data);
        }
    }
}
