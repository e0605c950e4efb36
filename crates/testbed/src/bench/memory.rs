//! Memory used by many connections: of the load generator, and of the kernel.

/// Memory in bytes at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory of the generator's processes; shared memory counts once for each.
    pub resident: Option<u64>,
    /// Slab of this machine's kernel: sockets, their files and table entries, of both ends if both are here.
    pub slab: Option<u64>,
}

impl Memory {
    /// Reads the memory of these processes and of the kernel.
    pub fn read(pids: &[i32]) -> Self {
        let resident = pids.iter().map(|pid| field(&format!("/proc/{pid}/status"), "VmRSS:")).sum();
        Memory { resident, slab: field("/proc/meminfo", "Slab:") }
    }

    /// Increase since `before` per connection: of the load generator, and of the kernel.
    pub fn increase_per_connection(&self, before: &Memory, connections: u64) -> (Option<f64>, Option<f64>) {
        let each = |now: Option<u64>, before: Option<u64>| {
            let (now, before) = (now? as f64, before? as f64);
            (connections > 0).then(|| (now - before) / connections as f64)
        };
        (each(self.resident, before.resident), each(self.slab, before.slab))
    }
}

/// A field in kilobytes of a file of /proc, in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_and_of_the_kernel_is_read() {
        let memory = Memory::read(&[std::process::id() as i32]);
        assert!(memory.resident.is_some_and(|bytes| bytes > 1 << 20) && memory.slab.is_some(), "{memory:?}");
        assert_eq!(Memory::read(&[-1]).resident, None, "a process that has ended has no memory");
        let more = Memory { resident: memory.resident.map(|bytes| bytes + 1000), slab: None };
        assert_eq!(more.increase_per_connection(&memory, 10), (Some(100.0), None));
    }
}
