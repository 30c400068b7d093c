//! [`StoreDirectory`]: one store's directory in the checkpoint: listing, claiming, opening and making files.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::catalog::{Catalog, Claim, Confirmation, Fork, ForkRecord, Listing, RunName, TemporaryName, Wanted, fenced_by};
use crate::checkpoint::{Checkpoint, PendingFile};
use crate::clock::Clock;
use crate::entry::{Families, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{FileKind, PublishError};
use crate::run::{Access, PageCodec, Run};
use crate::version::{Epoch, IdSource, Mark, RunId, StoreUid, VersionId};

/// A listing can move under a reader when another process cleans up; after this many times it is something else.
const MOST_LISTINGS: usize = 64;

/// One store's directory in the checkpoint. It knows files, not layers.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    checkpoint: Arc<dyn Checkpoint>,
    id: StateStoreId,
    path: String,
    access: Access,
    codec: PageCodec,
    ids: IdSource,
    clock: Arc<dyn Clock>,
    /// The runs that are open, so that a file is mapped and verified once. Guards the map only; files are opened outside.
    open_runs: Mutex<HashMap<RunName, Weak<Run>>>,
}

/// The runs that make one version, opened and checked against each other; oldest first.
#[derive(Debug)]
pub(super) struct OpenChain {
    /// The newest snapshot and the collapsed deltas above it.
    pub(super) base: Vec<Arc<Run>>,
    /// The single deltas above the base.
    pub(super) singles: Vec<Arc<Run>>,
    pub(super) mark: Mark,
    pub(super) families: Arc<Families>,
    /// Files that should have been used but were damaged or gone, with the reason.
    pub(super) passed_over: Vec<(RunName, Error)>,
}

impl OpenChain {
    /// The mark that the base ends with.
    pub(super) fn base_mark(&self) -> Mark {
        self.base.last().map_or(Mark::ROOT, |run| run.header().mark())
    }

    /// All runs, newest first.
    pub(super) fn newest_first(&self) -> Vec<Arc<Run>> {
        self.base.iter().chain(&self.singles).rev().cloned().collect()
    }
}

/// A claimed epoch, and what it was claimed on.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) uid: StoreUid,
    pub(super) epoch: Epoch,
    /// The newest version when the claim was confirmed.
    pub(super) head: VersionId,
    pub(super) chain: OpenChain,
}

/// How a store's directory is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectoryOptions {
    pub(super) access: Access,
    pub(super) codec: PageCodec,
}

impl StoreDirectory {
    pub(super) fn new(
        checkpoint: Arc<dyn Checkpoint>,
        id: StateStoreId,
        options: DirectoryOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let path = format!("state/{id}");
        let DirectoryOptions { access, codec } = options;
        Self { checkpoint, id, path, access, codec, ids, clock, open_runs: Mutex::default() }
    }

    pub(super) fn id(&self) -> &StateStoreId {
        &self.id
    }

    pub(super) fn new_run_id(&self) -> RunId {
        self.ids.run_id()
    }

    pub(super) fn delta_codec(&self) -> PageCodec {
        self.codec
    }

    /// Where a run lies, for people.
    pub(super) fn display_path(&self, name: &RunName) -> PathBuf {
        self.checkpoint.display_path(&self.file(name))
    }

    /// Lists the directory and reads the forks.
    pub(super) fn catalog(&self) -> Result<Catalog> {
        let mut listing = Listing::default();
        for entry in self.checkpoint.list(&self.path)? {
            if let (FileKind::File, Some(name)) = (entry.stat.kind, RunName::parse(&entry.name)) {
                listing.runs.insert(name, entry.stat.length_bytes);
            }
        }
        for epoch in self.fork_epochs()? {
            listing.forks.insert(epoch, self.read_fork(epoch)?);
        }
        Ok(Catalog::new(listing))
    }

    /// The epochs that are claimed, in no order.
    pub(super) fn fork_epochs(&self) -> Result<Vec<Epoch>> {
        let entries = self.checkpoint.list(&self.forks_path())?; // as many as forks are kept
        Ok(entries.iter().filter_map(|entry| crate::catalog::parse_fork_name(&entry.name)).collect())
    }

