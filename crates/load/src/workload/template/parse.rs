//! Templates as typed.

use super::{Piece, Template};

/// The names of values that responses bring, each with its index.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

/// Why text is no template, or a name no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

/// Places that are always there.
const BUILT_IN: [&str; 4] = ["client", "sequence", "session", "random"];

impl Names {
    /// The index of `name`, a new one if it is new.
    ///
    /// # Errors
    /// Not a name: letters, digits, `_` and `-`, beginning with a letter or `_`; or that of a built-in place.
    pub fn define(&mut self, name: &str) -> Result<usize, TemplateError> {
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !begins || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
            return Err(TemplateError(format!(
                "`{}` is not a valid value name: use letters, digits, _ and -, beginning with a letter",
                name.escape_debug()
            )));
        }
        if BUILT_IN.contains(&name) {
            return Err(TemplateError(format!("`{name}` is built in: give the value another name")));
        }
        Ok(self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        }))
    }

    /// The index of `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// The names by their index.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn places(&self) -> String {
        let built_in = ["{client}", "{sequence}", "{session}", "{random 1..1000}"].map(str::to_owned);
        let own = self.0.iter().map(|name| format!("{{{name}}}"));
        built_in.into_iter().chain(own).collect::<Vec<_>>().join(", ")
    }
}

impl Template {
    /// Reads text with places: `{client}`, `{sequence}`, `{session}`, `{random 1..1000}`, `{name}` for each of `names`.
    /// `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// A place that is not known, a range that holds no number, a brace without its other half.
    pub fn parse(text: &str, names: &Names) -> Result<Template, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let end = after.find(['{', '}']).filter(|&end| brace == "{" && after[end..].starts_with('}'));
            let Some(end) = end else {
                return Err(TemplateError(format!(
                    "in `{}` a `{brace}` has no other half; write {brace}{brace} for the brace itself",
                    shown(text)
                )));
            };
            let piece = place(&after[..end], names)?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into_bytes().into()));
            }
            pieces.push(piece);
            rest = &after[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into_bytes().into()));
        }
        Ok(Template { pieces })
    }
}

fn place(typed: &str, names: &Names) -> Result<Piece, TemplateError> {
    let name = typed.trim();
    match name {
        "client" => return Ok(Piece::Client),
        "sequence" => return Ok(Piece::Sequence),
        "session" => return Ok(Piece::Session),
        _ => {}
    }
    if let Some(range) = name.strip_prefix("random").filter(|range| range.is_empty() || range.starts_with(' ')) {
        let ends = range.split_once("..").and_then(|(from, to)| Some((number(from)?, number(to)?)));
        return match ends {
            Some((from, to)) if from <= to => Ok(Piece::Random(from, to)),
            _ => Err(TemplateError(format!(
                "`{{{}}}` is not a valid range: give first and last whole number, as in {{random 1..1000}}",
                shown(typed)
            ))),
        };
    }
    names.find(name).map(Piece::Variable).ok_or_else(|| {
        TemplateError(format!(
            "`{{{}}}` is not a valid placeholder: use one of {}; write a literal brace as {{{{ or }}}}",
            shown(typed),
            names.places()
        ))
    })
}

/// Digits only.
fn number(typed: &str) -> Option<u64> {
    let typed = typed.trim();
    if typed.is_empty() || !typed.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    typed.parse().ok()
}

/// Enough of a text to find it again, on one line.
fn shown(text: &str) -> String {
    const SHOWN: usize = 80;
    let escaped = text.escape_debug().to_string();
    match escaped.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}..", &escaped[..at]),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        assert_eq!((names.define("token"), names.define("cart-id"), names.define("token")), (Ok(0), Ok(1), Ok(0)));
        names
    }

    fn read(text: &str) -> Result<Vec<Piece>, String> {
        Template::parse(text, &names()).map(|template| template.pieces).map_err(|error| error.to_string())
    }

    fn literal(text: &str) -> Piece {
        Piece::Text(text.as_bytes().into())
    }

    #[test]
    fn templates_are_parsed_into_text_and_placeholders() {
        assert_eq!(read("").unwrap(), []);
        assert_eq!(read("a{{b}}{{{{c").unwrap(), [literal("a{b}{{c")]);
        assert_eq!(read("{client}{ sequence }x").unwrap(), [Piece::Client, Piece::Sequence, literal("x")]);
        assert_eq!(read("{session}{cart-id}").unwrap(), [Piece::Session, Piece::Variable(1)]);
        assert_eq!(read("{random 0..0}").unwrap(), [Piece::Random(0, 0)]);
        assert_eq!(read("{random  5 .. 18446744073709551615 }").unwrap(), [Piece::Random(5, u64::MAX)]);
        assert_eq!(read("{{{client}}}").unwrap(), [literal("{"), Piece::Client, literal("}")]);
    }

    #[test]
    fn invalid_placeholders_are_refused_with_the_valid_ones() {
        let unknown = read("/a?b={tokn}").unwrap_err();
        for word in ["`{tokn}`", "{client}", "{random 1..1000}", "{token}, {cart-id}", "{{"] {
            assert!(unknown.contains(word), "{unknown}");
        }
        for open in ["{", "a}", "{client", "client}", "{cl{ient}", "{{}"] {
            assert!(read(open).unwrap_err().contains("no other half"), "{open}: {:?}", read(open));
        }
        for range in ["{random}", "{random 5}", "{random 6..5}", "{random -1..5}", "{random 1..18446744073709551616}"] {
            assert!(read(range).unwrap_err().contains("{random 1..1000}"), "{range}");
        }
        assert!(read("{randomly}").unwrap_err().contains("is not a valid placeholder"));
        for name in ["", "1a", "a b", "a}", "client", "random"] {
            assert!(Names::default().define(name).is_err(), "{name}");
        }
    }

    proptest! {
        /// Text whose braces are doubled is itself.
        #[test]
        fn doubled_braces_are_literal_braces(text in ".{0,60}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            let template = Template::parse(&doubled, &names()).unwrap();
            prop_assert_eq!(template, Template::literal(&text));
        }

        /// Whatever is typed: a refusal on one line, or pieces none of which is empty.
        #[test]
        fn parsing_never_panics_on_any_text(text in "([{}]|random |1..9|client|token|.){0,20}") {
            match Template::parse(&text, &names()) {
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
                Ok(template) => {
                    let texts = template.pieces.iter().map(|piece| matches!(piece, Piece::Text(_)));
                    let texts: Vec<bool> = texts.collect();
                    prop_assert!(texts.windows(2).all(|pair| pair != [true, true]));
                    prop_assert!(template.pieces.iter().all(|piece| *piece != Piece::Text(Box::default())));
                }
            }
        }
    }
}
