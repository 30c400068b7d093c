//! [`History`]: the versions of a store, read straight from its checkpoint, beside whatever the writer does.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use super::changes::Changes;
use super::contract::VersionInfo;
use super::difference::Differences;
use super::directory::{DirectoryOptions, StoreDirectory};
use super::inventory::{Inventory, inventory, stores};
use super::layers::RunStack;
use super::open_chain::OpenChain;
use super::options::StoreOptions;
use super::scan::Readers;
use super::upkeep::{Verified, verify};
use super::versions::{VersionSurvey, open_any, survey, versions};
use super::view::View;
use crate::bytes::Bytes;
use crate::checkpoint::Checkpoint;
use crate::clock::SystemClock;
use crate::entry::StateStoreId;
use crate::error::{Error, ErrorKind, Result};
use crate::run::Access;
use crate::version::{IdSource, Version, VersionId};

/// A store's versions as its checkpoint directory has them, for reading only.
///
/// It needs no backend and no work directory, claims no epoch, fences nobody and writes nothing, so it can look at a store
/// that another process is writing, and at one on a medium that may only be read. Every call looks at the directory afresh.
/// Clones share the files that are open.
#[derive(Debug, Clone)]
pub struct History {
    pub(super) directory: Arc<StoreDirectory>,
    readers: Arc<Readers>,
}

impl History {
    /// Opens the history of the store called `id` in `checkpoint`.
    ///
    /// # Errors
    /// `NotFound` where nobody has ever opened such a store for writing; what the disk reports.
    pub fn open(checkpoint: impl Into<Arc<dyn Checkpoint>>, id: StateStoreId) -> Result<Self> {
        Self::open_with(checkpoint, id, Access::default())
    }

    /// As [`open`](Self::open), with runs read the way `access` says.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(checkpoint: impl Into<Arc<dyn Checkpoint>>, id: StateStoreId, access: Access) -> Result<Self> {
        let options = StoreOptions::default().access(access);
        let directory = reading_directory(checkpoint.into(), id, &options);
        let catalog = directory.catalog()?;
        if catalog.listing().runs.is_empty() && catalog.listing().forks.is_empty() {
            let path = directory.root();
            return Err(Error::new(ErrorKind::NotFound { path }, format!("there is no store {}", directory.id())));
        }
        Ok(Self { directory: Arc::new(directory), readers: Arc::default() })
    }

    /// The history of a store that a provider has open.
    pub(super) fn of(directory: &Arc<StoreDirectory>, readers: &Arc<Readers>) -> Self {
        Self { directory: Arc::clone(directory), readers: Arc::clone(readers) }
    }

    /// The stores that `checkpoint` holds, sorted.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn stores(checkpoint: &dyn Checkpoint) -> Result<Vec<StateStoreId>> {
        stores(checkpoint)
    }

    /// Which store this is.
    #[must_use]
    pub fn id(&self) -> &StateStoreId {
        self.directory.id()
    }

    /// The newest version; 0 where nothing was committed yet.
    ///
    /// # Errors
    /// Fails where the checkpoint directory cannot be read.
    pub fn latest(&self) -> Result<Version> {
        Ok(self.directory.catalog()?.head().version)
    }

    /// Every version that can be read, oldest first; version 0 is not listed. Opens one file for each.
    ///
    /// # Errors
    /// What reading the files met.
    pub fn versions(&self) -> Result<Vec<VersionInfo>> {
        versions(&self.directory, |_| Ok(()))
    }

    /// Every retained version, whether or not it can be read: what is known of it, and why it cannot be read. Opens each run once;
    /// what is in them is not looked at ([`verify`](Self::verify) does).
    ///
    /// # Errors
    /// What the disk reports. Damage is no error here but part of the answer.
    pub fn survey(&self) -> Result<VersionSurvey> {
        survey(&self.directory, &|_| None)
    }

    /// As [`survey`](Self::survey), with the metadata of every version, which is held in memory.
    ///
    /// # Errors
    /// As [`survey`](Self::survey).
    pub fn survey_with_metadata(&self) -> Result<VersionSurvey> {
        // A copy, so that no mapping is kept for it.
        survey(&self.directory, &|metadata| Some(Bytes::copy_from(metadata)))
    }

    /// The metadata that `version` was committed with; empty for version 0.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn metadata(&self, version: Version) -> Result<Bytes> {
        metadata(&self.directory, version)
    }

    /// Opens a reader of `version`, which stays as it is whatever is committed or cleaned up meanwhile.
    ///
    /// # Errors
    /// `VersionNotFound`, or what reading the version's files met.
    pub fn read_at(&self, version: Version) -> Result<View> {
        read_at(&self.directory, version, &self.readers)
    }

    /// What the commits that made `versions` wrote, in the order of versions, and of keys within each.
    ///
    /// Version 0 has no changes, and an empty range none at all, so `(seen + 1)..=latest` may be asked for at any time. The
    /// memory is that of a few pages and one commit's range deletes.
    ///
    /// # Errors
    /// `VersionNotFound` above the newest version; `Collapsed` where the delta of one of `versions` is no longer kept: it names
    /// the two versions around that can still be read, whose [`difference`](Self::difference) is what is known. Nothing is
    /// left out: either all of `versions` can be told, or none.
    pub fn changes(&self, versions: RangeInclusive<Version>) -> Result<Changes> {
        self.directory.at_a_listing(|catalog| Changes::of(&self.directory, &self.readers, catalog, versions.clone()))
    }

    /// What differs between `from` and `to`, in the order of keys: the net effect of all that happened between them.
    ///
    /// Costs the changes where deltas lead from `from` to `to`, and a pass over both states where none do, as backwards.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), for both versions.
    pub fn difference(&self, from: Version, to: Version) -> Result<Differences> {
        self.directory.at_a_listing(|catalog| Differences::between(&self.directory, &self.readers, catalog, from, to))
    }

    /// Reads and checks every byte of every run. `observe` hears of the bytes read so far, and may end it.
    ///
    /// # Errors
    /// `Cancelled`, or what the disk reports. Damage is no error here but the answer.
    pub fn verify(&self, mut observe: impl FnMut(u64) -> ControlFlow<()>) -> Result<Verified> {
        verify(&self.directory, &mut observe)
    }

    /// Which files there are, and what reading and opening the newest version has to touch. Opens no run.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn inventory(&self) -> Result<Inventory> {
        self.directory.at_a_listing(|catalog| inventory(&self.directory, catalog))
    }
}