    /// The protocol of opening: list, claim the next epoch on what is wanted, list again; start over if the head has moved.
    ///
    /// `mine` is the epoch that the caller holds so far: if somebody has claimed a higher one, the caller is fenced and
    /// must not take the store back.
    pub(super) fn claim(&self, wanted: Wanted, mut mine: Option<Epoch>, holder: &str) -> Result<Claimed> {
        for _ in 0..MOST_LISTINGS {
            let before = self.catalog()?;
            if let Some(by) = mine.and_then(|mine| fenced_by(before.fork_epochs(), mine)) {
                return Err(Error::new(ErrorKind::Fenced { by }, "another writer has opened the store"));
            }
            let claim = Claim::plan(&before, wanted)?;
            let chain = self.open_chain(&before, claim.base)?;
            // What is read here may be visible but not yet durable, left by a writer that was killed. It must be before
            // anything is built on it.
            self.checkpoint.sync(&self.path)?;
            let uid = before.uid()?.unwrap_or_else(|| self.ids.store_uid());
            if !self.publish_fork(claim.epoch, uid, chain.mark, holder)? {
                continue; // somebody else was first to take the number
            }
            let after = self.catalog()?;
            match claim.confirm(&after) {
                Confirmation::Confirmed => {
                    self.sweep_temporaries(claim.epoch);
                    return Ok(Claimed { uid, epoch: claim.epoch, head: claim.seen_head, chain });
                }
                Confirmation::StartOver => mine = mine.map(|_| claim.epoch),
            }
        }
        let context = "the head of the store moved at every attempt to open it; other writers are opening it too";
        Err(Error::new(ErrorKind::Busy { waited_ms: 0 }, context))
    }

