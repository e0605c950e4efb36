//! Templates: text with placeholders for values.

mod parse;

pub use parse::{Names, TemplateError};

/// Text with placeholders, such as `/user/{client}?n={sequence}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    /// The pieces in order. Two texts never follow each other, and no text is empty.
    pub pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Literal text, of any bytes.
    Text(Box<[u8]>),
    /// The client's index, from 0.
    Client,
    /// The request's number in the run, from 0.
    Sequence,
    /// The session's number in the run, from 0; without sessions the request's number.
    Session,
    /// A value extracted from an earlier response of the session, by index.
    Variable(usize),
    /// A random whole number in an inclusive range, drawn anew for each request.
    Random(u64, u64),
}

/// The values of the placeholders of one request.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The client's index.
    pub client: u32,
    /// The request's number in the run.
    pub sequence: u64,
    /// The session's number in the run.
    pub session: Option<u64>,
    /// Extracted values by the index of [`Piece::Variable`]; a value is empty if it was not extracted yet.
    pub variables: &'a [Box<[u8]>],
    /// Seed of this request's random numbers, so that they do not depend on earlier requests.
    pub seed: u64,
}

/// The part of a request that is rendered. It determines how extracted values are escaped, so that values from a server
/// cannot break the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// Any bytes.
    Body,
    /// Path and query.
    Target,
    /// A header's value.
    Field,
}

impl Template {
    /// A template of text without placeholders.
    pub fn literal(text: &str) -> Self {
        Template::bytes(text.as_bytes())
    }

    /// A template of bytes without placeholders.
    pub fn bytes(bytes: &[u8]) -> Self {
        let pieces = if bytes.is_empty() { Vec::new() } else { vec![Piece::Text(bytes.into())] };
        Template { pieces }
    }

    /// Whether the template has no placeholders.
    pub fn is_literal(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Bytes of the text, if it has no placeholders.
    pub fn literal_length(&self) -> Option<usize> {
        self.pieces.iter().map(|piece| if let Piece::Text(text) = piece { Some(text.len()) } else { None }).sum()
    }

    /// Whether the template is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The indices of the variables in the template, in order, with repetitions.
    pub fn variables(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| if let Piece::Variable(index) = piece { Some(*index) } else { None })
    }

    /// Appends the text with `values` inserted, without escaping, for a body or another destination of any bytes.
    pub fn render(&self, values: &Values<'_>, into: &mut Vec<u8>) {
        self.write(values, Destination::Body, into);
    }

    /// Appends the text as path and query of a request. In extracted values, bytes that are invalid in path and query
    /// (RFC 3986) are percent-encoded: spaces, line ends, `#`, `"`, `<` and others, and all bytes outside ASCII. The
    /// separators `/ ? & = %` stay, so that a value may be a complete URL.
    pub fn render_target(&self, values: &Values<'_>, into: &mut Vec<u8>) {
        self.write(values, Destination::Target, into);
    }

    /// Appends the text as a header's value. In extracted values, control characters become spaces (RFC 9110, section
    /// 5.5).
    pub fn render_field(&self, values: &Values<'_>, into: &mut Vec<u8>) {
        self.write(values, Destination::Field, into);
    }

    fn write(&self, values: &Values<'_>, destination: Destination, into: &mut Vec<u8>) {
        use std::io::Write;
        for (number, piece) in self.pieces.iter().enumerate() {
            let written = match piece {
                Piece::Text(text) => into.write_all(text),
                Piece::Client => write!(into, "{}", values.client),
                Piece::Sequence => write!(into, "{}", values.sequence),
                Piece::Session => write!(into, "{}", values.session.unwrap_or(values.sequence)),
                Piece::Variable(index) => {
                    let value = values.variables.get(*index).map_or(&[][..], |value| value);
                    match destination {
                        Destination::Body => into.extend_from_slice(value),
                        Destination::Target => percent_encode(value, into),
                        Destination::Field => {
                            into.extend(value.iter().map(|&byte| if is_control(byte) { b' ' } else { byte }));
                        }
                    }
                    Ok(())
                }
                Piece::Random(from, to) => {
                    let mut rng = stats::Rng::new(values.seed, number as u64);
                    let span = to.saturating_sub(*from).saturating_add(1);
                    write!(into, "{}", from + rng.below(span))
                }
            };
            written.expect("a write to memory does not fail");
        }
    }
}

