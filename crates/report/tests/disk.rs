//! The storage under a folder, on the terminal and as a page.

#[path = "support/markup.rs"]
mod markup;

use report::{Style, disk_page, terminal};
use schema::document::{Check, CheckState, Quantiles, Run, SCHEMA, Weight};
use schema::{DiskDocument, DiskTest, Validity};

fn bonnie_test(bytes_per_s: f64, storage_share: f64) -> DiskTest {
    DiskTest {
        bytes_per_s,
        iops: bytes_per_s / 16_384.0,
        cpu: 0.42,
        cpu_user: 0.12,
        cpu_system: 0.3,
        written_bytes: 1 << 30,
        duration_s: 7.5,
        storage_share: Some(storage_share),
        ..DiskTest::default()
    }
}

fn application_test(iops: f64, p50_ns: u64) -> DiskTest {
    let times = Quantiles {
        count: 5_000,
        mean: 1.2 * p50_ns as f64,
        stddev: 1.0,
        min: p50_ns / 2,
        p50: p50_ns,
        p75: 2 * p50_ns,
        p90: 3 * p50_ns,
        p95: 4 * p50_ns,
        p99: 5 * p50_ns,
        p99_9: 6 * p50_ns,
        p99_99: 7 * p50_ns,
        max: 8 * p50_ns,
    };
    DiskTest { iops, bytes_per_s: 4096.0 * iops, latency_ns: Some(times), direct: true, ..bonnie_test(0.0, 1.0) }
}

fn document(cached: &[&str]) -> DiskDocument {
    let tests = [
        ("write_per_block", bonnie_test(210e6, 1.0)),
        ("read_per_block", bonnie_test(3_100e6, if cached.contains(&"read_per_block") { 0.02 } else { 1.0 })),
        ("seeks", bonnie_test(1.7e6, 1.0)),
        ("random_read_4k", application_test(9_000.0, 100_000)),
        ("commits", application_test(420.0, 2_000_000)),
    ];
    let check = |(name, test): &(&str, DiskTest)| Check {
        name: format!("{name}: storage measured"),
        state: if cached.contains(name) { CheckState::Failed } else { CheckState::Ok },
        weight: Weight::Suspect,
        value: test.storage_share,
        limit: Some(0.9),
        unit: String::new(),
        why: "as the kernel counted".into(),
    };
    let mut run = Run { id: "20261122-120000-disk-abcd".into(), dir: "/runs/20261122".into(), ..Run::default() };
    run.command = "yamabiko disk '/srv/<cache>'".into();
    let settings =
        [("folder", "/srv/<cache>"), ("file system", "ext4 on /dev/sda1"), ("file", "1GiB"), ("fio", "fio-3.33")];
    run.host.settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    DiskDocument {
        schema: SCHEMA.into(),
        run,
        validity: Validity::from_checks(tests.iter().map(check).collect()),
        disk: tests.map(|(name, test)| (name.to_owned(), test)).into(),
    }
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn disk_screen_and_page_have_every_test() {
    let document = document(&[]);
    let text = terminal::disk(&document, Style::PLAIN);
    for expected in [
        "210 MB/s written, 3,100 MB/s read, 104 seeks/s, 9,000 random 4 KiB reads/s, 420 commits/s; /srv/<cache> (ext4 on \
         /dev/sda1).",
        "write, 16 KiB per call 210,000",
        "4 KiB random reads 9,000 100 us 500 us 600 us 800 us 42.0",
    ] {
        assert!(flat(&text).contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains("PAGE CACHE"), "{text}");
    let page = disk_page(&document, "size = \"1GiB\"");
    let titles: Vec<&str> = page.figures().iter().map(|figure| figure.title()).collect();
    assert_eq!(titles, ["Transfers", "Operations", "Latency", "Latency by test", "User and kernel CPU time"]);
    let svg = page.figures()[2].standalone();
    // 5,000 values determine p99.9, but no higher percentile.
    assert!(svg.contains("600 us") && !svg.contains("700 us"), "{svg}");
    let html = page.into_html();
    let cells: Vec<String> = markup::elements(&html)
        .into_iter()
        .filter(|element| matches!(element.name.as_str(), "td" | "th"))
        .map(|element| element.text)
        .collect();
    for expected in ["write, 16 KiB per call", "210,000", "p99.99", "14.00 ms", "4 KiB and fdatasync", "2.00 ms"] {
        assert!(cells.iter().any(|cell| cell == expected), "{expected}: {cells:?}");
    }
    assert!(html.contains("/srv/&lt;cache&gt;") && html.contains("fio-3.33") && html.contains("/runs/20261122"));
    assert!(!html.contains("The page cache was measured"));
}

#[test]
fn disk_figures_from_the_page_cache_are_marked() {
    let document = document(&["read_per_block"]);
    let text = terminal::disk(&document, Style::PLAIN);
    for expected in [
        "3,100 MB/s read (PAGE CACHE)",
        "NOT the speed of a disk, as the page cache or memory answered (ext4 on /dev/sda1): read, 16 KiB per call.",
        "read, 16 KiB per call (PAGE CACHE) 3,100,000",
    ] {
        assert!(flat(&text).contains(expected), "{expected}\n{text}");
    }
    let page = disk_page(&document, "");
    // The plots are marked as well, because an image may be shared without its page.
    let svg = page.figures()[0].standalone();
    assert!(svg.contains("read, 16 KiB (CACHE)") && !svg.contains("write, 16 KiB (CACHE)"), "{svg}");
    let html = page.into_html();
    markup::elements(&html);
    let (warning, table) = (html.find("The page cache was measured").unwrap(), html.find("<h2>Bonnie tests").unwrap());
    assert!(warning < table, "the warning is before any figure");
    let lead = html.find("NOT the speed of a disk").unwrap();
    assert!(lead < warning);
}

#[test]
fn disk_answered_from_memory_only_has_a_warning() {
    let mut document = document(&["write_per_block", "read_per_block", "seeks", "random_read_4k", "commits"]);
    let text = terminal::disk(&document, Style::PLAIN);
    assert!(flat(&text).contains("None of these figures is the speed of a disk"), "{text}");
    document.disk.clear();
    document.run.dir.clear();
    document.run.id.clear();
    let text = terminal::disk(&document, Style::PLAIN);
    assert!(text.contains("nothing was measured"), "{text}");
    let page = disk_page(&document, "");
    assert!(page.figures().is_empty());
    assert!(page.into_html().contains("This run was not stored."));
}

#[test]
fn unknown_disk_test_is_shown_by_its_name() {
    let mut document = document(&[]);
    document.disk = [("holes_4k".to_owned(), application_test(5.0, 900))].into();
    let text = flat(&terminal::disk(&document, Style::PLAIN));
    assert!(text.contains("holes_4k 5.0 900 ns"), "{text}");
    assert!(disk_page(&document, "").into_html().contains("holes_4k"));
}
