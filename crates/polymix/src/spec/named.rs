//! The built-in workloads with the sources of their figures.

use std::time::Duration;

use super::{
    CacheWorkload, EmbedSpec, Expires, FormShares, KindSpec, LifeSpec, MethodShares, Popularity, Vary, WorkloadPhase,
    fifteen_seconds, nothing,
};
use crate::Distribution;

const KIB: f64 = 1024.0;
/// The Web Almanac's KB.
const KB: f64 = 1000.0;
const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 24.0 * HOUR_S;
const YEAR_S: f64 = 365.0 * DAY_S;

/// Compression ratio of text bodies under gzip. The Web Almanac counts transferred bytes, so that uncompressed bodies
/// are larger by it. A test compares it with the body content.
pub(super) const TEXT_SHRINKS_TO: f64 = 0.32;

impl CacheWorkload {
    /// Names of the built-in workloads.
    pub const NAMES: [&str; 9] = [
        "polymix-1",
        "polymix-2",
        "polymix-3",
        "polymix-4",
        "modern",
        "modern-https",
        "gateway-prepared",
        "gateway-new",
        "gateway-class",
    ];

    /// A built-in workload by name.
    pub fn named(name: &str) -> Option<CacheWorkload> {
        let named = |spec: CacheWorkload| Some(CacheWorkload { name: name.to_owned(), ..spec });
        match name {
            "polymix-1" => Some(CacheWorkload::polymix(1)),
            "polymix-2" => Some(CacheWorkload::polymix(2)),
            "polymix-3" => Some(CacheWorkload::polymix(3)),
            "polymix-4" => Some(CacheWorkload::polymix(4)),
            "modern" => Some(CacheWorkload::modern()),
            "modern-https" => named(CacheWorkload { https: 0.9, ..CacheWorkload::modern() }),
            "gateway-prepared" => named(prepared()),
            "gateway-new" => named(CacheWorkload { recurrence: 0.0, ..school_gateway() }),
            "gateway-class" => named(class()),
            _ => None,
        }
    }

    /// PolyMix-1 to 4; other numbers are clamped. KB in Web Polygraph's files are 1024 bytes.
    pub fn polymix(n: u8) -> CacheWorkload {
        match n {
            0 | 1 => polymix_1(),
            2 => polymix_2(),
            3 => polymix_3(),
            _ => polymix_4(),
        }
    }

