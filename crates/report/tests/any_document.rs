//! Any document renders without a panic, and the output has no control characters.

#[path = "support/markup.rs"]
mod markup;
#[path = "support/documents.rs"]
mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use report::run_page::{self, Sources};
use report::{ProfileView, Style, terminal};
use schema::document::*;
use schema::tap_part::{TapAvailability, TapLookups, TapProgram, TapView};
use schema::watch_part::{WatchConnections, WatchQuic};
use schema::{
    CacheFigures, CachePart, CachePoint, ClientsSupported, DistributionRecord, Measure, MovedFigure, OriginTraffic,
    OtherProcess, Ratio, SecondRecord, ServerCores, ServerSecond, TapPart, UncountedRun, WatchPart, WatchSecond,
    WrongExample,
};
use stats::{Histogram, Rng};
use store::{Brief, RunEntry, RunState};

/// Generates values that are likely to break a page: extremes, and text with control characters.
struct Wild(Rng);

impl Wild {
    fn number(&mut self) -> u64 {
        let small = self.0.below(2_000_000_000);
        [0, 1, small, small, u64::MAX, 1 << 53][self.0.below(6) as usize]
    }

    fn float(&mut self) -> f64 {
        let any = f64::from_bits(self.0.next());
        [0.0, -1.0, 110.0, any, f64::NAN, f64::INFINITY, f64::MAX, 1e-300][self.0.below(8) as usize]
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 10] =
            ["ok", " ", "\u{1b}[2J", "\n", "\r", "\u{9b}31m", "\u{202e}", "山彦", "\0", "a-long-word-that-wraps"];
        (0..self.0.below(12)).map(|_| PIECES[self.0.below(PIECES.len() as u64) as usize]).collect()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.0.below(2) == 0).then(|| make(self))
    }

    fn many<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.0.below(14)).map(|_| make(self)).collect()
    }

    fn counts(&mut self) -> BTreeMap<String, u64> {
        self.many(|w| (w.text(), w.number())).into_iter().collect()
    }

    fn quantiles(&mut self) -> Quantiles {
        Quantiles {
            count: self.number(),
            mean: self.float(),
            stddev: self.float(),
            min: self.number(),
            p50: self.number(),
            p75: self.number(),
            p90: self.number(),
            p95: self.number(),
            p99: self.number(),
            p99_9: self.number(),
            p99_99: self.number(),
            max: self.number(),
        }
    }

    fn level(&mut self) -> Level {
        Level { mean: self.float(), p50: self.number(), max: self.number() }
    }

    fn check(&mut self) -> Check {
        const STATES: [CheckState; 4] =
            [CheckState::Ok, CheckState::Failed, CheckState::CouldNotRun, CheckState::NotApplicable];
        Check {
            name: self.text(),
            state: STATES[self.0.below(4) as usize],
            weight: if self.0.below(2) == 0 { Weight::Invalid } else { Weight::Suspect },
            value: self.maybe(Wild::float),
            limit: self.maybe(Wild::float),
            unit: if self.0.below(2) == 0 { "ns".into() } else { self.text() },
            why: self.text(),
        }
    }

    fn load(&mut self) -> Load {
        Load {
            loop_kind: if self.0.below(2) == 0 { "open".into() } else { self.text() },
            offered_requests: self.number(),
            offered_rate_per_s: self.float(),
            completed: self.number(),
            achieved_rate_per_s: self.float(),
            failed: self.counts(),
            malformed_responses: self.many(|w| MalformedResponses {
                reason: w.text(),
                count: w.number(),
                first: w.text(),
            }),
            in_flight_at_end: self.number(),
            status: self.counts(),
            statuses_expected: self.number().is_multiple_of(2),
            response_time_ns: self.quantiles(),
            service_time_ns: self.quantiles(),
            send_lag_ns: self.quantiles(),
            connect_ns: self.quantiles(),
            tls_handshake_ns: self.maybe(Wild::quantiles),
            tls: self.maybe(|w| Tls {
                server_name: w.text(),
                trust: w.text(),
                handshakes_full: w.number(),
                handshakes_resumed: w.number(),
                resumed_share: w.maybe(Wild::float),
                version: w.counts(),
                cipher_suite: w.counts(),
                alpn: w.counts(),
                first_failure: w.maybe(Wild::text),
            }),
            quic: self.maybe(|w| Quic {
                stream_window_bytes: w.number(),
                connection_window_bytes: w.number(),
                congestion_control: w.text(),
                initial_rtt_ns: w.number(),
                initial_window_bytes: w.number(),
                idle_timeout_ns: w.number(),
                keep_alive_ns: w.maybe(Wild::number),
                ecn: true,
                offload: true,
                spin_bit: true,
                handshakes: w.number(),
                retries: w.number(),
                early_data_offered: w.number(),
                early_data_accepted: w.number(),
                datagrams_sent: w.number(),
                datagrams_received: w.number(),
                bytes_sent: w.number(),
                bytes_received: w.number(),
                lost_packets: w.number(),
                migrations: w.maybe(Wild::number),
                migrations_refused: w.maybe(Wild::number),
                receive_drops: w.number(),
                first_failure: w.maybe(Wild::text),
            }),
            first_byte_ns: self.quantiles(),
            connection_duration_ns: self.quantiles(),
            generator_delay: self.maybe(|w| GeneratorDelay {
                response_time_ns: w.quantiles(),
                stalls: w.number(),
                stall_max_ns: w.number(),
                stalled_ns: w.number(),
                send_lag_own_ns: w.quantiles(),
                late_wakeups_ns: w.number(),
                run_queue_wait_ns: w.maybe(Wild::number),
            }),
            bytes_received: self.number(),
            bytes_sent: self.number(),
            requests_sent: self.number(),
            requests_retried: self.number(),
            early_responses: self.number(),
            stray_lines: self.number(),
            unsolicited: self.maybe(|w| Unsolicited { connections: w.number(), responses: w.number() }),
            in_flight: self.level(),
            connections: self.level(),
            connections_opened: self.number(),
            backlog: self.level(),
            by_distance: self.many(|w| DistanceBand {
                rtt_ns_from: w.number(),
                rtt_ns_to: w.number(),
                clients: w.number(),
                completed: w.number(),
                failed: w.number(),
                response_time_ns: w.quantiles(),
            }),
            by_url: self.many(|w| UrlPart {
                url: w.text(),
                completed: w.number(),
                failed: w.number(),
                response_time_ns: w.quantiles(),
            }),
            open_connections: self.maybe(|w| OpenConnections {
                connections: w.number(),
                failed: w.number(),
                per_second: w.number(),
                processes: w.number() as u32,
                generator_bytes_each: w.maybe(Wild::float),
                kernel_bytes_each: w.maybe(Wild::float),
            }),
            by_url_left_out: self.maybe(|w| UrlsLeftOut {
                urls: w.number(),
                completed: w.number(),
                failed: w.number(),
                response_time_ns: w.quantiles(),
            }),
            by_phase: self.many(|w| PhasePart {
                name: w.text(),
                from_s: w.float(),
                to_s: w.float(),
                is_steady: w.number() % 2 == 0,
                offered_requests: w.number(),
                offered_rate_per_s: w.float(),
                completed: w.number(),
                achieved_rate_per_s: w.float(),
                failed: w.number(),
                response_time_ns: w.quantiles(),
                service_time_ns: w.quantiles(),
                send_lag_ns: w.quantiles(),
            }),
            sessions: self.maybe(|w| Sessions {
                begun: w.number(),
                begun_measured: w.number(),
                rate_per_s: w.float(),
                ended: w.number(),
                failed: w.number(),
                cut: w.number(),
            }),
            replay: self.maybe(|w| Replay {
                file: w.text(),
                lines: w.number(),
                requests_logged: w.number(),
                left_out: w.counts(),
                left_out_first: w.counts(),
                urls: w.number(),
                clients_logged: w.number(),
                clients: w.number(),
                length_s: w.float(),
                time_scale: w.float(),
                rounds: w.maybe(Wild::number),
                requests_planned: w.maybe(Wild::number),
                bodies_empty: w.number(),
            }),
            har: self.maybe(|w| Har {
                file: w.text(),
                entries: w.number(),
                requests: w.number(),
                left_out: w.counts(),
                host: w.text(),
            }),
        }
    }

    fn path(&mut self) -> Path {
        Path {
            profile: self.text(),
            clients: self.number(),
            configured_rtt_ns: self.quantiles(),
            measured_rtt_ns: self.maybe(Wild::quantiles),
            rtt_error_ns: self.maybe(Wild::quantiles),
            measured_rtt_source: self.text(),
            timing_error_isolated_ns: self.quantiles(),
            timing_error_burst_ns: self.quantiles(),
            timing_error_own_ns: self.quantiles(),
            late_wakeups_ns: self.number(),
            run_queue_wait_ns: self.maybe(Wild::number),
            packet_capture: None,
            packets: self.number(),
            bytes: self.number(),
            drops: self.counts(),
            up: PathDirection { drops: self.counts(), ..PathDirection::default() },
            ..Path::default()
        }
    }

    fn server(&mut self) -> Server {
        Server {
            command: self.text(),
            cpu_user_s: self.float(),
            cpu_system_s: self.float(),
            cpu_receive_s: self.maybe(Wild::float),
            cpu_receive_interval_s: self.maybe(|wild| [wild.float(), wild.float()]),
            cpu_us_per_request: self.maybe(Wild::float),
            cpu_us_per_request_interval: self.maybe(|wild| [wild.float(), wild.float()]),
            cores: self.maybe(Wild::server_cores),
            rss_bytes_max: self.number(),
            throttled_s: self.maybe(Wild::float),
            source: self.text(),
            tcp: self.text(),
        }
    }

    fn server_cores(&mut self) -> ServerCores {
        let process = |wild: &mut Wild| OtherProcess {
            pid: wild.number() as i32,
            name: wild.text(),
            cpu_s: wild.float(),
            share: wild.float(),
            ended_children: wild.number().is_multiple_of(2),
        };
        ServerCores {
            cores: self.number() as u32,
            elapsed_s: self.float(),
            other_processes_s: [self.float(), self.float()],
            kernel_threads_s: self.float(),
            own_s: [self.float(), self.float()],
            interrupts_s: [self.float(), self.float()],
            stolen_s: self.float(),
            not_attributable_s: self.float(),
            source: self.text(),
            run_queue_wait_s: self.maybe(Wild::float),
            delayed_by_others_s: self.float(),
            delayed_longest_ns: self.number(),
            could_have_moved: self.maybe(|wild| MovedFigure {
                figure: wild.text(),
                value_ns: wild.float(),
                by_ns: wild.float(),
                limit_ns: wild.float(),
            }),
            processes: vec![process(self), process(self)],
        }
    }

    fn run(&mut self) -> Run {
        Run {
            id: self.text(),
            dir: self.text(),
            command: self.text(),
            seed: self.number(),
            started_at: self.text(),
            duration_s: self.float(),
            warmup_s: self.float(),
            shard: self.maybe(|w| Shard {
                index: w.number() as u32,
                count: w.number() as u32,
                plan_digest: w.text(),
                version: w.text(),
                start_at: w.text(),
                ..Shard::default()
            }),
            shards: self.many(|w| MergedShard { index: w.number() as u32, run: w.text(), ..MergedShard::default() }),
            interrupted: self.0.below(2) == 0,
            recorded: self.maybe(|w| Recorded {
                requests: w.number(),
                of: w.number(),
                one_in: w.number(),
                measured_from_ns: w.number(),
            }),
            host: Host {
                kernel: self.text(),
                cpu: self.text(),
                cores: self.number() as u32,
                memory_bytes: self.number(),
                client_cores: self.maybe(Wild::text),
                server_cores: self.maybe(Wild::text),
                settings: self.many(|w| (w.text(), w.text())).into_iter().collect(),
                steal_share: self.maybe(Wild::float),
                cpu_probe_ns: self.maybe(Wild::number),
            },
        }
    }

    fn watch(&mut self) -> WatchPart {
        WatchPart {
            source: self.text(),
            capture_point: self.text(),
            packets: self.number(),
            bytes: self.number(),
            capture_drops: self.number(),
            missing_bytes: self.number(),
            connections: WatchConnections {
                count: self.number(),
                mean: self.float(),
                p50: self.number(),
                max: self.number(),
                states: self.counts(),
                evicted: self.number(),
            },
            in_flight: self.level(),
            sessions: self.level(),
            request_rate_per_s: self.float(),
            connection_rate_per_s: self.float(),
            handshake_rtt_ns: self.quantiles(),
            service_time_ns: self.quantiles(),
            status: self.counts(),
            by_direction: self.number(),
            incomplete: self.number(),
            data_packets: self.number(),
            retransmitted: self.number(),
            retransmit_share: self.float(),
            out_of_order: self.number(),
            quic: self.maybe(|w| WatchQuic {
                versions: w.counts(),
                retries: w.number(),
                version_negotiations: w.number(),
                migrations: w.number(),
                undecrypted_packets: w.number(),
                ..WatchQuic::default()
            }),
            unread: self.maybe(Wild::text),
            undecrypted_connections: self.maybe(Wild::number),
            ..WatchPart::default()
        }
    }

    fn tap_view(&mut self) -> TapView {
        TapView {
            connections: self.number(),
            connections_failed: self.number(),
            exchanges: self.number(),
            exchanges_cut: self.number(),
            attempts: self.number(),
            failed: self.counts(),
            error_ratio: self.maybe(Wild::float),
            availability: self.maybe(|w| TapAvailability {
                attempts: w.float(),
                windows: w.float(),
                windows_tried: w.number(),
                window_s: w.float(),
            }),
            setup_ns: self.quantiles(),
            response_ns: self.quantiles(),
            sent_bytes: self.quantiles(),
            overall_rate_bytes_per_s: self.quantiles(),
            sent_bytes_total: self.number(),
            retransmits: self.number(),
            ..TapView::default()
        }
    }

    fn tap(&mut self) -> TapPart {
        TapPart {
            client: self.maybe(Wild::tap_view),
            server: self.maybe(Wild::tap_view),
            lookups: self.maybe(|w| TapLookups { count: w.number(), failed: w.counts(), lookup_ns: w.quantiles() }),
            programs: self.many(|w| TapProgram {
                name: w.text(),
                processes: w.number(),
                coverage: ["seen", "partial", "unseen"][w.0.below(3) as usize].to_owned(),
                why: w.text(),
                connections: w.number(),
            }),
            records: self.number(),
            records_dropped: self.number(),
            connections_unfollowed: self.number(),
            ..TapPart::default()
        }
    }

    fn document(&mut self) -> Document {
        let checks = self.many(Wild::check);
        Document {
            schema: self.text(),
            run: self.run(),
            validity: Validity::from_checks(checks),
            load: self.maybe(Wild::load),
            path: self.maybe(Wild::path),
            watch: self.maybe(Wild::watch),
            tap: self.maybe(Wild::tap),
            server: self.maybe(Wild::server),
            slo: self.maybe(|w| Slo {
                objective: w.text(),
                met: w.0.below(2) == 0,
                terms: w.many(|w| SloTerm {
                    term: w.text(),
                    value: w.float(),
                    limit: w.float(),
                    unit: w.text(),
                    met: w.0.below(2) == 0,
                }),
            }),
            cache: self.maybe(Wild::cache),
        }
    }

    fn cache(&mut self) -> CachePart {
        let ratio = |w: &mut Wild| Ratio {
            offered: w.maybe(Wild::float),
            ideal: w.maybe(Wild::float),
            ideal_lru: w.maybe(Wild::float),
            measured: w.maybe(Wild::float),
        };
        let example =
            |w: &mut Wild| WrongExample { kind: w.text(), request: w.text(), sequence: w.number(), why: w.text() };
        let figures = |w: &mut Wild| CacheFigures {
            requests: w.number(),
            answered: w.number(),
            errors: w.counts(),
            error_ratio: w.maybe(Wild::float),
            hit_ratio: ratio(w),
            byte_hit_ratio: ratio(w),
            basic_requests: w.number(),
            offered: w.number(),
            repeats: w.number(),
            offered_while_fetching: w.number(),
            without_identity: w.number(),
            possibly_stale: w.number(),
            unverified: w.number(),
            response_time_ns: w.quantiles(),
            hits_response_time_ns: w.quantiles(),
            misses_response_time_ns: w.quantiles(),
            wrong: w.counts(),
            examples: w.many(example),
            ..CacheFigures::default()
        };
        CachePart {
            workload: self.text(),
            proxy: self.text(),
            target_hit_ratio: self.maybe(Wild::float),
            points: self.many(|w| CachePoint {
                run: w.text(),
                phase: w.text(),
                offered_rate_per_s: w.float(),
                achieved_rate_per_s: w.float(),
                duration_s: w.float(),
                ended_early: w.0.below(2) == 0,
                interrupted: w.0.below(2) == 0,
                figures: figures(w),
                origin: w.maybe(|w| OriginTraffic {
                    requests: w.number(),
                    bytes: w.number(),
                    saved_requests: w.number() as i64,
                    saved_bytes: -(w.number() as i64 >> 1),
                }),
            }),
            clients_supported: self.maybe(|w| ClientsSupported {
                clients: w.number(),
                rate_per_client_per_s: w.float(),
                unsustained_rate_per_s: w.maybe(Wild::float),
                not_counted: w.many(|w| UncountedRun { rate_per_s: w.float(), why: w.text() }),
                rule: w.text(),
            }),
            notes: self.many(Wild::text),
        }
    }
}

