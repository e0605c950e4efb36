//! Whether programs of this machine wait for a core: pressure stall information (PSI).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use units::Timestamp;

/// The kernel's counter of the time in which at least one runnable task of this machine waited for a core.
///
/// Source: `/proc/pressure/cpu` (Documentation/accounting/psi.rst, Linux 4.20). It counts every task, also those of other
/// containers; the wait of a task that a real-time thread interrupted is included.
#[derive(Debug)]
pub struct CpuPressure {
    file: File,
    last: Option<(Timestamp, Duration)>,
}

impl CpuPressure {
    /// Opens the counter; none without PSI in the kernel.
    pub fn open() -> Option<CpuPressure> {
        Some(CpuPressure { file: File::open("/proc/pressure/cpu").ok()?, last: None })
    }

    /// The share of the time since the previous call, at `now` of a monotonic clock, in which a task waited for a core:
    /// 0 to 1; none at the first call, or if the file cannot be read.
    pub fn share(&mut self, now: Timestamp) -> Option<f64> {
        let mut text = [0; 256];
        let length = self.file.read_at(&mut text, 0).ok()?;
        let total = pressure_total(std::str::from_utf8(&text[..length]).ok()?)?;
        let (before, base) = self.last.replace((now, total))?;
        let span = now.since(before);
        (!span.is_zero()).then(|| (total.saturating_sub(base).as_secs_f64() / span.as_secs_f64()).min(1.0))
    }
}

/// `total` of the line `some`, in microseconds.
pub(crate) fn pressure_total(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_total_of_the_line_some() {
        let text = "some avg10=0.00 avg60=0.02 avg300=0.00 total=1234567\nfull avg10=0.00 total=7\n";
        assert_eq!(pressure_total(text), Some(Duration::from_micros(1_234_567)));
        assert_eq!((pressure_total(""), pressure_total("full total=7\n")), (None, None));
    }

    #[test]
    fn share_is_the_growth_of_the_total_over_the_time_between() {
        let path = std::env::temp_dir().join(format!("yamabiko-pressure-{}", std::process::id()));
        let write = |total: u64| std::fs::write(&path, format!("some avg10=0.00 total={total}\n")).unwrap();
        write(1_000_000);
        let mut pressure = CpuPressure { file: File::open(&path).unwrap(), last: None };
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        assert_eq!(pressure.share(at(5)), None);
        assert_eq!(pressure.share(at(5)), None, "no time has passed");
        write(1_025_000);
        assert_eq!(pressure.share(at(105)), Some(0.25));
        write(9_000_000);
        assert_eq!(pressure.share(at(205)), Some(1.0));
        write(0);
        assert_eq!(pressure.share(at(305)), Some(0.0));
        std::fs::remove_file(&path).unwrap();
    }
}
