//! Vary: which request fields selected a response, and whether another request selects the same (RFC 9111, section
//! 4.1).

use super::fields::is_named;

/// The selecting fields of a stored response, with the values of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vary(Box<[SelectingField]>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SelectingField {
    /// In lower case.
    name: Box<[u8]>,
    /// `None`: the field was absent, which matches only requests without it.
    value: Option<Box<[u8]>>,
}

impl Vary {
    /// Built from the fields of a response and of its request. `None` if no other request is known to select the same
    /// response: `*`, more than [`NAMES_MAX`] names, very long values, or fields that the server changes before it
    /// forwards them.
    pub(crate) fn of<'a>(
        answer: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        request: &(impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone),
    ) -> Option<Vary> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for (_, value) in answer.filter(|(name, _)| is_named(name, b"vary")) {
            for name in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
                if name == b"*" {
                    return None;
                }
                names.push(name.to_ascii_lowercase().into());
            }
        }
        names.sort_unstable();
        names.dedup();
        if names.len() > NAMES_MAX || names.iter().any(|name| is_changed(name, request.clone())) {
            return None;
        }
        let selecting: Box<[SelectingField]> =
            names.into_iter().map(|name| SelectingField { value: normalised(&name, request.clone()), name }).collect();
        let value_bytes: usize = selecting.iter().filter_map(|one| one.value.as_ref()).map(|value| value.len()).sum();
        (value_bytes <= VALUES_MAX).then_some(Vary(selecting))
    }

    /// Whether a request with these fields selects the same response.
    pub(crate) fn selects<'a>(&self, request: &(impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone)) -> bool {
        self.0.iter().all(|one| normalised(&one.name, request.clone()) == one.value)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let texts: usize =
            self.0.iter().map(|one| one.name.len() + one.value.as_ref().map_or(0, |value| value.len())).sum();
        texts + size_of_val(&*self.0)
    }
}

/// Whether the server forwards other values of this field than the client sent. X-Forwarded-For gains the client's
/// address. Fields named by Connection are removed (RFC 9110, section 7.6.1): a client could otherwise store the
/// response without a field as the response for requests with it.
fn is_changed<'a>(name: &[u8], mut request: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    let nominates = |list: &[u8]| list.split(|&byte| byte == b',').any(|one| is_named(one.trim_ascii(), name));
    name == b"x-forwarded-for" || request.any(|(this, value)| is_named(this, b"connection") && nominates(value))
}

/// All values of a field as one list, without insignificant white space; in lower case if the field's definition is
/// case-insensitive.
fn normalised<'a>(name: &[u8], request: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Box<[u8]>> {
    let mut found: Option<Vec<u8>> = None;
    for (_, value) in request.filter(|(this, _)| is_named(this, name)) {
        let joined = found.get_or_insert_default();
        if !joined.is_empty() {
            joined.push(b',');
        }
        without_idle_space(value, joined);
    }
    let mut found = found?;
    if CASELESS.contains(&name) {
        found.make_ascii_lowercase();
    }
    Some(found.into())
}

/// Appends `value` without white space around its commas; quoted text is unchanged.
fn without_idle_space(value: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        let was_escaped = std::mem::take(&mut escaped);
        match byte {
            b'\\' if quoted && !was_escaped => escaped = true,
            b'"' if !was_escaped => quoted = !quoted,
            b',' if !quoted => {
                while out.len() > from && matches!(out.last(), Some(b' ' | b'\t')) {
                    out.pop();
                }
            }
            b' ' | b'\t' if !quoted && (out.len() == from || out.last() == Some(&b',')) => continue,
            _ => {}
        }
        out.push(byte);
    }
}

/// Content codings, language ranges and charsets are case-insensitive (RFC 9110, sections 8.4.1, 8.5.1 and 8.3.2).
const CASELESS: &[&[u8]] = &[b"accept-encoding", b"accept-language", b"accept-charset"];
/// Most selecting names; comparing more costs more than the stored response saves.
const NAMES_MAX: usize = 16;
/// Bytes of the selecting values.
const VALUES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn of<'a>(fields: Fields<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    fn same(vary: &str, one: Fields<'_>, two: Fields<'_>) -> bool {
        let answer = [("Vary", vary)];
        let there = Vary::of(of(&answer), &of(one)).unwrap().selects(&of(two));
        let back = Vary::of(of(&answer), &of(two)).unwrap().selects(&of(one));
        assert_eq!(there, back);
        there
    }

    #[test]
    fn equivalent_field_values_select_the_same_variant() {
        assert!(same("", &[("A", "1")], &[("A", "2")]));
        assert!(same("a, B", &[("A", "1"), ("x", "1")], &[("a", "1"), ("x", "2")]));
        assert!(!same("a", &[("A", "1")], &[("a", "2")]));
        assert!(!same("a", &[], &[("a", "")]));
        assert!(same("accept-encoding", &[("Accept-Encoding", "gzip, BR")], &[("accept-encoding", "GZIP ,br")]));
        assert!(same("a", &[("a", "x"), ("a", "y")], &[("a", "x ,\t y")]));
        // Order, case and quoted text can be significant.
        assert!(!same("a", &[("a", "x,y")], &[("a", "y,x")]));
        assert!(!same("a", &[("a", "x")], &[("a", "X")]));
        assert!(!same("a", &[("a", "\"x, y\"")], &[("a", "\"x,y\"")]));
        assert!(!same("a", &[("a", "x y")], &[("a", "xy")]));
    }

    #[test]
    fn vary_star_and_too_many_fields_are_not_stored() {
        assert_eq!(Vary::of(of(&[("vary", "a"), ("Vary", "b, *")]), &of(&[])), None);
        for name in ["X-Forwarded-For", "Accept-Language"] {
            let request = [("Accept-Language", "fr"), ("Connection", "keep-alive, accept-language")];
            assert_eq!(Vary::of(of(&[("vary", name)]), &of(&request)), None, "{name}");
        }
        assert!(Vary::of(of(&[("vary", "accept")]), &of(&[("Connection", "keep-alive")])).is_some());
        let names = |count: usize| (0..count).map(|at| format!("f{at}")).collect::<Vec<_>>().join(",");
        assert!(Vary::of(of(&[("vary", &names(NAMES_MAX))]), &of(&[])).is_some());
        assert!(Vary::of(of(&[("vary", &names(NAMES_MAX + 1))]), &of(&[])).is_none());
        let long = "x".repeat(VALUES_MAX + 1);
        assert!(Vary::of(of(&[("vary", "a")]), &of(&[("a", &long)])).is_none());
        assert!(Vary::of(of(&[("vary", "a")]), &of(&[("a", &long[1..])])).is_some());
    }
}
