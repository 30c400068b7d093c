//! Small logs on simulated disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{FileLog, LogOptions, Lsn, Planted, Record, RecordHandle, Records, WriteAheadLog};
use alluvium::{Clock, IdSource, Result, SystemClock};

pub(super) const DIR: &str = "/log";

/// A record as it is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Read {
    pub(super) lsn: u64,
    pub(super) time_ms: u64,
    pub(super) payload: Vec<u8>,
}

impl From<Record<'_>> for Read {
    fn from(record: Record<'_>) -> Self {
        Self { lsn: record.lsn.0, time_ms: record.time_ms, payload: record.payload.to_vec() }
    }
}

/// Segments that hold few records.
pub(super) fn small() -> LogOptions {
    LogOptions { segment_bytes: 4096, preallocates: false, longest_gather: Duration::ZERO, ..LogOptions::default() }
}

pub(super) fn open(sim: &SimDisk, options: &LogOptions) -> Result<FileLog> {
    open_planted(sim, options, Planted::Nothing)
}

pub(super) fn open_planted(sim: &SimDisk, options: &LogOptions, planted: Planted) -> Result<FileLog> {
    // Every opening draws other salts, as in life: with the same ones, old frames of a recycled file would be taken for new ones.
    static SEED: AtomicU64 = AtomicU64::new(0);
    let ids = IdSource::seeded(SEED.fetch_add(1, Ordering::Relaxed));
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    FileLog::open_planted(disk, DIR, options.clone(), Arc::new(SystemClock::new()), ids, planted)
}

pub(super) fn drain(records: &mut dyn Records) -> Result<Vec<Read>> {
    let mut found = Vec::new();
    while let Some(record) = records.next_record()? {
        found.push(record.into());
    }
    Ok(found)
}

pub(super) fn read_all(log: &dyn WriteAheadLog) -> Result<Vec<Read>> {
    drain(log.read_all()?.as_mut())
}

pub(super) fn payloads(log: &dyn WriteAheadLog) -> Vec<String> {
    read_all(log).unwrap().into_iter().map(|read| String::from_utf8(read.payload).unwrap()).collect()
}

pub(super) fn handles(log: &dyn WriteAheadLog) -> Vec<RecordHandle> {
    let mut records = log.read_from(Lsn::NONE).unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        found.push(record.handle);
    }
    found
}

/// The segments' names, in order.
pub(super) fn segments(sim: &SimDisk) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = sim.files().into_iter().filter(|path| named(path, "log-")).collect();
    names.sort_by_key(|path| path.file_name().unwrap().to_string_lossy().rsplit('-').next().unwrap().to_owned());
    names
}

pub(super) fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// Time that stands still until it is told.
#[derive(Debug, Default)]
pub(super) struct ManualClock(pub(super) AtomicU64);

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.wall_ms())
    }
}
