//! What a log can be told.

use std::time::Duration;

use super::format::RecordCodec;
use super::progress::RecoveryObserver;
use crate::budget::MemoryShare;
use crate::error::{Error, Result};

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// Durable, by a sync of its own. Never better than `Group`, only more expensive; to measure with.
    Each,
    /// Durable, by a sync that is shared with whoever writes at the same time.
    #[default]
    Group,
    /// Given to the system, and durable within about this many milliseconds. A power loss takes what was acknowledged since the last sync; a
    /// killed process loses nothing.
    Interval(u64),
    /// Given to the system, and durable whenever it likes. A power loss may take all since the segment began; a killed process loses
    /// nothing, unless [`LogOptions::gather_bytes`] is set.
    None,
}

/// What opening and reading do about damage to records that were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RecoveryMode {
    /// It is an error that names file and offset.
    #[default]
    Strict,
    /// The log ends before the first damage; what comes after is put aside.
    PointInTime,
    /// Damage is skipped, counted and reported; whatever can still be read is.
    Salvage,
}

/// Whether a clean-up is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The call returns when the files are gone.
    ForIt,
    /// The files go in the background; what fails is reported by the next clean.
    No,
}

/// How a [`FileLog`](super::FileLog) behaves. The defaults are for a log of input blocks on a local disk.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// A segment takes records whose time is at most this much later than that of its first one. 60 s.
    pub rolling_interval: Duration,
    /// A segment that would grow beyond this is followed by a new one. A larger record gets a segment of its own. 64 MiB.
    pub segment_bytes: u64,
    /// How many segments a group of records is tried in before its writers get the error, at least 1. 3.
    pub max_failures: u32,
    /// Whether every group of records gets a segment of its own, which is sealed, and so durable, before it is acknowledged: for stores without
    /// a flush.
    pub close_after_write: bool,
    /// When a write is acknowledged, unless the call says otherwise.
    pub durability: Durability,
    /// How long a write may wait: for memory, or for those before it. 30 s.
    pub write_timeout: Duration,
    /// The most time that a writer waits for others to join its group. It waits only while others are writing. 2 ms; 0 never waits.
    pub longest_gather: Duration,
    /// Bytes of records that may wait to be written; a writer over it waits. 64 MiB.
    pub queue_bytes: u64,
    /// Whose limit these bytes count against as well; nobody's unless set. See `Backend::share_memory`.
    pub memory: Option<MemoryShare>,
    /// Bytes of unsynced records that may be kept in memory to be written in one call; 0 (the default) keeps none. A killed process loses them.
    pub gather_bytes: usize,
    /// How payloads are compressed.
    pub codec: RecordCodec,
    /// Whether a group whose sync failed is written once more, to a new segment.
    pub rewrites_after_failed_sync: bool,
    /// Whether a segment's room is reserved when it is made: a sync then has less to write (decision 8 has the figures), and a full disk shows
    /// when a segment begins. What is not used is given back by the seal; a crash leaves it until the segment is cleaned. True.
    pub preallocates: bool,
    /// How many cleaned segments are kept to be written over: none of their blocks is new to the file system, so a sync has less to write (decision 8
    /// has the figures). Each takes the room of a segment. 1; an opening forgets those of the time before.
    pub recycles: usize,
    /// What opening and reading do about damage.
    pub recovery: RecoveryMode,
    /// Who hears how far an opening is, if anybody.
    pub recovery_observer: RecoveryObserver,
    /// Threads that read ahead when the whole log is read; 1 reads in the caller's own.
    pub read_threads: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            rolling_interval: Duration::from_mins(1),
            segment_bytes: 64 << 20,
            max_failures: 3,
            close_after_write: false,
            durability: Durability::default(),
            write_timeout: Duration::from_secs(30),
            longest_gather: Duration::from_millis(2),
            queue_bytes: 64 << 20,
            memory: None,
            gather_bytes: 0,
            codec: RecordCodec::default(),
            rewrites_after_failed_sync: true,
            preallocates: true,
            recycles: 1,
            recovery: RecoveryMode::default(),
            recovery_observer: RecoveryObserver::default(),
            read_threads: 1,
        }
    }
}

impl LogOptions {
    pub(super) fn check(&self) -> Result<()> {
        if self.segment_bytes < 4096 {
            return Err(Error::invalid(format!("a segment of {} bytes; 4096 is the least", self.segment_bytes)));
        }
        if self.max_failures == 0 || self.queue_bytes == 0 {
            return Err(Error::invalid("a log needs at least one attempt and a byte of queue"));
        }
        if self.durability == Durability::Interval(0) {
            return Err(Error::invalid("an interval of 0 ms; say Group"));
        }
        Ok(())
    }

    pub(super) fn rolling_ms(&self) -> u64 {
        u64::try_from(self.rolling_interval.as_millis()).unwrap_or(u64::MAX)
    }
}

/// How one write differs from what the log's options say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// When it is acknowledged; `None`: as the log does. `Interval` on a log that has none is durable with the next sync.
    pub durability: Option<Durability>,
    /// How long it may wait; `None`: as long as the log says.
    pub timeout: Option<Duration>,
}
