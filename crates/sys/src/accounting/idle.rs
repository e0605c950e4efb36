//! Idle time of cores, with a finer resolution than /proc/stat.

use std::time::Duration;

use super::CpuTimes;

/// Resolution of /proc/stat; its figures are rounded down.
const RESOLUTION: Duration = Duration::from_millis(10);

/// Idle time of one core since boot, including time waiting for a disk: lower and upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTime {
    /// The core's number.
    pub core: usize,
    /// Lower bound.
    pub least: Duration,
    /// Upper bound.
    pub most: Duration,
}

/// The idle time of each of these cores. The resolution of /proc/stat is 20 ms; with /proc/timer_list, which only root
/// may read, it is the time since the core last became idle.
pub fn idle_times(times: &[(usize, CpuTimes)], cores: &[usize]) -> Vec<IdleTime> {
    let exact = std::fs::read_to_string("/proc/timer_list").map(|text| timer_list(&text)).unwrap_or_default();
    let of = |&core: &usize| {
        let (_, times) = times.iter().find(|(other, _)| *other == core)?;
        let coarse =
            IdleTime { core, least: times.idle + times.iowait, most: times.idle + times.iowait + RESOLUTION * 2 };
        let finer = exact.iter().find(|finer| finer.core == core);
        Some(finer.and_then(|finer| idle_bounds_of_both(coarse, *finer)).unwrap_or(coarse))
    };
    cores.iter().filter_map(of).collect()
}

/// The intersection of both bounds. `None` if they contradict each other: the finer figure then has another meaning.
fn idle_bounds_of_both(coarse: IdleTime, finer: IdleTime) -> Option<IdleTime> {
    // The two files are not read at the same time.
    let (least, most) = (coarse.least.max(finer.least), (coarse.most + RESOLUTION).min(finer.most));
    (least <= most).then_some(IdleTime { least, most, ..coarse })
}

/// Each core's accumulated sleep time. The current sleep of a core is added when it wakes; the file shows when the core
/// last fell asleep, not whether it still sleeps.
fn timer_list(text: &str) -> Vec<IdleTime> {
    let number = |line: &str, name: &str| -> Option<u64> {
        let (key, value) = line.split_once([':', ' ']).filter(|_| line.starts_with(name))?;
        (key == name).then(|| value.trim_start_matches([':', ' ']).trim_end_matches(" nsecs").trim().parse().ok())?
    };
    let mut now: u64 = 0;
    let (mut cores, mut core, mut entered) = (Vec::new(), None, 0);
    for line in text.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("now at ") {
            now = at.trim_end_matches(" nsecs").parse().unwrap_or(0);
        } else if let Some(number) = line.strip_prefix("cpu:") {
            core = number.trim().parse::<usize>().ok();
        } else if let Some(at) = number(line, ".idle_entrytime") {
            entered = at;
        } else if let (Some(slept), Some(core)) = (number(line, ".idle_sleeptime"), core) {
            let asleep = if entered == 0 { u64::MAX / 4 } else { now.saturating_sub(entered) };
            let least = Duration::from_nanos(slept);
            cores.push(IdleTime { core, least, most: least + Duration::from_nanos(asleep) });
        } else if let (Some(waited), Some(last)) = (number(line, ".iowait_sleeptime"), cores.last_mut()) {
            last.least += Duration::from_nanos(waited);
            last.most += Duration::from_nanos(waited);
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 561945066450 nsecs\n\ncpu: 0\n clock 0:\n  .nohz           : 1\n  \
                        .idle_jiffies   : 4295032632\n  .idle_entrytime : 561931994069 nsecs\n  .idle_exittime  : 1 nsecs\n  .idle_sleeptime : \
                        251954341999 nsecs\n  .iowait_sleeptime: 4080436841 nsecs\n\ncpu: 12\n  .idle_entrytime : 561945066000 nsecs\n  .idle_sleeptime : \
                        7 nsecs\n  .iowait_sleeptime: 3 nsecs\n";

    #[test]
    fn timer_list_bounds_the_idle_time_of_a_sleeping_core() {
        let ns = Duration::from_nanos;
        let cores = timer_list(LIST);
        let slept = 251_954_341_999 + 4_080_436_841;
        assert_eq!(cores[0], IdleTime { core: 0, least: ns(slept), most: ns(slept + 13_072_381) });
        assert_eq!(cores[1], IdleTime { core: 12, least: ns(10), most: ns(10 + 450) });
        assert_eq!(timer_list("Timer List Version: v0.10\nnow at 5 nsecs\ncpu: 0\n  .nohz : 0\n"), []);
    }

    #[test]
    fn idle_time_bounds_of_both_sources_are_intersected() {
        let ms = Duration::from_millis;
        let of = |least, most| IdleTime { core: 0, least: ms(least), most: ms(most) };
        assert_eq!(idle_bounds_of_both(of(100, 120), of(105, 900)), Some(of(105, 130)));
        assert_eq!(idle_bounds_of_both(of(100, 120), of(95, 101)), Some(of(100, 101)));
        assert_eq!(idle_bounds_of_both(of(100, 120), of(300, 900)), None, "figures of different clocks");
    }

    #[test]
    fn idle_times_do_not_exceed_the_uptime() {
        let times = super::super::cpu_times().unwrap();
        let cores: Vec<usize> = times.iter().map(|(core, _)| *core).collect();
        let idle = idle_times(&times, &cores);
        assert_eq!(idle.len(), cores.len());
        assert!(idle.iter().all(|core| core.least <= core.most && core.most - core.least < Duration::from_millis(100)));
    }
}
