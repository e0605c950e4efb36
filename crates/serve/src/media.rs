//! Content types by file name extension.

/// The media type of a path by its extension, in any case; `None` if unknown.
pub(crate) fn content_type(path: &[u8]) -> Option<&'static str> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let extension = &name[dot + 1..];
    TYPES.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known.as_bytes())).map(|(_, kind)| *kind)
}

/// Whether files of this type are compressible, so that looking for a precompressed variant is worthwhile.
pub(crate) fn is_compressible(kind: &str) -> bool {
    let packed = ["image/", "audio/", "video/", "font/woff", "application/zip", "application/gzip", "application/zstd"];
    kind == "image/svg+xml" || kind == "image/vnd.microsoft.icon" || !packed.iter().any(|start| kind.starts_with(start))
}

/// For unknown types: a browser saves the file instead of guessing.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// Types used by test sites and static exports; from the IANA registry.
const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("xhtml", "application/xhtml+xml"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("jsonld", "application/ld+json"),
    ("geojson", "application/geo+json"),
    ("txt", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("xml", "application/xml"),
    ("rss", "application/rss+xml"),
    ("atom", "application/atom+xml"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("apng", "image/apng"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ico", "image/vnd.microsoft.icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("mp3", "audio/mpeg"),
    ("m4a", "audio/mp4"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("mov", "video/quicktime"),
    ("mpd", "application/dash+xml"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("ts", "video/mp2t"),
    ("pdf", "application/pdf"),
    ("epub", "application/epub+zip"),
    ("wasm", "application/wasm"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tgz", "application/gzip"),
    ("zst", "application/zstd"),
    ("tar", "application/x-tar"),
    ("bin", UNKNOWN),
    ("exe", UNKNOWN),
    ("iso", UNKNOWN),
    ("img", UNKNOWN),
    ("br", UNKNOWN),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_extension_of_the_last_segment_determines_the_type() {
        assert_eq!(content_type(b"a/index.HTML"), Some("text/html; charset=utf-8"));
        assert_eq!(content_type(b"x.tar.gz"), Some("application/gzip"));
        assert_eq!(content_type(b"v1.css/10k.bin"), Some(UNKNOWN));
        assert_eq!(content_type(b"v1.css/plain"), None);
        assert_eq!(content_type(b""), None);
    }

    #[test]
    fn compressed_media_types_are_not_compressible() {
        assert!(is_compressible("text/html; charset=utf-8") && is_compressible("image/svg+xml"));
        assert!(is_compressible(UNKNOWN) && is_compressible("font/ttf"));
        assert!(!is_compressible("image/png") && !is_compressible("font/woff2") && !is_compressible("application/zip"));
    }

    #[test]
    fn no_extension_is_listed_twice() {
        let mut names: Vec<_> = TYPES.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TYPES.len());
    }
}