    /// Opens the runs that make `at`. A run that is damaged or gone is passed over if others make the same version.
    pub(super) fn open_chain(&self, catalog: &Catalog, at: VersionId) -> Result<OpenChain> {
        let mut unusable = BTreeSet::new();
        let mut passed_over: Vec<(RunName, Error)> = Vec::new();
        loop {
            let chain = match catalog.chain(at, &unusable) {
                Ok(chain) => chain,
                // The damage is the reason, not the gap that passing it over has left.
                Err(gap) => return Err(passed_over.pop().map_or(gap, |(_, damage)| damage)),
            };
            match self.open_runs(chain.base.iter().chain(&chain.singles)) {
                Ok(mut runs) => {
                    let singles = runs.split_off(chain.base.len());
                    let newest = singles.last().or(runs.last());
                    let mark = newest.map_or(Mark::ROOT, |run| run.header().mark());
                    let families = newest.map(|run| Arc::new(run.header().families.clone())).unwrap_or_default();
                    return Ok(OpenChain { base: runs, singles, mark, families, passed_over });
                }
                Err((name, error)) if is_about_the_file(&error) => {
                    tracing::warn!(file = %self.display_path(&name).display(), %error, "passing over a run");
                    unusable.insert(name.clone());
                    passed_over.push((name, error));
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Opens the run called `name`, or finds it open.
    pub(super) fn open_run(&self, name: &RunName) -> Result<Arc<Run>> {
        if let Some(run) = self.lock_runs().get(name).and_then(Weak::upgrade) {
            return Ok(run);
        }
        let file = self.checkpoint.open(&self.file(name))?;
        let run = Run::open(file, self.display_path(name), self.access)?;
        let header = run.header();
        if RunName::of(header.kind, header.from, header.to_id()) != *name || header.store != self.id {
            let found = format!("run {} of store {}", header.to_id(), header.store);
            return Err(Error::corrupt(self.display_path(name), 0, format!("run {name} of store {}", self.id), found));
        }
        let mut runs = self.lock_runs();
        runs.retain(|_, run| run.strong_count() > 0);
        runs.insert(name.clone(), Arc::downgrade(&run));
        Ok(run)
    }

    /// Starts a new run under a temporary name.
    pub(super) fn create_run(&self, name: &RunName) -> Result<Box<dyn PendingFile>> {
        let temporary = TemporaryName::new(name.epoch(), self.ids.run_id());
        self.checkpoint.create(&self.file(name), &temporary.to_string())
    }

    fn open_runs<'n>(
        &self,
        names: impl Iterator<Item = &'n RunName>,
    ) -> std::result::Result<Vec<Arc<Run>>, (RunName, Error)> {
        let mut below = Mark::ROOT;
        let mut runs: Vec<Arc<Run>> = Vec::new(); // as many as the chain has
        for name in names {
            let run = self.open_run(name).map_err(|error| (name.clone(), error))?;
            let header = run.header();
            // Every run names its parent: a file of another history that got this name stops here.
            if header.parent != below.tip || runs.last().is_some_and(|last| last.header().uid != header.uid) {
                let found = format!("parent {} of store {}", header.parent, header.uid);
                let expected = format!("parent {}", below.tip);
                return Err((name.clone(), Error::corrupt(self.display_path(name), 0, expected, found)));
            }
            below = header.mark();
            runs.push(run);
        }
        Ok(runs)
    }

    fn read_fork(&self, epoch: Epoch) -> Result<Fork> {
        let path = format!("{}/{}", self.forks_path(), crate::catalog::fork_name(epoch));
        let file = self.checkpoint.open(&path)?;
        let shown = self.checkpoint.display_path(&path);
        let length = usize::try_from(file.len()).unwrap_or(usize::MAX);
        if length > ForkRecord::MAX_BYTES {
            return Ok(Fork::Damaged(Error::corrupt(shown, 0, "a fork record", format!("{length} bytes")).to_string()));
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        let record = ForkRecord::decode(&shown, &bytes).and_then(|record| self.check_fork(epoch, record, &shown));
        Ok(match record {
            Ok(record) => Fork::Known(record),
            Err(error) => Fork::Damaged(error.to_string()),
        })
    }

    fn check_fork(&self, epoch: Epoch, record: ForkRecord, shown: &std::path::Path) -> Result<ForkRecord> {
        if record.epoch == epoch && record.store == self.id {
            return Ok(record);
        }
        let found = format!("epoch {} of {}", record.epoch, record.store);
        Err(Error::corrupt(shown, 0, format!("epoch {epoch} of {}", self.id), found))
    }

    /// Claims an epoch; `false` where somebody else has it.
    fn publish_fork(&self, epoch: Epoch, uid: StoreUid, base: Mark, holder: &str) -> Result<bool> {
        let record = ForkRecord {
            uid,
            store: self.id.clone(),
            epoch,
            base,
            holder: holder.to_owned(),
            claimed_at_ms: self.clock.wall_ms(),
        };
        let path = format!("{}/{}", self.forks_path(), crate::catalog::fork_name(epoch));
        let temporary = TemporaryName::new(epoch, self.ids.run_id());
        let mut file = self.checkpoint.create(&path, &temporary.to_string())?;
        file.append(&record.encode())?;
        match file.publish() {
            Ok(()) => Ok(true),
            Err(PublishError::NotPublished(error)) if error.is_already_exists() => Ok(false),
            // A fork that may be there says nothing until it has a run, and nobody will write one: claim the next.
            Err(PublishError::NotPublished(error) | PublishError::Unknown(error)) => {
                Err(error.context("the store could not be claimed"))
            }
        }
    }

    /// Removes what writers of lower epochs left half-written. They are fenced, so nothing of theirs can count any more.
    /// Only to save space: a failure is nobody's problem.
    fn sweep_temporaries(&self, epoch: Epoch) {
        for directory in [&self.path, &self.forks_path()] {
            let entries = self.checkpoint.list(directory).unwrap_or_default();
            for entry in entries {
                if TemporaryName::parse(&entry.name).is_some_and(|temporary| temporary.epoch < epoch) {
                    if let Err(error) = self.checkpoint.delete(&format!("{directory}/{}", entry.name)) {
                        tracing::debug!(file = entry.name, %error, "a stale temporary stays");
                    }
                }
            }
        }
    }

    fn lock_runs(&self) -> std::sync::MutexGuard<'_, HashMap<RunName, Weak<Run>>> {
        // A cache is right whatever happened to a thread that held it.
        self.open_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &RunName) -> String {
        format!("{}/{name}", self.path)
    }

    fn forks_path(&self) -> String {
        format!("{}/forks", self.path)
    }
}

/// Whether an error says that the file is no good, rather than that the machine could not read it now.
fn is_about_the_file(error: &Error) -> bool {
    error.is_corrupt() || error.is_not_found() || matches!(error.kind(), ErrorKind::Unsupported)
}
