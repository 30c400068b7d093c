//! What the job costs: time, anonymous memory, bytes written. Read from `/proc`, so on Linux only; elsewhere it shows 0.
//!
//! The cost travels in the metadata of each commit, beside the input position, so that it survives crashes: what a killed
//! process had committed is counted, what it lost with its last batch is not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// How often the memory is looked at: a few times in a batch.
const SAMPLE: Duration = Duration::from_millis(10);

/// What the job has cost so far, over all its processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) processes: u32,
    pub(crate) wall_ms: u64,
    /// The most anonymous memory that any of the processes was seen with.
    pub(crate) peak_anonymous_bytes: u64,
    /// What the kernel counted as sent to the storage layer.
    pub(crate) written_bytes: u64,
}

impl Cost {
    /// The cost with that of one more process added.
    pub(crate) fn with(self, process: Self) -> Self {
        Self {
            processes: self.processes + process.processes,
            wall_ms: self.wall_ms + process.wall_ms,
            peak_anonymous_bytes: self.peak_anonymous_bytes.max(process.peak_anonymous_bytes),
            written_bytes: self.written_bytes + process.written_bytes,
        }
    }
}

/// Watches the memory of this process from a thread of its own.
#[derive(Debug)]
pub(crate) struct Meter {
    peak_bytes: Arc<AtomicU64>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub(crate) fn start() -> Result<Self, Failure> {
        let peak_bytes = Arc::new(AtomicU64::new(anonymous_bytes()));
        let (stop, stopped) = mpsc::channel::<()>();
        let peak = Arc::clone(&peak_bytes);
        let watch = move || {
            while stopped.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
                peak.fetch_max(anonymous_bytes(), Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new()
            .name("memory-meter".into())
            .spawn(watch)
            .map_err(|e| Failure::new(format!("could not start a thread: {e}")))?;
        Ok(Self { peak_bytes, stop: Some(stop), thread: Some(thread) })
    }

    /// The cost of this process up to now; `wall` is how long it has been working.
    pub(crate) fn cost(&self, wall: Duration) -> Cost {
        let now = anonymous_bytes();
        Cost {
            processes: 1,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            peak_anonymous_bytes: self.peak_bytes.fetch_max(now, Ordering::Relaxed).max(now),
            written_bytes: proc_number("/proc/self/io", "write_bytes:"),
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The anonymous memory of this process: its heap and stacks, without mapped files.
pub(crate) fn anonymous_bytes() -> u64 {
    proc_number("/proc/self/status", "RssAnon:") << 10
}

/// The number behind `name` in a file of `/proc`; 0 where there is none.
fn proc_number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Number and bytes of all files below a directory.
pub(crate) fn directory_size(dir: &Path) -> std::io::Result<(u64, u64)> {
    let mut total = (0, 0);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (files, bytes) = match entry.metadata()? {
            meta if meta.is_dir() => directory_size(&entry.path())?,
            meta => (1, meta.len()),
        };
        total = (total.0 + files, total.1 + bytes);
    }
    Ok(total)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_meter_sees_memory_that_is_used() {
        let meter = Meter::start().unwrap();
        let before = meter.cost(Duration::ZERO).peak_anonymous_bytes;
        let used = vec![1_u8; 64 << 20];
        let after = meter.cost(Duration::ZERO).peak_anonymous_bytes;
        assert!(used.iter().all(|byte| *byte == 1) && after >= before + (60 << 20), "{before} {after}");
    }

    #[test]
    fn costs_of_processes_add_up_and_the_peak_is_the_highest() {
        let a = Cost { processes: 1, wall_ms: 2, peak_anonymous_bytes: 9, written_bytes: 4 };
        let b = Cost { processes: 1, wall_ms: 3, peak_anonymous_bytes: 7, written_bytes: 5 };
        assert_eq!(a.with(b), Cost { processes: 2, wall_ms: 5, peak_anonymous_bytes: 9, written_bytes: 9 });
    }
}
