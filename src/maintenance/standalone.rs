//! [`Maintenance`]: of a store that need not be open anywhere.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::options::MaintenanceOptions;
use super::pace::Pacer;
use super::plan::{Plan, Task, Urgency, plan};
use super::repair::{Repaired, repair};
use crate::catalog::{Catalog, RunName};
use crate::checkpoint::Checkpoint;
use crate::clock::{Clock, SystemClock};
use crate::entry::StateStoreId;
use crate::error::{Error, Result};
use crate::run::PageCodec;
use crate::store::{
    DirectoryOptions, MOST_ATTEMPTS, Observer, Retained, Retired, StoreDirectory, Verified, collapse,
    is_about_the_file, is_about_the_listing, retirable, retire, verify, write_snapshot,
};
use crate::version::{IdSource, Version, VersionId};

/// Looks after a store's files. Claims no epoch, needs no work directory, and fences nobody: a writer may be at work, here or in
/// another process, and so may other maintainers.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use alluvium::{LocalCheckpoint, Maintenance, MaintenanceOptions, StateStoreId};
///
/// let checkpoint = LocalCheckpoint::open("checkpoint")?;
/// let store = StateStoreId::new("flights", 0, "delays")?;
/// let maintenance = Maintenance::on(checkpoint, store, MaintenanceOptions::default().retain_versions(10)?);
/// for planned in maintenance.plan()?.tasks {
///     println!("{:?}: {}", planned.urgency, planned.task);
/// }
/// maintenance.maintain(&|_| ControlFlow::Continue(()))?;
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Debug)]
pub struct Maintenance {
    directory: StoreDirectory,
    options: MaintenanceOptions,
    clock: Arc<dyn Clock>,
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// Deltas became one.
    Collapsed {
        /// The version that they start from.
        from: Version,
        /// The newest version among them.
        to: Version,
    },
    /// A snapshot of this version is there.
    Snapshot(Version),
    /// Old versions are gone.
    Retired(Retired),
    /// Damaged files were made anew, or could not be.
    Repaired(Repaired),
    /// There was nothing to do (any more): somebody else has done it, or the version is no longer on the store's lineage.
    Nothing,
}

impl Done {
    /// Whether the files are as they were, so that a plan would be the same again.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Retired(retired) => retired.deleted.is_empty(),
            Self::Collapsed { .. } | Self::Snapshot(_) | Self::Repaired(_) => false,
        }
    }

    /// Whether there is a new run. Where something still asks for what has just been made, making it again would not help either.
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Self::Collapsed { .. } | Self::Snapshot(_))
    }
}

impl Maintenance {
    /// Of the store called `id` in `checkpoint`. Touches nothing; a store that does not exist has nothing to do.
    #[must_use]
    pub fn on(checkpoint: impl Into<Arc<dyn Checkpoint>>, id: StateStoreId, options: MaintenanceOptions) -> Self {
        Self::on_with(checkpoint, id, options, IdSource::random(), Arc::new(SystemClock::new()))
    }

    /// As [`on`](Self::on), with ids and time from the caller, so that a test can repeat a run.
    #[must_use]
    pub fn on_with(
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        options: MaintenanceOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let use_of = DirectoryOptions { access: options.access, codec: PageCodec::None, ..DirectoryOptions::default() };
        let directory = StoreDirectory::new(checkpoint.into(), id, use_of, ids, Arc::clone(&clock));
        Self { directory, options, clock }
    }

    /// Says what is worth doing, without doing it.
    ///
    /// # Errors
    /// `Missing` or `Corrupt` where the newest version cannot be made: [`repair`](Self::repair) first. What the disk reports.
    pub fn plan(&self) -> Result<Plan> {
        self.directory.at_a_listing(|catalog| plan(catalog, &|run| self.directory.length(run), &self.options))
    }

