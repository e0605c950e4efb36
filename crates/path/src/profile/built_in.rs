//! The built-in profiles.

use std::path::Path;

use super::{Files, Profile};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*]
    };
}

/// Name and file: access networks from the nearest to the farthest, then mixed populations, then historical profiles.
const BUILT_IN: [(&str, &str); 16] = files![
    "lan",
    "fiber",
    "cable",
    "wifi-busy",
    "dsl",
    "5g",
    "leo-satellite",
    "4g",
    "3g",
    "geo-satellite",
    "country-high-income",
    "country-middle-income",
    "country-low-income",
    "world",
    "dialup-56k",
    "koshien-2001",
];

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// A built-in profile; `None` for an unknown name.
    pub fn builtin(name: &str) -> Option<Self> {
        let text = Self::builtin_text(name)?;
        let no_files: Files<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        Some(Self::parse(text, Path::new(name), no_files).expect("built-in profiles are checked by a test"))
    }

    /// The file of a built-in profile, with its sources in comments; `None` for an unknown name.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILT_IN.into_iter().find(|&(known, _)| known == name).map(|(_, text)| text)
    }
}
