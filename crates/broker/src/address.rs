//! Where a stream is, and the subjects of its messages.

use std::fmt;
use std::str::FromStr;

use coordination::Address;

/// A stream on a NATS server: `nats://HOST[:PORT]/STREAM`, or `tls://` for TLS. Printed without user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamAddress {
    address: Address,
}

impl StreamAddress {
    /// Whether a text is meant as such an address, valid or not.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("nats://") || text.starts_with("tls://")
    }

    /// The server's URL, perhaps with user and password.
    pub fn server(&self) -> &str {
        &self.address.server
    }

    /// Name of the stream: letters, digits, `-` and `_`.
    pub fn stream(&self) -> &str {
        &self.address.session
    }
}

impl FromStr for StreamAddress {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected nats://HOST[:PORT]/STREAM, or tls:// for TLS; STREAM has at most {} letters, digits, - and _",
                Address::SESSION_MAX
            )
        };
        let address: Address = typed.parse().map_err(|_| expected())?;
        let has_stream = typed
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .is_some_and(|(_, name)| !name.is_empty());
        if has_stream { Ok(StreamAddress { address }) } else { Err(expected()) }
    }
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, formatter)
    }
}

impl fmt::Debug for StreamAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, formatter)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A batch of a tap agent.
    Tap,
    /// The first message of a tap agent after its start or an absence.
    Hello,
    /// Seconds of a watch.
    Watch,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Tap, Kind::Hello, Kind::Watch];

    const fn word(self) -> &'static str {
        match self {
            Kind::Tap => "tap",
            Kind::Hello => "hello",
            Kind::Watch => "watch",
        }
    }
}

/// The subject of a message: `yamabiko.STREAM.KIND.NAME.ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What the message is.
    pub kind: Kind,
    /// The sender's name, which the server's permissions may bind to a user: see [`Subject::text`].
    pub name: String,
    /// Identifies the numbering of its messages: letters and digits.
    pub id: String,
}

impl Subject {
    /// The subject in this stream. A dot of the name, which would separate words of the subject, is written as `/`.
    pub fn text(&self, stream: &str) -> String {
        format!("yamabiko.{stream}.{}.{}.{}", self.kind.word(), self.name.replace('.', "/"), self.id)
    }

    /// Reads a subject of this stream; `None`: another program's.
    pub fn parse(stream: &str, text: &str) -> Option<Subject> {
        let mut words = text.split('.');
        let (mut next, mut rest) = (words.next(), words);
        if next.take() != Some("yamabiko") || rest.next() != Some(stream) {
            return None;
        }
        let kind = rest.next()?;
        let kind = Kind::ALL.into_iter().find(|known| known.word() == kind)?;
        let (name, id) = (rest.next()?, rest.next()?);
        rest.next().is_none().then(|| Subject { kind, name: name.replace('/', "."), id: id.to_owned() })
    }

    /// The subjects of a new stream. They are not those of a load's shards (`yamabiko.SESSION.leader`, `.all`,
    /// `.shard.N`).
    pub(crate) fn all(stream: &str) -> Vec<String> {
        Kind::ALL.into_iter().map(|kind| Subject::of_kind(stream, kind)).collect()
    }

    /// A pattern of the subjects of one kind.
    pub(crate) fn of_kind(stream: &str, kind: Kind) -> String {
        format!("yamabiko.{stream}.{}.*.*", kind.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_addresses_name_their_stream() {
        let address: StreamAddress = "nats://u:secret@h:4222/TAPS".parse().unwrap();
        assert_eq!((address.server(), address.stream()), ("nats://u:secret@h:4222", "TAPS"));
        assert_eq!(format!("{address} {address:?}"), "nats://h:4222/TAPS nats://h:4222/TAPS");
        assert!("tls://h/a-1_B".parse::<StreamAddress>().is_ok());
        for wrong in [
            "",
            "h:4222",
            "http://h/T",
            "nats://h",
            "nats://h/",
            "nats:///T",
            "nats://h/a.b",
            "nats://h/a/b",
            "nats://h/*",
        ] {
            let why = wrong.parse::<StreamAddress>().unwrap_err();
            assert!(why.starts_with("expected nats://HOST[:PORT]/STREAM"), "{wrong}: {why}");
        }
    }

    #[test]
    fn subjects_have_the_sender_and_no_other_separator() {
        let subject = Subject { kind: Kind::Tap, name: "shop.web-1".into(), id: "0a".into() };
        assert_eq!(subject.text("TAPS"), "yamabiko.TAPS.tap.shop/web-1.0a");
        assert_eq!(Subject::parse("TAPS", "yamabiko.TAPS.tap.shop/web-1.0a"), Some(subject));
        for foreign in [
            "yamabiko.TAPS.leader",
            "yamabiko.OTHER.tap.a.b",
            "yamabiko.TAPS.tap.a",
            "yamabiko.TAPS.tap.a.b.c",
            "x.TAPS.tap.a.b",
            "",
        ] {
            assert_eq!(Subject::parse("TAPS", foreign), None, "{foreign}");
        }
    }
}
