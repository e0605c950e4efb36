//! ApacheBench's layout with synthetic figures. Labels, columns and units are those of ab: the lines were compared with
//! the output of ab 2.3, and `real_load/ab.rs` of the command compares them again with a server.

use std::time::{Duration, UNIX_EPOCH};

use report::ab::{Attributes, Failed, Report, RequestTimes, Secured, Shown, Times, gnuplot, html, percentages, text};

const ALL: Shown = Shown { percentiles: true, deviations: true };

fn request(number: u64) -> RequestTimes {
    RequestTimes {
        started_at_ns: number * 1_000_000_000,
        connect_ns: 1_400_000,
        waiting_ns: 2_500_000 * number,
        total_ns: 3_000_000 * number + 1_400_000,
    }
}

/// A run without failures: three requests over a second and a half.
fn good() -> Report {
    Report {
        software: "nginx/1.22.1".into(),
        hostname: "127.0.0.1".into(),
        port: 8080,
        tls: None,
        path: "/1k.bin?a=b".into(),
        document_bytes: Some(1024),
        concurrency: 2,
        taken: Duration::from_millis(1500),
        complete: 3,
        failed: Failed::default(),
        write_errors: 0,
        non_2xx: 0,
        kept_alive: None,
        bytes_received: 3792,
        bytes_sent: None,
        body_bytes: 3072,
        times: Times::new((1..=3).map(request).collect()),
        zero_at: UNIX_EPOCH + Duration::from_secs(1_795_167_005),
    }
}

/// A run whose report has every possible line.
fn bad() -> Report {
    Report {
        software: String::new(),
        hostname: "shop.example".into(),
        port: 443,
        tls: Some(Secured {
            protocol: "TLSv1.3,TLS_AES_256_GCM_SHA384".into(),
            server_name: Some("shop.example".into()),
        }),
        path: "/<b>\u{1b}[31m".into(),
        document_bytes: None,
        failed: Failed { connect: 1, receive: 2, length: 3, exceptions: 4 },
        write_errors: 1,
        non_2xx: 5,
        kept_alive: Some(2),
        bytes_sent: Some(480),
        ..good()
    }
}

#[test]
fn ab_report_of_a_valid_run() {
    insta::assert_snapshot!(text(&good(), ALL));
}

#[test]
fn ab_report_with_every_line() {
    insta::assert_snapshot!(text(&bad(), Shown { percentiles: false, deviations: false }));
}

#[test]
fn ab_report_without_ended_requests() {
    let none = Report { complete: 0, bytes_received: 0, body_bytes: 0, times: Times::default(), ..good() };
    insta::assert_snapshot!(text(&none, ALL));
    assert_eq!(percentages(&none), "Percentage served,Time in ms\n");
    assert!(html(&none, &Attributes::default()).ends_with("0 bytes</td></tr>\n</table>\n"));
}

#[test]
fn ab_report_of_one_request_has_no_percentiles() {
    let one = Report { complete: 1, times: Times::new(vec![request(1)]), ..good() };
    assert!(!text(&one, ALL).contains('%'));
}

#[test]
fn ab_report_as_html() {
    insta::assert_snapshot!(html(&good(), &Attributes::default()));
    let own = Attributes { table: "border=1".into(), row: "class=r".into(), cell: "class=c".into() };
    insta::assert_snapshot!(html(&bad(), &own));
}

#[test]
fn ab_gnuplot_file_has_every_request() {
    insta::assert_snapshot!(gnuplot(&good()));
}

#[test]
fn ab_csv_file_has_a_line_per_percent() {
    let file = percentages(&good());
    assert_eq!(file.lines().count(), 102);
    let line = |number| file.lines().nth(number).unwrap();
    assert_eq!([line(0), line(1)], ["Percentage served,Time in ms", "0,4.400"]);
    assert_eq!([line(51), line(101)], ["50,10.400", "100,10.400"]);
}
