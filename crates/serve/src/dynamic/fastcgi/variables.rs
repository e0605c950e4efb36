//! CGI/1.1 variables of a request (RFC 3875, section 4.1), and the script of a path. Pure.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use http::header::{self, HeaderMap};

use super::record::pair;
use crate::dynamic::fields::{ClientInfo, RequestHead};
use crate::dynamic::route::decoded;
use crate::dynamic::spec::FastCgiScript;

/// The script of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// The file.
    pub(super) filename: Vec<u8>,
    /// The part of the path that selects it.
    pub(super) name: Vec<u8>,
    /// The rest of the path; empty or beginning with `/`.
    pub(super) path_info: Vec<u8>,
    /// The document root.
    pub(super) root: Vec<u8>,
}

/// The directory of scripts, and a check whether a relative name is a file in it.
#[derive(Clone, Copy)]
pub(super) struct ScriptDirectory<'a> {
    pub(super) directory: &'a Path,
    pub(super) is_file: &'a dyn Fn(&[u8]) -> bool,
}

impl Script {
    /// The script of a path as sent; `stem` is the route's prefix. `None`: no script.
    pub(super) fn find(
        script: &FastCgiScript,
        stem: &[u8],
        path: &[u8],
        below: Option<ScriptDirectory<'_>>,
    ) -> Option<Script> {
        let mut path = decoded(path)?;
        path.dedup_by(|a, b| *a == b'/' && *b == b'/');
        match script {
            FastCgiScript::One(file) => Some(Script {
                filename: file.as_os_str().as_bytes().to_vec(),
                name: stem.to_vec(),
                path_info: path.strip_prefix(stem)?.to_vec(),
                root: file.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes().to_vec(),
            }),
            FastCgiScript::Below(_) => {
                let ScriptDirectory { directory, is_file } = below?;
                if path.ends_with(b"/") && part_end(&path).is_none() {
                    path.extend_from_slice(INDEX);
                }
                let (name, path_info) = path.split_at(part_end(&path)?);
                let relative = name.strip_prefix(b"/")?;
                // Without this check PHP would look for `/photo.jpg/x.php` among the parents and run the picture as a
                // script.
                if !is_file(relative) {
                    return None;
                }
                let root = directory.as_os_str().as_bytes();
                Some(Script {
                    filename: [root, b"/", relative].concat(),
                    name: name.to_vec(),
                    path_info: path_info.to_vec(),
                    root: root.to_vec(),
                })
            }
        }
    }
}

/// The end of the first segment that ends in `.php`.
fn part_end(path: &[u8]) -> Option<usize> {
    let mut end = 0;
    for part in path.split(|&byte| byte == b'/') {
        end += part.len();
        if part.len() > EXTENSION.len() && part.ends_with(EXTENSION) {
            return Some(end);
        }
        end += 1;
    }
    None
}

/// Appends all variables of a request; `fields` are its fields for the upstream.
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &RequestHead,
    fields: &HeaderMap,
    client_info: ClientInfo,
    script: &Script,
    content_length: Option<u64>,
) {
    let query = head.query().unwrap_or_default();
    let (remote, local) =
        (client_info.peer.ip().to_canonical().to_string(), client_info.local.ip().to_canonical().to_string());
    let host = fields.get(header::HOST).map(|host| server_name(host.as_bytes())).filter(|host| !host.is_empty());
    let mut set = |name: &str, value: &[u8]| pair(out, name.as_bytes(), value);
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set("SERVER_SOFTWARE", concat!("yamabiko/", env!("CARGO_PKG_VERSION")).as_bytes());
    set("SERVER_PROTOCOL", if head.old { b"HTTP/1.0" } else { b"HTTP/1.1" });
    set("SERVER_NAME", host.unwrap_or(local.as_bytes()));
    set("SERVER_ADDR", local.as_bytes());
    set("SERVER_PORT", client_info.local.port().to_string().as_bytes());
    set("REQUEST_METHOD", head.method.as_str().as_bytes());
    set("REQUEST_SCHEME", client_info.scheme().as_bytes());
    set("REQUEST_URI", &head.target);
    set("DOCUMENT_URI", &[&script.name[..], &script.path_info[..]].concat());
    set("DOCUMENT_ROOT", &script.root);
    set("SCRIPT_NAME", &script.name);
    set("SCRIPT_FILENAME", &script.filename);
    set("PATH_INFO", &script.path_info);
    if !script.path_info.is_empty() {
        set("PATH_TRANSLATED", &[&script.root[..], &script.path_info[..]].concat());
    }
    set("QUERY_STRING", query);
    set("REMOTE_ADDR", remote.as_bytes());
    set("REMOTE_PORT", client_info.peer.port().to_string().as_bytes());
    // php-cgi refuses requests without REDIRECT_STATUS.
    set("REDIRECT_STATUS", b"200");
    if client_info.secure {
        set("HTTPS", b"on");
    }
    let length = content_length.filter(|&length| length > 0).map(|length| length.to_string());
    set("CONTENT_LENGTH", length.unwrap_or_default().as_bytes());
    set("CONTENT_TYPE", fields.get(header::CONTENT_TYPE).map_or(b"", |value| value.as_bytes()));
    for name in fields.keys() {
        // `Proxy` is excluded: programs read HTTP_PROXY as a setting (httpoxy).
        if name == header::CONTENT_TYPE || name == header::CONTENT_LENGTH || name.as_str() == "proxy" {
            continue;
        }
        let variable = format!("HTTP_{}", name.as_str().to_ascii_uppercase().replace('-', "_"));
        let values: Vec<&[u8]> = fields.get_all(name).iter().map(|value| value.as_bytes()).collect();
        // RFC 3875, section 4.1.18: repeated fields are combined.
        let between: &[u8] = if name == header::COOKIE { b"; " } else { b", " };
        set(&variable, &values.join(between));
    }
}