/// A directory that is not written to in the name of any epoch.
pub(super) fn reading_directory(
    checkpoint: Arc<dyn Checkpoint>,
    id: StateStoreId,
    options: &StoreOptions,
) -> StoreDirectory {
    let clock = Arc::new(SystemClock::new());
    StoreDirectory::new(checkpoint, id, DirectoryOptions::from(options), IdSource::random(), clock)
}

/// Opens a view of `version` over mapped runs.
pub(super) fn read_at(directory: &StoreDirectory, version: Version, readers: &Arc<Readers>) -> Result<View> {
    let chain = chain_of(directory, version)?;
    let (stack, passed_over) = (Arc::new(RunStack(chain.newest_first())), directory.passed_over(&chain));
    Ok(View::new(version, chain.families, stack, Arc::clone(readers)).around(passed_over))
}

/// The runs of `version`.
pub(super) fn chain_of(directory: &StoreDirectory, version: Version) -> Result<OpenChain> {
    directory.at_a_listing(|catalog| directory.open_chain(catalog, catalog.readable(version)?))
}

/// The metadata that `version` was committed with.
pub(super) fn metadata(directory: &StoreDirectory, version: Version) -> Result<Bytes> {
    directory.at_a_listing(|catalog| match catalog.readable(version)? {
        VersionId::ROOT => Ok(Bytes::default()),
        at => Ok(open_any(directory, catalog, at)?.1.metadata().clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::LocalCheckpoint;
    use crate::entry::{FamilyId, Probe, full_key};
    use crate::fs::SimDisk;
    use crate::store::below::Below;
    use crate::store::{MemoryProvider, StateStoreProvider, WriteStore};

    /// A value that nobody can tell from its key.
    fn scattered(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 7)
    }

    #[test]
    fn a_get_of_a_present_key_through_a_snapshot_and_8_deltas_looks_into_at_most_2_pages_on_average() {
        const KEYS: u64 = 40_000;
        let checkpoint = LocalCheckpoint::on(Arc::new(SimDisk::new(1)), "/checkpoint").unwrap();
        let id = StateStoreId::new("op", 0, "state").unwrap();
        let provider = MemoryProvider::open(checkpoint, id, StoreOptions::default()).unwrap();
        for version in 0..9_u64 {
            let mut batch = provider.begin(Version(version)).unwrap();
            // The snapshot has all keys; each delta overwrites one in 40.
            for number in (0..KEYS).filter(|number| version == 0 || number % 40 == version) {
                batch.put(FamilyId::DEFAULT, &scattered(number).to_be_bytes(), &version.to_be_bytes()).unwrap();
            }
            batch.commit().unwrap();
            if version == 0 {
                provider.snapshot().unwrap();
            }
        }
        let directory = &provider.history().directory;
        let stack = RunStack(chain_of(directory, Version(9)).unwrap().newest_first());
        assert_eq!(stack.0.len(), 9);
        for number in 0..KEYS {
            let key = full_key(FamilyId::DEFAULT, &scattered(number).to_be_bytes());
            let expected = if (1..9).contains(&(number % 40)) { number % 40 } else { 0 };
            assert_eq!(stack.get(&Probe::new(&key)).unwrap().unwrap(), expected.to_be_bytes());
        }
        let touched: u64 = stack.0.iter().map(|run| run.pages_touched()).sum();
        let (least, most) = (KEYS, KEYS * 2);
        assert!((least..=most).contains(&touched), "{touched} pages for {KEYS} gets");
        eprintln!("{} pages a get, in hundredths", touched * 100 / KEYS);
    }
}
