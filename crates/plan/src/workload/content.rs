//! `[load.content]`: requests for the objects of a content model.

use load::content::Content;
use serde::{Deserialize, Serialize};
use units::Bytes;

/// `[load.content]`: objects of a content model, requested by their popularity; each response must have its object's
/// length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentPlan {
    /// Model of sizes and popularity.
    pub model: ModelName,
    /// Number of objects.
    pub objects: u32,
    /// Exponent of the popularity; absent: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Size of the objects of `even`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Seed of the objects, independent of the run's seed: client and server must use the same.
    #[serde(default = "default_seed")]
    pub seed: u64,
}

/// A content model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelName {
    /// The classes of SPECweb99.
    SpecWeb99,
    /// SURGE: log-normal body with a Pareto tail.
    Surge,
    /// All objects have the same size.
    Even,
}

fn default_seed() -> u64 {
    1
}

impl ContentPlan {
    /// The definition of the objects.
    ///
    /// # Errors
    /// Parameters out of range, in one sentence.
    pub fn model(&self) -> Result<Content, String> {
        let model = match self.model {
            ModelName::SpecWeb99 => "specweb99",
            ModelName::Surge => "surge",
            ModelName::Even => "even",
        };
        Content::new(model, self.objects, self.alpha, self.size, self.seed).map_err(|error| error.to_string())
    }
}

impl From<Content> for ContentPlan {
    fn from(content: Content) -> Self {
        use load::content::Model;
        let (model, size) = match content.model {
            Model::SpecWeb99 => (ModelName::SpecWeb99, None),
            Model::Surge => (ModelName::Surge, None),
            Model::Even(size) => (ModelName::Even, Some(size)),
        };
        ContentPlan { model, objects: content.objects, alpha: Some(content.alpha), size, seed: content.seed }
    }
}
