//! A provider, with somebody who looks after its store: opening one, and its own maintenance.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};

use super::act::{act, repair_and_adopt};
use super::background::Background;
use super::options::MaintenanceOptions;
use super::plan::{Plan, Urgency, plan};
use super::repair::Repaired;
use super::standalone::{Done, until_nothing_is_left};
use crate::backend::Backend;
use crate::checkpoint::Checkpoint;
use crate::clock::{Clock, SystemClock};
use crate::entry::StateStoreId;
use crate::error::Result;
use crate::store::{Caretaker, RocksDbProvider, StoreOptions, Upkeep, UpkeepState};
use crate::version::IdSource;

/// So many files more than versions are retained are worth a look at once.
const MANY_FILES: usize = 64;

impl RocksDbProvider {
    /// Opens the store called `id` in `checkpoint` at its newest version, and claims it.
    ///
    /// Unless the options say otherwise, the backend's background thread keeps its files few and lets go of old versions.
    ///
    /// # Errors
    /// `Corrupt` or `Missing` where no chain of files makes the newest version, and whatever the disk reports.
    pub fn open(
        backend: &Backend,
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        options: StoreOptions,
    ) -> Result<Self> {
        Self::open_with(backend, checkpoint, id, options, IdSource::random(), Arc::new(SystemClock::new()))
    }

    /// As [`open`](Self::open), with ids and time from the caller, so that a test can repeat a run.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        backend: &Backend,
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        options: StoreOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let background = Background::new(MaintenanceOptions::from(&options), Arc::clone(&clock));
        let upkeep = options.upkeep_by();
        let provider = Self::open_unattended(backend, checkpoint.into(), id, options, ids, clock)?;
        if upkeep == Upkeep::Background {
            let core = provider.core();
            background.attend(core);
            let many = core.options.retained_versions().saturating_add(MANY_FILES);
            if core.files_at_open > many.saturating_mul(4) {
                // Processes that end after a few commits each leave the background no time.
                background.catch_up(core);
                background.is_free(core);
            } else if core.files_at_open > many || !core.passed_over().is_empty() {
                // What had to be passed over is made anew before the next damage.
                background.look_soon(core);
            }
        }
        Ok(provider)
    }

    /// Says what is worth doing for the store's files, without doing it.
    ///
    /// # Errors
    /// As [`Maintenance::plan`](super::Maintenance::plan).
    pub fn plan(&self) -> Result<Plan> {
        let options = MaintenanceOptions::from(&self.core().options);
        let options = MaintenanceOptions { collapse_up_to: self.core().folded_to(), ..options };
        let directory = &self.core().directory;
        directory.at_a_listing(|catalog| plan(catalog, &|run| directory.length(run), &options))
    }

    /// Does everything that is worth doing, in the caller's thread: for those who do not want the background to. `observe` hears how
    /// many bytes the current task has written so far, and may end it.
    ///
    /// # Errors
    /// `Cancelled`; what reading and writing runs met. The store is as it was before the task that failed; calling again goes on.
    pub fn maintain(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Vec<Done>> {
        let core = self.core();
        let options = MaintenanceOptions::from(&core.options);
        // Not beside the background: two that collapse by what each has seen may make runs that overlap in part.
        let turn = core.upkeep_ended.lock().unwrap_or_else(PoisonError::into_inner);
        core.merge_base()?;
        let done = until_nothing_is_left(Urgency::Spare, || self.plan(), |task| act(core, &options, task, observe));
        drop(turn);
        core.caretaker.get().inspect(|caretaker| caretaker.is_free(core));
        done
    }

    /// Verifies, and makes every damaged run anew whose content is still there in others.
    ///
    /// # Errors
    /// As [`Maintenance::repair`](super::Maintenance::repair).
    pub fn repair(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Repaired> {
        repair_and_adopt(self.core(), observe)
    }

    /// How the maintenance of this store is doing.
    #[must_use]
    pub fn upkeep(&self) -> UpkeepState {
        self.core().upkeep()
    }
}
