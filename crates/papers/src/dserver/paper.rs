//! The paper's three tables.

/// A measured size, with the paper's figures.
#[derive(Debug)]
pub struct Size {
    /// Name in the paper.
    pub name: &'static str,
    /// Bytes of the file.
    pub bytes: u64,
    pub(super) file: &'static str,
    /// Apache and Dserver on Linux, then both on Windows, where Dserver is another program.
    pub(super) published: [Published; 4],
}

/// One cell of each of the three tables, as printed.
#[derive(Debug)]
pub(super) struct Published {
    /// Seconds for 1000 requests.
    pub taken_s: &'static str,
    /// Requests per second.
    pub per_second: &'static str,
    /// Thousand bytes per second, heads included.
    pub kb_per_s: &'static str,
}

/// Servers of [`Size::published`], in its order.
pub(super) const PUBLISHED: [&str; 4] = ["Linux Apache", "Linux Dserver", "Windows Apache", "Windows Dserver"];

const fn of(taken_s: &'static str, per_second: &'static str, kb_per_s: &'static str) -> Published {
    Published { taken_s, per_second, kb_per_s }
}

/// All four sizes.
pub const SIZES: [Size; 4] = [
    Size {
        name: "1 KB",
        bytes: 1 << 10,
        file: "1k.bin",
        published: [
            of("8.110", "123.46", "160.62"),
            of("3.891", "257.00", "295.81"),
            of("2.443", "409.33", "519.44"),
            of("6.137", "162.95", "187.71"),
        ],
    },
    Size {
        name: "10 KB",
        bytes: 10 << 10,
        file: "10k.bin",
        published: [
            of("8.558", "116.85", "1229.14"),
            of("4.694", "213.04", "2208.78"),
            of("3.303", "302.76", "3174.99"),
            of("7.469", "133.89", "1388.27"),
        ],
    },
    Size {
        name: "100 KB",
        bytes: 100 << 10,
        file: "100k.bin",
        published: [
            of("11.442", "87.40", "8974.04"),
            of("13.974", "71.56", "7337.13"),
            of("109.996", "9.09", "933.21"),
            of("20.057", "49.86", "5111.93"),
        ],
    },
    Size {
        name: "1 MB",
        bytes: 1 << 20,
        file: "1m.bin",
        published: [
            of("90.743", "11.02", "11558.57"),
            of("102.299", "9.78", "10251.38"),
            of("1260.737", "0.79", "831.92"),
            of("130.291", "7.68", "8048.96"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's three tables state the same figures, so a transcription error would show: 1000 requests over the
    /// time taken; and requests per second times a body in 1024-byte kilobytes plus a head of some 130 to 300 bytes, in
    /// thousands.
    #[test]
    fn the_papers_three_tables_agree() {
        for size in &SIZES {
            for (published, server) in size.published.iter().zip(PUBLISHED) {
                let number = |text: &str| text.parse::<f64>().unwrap();
                let per_second = number(published.per_second);
                let by_time = 1000.0 / number(published.taken_s);
                // 123.46 is 1000 over 8.100, and 0.79 stands for 0.785 to 0.795.
                assert!((by_time - per_second).abs() <= 0.006 + per_second * 0.002, "{} {server}", size.name);
                let bytes_each = number(published.kb_per_s) * number(published.taken_s);
                let head = bytes_each - size.bytes as f64;
                assert!((100.0..=450.0).contains(&head), "{} {server}: a head of {head} bytes", size.name);
            }
        }
    }
}
