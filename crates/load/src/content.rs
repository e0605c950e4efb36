//! Models of the content of a site: objects with sizes and popularities.
//!
//! Load generator and server share one definition: the load requests [`Content::objects`] by their weights and expects
//! their lengths, and `yamabiko serve --make-content` writes the files. The same model, number and seed give the same
//! catalogue.

mod specweb99;
mod surge;

use std::fmt;
use std::str::FromStr;

use units::Bytes;

/// Maximum number of objects of a catalogue.
pub const OBJECTS_MAX: u32 = 1_000_000;

/// A catalogue of objects, defined by a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Content {
    /// The source of sizes and popularities.
    pub model: Model,
    /// Number of objects, 1 to [`OBJECTS_MAX`]; SPECweb99 rounds up to whole directories of 36.
    pub objects: u32,
    /// Exponent of Zipf's law: the object of rank r is requested in proportion to r to the power of -alpha. With 0 all
    /// objects are equally popular. For SPECweb99 it is the exponent of the directories.
    pub alpha: f64,
    /// Seed of sizes and of the bytes of the files.
    pub seed: u64,
}

/// A model of the sizes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// SPECweb99: four classes of nine files per directory.
    SpecWeb99,
    /// SURGE: a log-normal body with a Pareto tail.
    Surge,
    /// All objects have the same size.
    Even(Bytes),
}

/// An object of a catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Path, beginning with `/`; letters, digits, `_` and `/`.
    pub path: String,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Weight among requests, relative to other objects; above 0.
    pub weight: f64,
}

/// Why a content model was rejected: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContentError(String);

/// The accepted form of a content model.
pub const EXPECTED: &str = "expected a model and a number of objects, such as specweb99:1000, surge:5000 or \
     even:1000,size=10KB, optionally followed by alpha=0.8 and seed=1";

impl Content {
    /// Default size of the objects of [`Model::Even`].
    pub const SIZE: Bytes = Bytes(10_000);

    /// A catalogue by the name of its model (`specweb99`, `surge`, `even`). Without `alpha` the model's own exponent
    /// applies. `size` is only for `even`.
    ///
    /// # Errors
    /// The model is unknown, the number of objects is 0 or too large, the exponent is outside 0 to 5, or the size is 0,
    /// above 1 GB, or given for another model than `even`.
    pub fn new(
        model: &str,
        objects: u32,
        alpha: Option<f64>,
        size: Option<Bytes>,
        seed: u64,
    ) -> Result<Self, ContentError> {
        let refuse = |why: String| Err(ContentError(why));
        let (model, own_alpha) = match (model, size) {
            ("specweb99", None) => (Model::SpecWeb99, specweb99::ALPHA),
            ("surge", None) => (Model::Surge, surge::ALPHA),
            ("even", size) => (Model::Even(size.unwrap_or(Self::SIZE)), 0.8),
            ("specweb99" | "surge", Some(_)) => {
                return refuse(format!("a size is for even; {model} has its own sizes"));
            }
            _ => return refuse(format!("`{}` is not a valid content model: {EXPECTED}", model.escape_debug())),
        };
        if objects == 0 || objects > OBJECTS_MAX {
            return refuse(format!("{objects} objects: from 1 to {OBJECTS_MAX} are possible"));
        }
        let alpha = alpha.unwrap_or(own_alpha);
        if !(0.0..=5.0).contains(&alpha) {
            return refuse(format!("alpha = {alpha}: from 0 (all alike) to 5 is possible"));
        }
        if let Model::Even(size) = model
            && !(1..=1_000_000_000).contains(&size.0)
        {
            return refuse(format!("a size of {size}: from 1B to 1GB is possible"));
        }
        Ok(Content { model, objects, alpha, seed })
    }

    /// The objects of the catalogue, in an order that depends only on the model.
    pub fn objects(&self) -> Vec<Object> {
        match self.model {
            Model::SpecWeb99 => specweb99::objects(self.objects, self.alpha),
            Model::Surge => self.ranked(|rank| surge::size(self.seed, rank)),
            Model::Even(size) => self.ranked(|_| size.0),
        }
    }

    /// Objects in descending order of popularity, a thousand per directory.
    fn ranked(&self, size: impl Fn(u32) -> u64) -> Vec<Object> {
        (0..self.objects)
            .map(|rank| Object {
                path: format!("/{:03}/{rank:06}", rank / 1000),
                bytes: size(rank),
                weight: zipf(rank, self.alpha),
            })
            .collect()
    }

    /// Passes the bytes of object `index` of the catalogue to `write`, in order and in pieces. The bytes are
    /// incompressible and depend on the seed.
    ///
    /// # Errors
    /// The first error of `write`.
    pub fn bytes<E>(
        &self,
        index: u32,
        object: &Object,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rng = stats::Rng::new(self.seed, 1 << 40 | u64::from(index));
        let mut piece = vec![0; 64 * 1024];
        let mut left = object.bytes;
        while left > 0 {
            // Filling whole words makes the bytes independent of the length of pieces.
            for word in piece.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next().to_le_bytes());
            }
            let length = left.min(piece.len() as u64);
            write(&piece[..length as usize])?;
            left -= length;
        }
        Ok(())
    }
}

/// Weight of rank `rank`, from 0, by Zipf's law.
fn zipf(rank: u32, alpha: f64) -> f64 {
    (f64::from(rank) + 1.0).powf(-alpha)
}

impl FromStr for Content {
    type Err = ContentError;

    /// Parses `specweb99:1000`, `surge:5000,alpha=1,seed=7` or `even:100,size=10KB`.
    fn from_str(typed: &str) -> Result<Self, ContentError> {
        let refused = || ContentError(format!("`{}` is not a valid content model: {EXPECTED}", typed.escape_debug()));
        let (model, rest) = typed.split_once(':').ok_or_else(refused)?;
        let mut parts = rest.split(',').map(str::trim);
        let objects = parts.next().and_then(|number| number.parse::<u32>().ok()).ok_or_else(refused)?;
        let (mut alpha, mut size, mut seed) = (None, None, 1);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(refused)?;
            match key.trim() {
                "alpha" => alpha = Some(value.trim().parse::<f64>().map_err(|_| refused())?),
                "size" => size = Some(value.trim().parse::<Bytes>().map_err(|error| ContentError(error.to_string()))?),
                "seed" => seed = value.trim().parse::<u64>().map_err(|_| refused())?,
                _ => return Err(refused()),
            }
        }
        Content::new(model.trim(), objects, alpha, size, seed)
    }
}

impl Model {
    /// The name as typed.
    pub const fn name(self) -> &'static str {
        match self {
            Model::SpecWeb99 => "specweb99",
            Model::Surge => "surge",
            Model::Even(_) => "even",
        }
    }
}

impl fmt::Display for Content {
    /// Prints a form that parses to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{},alpha={},seed={}", self.model.name(), self.objects, self.alpha, self.seed)?;
        match self.model {
            Model::Even(size) => write!(f, ",size={size}"),
            Model::SpecWeb99 | Model::Surge => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
