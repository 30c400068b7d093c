//! [`Watch`]: the anonymous memory of this process, as the kernel counts it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of anonymous memory that are resident now: heap and stacks, no mapped files.
pub(super) fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Looks every millisecond, in a thread of its own, for the most there has been.
pub(super) struct Watch {
    peak: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start() -> Self {
        let (peak, ends) = (Arc::new(AtomicU64::new(anonymous_bytes())), Arc::new(AtomicBool::new(false)));
        let (shared_peak, shared_ends) = (Arc::clone(&peak), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            while !shared_ends.load(Ordering::Relaxed) {
                shared_peak.fetch_max(anonymous_bytes(), Ordering::Relaxed);
                thread::park_timeout(Duration::from_millis(1));
            }
        });
        Self { peak, ends, thread: Some(thread) }
    }

    /// The peak since the start, or since this was asked last.
    pub(super) fn peak_bytes(&self) -> u64 {
        let now = anonymous_bytes();
        self.peak.swap(now, Ordering::Relaxed).max(now)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
