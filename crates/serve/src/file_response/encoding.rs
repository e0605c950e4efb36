//! The Accept-Encoding field (RFC 9110, section 12.5.3).

use crate::files::Coding;
use crate::request::members;

/// Weights of a client's codings in thousandths, `None` if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    brotli: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepted {
    /// Parses one line of the field. Malformed members are ignored.
    pub(super) fn take(&mut self, value: &[u8]) {
        for member in members(value) {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = match parts.next() {
                None => Some(1000),
                Some(parameter) => weight(parameter).filter(|_| parts.next().is_none()),
            };
            let Some(weight) = weight else { continue };
            let slot = match name.len() {
                1 if name == b"*" => &mut self.any,
                2 if name.eq_ignore_ascii_case(b"br") => &mut self.brotli,
                4 if name.eq_ignore_ascii_case(b"gzip") => &mut self.gzip,
                // RFC 9110, section 8.4.1.3.
                6 if name.eq_ignore_ascii_case(b"x-gzip") => &mut self.gzip,
                8 if name.eq_ignore_ascii_case(b"identity") => &mut self.identity,
                _ => continue,
            };
            *slot = Some(weight);
        }
    }

    /// The coding to send among the available ones, in our order of preference; `Ok(None)` for identity.
    ///
    /// # Errors
    /// None of them is acceptable.
    pub(super) fn choose(&self, there: impl Iterator<Item = Coding>) -> Result<Option<Coding>, NotAcceptable> {
        let mut best: Option<(u16, Coding)> = None;
        for coding in there {
            let named = match coding {
                Coding::Brotli => self.brotli,
                Coding::Gzip => self.gzip,
            };
            let weight = named.or(self.any).unwrap_or(0);
            if weight > best.map_or(0, |(weight, _)| weight) {
                best = Some((weight, coding));
            }
        }
        match (best, self.identity) {
            (Some((weight, _)), Some(identity)) if identity > weight => Ok(None),
            (Some((_, coding)), _) => Ok(Some(coding)),
            // Without an explicit weight identity is acceptable, unless `*` excludes it.
            (None, identity) if identity.or(self.any) == Some(0) => Err(NotAcceptable),
            (None, _) => Ok(None),
        }
    }
}

/// See [`Accepted::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAcceptable;

/// `q=` and a number from 0 to 1 with at most three decimals (RFC 9110, section 12.4.2).
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), rest @ ..] = parameter else { return None };
    let decimals = match rest {
        [] => &[],
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * 1000;
    let mut worth = 100;
    for digit in decimals {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += u16::from(digit - b'0') * worth;
        worth /= 10;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(value: &str, there: &[Coding]) -> Result<Option<Coding>, NotAcceptable> {
        let mut accepted = Accepted::default();
        accepted.take(value.as_bytes());
        accepted.choose(there.iter().copied())
    }

    #[test]
    fn the_coding_is_chosen_by_accept_encoding() {
        let (br, gzip) = (Coding::Brotli, Coding::Gzip);
        let both = [br, gzip];
        for (value, choice) in [
            ("gzip, deflate, br, zstd", Ok(Some(br))),
            ("gzip", Ok(Some(gzip))),
            ("x-GZIP", Ok(Some(gzip))),
            ("br;q=0.5, gzip;q=0.8", Ok(Some(gzip))),
            ("br;q=0.5, gzip;q=0.500", Ok(Some(br))),
            ("*", Ok(Some(br))),
            ("br;q=0, *", Ok(Some(gzip))),
            ("*;q=0", Err(NotAcceptable)),
            ("identity", Ok(None)),
            ("identity;q=0", Err(NotAcceptable)),
            ("identity;q=0, gzip;q=0.001", Ok(Some(gzip))),
            ("*;q=0, identity", Ok(None)),
            ("identity, gzip;q=0.5", Ok(None)),
            ("identity;q=0.5, gzip;q=0.5", Ok(Some(gzip))),
            ("gzip;q=0", Ok(None)),
            ("", Ok(None)),
            ("deflate", Ok(None)),
            ("gzip;q=2", Ok(None)),
            ("gzip;q=0.1234", Ok(None)),
            ("gzip;x=1", Ok(None)),
            ("gzip ; Q=1.000", Ok(Some(gzip))),
            ("gzip;q=1.001", Ok(None)),
        ] {
            assert_eq!(chosen(value, &both), choice, "{value}");
        }
        assert_eq!(chosen("gzip, br", &[]), Ok(None));
        assert_eq!(chosen("br, identity;q=0", &[gzip]), Err(NotAcceptable));
    }

    proptest! {
        #[test]
        fn any_accept_encoding_is_read_without_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            Accepted::default().take(&value);
        }
    }
}