/// The host without its port.
fn server_name(host: &[u8]) -> &[u8] {
    let after_bracket = host.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    match host[after_bracket..].iter().position(|&byte| byte == b':') {
        Some(at) => &host[..after_bracket + at],
        None => host,
    }
}

const EXTENSION: &[u8] = b".php";
const INDEX: &[u8] = b"index.php";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::fields::for_upstream;
    use crate::dynamic::upstream::Changes;

    fn found(path: &str, files: &[&str]) -> Option<(String, String, String)> {
        let is_file = |relative: &[u8]| files.iter().any(|file| file.as_bytes() == relative);
        let below = FastCgiScript::Below(None);
        let scripts = ScriptDirectory { directory: Path::new("/srv/www"), is_file: &is_file };
        let script = Script::find(&below, b"/php", path.as_bytes(), Some(scripts))?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Some((text(script.filename), text(script.name), text(script.path_info)))
    }

    #[test]
    fn a_path_selects_an_existing_script() {
        let files = ["php/a.php", "php/index.php", "photo.jpg", "php/b c.php"];
        for (path, expected) in [
            ("/php/a.php", Some(("/srv/www/php/a.php", "/php/a.php", ""))),
            ("/php//a.php/x/y.php", Some(("/srv/www/php/a.php", "/php/a.php", "/x/y.php"))),
            ("/php/", Some(("/srv/www/php/index.php", "/php/index.php", ""))),
            ("/php/b%20c.php", Some(("/srv/www/php/b c.php", "/php/b c.php", ""))),
            ("/php/a.php/", Some(("/srv/www/php/a.php", "/php/a.php", "/"))),
            ("/php", None),
            ("/php/none.php", None),
            ("/photo.jpg/x.php", None),
            ("/php/.php", None),
            ("/php/a.phpx", None),
        ] {
            let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
            assert_eq!(found(path, &files), expected, "{path}");
        }
    }

    #[test]
    fn a_fixed_script_serves_every_path() {
        let one = FastCgiScript::One("/srv/app/main.php".into());
        let script = Script::find(&one, b"/app", b"/app/a%20b/c", None).unwrap();
        assert_eq!((&script.name[..], &script.path_info[..]), (&b"/app"[..], &b"/a b/c"[..]));
        assert_eq!((&script.filename[..], &script.root[..]), (&b"/srv/app/main.php"[..], &b"/srv/app"[..]));
        assert_eq!(Script::find(&one, b"", b"/x", None).unwrap().path_info, b"/x");
    }

    #[test]
    fn cgi_variables_are_set_from_the_request() {
        let text = "POST /app/x?a=b%20c HTTP/1.1\r\nHost: site.example:8080\r\nProxy: http://evil\r\nContent-Type: text/x\r\n\
            Content-Length: 5\r\nCookie: a\r\nCookie: b\r\nX-Forwarded-For: 10.0.0.1\r\nAccept-Language: ja\r\n\r\n";
        let head = RequestHead::parse(text.as_bytes()).unwrap();
        let client_info = ClientInfo {
            peer: "[2001:db8::1]:99".parse().unwrap(),
            local: "192.0.2.9:443".parse().unwrap(),
            secure: true,
        };
        let fields = for_upstream(&head, client_info, &Changes::default());
        let one = FastCgiScript::One("/srv/app/main.php".into());
        let script = Script::find(&one, b"/app", head.path(), None).unwrap();
        let mut out = Vec::new();
        write(&mut out, &head, &fields, client_info, &script, Some(5));
        let variables = read_pairs(&out);
        let value = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        for (name, expected) in [
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/app/x?a=b%20c"),
            ("QUERY_STRING", "a=b%20c"),
            ("SCRIPT_NAME", "/app"),
            ("PATH_INFO", "/x"),
            ("PATH_TRANSLATED", "/srv/app/x"),
            ("SERVER_NAME", "site.example"),
            ("SERVER_PORT", "443"),
            ("REMOTE_ADDR", "2001:db8::1"),
            ("REMOTE_PORT", "99"),
            ("HTTPS", "on"),
            ("CONTENT_LENGTH", "5"),
            ("CONTENT_TYPE", "text/x"),
            ("HTTP_HOST", "site.example:8080"),
            ("HTTP_COOKIE", "a; b"),
            ("HTTP_ACCEPT_LANGUAGE", "ja"),
            ("HTTP_X_FORWARDED_FOR", "10.0.0.1, 2001:db8::1"),
            ("HTTP_X_FORWARDED_PROTO", "https"),
        ] {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        assert_eq!(value("HTTP_PROXY"), None);
        assert_eq!(value("HTTP_CONTENT_LENGTH"), None);
        assert_eq!(server_name(b"[::1]:80"), b"[::1]");
        assert_eq!(server_name(b"[::1]"), b"[::1]");
    }

    fn read_pairs(mut bytes: &[u8]) -> Vec<(String, String)> {
        let length = |bytes: &mut &[u8]| {
            let (size, rest) = if bytes[0] < 128 {
                (usize::from(bytes[0]), &bytes[1..])
            } else {
                (u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize & 0x7fff_ffff, &bytes[4..])
            };
            *bytes = rest;
            size
        };
        let mut pairs = Vec::new();
        while !bytes.is_empty() {
            let (name, value) = (length(&mut bytes), length(&mut bytes));
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            pairs.push((text(&bytes[..name]), text(&bytes[name..name + value])));
            bytes = &bytes[name + value..];
        }
        pairs
    }
}
