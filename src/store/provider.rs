//! [`RocksDbProvider`]: the product. Recent changes in an index over mapped runs.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::below::SharedBelow;
use super::changes::Changes;
use super::contract::{StateStoreProvider, VersionInfo};
use super::core::Core;
use super::export::Exported;
use super::history::{self, History};
use super::options::StoreOptions;
use super::rewrite::{write_collapsed, write_snapshot};
use super::tenancy::Tenancy;
use super::transaction::{Committer, Opened, Transaction};
use super::upkeep::{Retained, Retired, Verified, verify};
use super::versions;
use super::view::View;
use crate::backend::Backend;
use crate::bytes::Bytes;
use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::entry::StateStoreId;
use crate::error::Result;
use crate::overlay::Overlay;
use crate::version::{Epoch, IdSource, Version};

/// A store whose recent changes lie in the backend's RocksDB, over runs that are read where they lie.
///
/// Opening claims the store's next epoch: whoever wrote before is fenced. Clones share everything.
#[derive(Debug, Clone)]
pub struct RocksDbProvider {
    tenancy: Arc<Tenancy>,
}

impl RocksDbProvider {
    /// Opens a store that nobody looks after; the public `open` is in `maintenance/`, which does.
    pub(crate) fn open_unattended(
        backend: &Backend,
        checkpoint: Arc<dyn Checkpoint>,
        id: StateStoreId,
        options: StoreOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let core = Arc::new(Core::open(backend, checkpoint, id, options, ids, clock)?);
        core.rebuild_filters_soon();
        core.fold_behind();
        Ok(Self { tenancy: Arc::new(Tenancy::new(core)) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.tenancy.core
    }

    /// Merges the single deltas above the base into one collapsed delta and moves the base up to it. Says up to which
    /// version the base reaches then.
    ///
    /// # Errors
    /// A failure leaves the store as it was; calling again is safe.
    pub fn collapse(&self) -> Result<Version> {
        self.core().move_base(|directory, chain| write_collapsed(directory, chain, &|_| self.core().go_on()))
    }

    /// Keeps the newest `retain` versions readable, and deletes every file that none of them needs. Readers that are open
    /// read on.
    ///
    /// # Errors
    /// `InvalidInput` for 0; what the disk reports. It may stop anywhere, and be called again.
    pub fn retire(&self, retain: usize) -> Result<Retired> {
        let changes = self.core().options.retained_changes_if_set().unwrap_or(retain as u64);
        self.core().retire(Retained { versions: retain, changes }, &|_| ControlFlow::Continue(()))
    }

    /// Reads and checks every byte of every run. `observe` hears of the bytes read so far, and may end it.
    ///
    /// # Errors
    /// `Cancelled`, or what the disk reports. Damage is no error here but the answer.
    pub fn verify(&self, mut observe: impl FnMut(u64) -> ControlFlow<()>) -> Result<Verified> {
        verify(&self.core().directory, &mut observe)
    }

    /// What can be read of this store's versions without a writer: changes, differences, exports. It shares this provider's
    /// open files and outlives it.
    #[must_use]
    pub fn history(&self) -> History {
        History::of(&self.core().directory, &self.core().readers)
    }

    /// What the commits that made `versions` wrote; see [`History::changes`].
    ///
    /// # Errors
    /// As [`History::changes`].
    pub fn changes(&self, versions: RangeInclusive<Version>) -> Result<Changes> {
        self.history().changes(versions)
    }

    /// Writes the whole state of `version` as one file into the directory `dir`; see [`History::export`].
    ///
    /// # Errors
    /// As [`History::export`].
    pub fn export(&self, version: Version, dir: impl AsRef<Path>) -> Result<Exported> {
        self.history().export(version, dir, |_| ControlFlow::Continue(()))
    }

    /// The epoch that this provider writes with.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.core().epoch()
    }

    /// Scans that are alive: each keeps the files it reads from on disk.
    #[must_use]
    pub fn open_scans(&self) -> usize {
        self.core().readers.scans()
    }

    /// Deltas that wait, readable in place, to be taken into the index or the base.
    #[must_use]
    pub fn tail_length(&self) -> usize {
        self.core().waiting()
    }

    /// Damaged or missing files that the last load passed over, because others made the same version. Repair them: the
    /// next damage may have no way around it.
    #[must_use]
    pub fn passed_over(&self) -> Vec<PathBuf> {
        self.core().passed_over()
    }

    /// Waits until every delta committed so far has been taken into the index or the base, and the base is merged.
    ///
    /// # Errors
    /// What the index, or reading and writing runs, met.
    pub fn settle(&self) -> Result<()> {
        self.core().fold(0)?;
        self.core().merge_base()
    }
}

impl StateStoreProvider for RocksDbProvider {
    type Transaction = Transaction;
    type View = View;

    fn id(&self) -> &StateStoreId {
        self.core().directory.id()
    }

    fn begin(&self, version: Version) -> Result<Transaction> {
        let core = self.core();
        let slot = core.slot.take(core.options.busy_timeout)?;
        let layers = core.layers_at(version)?;
        let overlay = Overlay::new(core.overlay_lease()?, core.backend.room());
        Ok(Transaction::new(Opened {
            version,
            families: (*layers.families).clone(),
            below: layers as SharedBelow,
            overlay,
            readers: Arc::clone(&core.readers),
            committer: Arc::clone(&self.tenancy) as Arc<dyn Committer>,
            slot,
        }))
    }

    fn read_at(&self, version: Version) -> Result<View> {
        history::read_at(&self.core().directory, version, &self.core().readers)
    }

    fn latest(&self) -> Result<Version> {
        Ok(self.core().head()?.version)
    }

    fn versions(&self) -> Result<Vec<VersionInfo>> {
        let core = self.core();
        versions::versions(&core.directory, |see| core.backend.engine().versions(core.store, see))
    }

    fn metadata(&self, version: Version) -> Result<Bytes> {
        history::metadata(&self.core().directory, version)
    }

    fn snapshot(&self) -> Result<Version> {
        self.core().move_base(|directory, chain| write_snapshot(directory, chain, &|_| self.core().go_on()))
    }
}
