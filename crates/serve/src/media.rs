//! Content types by file name extension.

/// The media type for a path; `application/octet-stream` for what is not known, so that a browser saves it rather
/// than guesses. Case does not matter.
pub(crate) fn content_type(path: &[u8]) -> &'static str {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return UNKNOWN };
    let extension = &name[dot + 1..];
    TYPES.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known.as_bytes())).map_or(UNKNOWN, |(_, kind)| kind)
}

const UNKNOWN: &str = "application/octet-stream";

/// What test sites and static exports hold; from the IANA registry.
const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("xml", "application/xml"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/vnd.microsoft.icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("pdf", "application/pdf"),
    ("wasm", "application/wasm"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
];

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn the_last_extension_of_the_last_segment_counts() {
        assert_eq!(content_type(b"a/index.HTML"), "text/html; charset=utf-8");
        assert_eq!(content_type(b"x.tar.gz"), "application/gzip");
        assert_eq!(content_type(b"v1.css/10k.bin"), "application/octet-stream");
        assert_eq!(content_type(b"v1.css/plain"), "application/octet-stream");
        assert_eq!(content_type(b""), "application/octet-stream");
    }
}
