//! What the kernel counts of this process and machine. Read from `/proc`, so on Linux only; elsewhere it shows 0.

use std::fs;

/// The memory that a process holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Heap and stacks: what only this process can give back.
    pub(crate) anonymous_bytes: u64,
    /// Pages of files that are mapped and in memory: the kernel takes them back when it needs them.
    pub(crate) mapped_bytes: u64,
}

/// What this process holds now.
pub(crate) fn held() -> Held {
    let text = read("/proc/self/status");
    Held { anonymous_bytes: number(&text, "RssAnon:") << 10, mapped_bytes: number(&text, "RssFile:") << 10 }
}

/// What this process has sent to the storage layer so far, in bytes.
pub(crate) fn written_bytes() -> u64 {
    number(&read("/proc/self/io"), "write_bytes:")
}

/// The machine in a few words: cores, memory, kernel.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_gib = number(&read("/proc/meminfo"), "MemTotal:").div_ceil(1 << 20);
    let release = read("/proc/sys/kernel/osrelease");
    let mut version = release.split(['-', '\n']).next().unwrap_or_default();
    if version.is_empty() {
        version = "unknown";
    }
    format!("{cores} cores, {memory_gib} GiB of memory, {} {version}", std::env::consts::OS)
}

/// A file of `/proc`; empty where there is none.
fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The number behind `name`; 0 where there is none.
pub(crate) fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_the_name_before_it() {
        let text = "Name:\tscale\nRssAnon:\t  1234 kB\nRssFile:\t   5 kB\n";
        assert_eq!((number(text, "RssAnon:"), number(text, "RssFile:"), number(text, "RssShmem:")), (1234, 5, 0));
    }
}
