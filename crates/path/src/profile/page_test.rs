//! The example of `docs/concepts/profiles.md` has the meaning that the page describes.

use std::path::Path;

use super::Profile;
use crate::spec::{ChangedLinks, EffectSpec, Propagation};

const PAGE: &str = include_str!("../../../../docs/concepts/profiles.md");

#[test]
fn profile_example_of_the_documentation_is_valid() {
    let (_, from) = PAGE.split_once("```toml\n").expect("the page has an example");
    let (example, _) = from.split_once("```").expect("the example ends");
    let files = |file: &Path| match file.to_str() {
        Some("/docs/tunnel.csv") => Ok("time_s,rtt_ms\n0,50\n5,150\n10,50\n".to_owned()),
        Some("/docs/cell.trace") => Ok("1\n2\n2\n3\n".to_owned()),
        other => panic!("no such file in the example: {other:?}"),
    };
    let profile = Profile::parse(example, Path::new("/docs/profiles.md"), &files).unwrap();
    let path = profile.path(10);
    assert_eq!((profile.name(), path.clients.len(), path.changes.len()), ("my-clients", 10, 4));
    let home = &path.clients[0];
    assert_eq!((home.up.effects.len(), home.down.effects.len()), (6, 5));
    assert!(matches!(home.down.effects[0], EffectSpec::Bottleneck(_)), "in the order written");
    assert!(matches!(home.up.effects[0], EffectSpec::Loss(_)), "in the default order");
    assert!(matches!(path.clients[6].up.propagation, Propagation::OverTime(_)));
    let members: Vec<_> = path.shared.iter().map(|shared| shared.members.clone()).collect();
    assert_eq!(members, [6..9, 0..10]);
    let places: Vec<&ChangedLinks> = path.changes.iter().map(|change| &change.place).collect();
    assert_eq!(
        places,
        [
            &ChangedLinks::Clients(0..10),
            &ChangedLinks::Clients(6..9),
            &ChangedLinks::Shared(1),
            &ChangedLinks::Clients(9..10)
        ]
    );
}

/// The page lists all built-in profiles.
#[test]
fn documentation_lists_every_built_in_profile() {
    for name in Profile::names() {
        assert!(PAGE.contains(name), "{name}");
    }
}
