//! Text with places for values.

/// Text with places, as `/user/{client}?n={sequence}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    /// In order; no two texts follow each other, and none is empty.
    pub pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// As it is; may be any bytes.
    Text(Box<[u8]>),
    /// The client's index, from 0.
    Client,
    /// The request's number in the run, from 0.
    Sequence,
    /// The session's number in the run, from 0; the request's where there are no sessions.
    Session,
    /// A value taken from an earlier response of the session.
    Variable(usize),
    /// A whole number drawn anew each time, from the first to the last.
    Random(u64, u64),
}

/// What places stand for, for one request.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The client's index.
    pub client: u32,
    /// The request's number in the run.
    pub sequence: u64,
    /// The session's number in the run.
    pub session: Option<u64>,
    /// By [`Piece::Variable`]; empty where nothing was taken yet.
    pub variables: &'a [Box<[u8]>],
    /// Seed of this request's draws: so that a request does not depend on those before it.
    pub seed: u64,
}

impl Template {
    /// Text without places.
    pub fn literal(text: &str) -> Self {
        Template::bytes(text.as_bytes())
    }

    /// Bytes without places.
    pub fn bytes(bytes: &[u8]) -> Self {
        let pieces = if bytes.is_empty() { Vec::new() } else { vec![Piece::Text(bytes.into())] };
        Template { pieces }
    }

    /// Whether it has no places.
    pub fn is_literal(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Whether nothing stands in it.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Its text, with `values` in their places, at the end of `into`.
    pub fn render(&self, values: &Values<'_>, into: &mut Vec<u8>) {
        use std::io::Write;
        for (place, piece) in self.pieces.iter().enumerate() {
            let written = match piece {
                Piece::Text(text) => into.write_all(text),
                Piece::Client => write!(into, "{}", values.client),
                Piece::Sequence => write!(into, "{}", values.sequence),
                Piece::Session => write!(into, "{}", values.session.unwrap_or(values.sequence)),
                Piece::Variable(index) => into.write_all(values.variables.get(*index).map_or(&[], |value| value)),
                Piece::Random(from, to) => {
                    let mut rng = stats::Rng::named(values.seed, &format!("place {place}"));
                    let span = to.saturating_sub(*from).saturating_add(1);
                    write!(into, "{}", from + rng.below(span))
                }
            };
            written.expect("memory takes every write");
        }
    }
}