/// Appends `bytes`, with bytes that are invalid in path and query percent-encoded. A `%` stays unchanged.
pub(super) fn percent_encode(bytes: &[u8], into: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        // RFC 3986, section 3.4: pchar, `/` and `?`; also `%`, which may begin an encoded byte.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte) {
            into.push(byte);
        } else {
            into.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Whether a character is invalid in a header's value: control characters other than the tab.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(variables: &[Box<[u8]>]) -> Values<'_> {
        Values { client: 7, sequence: 41, session: None, variables, seed: 9 }
    }

    fn text(render: impl Fn(&mut Vec<u8>)) -> String {
        let mut into = Vec::new();
        render(&mut into);
        String::from_utf8_lossy(&into).into_owned()
    }

    #[test]
    fn placeholders_are_filled() {
        let mut names = Names::default();
        names.define("token").unwrap();
        let template = Template::parse("/u/{client}/{sequence}/{session}?t={token}{{x}}", &names).unwrap();
        let variables = [Box::from(&b"a b"[..])];
        assert_eq!(text(|into| template.render(&values(&variables), into)), "/u/7/41/41?t=a b{x}");
        let of_session = Values { session: Some(3), ..values(&[]) };
        assert_eq!(text(|into| template.render(&of_session, into)), "/u/7/41/3?t={x}", "no value was extracted yet");
        assert_eq!(template.variables().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn server_supplied_values_cannot_break_a_request() {
        let template = Template { pieces: vec![Piece::Variable(0)] };
        let sent = [Box::from(&b"/n?x=1&y=%20 \"\r\nHost: evil\xff#f"[..])];
        let target = text(|into| template.render_target(&values(&sent), into));
        assert_eq!(target, "/n?x=1&y=%20%20%22%0D%0AHost:%20evil%FF%23f");
        let field = text(|into| template.render_field(&values(&[b"a\tb\r\nX: y\0"[..].into()]), into));
        assert_eq!(field, "a\tb  X: y ");
    }

    #[test]
    fn random_placeholders_are_uniform_and_depend_only_on_the_request() {
        let template = Template::parse("{random 1..6}{random 1..6}", &Names::default()).unwrap();
        let draw = |seed| text(|into| template.render(&Values { seed, ..values(&[]) }, into));
        assert_eq!(draw(5), draw(5));
        let mut seen = [0u32; 36];
        for seed in 0..36_000 {
            let digits = draw(seed).into_bytes();
            seen[usize::from(digits[0] - b'1') * 6 + usize::from(digits[1] - b'1')] += 1;
        }
        // Each of the 36 pairs has 1000 on average with standard deviation 31; the limit is five times that. The test
        // also shows that the two numbers are independent.
        assert!(seen.iter().all(|&count| count.abs_diff(1000) < 160), "{seen:?}");
        let whole = Template { pieces: vec![Piece::Random(0, u64::MAX)] };
        assert!(text(|into| whole.render(&values(&[]), into)).parse::<u64>().is_ok());
    }

    proptest! {
        #[test]
        fn rendered_targets_are_valid_request_targets(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let template = Template { pieces: vec![Piece::Text(b"/"[..].into()), Piece::Variable(0)] };
            let variables = [value.into_boxed_slice()];
            let mut target = Vec::new();
            template.render_target(&values(&variables), &mut target);
            let target = String::from_utf8(target).unwrap();
            prop_assert!(target.parse::<http::uri::PathAndQuery>().is_ok(), "{}", target);
            let mut field = Vec::new();
            template.render_field(&values(&variables), &mut field);
            prop_assert!(http::HeaderValue::from_bytes(&field).is_ok());
        }
    }
}
