//! What the job costs: time, anonymous memory, bytes written. Read from `/proc`, so on Linux only; elsewhere it shows 0.
//!
//! The cost travels in the metadata of each commit, beside the input position, so that it survives crashes: what a killed
//! process had committed is counted, what it lost with its last batch is not.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::kernel::written_bytes;
use crate::measure::meter::Meter;

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

    /// The cost of this process up to now; `wall` is how long it has been working.
    pub(crate) fn of_this_process(meter: &Meter, wall: Duration) -> Self {
        Self {
            processes: 1,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            peak_anonymous_bytes: meter.peak().anonymous_bytes,
            written_bytes: written_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_processes_add_up_and_the_peak_is_the_highest() {
        let a = Cost { processes: 1, wall_ms: 2, peak_anonymous_bytes: 9, written_bytes: 4 };
        let b = Cost { processes: 1, wall_ms: 3, peak_anonymous_bytes: 7, written_bytes: 5 };
        assert_eq!(a.with(b), Cost { processes: 2, wall_ms: 5, peak_anonymous_bytes: 9, written_bytes: 9 });
    }
}
