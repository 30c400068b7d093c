//! The least that writers in threads of their own can do who share a sync: what no group commit goes beyond on this machine.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Failure, Stopwatch, float, side_by_side};

/// Records a second of threads that each have `bytes` written `rounds` times: whoever comes last appends for all of them and syncs; the others
/// let each other run until that is done. No queue, no checksum, no copy.
pub(crate) fn run(file: File, bytes: usize, rounds: usize, writers: usize) -> Result<f64, Failure> {
    let group = Group {
        file: Mutex::new((file, vec![7; bytes * writers])),
        here: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        writers,
    };
    group.last()?;
    let start = Stopwatch::start();
    side_by_side(writers, || group.write(rounds))?;
    Ok(float(rounds * writers) / start.seconds())
}

struct Group {
    file: Mutex<(File, Vec<u8>)>,
    /// Writers of this round that are there.
    here: AtomicUsize,
    /// Rounds that are over; also where one failed, so that nobody waits in vain.
    done: AtomicUsize,
    writers: usize,
}

impl Group {
    fn write(&self, rounds: usize) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for round in 0..rounds {
            if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.writers {
                self.here.store(0, Ordering::Release);
                outcome = outcome.and(self.last());
                self.done.store(round + 1, Ordering::Release);
            }
            while self.done.load(Ordering::Acquire) <= round {
                std::thread::yield_now();
            }
        }
        outcome
    }

    fn last(&self) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, records) = &mut *file;
        file.write_all(records)?;
        file.sync_data()
    }
}