    /// Sizes, cacheability and codings of pages of today: [`CacheWorkload::sources`] has the sources and assumptions.
    /// Every object is requested by itself.
    pub fn modern() -> CacheWorkload {
        let kind =
            |name: &str, ext: &str, media_type: &str, share, sent_kb: f64, cacheable, cycle, ttl_h: &[(f64, f64)]| {
                let gzip = matches!(name, "html" | "script" | "css");
                let mean = sent_kb * KB / if gzip { TEXT_SHRINKS_TO } else { 1.0 };
                let ttl_s = ttl_h.iter().map(|&(share, hours)| (share, hours * HOUR_S)).collect::<Vec<_>>();
                KindSpec {
                    name: name.into(),
                    ext: ext.into(),
                    media_type: media_type.into(),
                    share,
                    size: Distribution::LogNormal { mean, sd: 1.5 * mean },
                    cacheable,
                    life: LifeSpec {
                        cycle,
                        variance: 0.33,
                        last_modified: 0.735,
                        expires: Expires::MaxAge(Distribution::Quantiles(ttl_s.into())),
                        etag: 0.479,
                    },
                    gzip,
                    vary: if gzip { Vary::AcceptEncoding } else { Vary::None },
                    embeds: None,
                }
            };
        let weekly = || Distribution::LogNormal { mean: 7.0 * DAY_S, sd: DAY_S };
        let monthly = || Distribution::LogNormal { mean: 30.0 * DAY_S, sd: 7.0 * DAY_S };
        let any = || Distribution::Uniform(DAY_S, YEAR_S);
        let year = 8760.0;
        let html =
            [(0.0, 0.0), (0.1, 0.0), (0.25, 1.0), (0.5, 336.0), (0.75, year), (0.9, 10.0 * year), (1.0, 10.0 * year)];
        let script = [(0.0, 0.0), (0.1, 0.0), (0.25, 2.0), (0.5, 720.0), (0.75, year), (1.0, year)];
        let css = [(0.0, 0.0), (0.1, 24.0), (0.25, 24.0), (0.5, 720.0), (0.75, year), (1.0, year)];
        let image = [(0.0, 0.0), (0.1, 4.0), (0.25, 168.0), (0.5, 720.0), (0.75, year), (0.9, 8766.0), (1.0, 8766.0)];
        let font = [(0.0, 0.0), (0.1, 720.0), (0.25, year), (1.0, year)];
        let other = [(0.0, 0.0), (0.1, 0.0), (0.25, 1.0), (0.5, 30.0), (0.75, 240.0), (0.9, year), (1.0, year)];
        CacheWorkload {
            name: "modern".into(),
            sources: [
                "HTTP Archive, Web Almanac 2024, Page Weight: the median desktop page makes 71 requests, of these 24 \
                 JavaScript, 18 images, 8 CSS, 4 fonts and 2 HTML, which leaves 15; bytes of the median desktop home page by \
                 type: images 1054 KB, JavaScript 613, fonts 131, CSS 78, HTML 18. Mean sizes are these bytes over these \
                 requests: a ratio of medians, not a measured mean",
                "HTTP Archive, Web Almanac 2020, Caching: cacheable CSS 99.3 %, fonts 99.8, HTML 67.9, images 91.2, scripts \
                 95.2, other 66.3, as browsers may store (a shared cache less: 9.1 % of all responses are private); lifetimes by \
                 percentiles; Last-Modified on 73.5 % and ETag on 47.9 % of the responses",
                "Breslau, Cao, Fan, Phillips, Shenker: Web Caching and Zipf-like Distributions, INFOCOM 1999: requests at proxies \
                 are Zipf-like with an exponent below 1 that differs between traces",
                "assumptions: the exponent 0.8; the recurrence, set for the 55 % hits of PolyMix; log-normal sizes with a deviation of \
                 1.5 times the mean; other = 10 KB; 0.9 of the clients accept gzip; life cycles as PolyMix-4's; a mean think time of \
                 100 ms; every object has Last-Modified or ETag; no conditional requests",
            ]
            .map(str::to_owned)
            .to_vec(),
            recurrence: 0.55 / 0.880,
            popularity: Popularity::Zipf { alpha: 0.8, objects: 1_000_000 },
            gzip_clients: 0.9,
            think: Some(Distribution::LogNormal { mean: 0.1, sd: 0.1 }),
            client_uses: Some(Distribution::Zipf(64)),
            kinds: vec![
                kind("html", ".html", "text/html", 2.0, 9.0, 0.679, weekly(), &html),
                kind("script", ".js", "text/javascript", 24.0, 25.5, 0.952, weekly(), &script),
                kind("css", ".css", "text/css", 8.0, 9.8, 0.993, weekly(), &css),
                kind("image", ".jpg", "image/jpeg", 18.0, 58.6, 0.912, monthly(), &image),
                kind("font", ".woff2", "font/woff2", 4.0, 32.8, 0.998, monthly(), &font),
                kind("other", ".bin", "application/octet-stream", 15.0, 10.0, 0.663, any(), &other),
            ],
            ..plain()
        }
    }
}

/// Defaults of all fields.
fn plain() -> CacheWorkload {
    CacheWorkload {
        name: String::new(),
        sources: Vec::new(),
        kinds: Vec::new(),
        recurrence: 0.0,
        popularity: Popularity::Uniform,
        working_set: None,
        forms: FormShares::default(),
        methods: MethodShares::default(),
        client_abort: 0.0,
        origin_abort: 0.0,
        think: None,
        client_uses: None,
        origin_uses: None,
        origin_idle: fifteen_seconds(),
        per_client_rate: None,
        gzip_clients: 0.0,
        https: 0.0,
        post_body: nothing(),
        phases: Vec::new(),
    }
}

/// A life cycle of PolyMix: Last-Modified always, expiry at the next change.
fn life(cycle: Distribution, variance: f64) -> LifeSpec {
    LifeSpec { cycle, variance, last_modified: 1.0, expires: Expires::NextChange, etag: 0.0 }
}

fn kind(
    name: &str,
    ext: &str,
    media_type: &str,
    share: f64,
    size: Distribution,
    cacheable: f64,
    life: LifeSpec,
) -> KindSpec {
    KindSpec {
        name: name.into(),
        ext: ext.into(),
        media_type: media_type.into(),
        share,
        size,
        cacheable,
        life,
        gzip: false,
        vary: Vary::None,
        embeds: None,
    }
}

const POLYGRAPH: &str = "Web Polygraph (github albertok/web-polygraph, snapshot of 2016)";

