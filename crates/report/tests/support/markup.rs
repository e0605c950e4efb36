//! A minimal markup parser that checks that every element is closed, and returns the elements with their text.
#![allow(dead_code, reason = "each test file uses its own part of this")]

/// A start tag with its attributes, and the text inside.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    /// Text directly inside, as written.
    pub text: String,
}

impl Element {
    /// An attribute's value, as written.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn has_class(&self, class: &str) -> bool {
        self.get("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    }
}

/// Every element, in the order of start tags. Panics on an end tag without a start tag, or the reverse.
pub fn elements(markup: &str) -> Vec<Element> {
    let mut found: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut rest = markup;
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a lone > near {text:?}");
        if let Some(&inside) = open.last() {
            found[inside].text.push_str(text);
        }
        if after.starts_with(['!', '?']) {
            rest = after.split_once('>').expect("a declaration ends").1;
            continue;
        }
        let (tag, after) = after.split_once('>').unwrap_or_else(|| panic!("no end: {after:.80}"));
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let ended = open.pop().map(|at| found[at].name.clone());
            assert_eq!(ended.as_deref(), Some(name), "before {after:.80}");
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let element = element(tag);
        let name = element.name.clone();
        found.push(element);
        if matches!(name.as_str(), "script" | "style") {
            let (raw, after) = rest.split_once(&format!("</{name}>")).expect("raw text ends");
            found.last_mut().unwrap().text.push_str(raw);
            rest = after;
        } else if !closed && name != "meta" {
            open.push(found.len() - 1);
        }
    }
    assert!(open.is_empty(), "still open: {:?}", open.iter().map(|&at| &found[at].name).collect::<Vec<_>>());
    found
}

fn element(tag: &str) -> Element {
    let (name, mut rest) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
    assert!(
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !name.is_empty(),
        "no name of an element: {tag:?}"
    );
    let mut attributes = Vec::new();
    while let Some((name, after)) = rest.trim_start().split_once("=\"") {
        let (value, after) = after.split_once('"').expect("an attribute ends");
        attributes.push((name.to_owned(), value.to_owned()));
        rest = after;
    }
    assert_eq!(rest.trim(), "", "no attribute: {tag:?}");
    Element { name: name.to_owned(), attributes, text: String::new() }
}
