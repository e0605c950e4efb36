//! Serialization of fields that are a quantity or a keyword.

/// A share of a core, or `none`.
pub mod or_none {
    use serde::{Deserialize, Deserializer, Serializer};
    use units::CpuShare;

    pub fn serialize<S: Serializer>(share: &Option<CpuShare>, serializer: S) -> Result<S::Ok, S::Error> {
        match share {
            Some(share) => serializer.collect_str(share),
            None => serializer.serialize_str("none"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CpuShare>, D::Error> {
        let typed = String::deserialize(deserializer)?;
        crate::share(&typed).map_err(serde::de::Error::custom)
    }
}

/// A number of bytes, or `auto`.
pub mod or_auto {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => serializer.serialize_u32(*bytes),
            None => serializer.serialize_str("auto"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Typed {
            Bytes(u32),
            Word(String),
        }
        match Typed::deserialize(deserializer)? {
            Typed::Bytes(bytes) => Ok(Some(bytes)),
            Typed::Word(word) => crate::socket_bytes(&word).map_err(serde::de::Error::custom),
        }
    }
}
