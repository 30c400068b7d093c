//! What the group commit and whoever writes for it promise each other.

use super::record::Lsn;
use crate::error::Error;

/// Where batches go: a segment file, or another log.
pub(in crate::wal) trait Sink: Send {
    /// A record that is ready to be written.
    type Record<'a>: Send;
    /// Where a batch was written.
    type Placement: Clone + Default + Send;

    /// How far behind the start of the batch the record after this one lies.
    fn bytes(record: &Self::Record<'_>) -> u64;

    /// Writes the records, of which the first has the LSN `first`; where there are none, whatever is held back.
    fn write(&mut self, first: Lsn, records: &[Self::Record<'_>]) -> Attempt<Self::Placement>;

    /// Makes everything written durable. `records` are those written last, in case they have to be written once more; then the answer
    /// says where.
    fn sync(&mut self, first: Lsn, records: &[Self::Record<'_>]) -> Attempt<Option<Self::Placement>>;
}

/// What a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wal) enum Need {
    /// That the records are with the system.
    Written,
    /// That they are durable.
    Durable,
    /// That they are durable, by a sync of their own.
    OwnSync,
}

/// What came of a step of a batch.
pub(in crate::wal) type Attempt<T> = std::result::Result<T, Failed>;

/// Why a batch failed.
#[derive(Debug)]
pub(in crate::wal) struct Failed {
    pub(in crate::wal) error: Error,
    /// Whether nothing may be written any more.
    pub(in crate::wal) stops: bool,
}

impl Failed {
    /// The writers get the error, and the log goes on.
    pub(in crate::wal) fn once(error: Error) -> Self {
        Self { error, stops: false }
    }

    /// The log is of no more use.
    pub(in crate::wal) fn for_good(error: Error) -> Self {
        Self { error, stops: true }
    }
}
