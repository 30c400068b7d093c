//! The traits of a state store: a provider that owns it, transactions that write it, and what both kinds of handle read.

use std::fmt::Debug;

use super::scan::Scan;
use crate::bytes::Bytes;
use crate::entry::{FamilyId, StateStoreId};
use crate::error::Result;
use crate::version::{Epoch, Version};

/// Owns one store: opens transactions and readers on it.
///
/// A provider is a writer. Opening one claims the store's next epoch and thereby fences whoever wrote before; each of its
/// methods may be called from any thread.
pub trait StateStoreProvider: Send + Sync + Debug {
    /// What [`begin`](Self::begin) gives.
    type Transaction: WriteStore;
    /// What [`read_at`](Self::read_at) gives.
    type View: ReadStore;

    /// Which store this is.
    fn id(&self) -> &StateStoreId;

    /// Opens a transaction on top of `version`, waiting for the store's one writer slot.
    ///
    /// On an older version than the newest, the first commit supersedes everything above it. Aborting changes nothing.
    ///
    /// # Errors
    /// `Busy` when another transaction stays open until the deadline, `Fenced` when a newer writer has the store,
    /// `VersionNotFound` when there is no such version (any more, or yet).
    fn begin(&self, version: Version) -> Result<Self::Transaction>;

    /// Opens a reader of `version`, which stays as it is whatever is committed or cleaned up meanwhile.
    ///
    /// # Errors
    /// `VersionNotFound`, or what reading the version's files met.
    fn read_at(&self, version: Version) -> Result<Self::View>;

    /// The newest committed version; 0 where nothing was committed yet.
    ///
    /// # Errors
    /// Fails where the checkpoint directory cannot be read.
    fn latest(&self) -> Result<Version>;

    /// Every version that can be read, oldest first; version 0 is not listed.
    ///
    /// # Errors
    /// Fails where the checkpoint directory cannot be read.
    fn versions(&self) -> Result<Vec<VersionInfo>>;

    /// The metadata that `version` was committed with; empty for version 0.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn metadata(&self, version: Version) -> Result<Bytes>;

    /// Writes the whole state of the newest version into one file, which later opens start from. Says which version.
    ///
    /// Runs beside transactions and readers, in the memory of a few pages.
    ///
    /// # Errors
    /// A failure leaves the store as it was; calling again is safe.
    fn snapshot(&self) -> Result<Version>;
}

/// What can be read from a transaction (its own writes included) or from a [`View`](super::View).
///
/// Scans ascend by key and show the moment of their creation: writes made later do not appear in them, and they outlive
/// the handle that made them.
pub trait ReadStore: Send + Debug {
    /// The version that is read; for a transaction the one below it.
    fn version(&self) -> Version;

    /// The family called `name`, if the store has it.
    fn family(&self, name: &str) -> Option<FamilyId>;

    /// The value of `key`.
    ///
    /// # Errors
    /// `InvalidInput` for a family that the store lacks, `Corrupt` for damaged bytes.
    fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Bytes>>;

    /// The value of each of `keys`, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get); all or nothing.
    fn multi_get(&self, family: FamilyId, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        keys.iter().map(|key| self.get(family, key)).collect()
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn contains(&self, family: FamilyId, key: &[u8]) -> Result<bool> {
        self.get(family, key).map(|value| value.is_some())
    }

    /// Every entry of `family` from `start` (or the first) up to but not including `end` (or to the last).
    ///
    /// # Errors
    /// As [`get`](Self::get); the scan itself can also meet an error, which then stays.
    fn scan_range(&self, family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Scan>;

    /// Every entry of `family` whose key starts with `prefix`.
    ///
    /// # Errors
    /// As [`scan_range`](Self::scan_range).
    fn scan_prefix(&self, family: FamilyId, prefix: &[u8]) -> Result<Scan>;

    /// Every entry of `family`.
    ///
    /// # Errors
    /// As [`scan_range`](Self::scan_range).
    fn scan(&self, family: FamilyId) -> Result<Scan> {
        self.scan_range(family, None, None)
    }
}

/// A transaction: reads see its own writes; `commit` makes the next version of them, `abort` and drop leave no trace.
///
/// After an operation has failed the transaction is poisoned: everything but `abort` fails with `Poisoned`, so that no
/// write that its caller never learnt about is missing from a commit.
pub trait WriteStore: ReadStore {
    /// Makes the family called `name`, or finds it; it becomes durable with the commit.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name, `LimitExceeded` for too many families.
    fn create_family(&mut self, name: &str) -> Result<FamilyId>;

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// `InvalidInput` for a family that the store lacks, `LimitExceeded` for a key over 64 KiB or a value over 64 MiB,
    /// `MemoryLimit` when the transaction outgrows the budget. Nothing was written then.
    fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`; removing what is not there is no error.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn remove(&mut self, family: FamilyId, key: &[u8]) -> Result<()>;

    /// Removes every key of `family` from `start` (or the first) up to but not including `end` (or to the last).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete_range(&mut self, family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()>;

    /// Commits with `metadata` (source offsets, a watermark, anything) stored in the same file as the state, and gives the
    /// new version, which is durable.
    ///
    /// # Errors
    /// `Fenced`: nothing was acknowledged, stop. `Indeterminate`: after the next `begin` or a reopen the version is there
    /// whole or not at all. Anything else: the version does not exist.
    fn commit_with(self, metadata: &[u8]) -> Result<Version>
    where
        Self: Sized;

    /// Commits without metadata.
    ///
    /// # Errors
    /// As [`commit_with`](Self::commit_with).
    fn commit(self) -> Result<Version>
    where
        Self: Sized,
    {
        self.commit_with(&[])
    }

    /// Gives up; the store stays as it was.
    fn abort(self)
    where
        Self: Sized;
}

/// What is known of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionInfo {
    /// The version.
    pub version: Version,
    /// The epoch of the writer that made it.
    pub epoch: Epoch,
    /// The keys that the commit put or removed; `None` where its own delta is gone and nobody remembers.
    pub changes: Option<u64>,
    /// The size of the commit's file, in bytes; `None` where it is gone and nobody remembers.
    pub file_bytes: Option<u64>,
    /// The length of the commit's metadata, in bytes.
    pub metadata_bytes: u64,
}
