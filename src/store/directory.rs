//! [`StoreDirectory`]: one store's directory in the checkpoint: listing, claiming, opening and making files.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

#[cfg(feature = "conformance")]
use super::options::Planted;
use super::options::StoreOptions;
use super::unpublished::Unpublished;
use crate::backend::Precedence;
use crate::catalog::{
    Catalog, Claim, Confirmation, Doomed, FORKS, FileName, Fork, ForkRecord, Listing, MAX_FORK_BYTES, RunName,
    TemporaryName, Wanted, fenced_by,
};
use crate::checkpoint::{Checkpoint, PendingFile};
use crate::clock::Clock;
use crate::entry::{Families, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{FileKind, PublishError};
use crate::run::{Access, PageCodec, Run, RunHeader};
use crate::version::{Epoch, IdSource, Mark, RunId, RunKind, StoreUid, Version, VersionId};

/// A listing can move under a reader when another process cleans up; after this many times it is something else.
const MOST_LISTINGS: usize = 64;
/// Clean-up by another process can take a file between the listing and the look at it; a fresh listing then knows better.
pub(crate) const MOST_ATTEMPTS: usize = 8;

/// The directory of a checkpoint that holds the stores.
pub(super) const STATE: &str = "state";

/// One store's directory in the checkpoint. It knows files, not layers.
#[derive(Debug)]
pub(crate) struct StoreDirectory {
    checkpoint: Arc<dyn Checkpoint>,
    id: StateStoreId,
    path: String,
    access: Access,
    codec: PageCodec,
    #[cfg(feature = "conformance")]
    planted: Planted,
    ids: IdSource,
    clock: Arc<dyn Clock>,
    /// Ends the holder text of every fork made here, so that a claim whose outcome was lost is known again.
    claimant: String,
    /// The highest epoch that was tried to claim here, whatever came of it.
    last_tried: AtomicU64,
    /// The highest epoch that any listing showed: what is rewritten here goes by it until it is published.
    highest_seen: AtomicU64,
    /// The runs that are open, so that a file is mapped and verified once. Guards the map only; files are opened outside.
    open_runs: Mutex<HashMap<RunName, Weak<Run>>>,
    unpublished: Unpublished,
    /// Which writing goes first.
    precedence: Arc<Precedence>,
}

/// The runs that make one version, opened and checked against each other; oldest first.
#[derive(Debug)]
pub(crate) struct OpenChain {
    /// The newest snapshot and the collapsed deltas above it.
    pub(crate) base: Vec<Arc<Run>>,
    /// The single deltas above the base.
    pub(crate) singles: Vec<Arc<Run>>,
    pub(crate) mark: Mark,
    pub(super) families: Arc<Families>,
    /// Files that should have been used but were damaged or gone.
    passed_over: Vec<RunName>,
}

impl OpenChain {
    /// The mark that the base ends with.
    pub(crate) fn base_mark(&self) -> Mark {
        self.base.last().map_or(Mark::ROOT, |run| run.header().mark())
    }

    /// The store that the runs belong to; `None` where there are none.
    fn uid(&self) -> Option<StoreUid> {
        self.singles.last().or(self.base.last()).map(|run| run.header().uid)
    }

    /// All runs, newest first.
    pub(crate) fn newest_first(&self) -> Vec<Arc<Run>> {
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
    /// What the chain was found in.
    pub(super) catalog: Catalog,
}

/// How a store's directory is used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DirectoryOptions {
    pub(crate) access: Access,
    pub(crate) codec: PageCodec,
    #[cfg(feature = "conformance")]
    pub(crate) planted: Planted,
}

impl From<&StoreOptions> for DirectoryOptions {
    fn from(options: &StoreOptions) -> Self {
        Self {
            access: options.access,
            codec: options.codec,
            #[cfg(feature = "conformance")]
            planted: options.planted,
        }
    }
}

impl StoreDirectory {
    pub(crate) fn new(
        checkpoint: Arc<dyn Checkpoint>,
        id: StateStoreId,
        options: DirectoryOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let path = format!("{STATE}/{id}");
        Self {
            checkpoint,
            id,
            path,
            access: options.access,
            codec: options.codec,
            #[cfg(feature = "conformance")]
            planted: options.planted,
            claimant: format!("claimant {}", ids.run_id()),
            last_tried: AtomicU64::new(0),
            highest_seen: AtomicU64::new(0),
            ids,
            clock,
            open_runs: Mutex::default(),
            unpublished: Unpublished::default(),
            precedence: Arc::default(),
        }
    }

    /// Shares the order of writing with other stores.
    pub(super) fn with_precedence(self, precedence: &Arc<Precedence>) -> Self {
        Self { precedence: Arc::clone(precedence), ..self }
    }

    pub(super) fn precedence(&self) -> &Precedence {
        &self.precedence
    }

    pub(crate) fn id(&self) -> &StateStoreId {
        &self.id
    }

    #[cfg(feature = "conformance")]
    pub(super) fn planted(&self) -> Planted {
        self.planted
    }

    pub(crate) fn new_run_id(&self) -> RunId {
        self.ids.run_id()
    }

    pub(super) fn delta_codec(&self) -> PageCodec {
        self.codec
    }

    /// Where the store lies, for people.
    pub(super) fn root(&self) -> PathBuf {
        self.checkpoint.display_path(&self.path)
    }

    /// Every file, forks among them: its path within the store's directory, and its length in bytes.
    pub(super) fn files(&self) -> Result<Vec<(String, u64)>> {
        let of = |dir: &str, prefix: &str| -> Result<Vec<(String, u64)>> {
            let entries = self.checkpoint.list(dir)?.into_iter().filter(|entry| entry.kind == FileKind::File);
            let mut files = Vec::new(); // one each
            for entry in entries {
                // Whatever was cleaned up since the listing is left out.
                let length = match self.checkpoint.length(&format!("{dir}/{}", entry.name)) {
                    // A name that none of ours can have; it is shown, and not asked for.
                    Err(error) if matches!(error.kind(), ErrorKind::InvalidInput) => Some(0),
                    length => length?,
                };
                files.extend(length.map(|bytes| (format!("{prefix}{}", entry.name), bytes)));
            }
            Ok(files)
        };
        let mut files = of(&self.path, "")?;
        files.extend(of(&self.forks_path(), &format!("{FORKS}/"))?);
        Ok(files)
    }

    /// The length of a run's file in bytes; 0 where it was cleaned up since it was listed.
    pub(crate) fn length(&self, name: &RunName) -> Result<u64> {
        Ok(self.checkpoint.length(&self.file(name))?.unwrap_or_default())
    }

    /// Where a file lies, for people.
    pub(crate) fn display_path(&self, name: impl std::fmt::Display) -> PathBuf {
        self.checkpoint.display_path(&self.file(name))
    }

    /// Lists the directory, then the forks, and reads these.
    pub(crate) fn catalog(&self) -> Result<Catalog> {
        let mut listing = Listing::default();
        for entry in self.checkpoint.list(&self.path)?.iter().filter(|entry| entry.kind == FileKind::File) {
            listing.add(&entry.name);
        }
        for entry in self.checkpoint.list(&self.forks_path())? {
            listing.add_fork(&entry.name, |epoch| self.read_fork(epoch))?;
        }
        let catalog = Catalog::new(listing);
        self.highest_seen.fetch_max(catalog.highest_epoch().0, Ordering::AcqRel);
        Ok(catalog)
    }

    /// Looks at a listing, and at a fresh one where a clean-up by somebody else has overtaken it.
    pub(crate) fn at_a_listing<T>(&self, look: impl Fn(&Catalog) -> Result<T>) -> Result<T> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match look(&self.catalog()?) {
                Err(error) if attempt < MOST_ATTEMPTS && is_about_the_listing(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// The epochs that are claimed, in no order.
    pub(super) fn fork_epochs(&self) -> Result<Vec<Epoch>> {
        let entries = self.checkpoint.list(&self.forks_path())?; // as many as forks are kept
        let epoch = |name: &str| match FileName::parse_fork(name) {
            Some(FileName::Fork(epoch)) => Some(epoch),
            _ => None,
        };
        Ok(entries.iter().filter_map(|entry| epoch(&entry.name)).collect())
    }

    /// The protocol of opening: list, claim the next epoch on what is wanted, list again; start over if the head has moved.
    ///
    /// `mine` is the epoch that the caller holds so far: if somebody else has claimed a higher one, the caller is fenced
    /// and must not take the store back. After an error, [`last_tried`](Self::last_tried) may lie above it: the caller's own
    /// claim would fence it, so it must not write before it has claimed again.
    pub(super) fn claim(&self, wanted: Wanted, mine: Option<Epoch>, holder: &str) -> Result<Claimed> {
        self.claim_on(self.catalog()?, wanted, mine, holder)
    }

    /// As [`claim`](Self::claim), on a listing that the caller has.
    pub(super) fn claim_on(
        &self,
        listed: Catalog,
        wanted: Wanted,
        mine: Option<Epoch>,
        holder: &str,
    ) -> Result<Claimed> {
        let mut listed = Some(listed);
        for attempt in 1..=MOST_LISTINGS {
            let before = listed.take().map_or_else(|| self.catalog(), Ok)?;
            let others = before.listing().forks.iter().filter(|(_, fork)| !self.is_ours(fork)).map(|(epoch, _)| *epoch);
            if let Some(by) = mine.and_then(|mine| fenced_by(others, mine)) {
                return Err(Error::new(ErrorKind::Fenced { by }, "another writer has opened the store"));
            }
            let planned = Claim::plan(&before, wanted);
            let (claim, chain) = match planned.and_then(|claim| Ok((claim, self.open_chain(&before, claim.base)?))) {
                Err(error) if attempt < MOST_ATTEMPTS && is_about_the_listing(&error) => continue,
                found => found?,
            };
            // What is read here may be visible but not yet durable, left by a writer that was killed. It must be before
            // anything is built on it.
            self.checkpoint.sync(&self.path)?;
            self.checkpoint.sync(&self.forks_path())?;
            // Where no fork can be read any more, the runs still say whose they are.
            let uid = before.uid().or(chain.uid()).unwrap_or_else(|| self.ids.store_uid());
            if !self.publish_fork(claim.epoch, uid, chain.mark, holder)? {
                continue; // somebody else was first to take the number
            }
            let after = self.catalog()?;
            match claim.confirm(&after) {
                Confirmation::Confirmed => {
                    self.sweep_temporaries(claim.epoch, &after);
                    let (epoch, head) = (claim.epoch, claim.seen_head);
                    return Ok(Claimed { uid, epoch, head, chain, catalog: before });
                }
                Confirmation::StartOver => self.give_back(claim.epoch),
            }
        }
        let context = "the head of the store moved at every attempt to open it; other writers are opening it too";
        Err(Error::new(ErrorKind::Busy { waited_ms: 0 }, context))
    }

    /// Deletes a claim of ours that nothing was ever published with, and never will be: so openings without commits leave no
    /// files behind, and the number may be claimed again (`docs/decisions/0006`). Only to save files: a failure is nobody's problem.
    pub(super) fn give_back(&self, epoch: Epoch) {
        if let Err(error) = self.checkpoint.delete(&self.file(FileName::Fork(epoch))) {
            tracing::debug!(store = %self.id, %epoch, %error, "an unused claim stays");
        }
    }

    /// Opens the runs that make `at`. A run that is damaged or gone is passed over if others make the same version.
    pub(crate) fn open_chain(&self, catalog: &Catalog, at: VersionId) -> Result<OpenChain> {
        self.open_chain_without(catalog, at, &BTreeSet::new())
    }

    /// As [`open_chain`](Self::open_chain), without runs that are known to be `damaged`.
    pub(crate) fn open_chain_without(
        &self,
        catalog: &Catalog,
        at: VersionId,
        damaged: &BTreeSet<RunName>,
    ) -> Result<OpenChain> {
        let mut unusable = damaged.clone(); // a few
        let mut passed_over: Vec<(RunName, Error)> = Vec::new();
        loop {
            let chain = match catalog.chain(at, &unusable) {
                Ok(chain) => chain,
                // The damage is the reason, not the gap that passing it over has left.
                Err(gap) => return Err(passed_over.pop().map_or(gap, |(_, damage)| damage)),
            };
            match self.open_runs(catalog, chain.base.iter().chain(&chain.singles)) {
                Ok(mut runs) => {
                    let singles = runs.split_off(chain.base.len());
                    let newest = singles.last().or(runs.last());
                    let mark = newest.map_or(Mark::ROOT, |run| run.header().mark());
                    let families = newest.map(|run| Arc::new(run.header().families.clone())).unwrap_or_default();
                    let passed_over = passed_over.into_iter().map(|(name, _)| name).collect();
                    return Ok(OpenChain { base: runs, singles, mark, families, passed_over });
                }
                Err((name, error)) if is_about_the_file(&error) => {
                    tracing::warn!(file = %self.display_path(name).display(), %error, "passing over a run");
                    unusable.insert(name);
                    passed_over.push((name, error));
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// As [`open_run`](Self::open_run), for a run that was found in a listing: it must be of the store that the forks name.
    pub(crate) fn open_run_of(&self, catalog: &Catalog, name: &RunName) -> Result<Arc<Run>> {
        let run = self.open_run(name)?;
        match catalog.uid().filter(|uid| *uid != run.header().uid) {
            None => Ok(run),
            Some(uid) => {
                let found = format!("a run of the store {}", run.header().uid);
                Err(Error::corrupt(self.display_path(name), 0, format!("a run of the store {uid}"), found))
            }
        }
    }

    /// Opens the run called `name`, or finds it open.
    pub(crate) fn open_run(&self, name: &RunName) -> Result<Arc<Run>> {
        if let Some(run) = self.lock_runs().get(name).and_then(Weak::upgrade) {
            return Ok(run);
        }
        let file = self.checkpoint.open(&self.file(name))?;
        #[cfg(not(feature = "conformance"))]
        let run = Run::open(file, self.display_path(name), self.access)?;
        #[cfg(feature = "conformance")]
        let run = super::planted::open_run(self.planted, file, self.display_path(name), self.access)?;
        let header = run.header();
        if name_of(header)? != *name || header.store != self.id {
            let found = format!("run {} of store {}", header.to_id(), header.store);
            return Err(Error::corrupt(self.display_path(name), 0, format!("run {name} of store {}", self.id), found));
        }
        let mut runs = self.lock_runs();
        if runs.len() == runs.capacity() {
            // Only now and then, and with as much room again afterwards: a chain of many runs is opened one by one.
            runs.retain(|_, run| run.strong_count() > 0);
            let live = runs.len();
            runs.reserve(live + 1);
        }
        runs.insert(*name, Arc::downgrade(&run));
        Ok(run)
    }

    /// Publishes that versions below `horizon` are given up.
    pub(crate) fn announce(&self, horizon: Version, epoch: Epoch) -> Result<()> {
        match self.create(epoch, FileName::Horizon(horizon))?.publish() {
            Err(PublishError::NotPublished(error)) if error.is_already_exists() => Ok(()),
            outcome => outcome.map_err(PublishError::into_error),
        }
    }

    /// Deletes a file that the catalogue has found to be needed by nobody.
    pub(crate) fn delete(&self, file: &Doomed) -> Result<()> {
        self.checkpoint.delete(&self.file(file))
    }

    /// Whether a file is a temporary that is being written here right now.
    pub(crate) fn is_being_written(&self, file: &Doomed) -> bool {
        matches!(file, Doomed::Temporary(temporary) if self.unpublished.has(temporary))
    }

    /// Where the files lie that a chain should have been made of.
    pub(crate) fn passed_over(&self, chain: &OpenChain) -> Vec<PathBuf> {
        chain.passed_over.iter().map(|name| self.display_path(name)).collect() // a few
    }

    /// Starts a run that is made of others. Its temporary goes by the highest epoch that was seen, not by that of the version it
    /// makes, which may be long ago: whoever cleans up would take it for what a fenced writer left.
    pub(super) fn create_rewritten(&self, name: &RunName) -> Result<Box<dyn PendingFile>> {
        let seen = Epoch(self.highest_seen.load(Ordering::Acquire));
        self.create(seen.max(name.to().epoch), FileName::Run(*name))
    }

    /// Makes durable what a listing showed.
    pub(crate) fn sync(&self) -> Result<()> {
        self.checkpoint.sync(&self.path)
    }

    /// Takes a damaged run away, for good, so that it can be made anew; whoever holds it open goes on with what it holds.
    pub(crate) fn take_away(&self, name: &RunName) -> Result<()> {
        self.sync()?; // what it was made anew from may be visible only
        self.lock_runs().remove(name);
        match self.checkpoint.delete(&self.file(name)) {
            Err(error) if error.is_not_found() => {}
            outcome => outcome?,
        }
        // Durably, or the new file would be published under a name that a crash brings back.
        self.sync()
    }

    /// Starts a new run under a temporary name.
    pub(super) fn create_run(&self, name: &RunName) -> Result<Box<dyn PendingFile>> {
        self.create(name.to().epoch, FileName::Run(*name))
    }

    /// Opens adjacent deltas of the head's lineage, oldest first, and checks that each builds on the one before it.
    pub(crate) fn open_deltas(
        &self,
        catalog: &Catalog,
        names: &[RunName],
    ) -> std::result::Result<Vec<Arc<Run>>, (RunName, Error)> {
        let mut runs: Vec<Arc<Run>> = Vec::with_capacity(names.len());
        for name in names {
            let run = self.open_run_of(catalog, name).map_err(|error| (*name, error))?;
            if let Some(below) = runs.last().filter(|below| below.header().tip != run.header().parent) {
                let expected = format!("parent {}", below.header().tip);
                let found = format!("parent {}", run.header().parent);
                return Err((*name, Error::corrupt(self.display_path(name), 0, expected, found)));
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// Opens the deltas that lead from the state `from` to `to`, oldest first; `None` where none do, or one is no good.
    pub(super) fn open_above(&self, catalog: &Catalog, from: &Mark, to: VersionId) -> Option<Vec<Arc<Run>>> {
        let is_on_it = catalog.lineage().owns(from.at) && catalog.lineage().owns(to);
        let is_below = is_on_it && *from != Mark::ROOT && from.at.version < to.version;
        let names = catalog.deltas(from.at.version, to.version, &BTreeSet::new()).filter(|_| is_below)?;
        let runs = self.open_deltas(catalog, &names).ok()?;
        // The state that the first of them lies on must be the very one.
        runs.first().is_none_or(|run| run.header().parent == from.tip).then_some(runs)
    }

    fn open_runs<'n>(
        &self,
        catalog: &Catalog,
        names: impl Iterator<Item = &'n RunName>,
    ) -> std::result::Result<Vec<Arc<Run>>, (RunName, Error)> {
        let mut below = Mark::ROOT;
        let mut runs: Vec<Arc<Run>> = Vec::new(); // as many as the chain has
        for name in names {
            let run = self.open_run_of(catalog, name).map_err(|error| (*name, error))?;
            let header = run.header();
            // Every run names its parent: a file of another history that got this name stops here.
            if header.parent != below.tip || runs.last().is_some_and(|last| last.header().uid != header.uid) {
                let found = format!("parent {} of store {}", header.parent, header.uid);
                let expected = format!("parent {}", below.tip);
                return Err((*name, Error::corrupt(self.display_path(name), 0, expected, found)));
            }
            below = header.mark();
            runs.push(run);
        }
        Ok(runs)
    }

    /// Reads a fork; `None` where it was cleaned up since the listing.
    fn read_fork(&self, epoch: Epoch) -> Result<Option<Fork>> {
        let path = self.file(FileName::Fork(epoch));
        let file = match self.checkpoint.open(&path) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let length = file.len().min(MAX_FORK_BYTES.saturating_add(1));
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(Fork::read(epoch, &self.id, &bytes)))
    }

    /// The highest epoch that a claim made here may have taken.
    pub(super) fn last_tried(&self) -> Epoch {
        Epoch(self.last_tried.load(Ordering::Acquire))
    }

    fn is_ours(&self, fork: &Fork) -> bool {
        matches!(fork, Fork::Whole(record) if record.holder.ends_with(&self.claimant))
    }

    /// Claims an epoch; `false` where somebody else has it.
    fn publish_fork(&self, epoch: Epoch, uid: StoreUid, base: Mark, holder: &str) -> Result<bool> {
        let record = ForkRecord {
            uid,
            store: self.id.clone(),
            epoch,
            base,
            holder: format!("{holder}, {}", self.claimant),
            claimed_at_ms: self.clock.wall_ms(),
        };
        self.last_tried.fetch_max(epoch.0, Ordering::AcqRel);
        let mut file = self.create(epoch, FileName::Fork(epoch))?;
        file.append(&record.encode())?;
        match file.publish() {
            Ok(()) => Ok(true),
            // Taken, or swept by the writer who has claimed a higher epoch meanwhile.
            Err(PublishError::NotPublished(error)) if error.is_already_exists() || error.is_not_found() => Ok(false),
            // A fork that may be there says nothing until it has a run, and nobody will write one: claim the next.
            Err(PublishError::NotPublished(error) | PublishError::Unknown(error)) => {
                Err(error.context("the store could not be claimed"))
            }
        }
    }

    /// Removes what writers of lower epochs left half-written. They are fenced, so nothing of theirs can count any more.
    /// Only to save space: a failure is nobody's problem.
    fn sweep_temporaries(&self, epoch: Epoch, catalog: &Catalog) {
        let stale = catalog.listing().temporaries.iter().filter(|temporary| temporary.epoch < epoch);
        for temporary in stale.filter(|temporary| !self.unpublished.has(temporary)) {
            if let Err(error) = self.checkpoint.delete(&self.file(temporary)) {
                tracing::debug!(file = %temporary, %error, "a stale temporary stays");
            }
        }
    }

    fn lock_runs(&self) -> std::sync::MutexGuard<'_, HashMap<RunName, Weak<Run>>> {
        // A cache is right whatever happened to a thread that held it.
        self.open_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, epoch: Epoch, target: FileName) -> Result<Box<dyn PendingFile>> {
        let temporary = TemporaryName { epoch, id: self.ids.run_id(), target };
        self.unpublished.begin(&temporary, || self.checkpoint.create(&self.file(target), &temporary.file_name()))
    }

    fn file(&self, name: impl std::fmt::Display) -> String {
        format!("{}/{name}", self.path)
    }

    fn forks_path(&self) -> String {
        format!("{}/{FORKS}", self.path)
    }
}

/// Whether an error says that the file is no good, rather than that the machine could not read it now.
pub(crate) fn is_about_the_file(error: &Error) -> bool {
    error.is_corrupt() || error.is_not_found() || matches!(error.kind(), ErrorKind::Unsupported)
}

/// Whether an error can come of a listing that was overtaken by a clean-up: a fresh one then knows better.
pub(crate) fn is_about_the_listing(error: &Error) -> bool {
    error.is_not_found() || matches!(error.kind(), ErrorKind::Missing { .. })
}

/// The name that a run with this header has.
pub(super) fn name_of(header: &RunHeader) -> Result<RunName> {
    match header.kind {
        RunKind::Snapshot => RunName::snapshot(header.to_id()),
        RunKind::Delta => RunName::delta(header.from, header.to_id()),
    }
}