fn polymix_1() -> CacheWorkload {
    let static_life = life(Distribution::Constant(2.0 * YEAR_S), 0.0);
    let size = Distribution::Exponential(13.0 * KIB);
    CacheWorkload {
        name: "polymix-1".into(),
        sources: vec![
            format!("{POLYGRAPH}, workloads/polymix-1.pg and include/contents.pg"),
            "Makino, Kubo, Ohtsuka, Shibata, Matsumoto, Hayashi, 2001, who used it: 80 % cacheable, 55 % hits".into(),
        ],
        recurrence: 0.55 / 0.8,
        think: Some(Distribution::Normal { mean: 3.0, sd: 1.5 }),
        client_uses: Some(Distribution::Constant(1.0)),
        origin_uses: Some(Distribution::Constant(1.0)),
        kinds: vec![kind("object", "", "application/octet-stream", 1.0, size, 0.8, static_life)],
        ..plain()
    }
}

fn polymix_2() -> CacheWorkload {
    let image = kind(
        "image",
        ".gif",
        "image/gif",
        0.0,
        Distribution::Exponential(4.5 * KIB),
        0.8,
        life(Distribution::LogNormal { mean: 30.0 * DAY_S, sd: 7.0 * DAY_S }, 0.5),
    );
    let html = kind(
        "html",
        ".html",
        "text/html",
        0.15,
        Distribution::Exponential(8.5 * KIB),
        0.9,
        life(Distribution::LogNormal { mean: 7.0 * DAY_S, sd: DAY_S }, 0.33),
    );
    let html = KindSpec { embeds: Some(EmbedSpec { kind: "image".into(), count: Distribution::Zipf(13) }), ..html };
    let download = kind(
        "download",
        ".zip",
        "application/zip",
        0.005,
        Distribution::LogNormal { mean: 300.0 * KIB, sd: 300.0 * KIB },
        0.95,
        life(Distribution::LogNormal { mean: 0.5 * YEAR_S, sd: 30.0 * DAY_S }, 0.33),
    );
    let other = kind(
        "other",
        "",
        "application/octet-stream",
        0.195,
        Distribution::LogNormal { mean: 25.0 * KIB, sd: 10.0 * KIB },
        0.72,
        life(Distribution::Uniform(DAY_S, YEAR_S), 0.5),
    );
    CacheWorkload {
        name: "polymix-2".into(),
        sources: vec![
            format!("{POLYGRAPH}, workloads/polymix-2.pg and include/contents.pg"),
            "images follow from the pages that embed them: 64 % of the requests instead of 65 %".into(),
        ],
        recurrence: 0.55 / 0.8,
        think: Some(Distribution::Normal { mean: 2.5, sd: 1.0 }),
        client_uses: Some(Distribution::Zipf(64)),
        origin_uses: Some(Distribution::Zipf(16)),
        per_client_rate: Some(0.4),
        kinds: vec![image, html, download, other],
        ..plain()
    }
}

fn polymix_3() -> CacheWorkload {
    CacheWorkload {
        name: "polymix-3".into(),
        sources: vec![format!(
            "{POLYGRAPH}, workloads/polymix-3.pg, include/polymix-3-guts.pg and include/contents.pg"
        )],
        recurrence: 0.55 / (0.8 * 0.95),
        popularity: Popularity::HotSet { fraction: 0.01, probability: 0.1, prefer_small: 0.0 },
        forms: FormShares { ims200: 0.05, ims304: 0.10, reload: 0.05 },
        ..polymix_2()
    }
}

fn polymix_4() -> CacheWorkload {
    CacheWorkload {
        name: "polymix-4".into(),
        sources: vec![format!(
            "{POLYGRAPH}, workloads/polymix-4.pg, include/polymix-4-guts.pg and include/contents.pg"
        )],
        recurrence: 0.55 / 0.8,
        popularity: Popularity::HotSet { fraction: 0.01, probability: 0.1, prefer_small: 0.9 },
        methods: MethodShares { post: 0.015, head: 0.001 },
        post_body: Distribution::Uniform(0.0, 8.0 * KIB),
        client_abort: 0.001,
        origin_abort: 0.001,
        ..polymix_3()
    }
}

/// The workload of the school gateway paper.
fn school_gateway() -> CacheWorkload {
    polymix_1()
}

/// The second workload of the school gateway paper: nine of ten requests can be hits.
fn prepared() -> CacheWorkload {
    let mut workload = CacheWorkload { recurrence: 0.90 / 0.95, ..school_gateway() };
    workload.kinds[0].cacheable = 0.95;
    workload
}

/// The class of the school gateway paper, whose teacher fetched the pages: a minute of new pages, then only these.
fn class() -> CacheWorkload {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let phase = |from, to, recurrence, grows| WorkloadPhase {
        from,
        to,
        recurrence: Some((recurrence, recurrence)),
        special: (1.0, 1.0),
        grows,
    };
    let phases = vec![phase(Duration::ZERO, minutes(1), 0.0, true), phase(minutes(1), minutes(24 * 60), 1.0, false)];
    CacheWorkload { phases, ..prepared() }
}