fn harmless(text: &str) -> bool {
    text.ends_with('\n') && text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}'))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_document_renders_without_control_characters(seed: u64, width: u16, unicode: bool) {
        let mut wild = Wild(Rng::new(seed, 0));
        let document = wild.document();
        let mut times = Histogram::new();
        wild.many(Wild::number).into_iter().for_each(|value| times.record(value));
        let style = Style { color: false, width, unicode };
        prop_assert!(harmless(&terminal::render(&document, Some(&times), style)));
        let seconds: Vec<SecondRecord> = (0..wild.0.below(9)).map(|_| SecondRecord {
            second: wild.number() as u32,
            measured: true,
            completed: wild.number(),
            connections_mean: wild.float(),
            response_p99_ns: wild.number(),
            ..SecondRecord::default()
        }).collect();
        prop_assert!(harmless(&terminal::render_over_time(&document, Some(&times), &seconds, style)));
        prop_assert!(harmless(&terminal::cache(&document, style)));
        for point in document.cache.iter().flat_map(|part| &part.points) {
            let line = terminal::cache_point(point);
            prop_assert!(!line.contains('\n') && harmless(&(line + "\n")));
        }
        // Rendering with colours must not panic either; colours are control characters of the program.
        terminal::render(&document, None, Style { color: true, ..style });
        let (id, why) = (wild.text(), wild.text());
        let tags = wild.many(Wild::text);
        let entry = |state| RunEntry { id: id.clone(), dir: "/runs".into(), state, tags: tags.clone() };
        let entries = [
            entry(RunState::Finished(Box::new(Brief::of(&id, &document, "", "")))),
            entry(RunState::Unreadable { why }),
            entry(RunState::Unfinished { parts: 0, rows: u64::MAX }),
        ];
        prop_assert!(harmless(&terminal::runs(&entries, |_| None, style)));
        let view =
            ProfileView { name: wild.text(), about: wild.text(), rtts_ns: wild.many(Wild::number), lines: wild.many(Wild::text), ..ProfileView::default() };
        prop_assert!(harmless(&terminal::profile(&view, style)));
    }

    /// As HTML, for any names and figures: every element is closed, and every coordinate is a number.
    #[test]
    fn any_document_renders_as_well_formed_html(seed: u64) {
        let mut wild = Wild(Rng::new(seed, 0));
        let mut sources = Sources::of(wild.document());
        let seconds = 0..wild.0.below(20);
        sources.series = seconds.clone().map(|second| SecondRecord {
            second: second as u32,
            completed: wild.number(),
            connections_mean: wild.float(),
            response_p50_ns: wild.number(),
            response_max_ns: wild.number(),
            ..SecondRecord::default()
        }).collect();
        sources.watch_series = seconds.map(|second| WatchSecond {
            second,
            watched_ns: wild.number(),
            requests: wild.number(),
            connections_mean: wild.float(),
            ..WatchSecond::default()
        }).collect();
        sources.server_series = (0..wild.0.below(5)).map(|second| ServerSecond {
            second: second as u32,
            at_ns: wild.number(),
            elapsed_s: wild.float(),
            cpu_user_s: wild.float(),
            cpu_receive_s: wild.maybe(Wild::float),
            rss_bytes: wild.number(),
            ..ServerSecond::default()
        }).collect();
        sources.distributions = (0..wild.0.below(9)).map(|_| DistributionRecord {
            second: wild.number() as u32,
            measure: Measure::ResponseTime,
            from_ns: wild.number(),
            to_ns: wild.number(),
            count: wild.number(),
        }).collect();
        for values in [&mut sources.response_time, &mut sources.connect, &mut sources.wire_rtt] {
            wild.many(Wild::number).into_iter().for_each(|value| values.record(value));
        }
        sources.configured_rtt_ns = wild.many(Wild::number);
        sources.plan = wild.text();
        let sweep = report::cache_page(&sources.document, &sources.plan);
        let page = run_page::page(&sources);
        for figure in page.figures().into_iter().chain(sweep.figures()) {
            let svg = figure.standalone();
            markup::elements(&svg);
            prop_assert!(!svg.contains("NaN"), "{svg}");
        }
        for text in [page.to_markdown(), sweep.to_markdown()] {
            prop_assert!(harmless(&text), "{text}");
        }
        for html in [page.into_html(), sweep.into_html()] {
            markup::elements(&html);
            let hidden = ['\u{1b}', '\u{202e}', '\0'];
            prop_assert!(!html.contains(hidden));
        }
    }
}

#[test]
fn empty_document_renders() {
    let document = Document {
        schema: SCHEMA.into(),
        run: Run::default(),
        validity: Validity::from_checks(Vec::new()),
        load: Some(Load::default()),
        path: Some(Path::default()),
        server: Some(Server::default()),
        watch: None,
        tap: None,
        slo: None,
        cache: None,
    };
    let text = terminal::render(&document, Some(&Histogram::new()), Style::PLAIN);
    assert!(text.contains("no responses"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    assert!(terminal::runs(&[], |_| None, Style::PLAIN).contains("yamabiko demo"));
}
