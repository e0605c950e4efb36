//! The text of `doctor` at several widths, from an invented document.

use report::{Style, terminal};
use schema::Quantiles;
use schema::doctor::{Ability, Area, DoctorDocument, Finding, MAIN_VERB, Measured, SCHEMA, State, VerbState, WakeUp};
use schema::document::Host;

fn ability(verb: &str, state: VerbState, why: &str, fix: Option<&str>) -> Ability {
    let about = format!("what {verb} is for");
    Ability { verb: verb.into(), about, state, why: why.into(), fix: fix.map(str::to_owned) }
}

fn finding(area: Area, name: &str, state: State, found: &str, touches: &[&str], fix: Option<&str>) -> Finding {
    let touches = touches.iter().map(|&touched| touched.to_owned()).collect();
    Finding { area, name: name.into(), found: found.into(), state, touches, fix: fix.map(str::to_owned) }
}

fn document() -> DoctorDocument {
    let late = |wait: &str, ahead_ns, p50, p99| WakeUp {
        wait: wait.into(),
        ahead_ns,
        late_ns: Quantiles { count: 100, p50, p99, max: 2 * p99, ..Quantiles::default() },
    };
    DoctorDocument {
        schema: SCHEMA.into(),
        host: Host {
            kernel: "6.12.48".into(),
            cpu: "A CPU".into(),
            cores: 4,
            memory_bytes: 16_000_000_000,
            ..Host::default()
        },
        verbs: vec![
            ability("bench", VerbState::Ok, "", None),
            ability(MAIN_VERB, VerbState::Partial, "the path is not real-time", Some("run as root of the machine")),
            ability(
                "bench --rtt, this host",
                VerbState::Missing,
                "RTM_SETLINK: Operation not permitted",
                Some("run as root"),
            ),
        ],
        findings: vec![
            finding(
                Area::Rights,
                "privilege",
                State::Note,
                "user 1000 can create user namespaces, and is root in them",
                &["watch -i", "timing error"],
                Some("run as root to use these"),
            ),
            finding(
                Area::Network,
                "tun",
                State::Missing,
                "open /dev/net/tun: Permission denied",
                &["everything with a path"],
                Some("chmod 666 /dev/net/tun"),
            ),
            finding(Area::Machine, "cores", State::Ok, "4 online, all allowed", &[], None),
            finding(Area::Time, "clock", State::Ok, "source tsc; one reading takes 25 ns", &[], None),
        ],
        measured: Some(Measured {
            wake_up: vec![late("hybrid", 200_000, 900, 11_000), late("sleep", 20_000_000, 81_000, 513_000)],
            clock_read_ns: Quantiles { count: 200, p50: 25, p99: 30, max: 90, ..Quantiles::default() },
            tun_write_ns: Some(Quantiles { count: 2000, p50: 900, p99: 4_000, max: 20_000, ..Quantiles::default() }),
            ..Measured::default()
        }),
    }
}

#[test]
fn doctor_screen_with_every_state() {
    insta::assert_snapshot!(terminal::doctor(&document(), Style { color: false, width: 80, unicode: true }));
}

#[test]
fn doctor_lines_fit_the_width_and_have_every_text() {
    for width in [60, 80, 120] {
        for unicode in [false, true] {
            let text = terminal::doctor(&document(), Style { color: false, width, unicode });
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
                assert_eq!(line, line.trim_end(), "{width}");
            }
            // All text is ASCII, so that a terminal without UTF-8 shows every character.
            assert!(text.is_ascii(), "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for expected in [
                "READY Does not work: bench --rtt, this host. Partially: bench --server.",
                "1 note below, marked `note`.",
                "why RTM_SETLINK: Operation not permitted fix run as root",
                "missing tun open /dev/net/tun: Permission denied affects everything with a path fix chmod 666 /dev/net/tun",
                "note privilege",
                "ok cores 4 online, all allowed",
                "timer: sleep, 20 ms 81.0 us 513.0 us",
            ] {
                assert!(words.contains(expected), "{width}: `{expected}` is not in\n{text}");
            }
        }
    }
}

#[test]
fn doctor_begins_with_its_result() {
    let with = |state| {
        let mut document = document();
        document.verbs[1].state = state;
        document.verbs.truncate(2);
        terminal::doctor(&document, Style::PLAIN).split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(with(VerbState::Ok), "READY");
    assert_eq!(with(VerbState::Partial), "READY");
    assert_eq!(with(VerbState::Missing), "MISSING");
}

#[test]
fn doctor_has_colours_only_if_enabled() {
    let with = |color| terminal::doctor(&document(), Style { color, width: 80, unicode: true });
    assert!(!with(false).contains('\u{1b}'));
    assert!(with(true).contains("\u{1b}[1;31mmissing\u{1b}[0m"));
}

/// Device names and kernel messages may have control characters.
#[test]
fn doctor_escapes_control_characters() {
    let mut document = document();
    document.findings[0].found = "\u{1b}[2Jgone".into();
    let text = terminal::doctor(&document, Style::PLAIN);
    assert!(!text.contains('\u{1b}') && text.contains("gone"), "{text}");
}
