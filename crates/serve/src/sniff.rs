//! Media types by the first bytes of a file, for unknown extensions.

/// The media type of a file's first bytes: a known signature, or UTF-8 text. `None` for anything else. `is_whole`:
/// these are all bytes, so an incomplete character at the end is invalid.
///
/// The list is deliberately short: formats used by sites, with signatures long enough to avoid coincidences.
pub(crate) fn sniff(start: &[u8], is_whole: bool) -> Option<&'static str> {
    let start = &start[..start.len().min(SNIFFED_BYTES)];
    let is_whole = is_whole && start.len() < SNIFFED_BYTES;
    if let Some((_, _, kind)) =
        SIGNATURES.iter().find(|(at, signature, _)| start.get(*at..).is_some_and(|rest| rest.starts_with(signature)))
    {
        return Some(kind);
    }
    // A container's type follows its length: RIFF....WEBP, ....ftypavif.
    if start.starts_with(b"RIFF") {
        match start.get(8..12) {
            Some(b"WEBP") => return Some("image/webp"),
            Some(b"WAVE") => return Some("audio/wav"),
            Some(b"AVI ") => return Some("video/x-msvideo"),
            _ => return None,
        }
    }
    if start.get(4..8) == Some(b"ftyp") {
        return match start.get(8..12) {
            Some(b"avif" | b"avis") => Some("image/avif"),
            Some(b"heic" | b"heix") => Some("image/heic"),
            Some(b"M4A ") => Some("audio/mp4"),
            Some(b"qt  ") => Some("video/quicktime"),
            _ => Some("video/mp4"),
        };
    }
    is_text(start, is_whole).then(|| text(start))
}

/// The type of a text.
fn text(start: &[u8]) -> &'static str {
    let visible = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start).trim_ascii_start();
    let begins = |word: &[u8]| visible.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    if begins(b"<!doctype html") || begins(b"<html") {
        "text/html; charset=utf-8"
    } else if begins(b"<svg") {
        "image/svg+xml"
    } else if visible.starts_with(b"<?xml") {
        let is_drawing = visible.windows(4).any(|window| window == b"<svg");
        if is_drawing { "image/svg+xml" } else { "application/xml" }
    } else {
        "text/plain; charset=utf-8"
    }
}

/// UTF-8 without control characters, except white space.
fn is_text(start: &[u8], is_whole: bool) -> bool {
    let is_utf8 = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character cut by the end of the sample.
        Err(error) => error.error_len().is_none() && !is_whole,
    };
    is_utf8 && !start.iter().any(|&byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
}

/// Bytes examined of a file.
pub(crate) const SNIFFED_BYTES: usize = 512;

/// Offset, signature, type.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xFF\xD8\xFF", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"\0\0\x01\0", "image/vnd.microsoft.icon"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1F\x8B\x08", "application/gzip"),
    (0, b"\x28\xB5\x2F\xFD", "application/zstd"),
    (0, b"\xFD7zXZ\0", "application/x-xz"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"7z\xBC\xAF\x27\x1C", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\0asm", "application/wasm"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"\0\x01\0\0\0", "font/ttf"),
    (0, b"OTTO", "font/otf"),
    (0, b"OggS", "application/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\x1A\x45\xDF\xA3", "video/webm"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(start: &[u8]) -> Option<&'static str> {
        sniff(start, true)
    }

    #[test]
    fn signatures_determine_the_media_type() {
        assert_eq!(of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), Some("image/png"));
        assert_eq!(of(b"\xFF\xD8\xFF\xE0"), Some("image/jpeg"));
        assert_eq!(of(b"RIFF\x10\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(of(b"RIFF\x10\0\0\0NONE"), None);
        assert_eq!(of(b"\0\0\0\x1cftypavif"), Some("image/avif"));
        assert_eq!(of(b"\0\0\0\x18ftypmp42"), Some("video/mp4"));
        assert_eq!(of(b"%PDF-1.7"), Some("application/pdf"));
        let mut archive = vec![b'x'; 257];
        archive.extend_from_slice(b"ustar\x0000");
        assert_eq!(of(&archive), Some("application/x-tar"));
        assert_eq!(of(b"\x7FELF\x02\x01\x01\0"), None);
    }

    #[test]
    fn text_is_utf8_without_control_characters() {
        assert_eq!(of(b"#!/bin/sh\necho\n"), Some("text/plain; charset=utf-8"));
        assert_eq!(of("山彦\n".as_bytes()), Some("text/plain; charset=utf-8"));
        assert_eq!(of(b""), Some("text/plain; charset=utf-8"));
        assert_eq!(of(b"\n <!DOCTYPE HTML><p>"), Some("text/html; charset=utf-8"));
        assert_eq!(of(b"\xEF\xBB\xBF<html>"), Some("text/html; charset=utf-8"));
        assert_eq!(of(b"<?xml version=\"1.0\"?>\n<feed>"), Some("application/xml"));
        assert_eq!(of(b"<?xml version=\"1.0\"?>\n<svg>"), Some("image/svg+xml"));
        for binary in [&b"a\0b"[..], b"a\xFFb", b"a\x01"] {
            assert_eq!(of(binary), None, "{binary:?}");
        }
        // An incomplete character: text in a sample, not in a complete file.
        let cut = &"山".as_bytes()[..2];
        assert_eq!((sniff(cut, false), sniff(cut, true)), (Some("text/plain; charset=utf-8"), None));
        let long = "山".repeat(SNIFFED_BYTES);
        assert_eq!(of(long.as_bytes()), Some("text/plain; charset=utf-8"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_sniffed_without_panic(start in proptest::collection::vec(any::<u8>(), 0..600), whole in any::<bool>()) {
            sniff(&start, whole);
        }
    }
}