    /// Does a task. `observe` hears how many bytes have been written so far, and may end it.
    ///
    /// # Errors
    /// `Cancelled`; what reading and writing runs met. The store is as it was then, and the task may be repeated.
    pub fn run(&self, task: &Task, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Done> {
        let pacer = Pacer::new(self.options.pace, &*self.clock, observe);
        run(&self.directory, &self.options, task, &|bytes| pacer.observe(bytes))
    }

    /// Does everything that is worth doing.
    ///
    /// # Errors
    /// As [`run`](Self::run), from the first task that fails; calling again goes on.
    pub fn maintain(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Vec<Done>> {
        until_nothing_is_left(Urgency::Spare, || self.plan(), |task| self.run(task, observe))
    }

    /// Writes the whole newest version into one file, whether or not that is worth it yet, and says which version that is.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn compact(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Version> {
        let at = self.directory.catalog()?.head();
        self.run(&Task::Snapshot { at }, observe)?;
        Ok(at.version)
    }

    /// Keeps the newest versions readable, as many as the options say, and deletes every file that none of them needs. What others go for
    /// the sake of is read from end to end before; `observe` hears of the bytes read of each, and may end it.
    ///
    /// # Errors
    /// `Cancelled`, or what the disk reports. It may stop anywhere, and be called again.
    pub fn retire(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Retired> {
        retire(&self.directory, self.options.retained(), observe)
    }

    /// What [`retire`](Self::retire) would delete, and why; nothing is changed.
    ///
    /// # Errors
    /// As [`retire`](Self::retire).
    pub fn retirable(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Retired> {
        retirable(&self.directory, self.options.retained(), observe)
    }

    /// Reads and checks every byte of every run, and how they build on each other. `observe` hears of the bytes read so far,
    /// and may end it.
    ///
    /// # Errors
    /// `Cancelled`, or what the disk reports. Damage is no error here but the answer.
    pub fn verify(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Verified> {
        verify(&self.directory, &mut |bytes| observe(bytes))
    }

    /// Verifies, and makes every damaged run anew whose content is still there in others. `observe` hears of the bytes read
    /// and written so far, and may end it.
    ///
    /// # Errors
    /// `Cancelled`, or what the disk reports. Damage that cannot be mended is no error here but part of the answer; see
    /// [`Repaired::into_result`].
    pub fn repair(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Repaired> {
        repair(&self.directory, observe)
    }
}

impl MaintenanceOptions {
    pub(super) fn retained_changes(&self) -> u64 {
        self.retain_changes.unwrap_or(self.retain_versions as u64)
    }

    pub(super) fn retained(&self) -> Retained {
        Retained { versions: self.retain_versions, changes: self.retained_changes() }
    }
}

/// Plans and acts until nothing of at least this urgency is left.
pub(super) fn until_nothing_is_left(
    urgency: Urgency,
    plan: impl Fn() -> Result<Plan>,
    run: impl Fn(&Task) -> Result<Done>,
) -> Result<Vec<Done>> {
    let mut done = Vec::new(); // each task makes fewer files of many
    let mut idle = Vec::new(); // what turned out to be done already, or cannot be
    let mut failure = None;
    let mut is_repaired = false;
    let mut made: Vec<Task> = Vec::new(); // runs, each once
    loop {
        let tasks = plan()?.tasks;
        let next = tasks.iter().find(|planned| planned.urgency >= urgency && !idle.contains(&planned.task));
        let Some(next) = next else { return failure.map_or(Ok(done), Err) };
        match run(&next.task) {
            Ok(outcome) if outcome.is_nothing() || made.contains(&next.task) => idle.push(next.task),
            Ok(something) => {
                made.extend(something.is_made().then_some(next.task));
                done.push(something);
            }
            // What can be mended is, once; what still fails then does not keep the rest from being done.
            Err(error) if is_about_the_file(&error) && !is_repaired => {
                is_repaired = true;
                done.push(run(&Task::Repair)?);
            }
            Err(error) if is_about_the_file(&error) => {
                idle.push(next.task);
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Does a task on the files alone.
pub(super) fn run(
    directory: &StoreDirectory,
    options: &MaintenanceOptions,
    task: &Task,
    observe: Observer<'_>,
) -> Result<Done> {
    match task {
        Task::Collapse { from, to } => run_collapse(directory, *from, *to, observe),
        Task::Snapshot { at } => run_snapshot(directory, *at, observe),
        Task::Retire => retire(directory, options.retained(), observe).map(Done::Retired),
        Task::Repair => repair(directory, observe).map(Done::Repaired),
    }
}

fn run_collapse(directory: &StoreDirectory, from: Version, to: VersionId, observe: Observer<'_>) -> Result<Done> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let catalog = directory.catalog()?;
        if !catalog.lineage().owns(to) {
            return Ok(Done::Nothing); // rolled back meanwhile
        }
        match collapse_once(directory, &catalog, from, to, observe) {
            Err(error) if attempt < MOST_ATTEMPTS && is_about_the_listing(&error) => {}
            outcome => return outcome,
        }
    }
}

fn collapse_once(
    directory: &StoreDirectory,
    catalog: &Catalog,
    from: Version,
    to: VersionId,
    observe: Observer<'_>,
) -> Result<Done> {
    let mut unusable: BTreeSet<RunName> = BTreeSet::new();
    let mut damage: Option<Error> = None;
    loop {
        let Some(names) = catalog.deltas(from, to.version, &unusable) else {
            return damage.map_or(Ok(Done::Nothing), Err);
        };
        match directory.open_deltas(catalog, &names) {
            Ok(mut runs) => {
                runs.reverse();
                let made = collapse(directory, &runs, observe)?;
                return Ok(made.map_or(Done::Nothing, |_| Done::Collapsed { from, to: to.version }));
            }
            Err((name, error)) if is_about_the_file(&error) => {
                tracing::warn!(file = %directory.display_path(name).display(), %error, "collapsing around a run");
                unusable.insert(name);
                damage = Some(error);
            }
            Err((_, error)) => return Err(error),
        }
    }
}

fn run_snapshot(directory: &StoreDirectory, at: VersionId, observe: Observer<'_>) -> Result<Done> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let catalog = directory.catalog()?;
        if !catalog.lineage().owns(at) {
            return Ok(Done::Nothing); // rolled back meanwhile
        }
        let chain = directory.open_chain(&catalog, at);
        match chain.and_then(|chain| write_snapshot(directory, &chain, observe)) {
            Err(error) if attempt < MOST_ATTEMPTS && is_about_the_listing(&error) => {}
            outcome => return Ok(outcome?.map_or(Done::Nothing, |_| Done::Snapshot(at.version))),
        }
    }
}
