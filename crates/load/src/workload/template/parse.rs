//! Parses typed templates.

use super::{Piece, Template};

/// The names of extracted values, each with its index.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

/// Why a template or a value's name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

/// Names of the built-in placeholders.
const BUILT_IN: [&str; 4] = ["client", "sequence", "session", "random"];

impl Names {
    /// The index of `name`; a new name gets the next index.
    ///
    /// # Errors
    /// The name is invalid (valid are letters, digits, `_` and `-`, beginning with a letter or `_`), or is that of a
    /// built-in placeholder.
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

    /// The index of `name`, if it is defined.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// The names by index.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no name is defined.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn placeholders(&self) -> String {
        let built_in = ["{client}", "{sequence}", "{session}", "{random 1..1000}"].map(str::to_owned);
        let own = self.0.iter().map(|name| format!("{{{name}}}"));
        built_in.into_iter().chain(own).collect::<Vec<_>>().join(", ")
    }
}

impl Template {
    /// Parses text with the placeholders `{client}`, `{sequence}`, `{session}`, `{random 1..1000}`, and `{name}` for
    /// each of `names`. `{{` and `}}` are literal braces.
    ///
    /// # Errors
    /// The text has an unknown placeholder, an empty range, or an unmatched brace.
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
            let piece = placeholder(&after[..end], names)?;
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

fn placeholder(typed: &str, names: &Names) -> Result<Piece, TemplateError> {
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
            names.placeholders()
        ))
    })
}

/// Parses a number that consists of digits only.
fn number(typed: &str) -> Option<u64> {
    let typed = typed.trim();
    if typed.is_empty() || !typed.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    typed.parse().ok()
}

/// The beginning of a text on one line, for error messages.
fn shown(text: &str) -> String {
    const SHOWN_MAX_CHARS: usize = 80;
    let escaped = text.escape_debug().to_string();
    match escaped.char_indices().nth(SHOWN_MAX_CHARS) {
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
    fn invalid_placeholders_are_rejected_with_the_valid_ones() {
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
        /// A text with doubled braces parses to the original text.
        #[test]
        fn doubled_braces_are_literal_braces(text in ".{0,60}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            let template = Template::parse(&doubled, &names()).unwrap();
            prop_assert_eq!(template, Template::literal(&text));
        }

        /// Every text is rejected with an error of one line, or parses to non-empty pieces.
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
