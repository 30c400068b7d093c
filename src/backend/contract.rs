//! The few verbs that a store needs of an index, and what each of them promises.

use std::fmt::Debug;
use std::ops::ControlFlow;

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, StateStoreId};
use crate::error::{Error, Result};
use crate::ranges::RangeSet;
use crate::version::{Mark, StoreUid, Version, VersionId};

/// The number of a store within one backend. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StoreNumber(pub(crate) u32);

/// Names a generation within one backend. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GenerationId {
    pub(crate) store: StoreNumber,
    pub(crate) number: u32,
}

/// Whether a generation lies over a base or stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// It holds what changed after `from`; what it does not know is in the base. Keeps tombstones and deleted ranges.
    Changes,
    /// It holds the whole state; what it does not know is not there. A delete removes.
    Complete,
}

/// What is known of a generation besides its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenerationRecord {
    pub(crate) id: GenerationId,
    /// The state that it lies over; [`Mark::ROOT`] for a complete one.
    pub(crate) from: Mark,
    /// The state that it and what lies below make.
    pub(crate) applied: Mark,
    pub(crate) coverage: Coverage,
    /// The state that an apply in several batches was on its way to when it was cut off. Such a generation is neither the
    /// one state nor the other: the same delta has to be applied again (which is safe), or the generation dropped.
    pub(crate) torn: Option<Mark>,
}

/// What is known of a version without opening its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionRecord {
    pub(crate) at: Mark,
    /// Entries of its delta.
    pub(crate) entries: u64,
    /// Bytes of its delta's file.
    pub(crate) bytes: u64,
    /// What the committer stored with it.
    pub(crate) metadata: Bytes,
}

/// Who holds the index's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineMemory {
    /// The block cache, with index and filter blocks; the memtables are charged to it too.
    pub block_cache_bytes: u64,
    /// The part of the block cache that is in use right now and cannot be evicted.
    pub pinned_bytes: u64,
    /// Changes that have not been flushed to a file yet.
    pub memtables_bytes: u64,
    /// What open table files need outside the block cache.
    pub table_readers_bytes: u64,
    /// How often memtables were flushed because all of them together came near their share of the limit.
    pub forced_flushes: u64,
}

/// An index of what has changed since each store's base. Disposable: whoever loses it replays the deltas.
///
/// Nothing here is durable when a call returns, and nothing needs to be: after a crash the index is as it was at some
/// earlier moment, all of it at the same moment. [`GenerationRecord::applied`] then tells which deltas are missing.
///
/// Only one thread at a time may apply to one generation, and nobody may read a generation that is being dropped. All
/// else may run side by side.
pub(crate) trait Engine: Send + Sync + Debug + 'static {
    /// The number of the store `id` whose directory carries `uid`. Where `id` was known under another uid, everything
    /// of that other store is dropped.
    fn store(&self, uid: StoreUid, id: &StateStoreId) -> Result<StoreNumber>;

    /// The generations of a store, oldest first.
    fn generations(&self, store: StoreNumber) -> Result<Vec<GenerationRecord>>;

    /// Makes an empty generation on top of `from`.
    fn create_generation(&self, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<GenerationRecord>;

    /// Applies one delta: first `ranges`, which delete what the generation held, then `changes`, which come sorted.
    ///
    /// The mark (and the version record) appear together with the last of the changes. Large deltas take several
    /// batches; between them the generation counts as torn, and takes no other delta than the same one again.
    ///
    /// # Errors
    /// `Poisoned` where the generation is torn by another delta; what the cursor or the engine reports.
    fn apply(
        &self,
        generation: GenerationId,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()>;

    /// What the generation says about a key; `None` where it says nothing. Deleted ranges are not looked at: every entry
    /// here is newer than every range that covers it.
    fn get(&self, generation: GenerationId, full_key: &[u8]) -> Result<Option<Change<Bytes>>>;

    /// Walks over the generation's entries in `range` as they are now, whatever is applied meanwhile.
    fn cursor(&self, generation: GenerationId, range: &KeyRange) -> Result<Box<dyn Cursor>>;

    /// The ranges that the generation deletes from what lies below; none for a complete one.
    fn ranges(&self, generation: GenerationId) -> Result<RangeSet>;

    /// Fills a new complete generation with a whole state, without a detour over the memtables.
    ///
    /// `state` is sorted and holds live entries only. The observer hears of every few MiB, and how many bytes of entries there
    /// have been so far; where it breaks, the call ends as `Cancelled`. Memory: one block, and the indexes and filters
    /// of two files of 64 MiB at most.
    ///
    /// # Errors
    /// On any error nothing is left behind.
    fn ingest(
        &self,
        store: StoreNumber,
        state: &mut dyn Cursor,
        applied: Mark,
        observer: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<GenerationRecord>;

    /// Forgets a generation; constant time. Its disk is freed by the next [`Engine::reclaim`], even after a crash in between.
    fn drop_generation(&self, generation: GenerationId) -> Result<()>;

    /// Frees the disk of dropped generations. May take seconds; for a background thread.
    fn reclaim(&self) -> Result<()>;

    /// Adds or replaces a version record.
    fn put_version(&self, store: StoreNumber, version: &VersionRecord) -> Result<()>;

    /// Shows the version records of a store one after the other, in ascending order: with their metadata, all of them may be large.
    ///
    /// # Errors
    /// Those of `see` end it, too.
    fn versions(&self, store: StoreNumber, see: &mut dyn FnMut(VersionRecord) -> Result<()>) -> Result<()>;

    /// Forgets the version records below `below`, and those that are `over` whatever their number.
    fn forget_versions(&self, store: StoreNumber, below: Version, over: &dyn Fn(VersionId) -> bool) -> Result<()>;

    /// Writes all memtables to files, so that a reopen has nothing to replay.
    fn flush(&self) -> Result<()>;

    /// Who holds how much memory.
    fn memory(&self) -> EngineMemory;

    /// The bytes of all files that entries lie in.
    fn disk_bytes(&self) -> Result<u64>;
}

impl Coverage {
    pub(crate) fn is_complete(self) -> bool {
        self == Self::Complete
    }
}

/// The error for a generation that is not (or no longer) there.
pub(crate) fn unknown_generation(id: GenerationId) -> Error {
    Error::invalid(format!("there is no generation {} of store {}", id.number, id.store.0))
}
