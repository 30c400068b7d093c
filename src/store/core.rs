//! [`Core`]: what a provider, its transactions and the folding job share, and every change of which layers are current.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::caretaker::{Caretaker, UpkeepState};
use super::commit::{ChangeSet, Writer, commit};
use super::directory::{Claimed, DirectoryOptions, MOST_ATTEMPTS, StoreDirectory, is_about_the_listing};
use super::layers::{Layers, Source};
use super::load::{create, load};
use super::open_chain::{OpenChain, name_of};
use super::opening::with_a_way_out;
use super::options::{Residency, StoreOptions};
use super::scan::Readers;
use super::slot::Slot;
use crate::backend::{Admission, Backend, Coverage, Generation, GenerationId, StoreNumber, VersionRecord};
use crate::budget::{Lease, Purpose};
use crate::catalog::{RunName, Wanted};
use crate::checkpoint::Checkpoint;
use crate::clock::Clock;
use crate::entry::StateStoreId;
use crate::error::{Error, ErrorKind, Result};
use crate::run::Run;
use crate::version::{Epoch, IdSource, Mark, StoreUid, Version, VersionId};

/// What a provider, its transactions and the folding job share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) directory: Arc<StoreDirectory>,
    pub(crate) backend: Backend,
    pub(super) store: StoreNumber,
    uid: StoreUid,
    /// How many runs and claims there were when it was opened.
    pub(crate) files_at_open: usize,
    /// The store's id as people write it.
    name: Arc<str>,
    pub(crate) options: StoreOptions,
    holder: String,
    pub(super) slot: Arc<Slot>,
    pub(crate) readers: Arc<Readers>,
    /// Who looks after the files; nobody unless it is set.
    pub(crate) caretaker: OnceLock<Arc<dyn Caretaker<Self>>>,
    /// As `has_ended`, for maintenance, which may take long.
    pub(crate) upkeep_ended: Arc<Mutex<bool>>,
    /// Held by whoever rewrites the whole chain: one at a time. Taken before `moving`.
    rewriting: Mutex<()>,
    /// Held by whoever folds a delta or moves the base. Taken before `state`, never under it.
    moving: Mutex<()>,
    /// A folding job is queued or runs.
    pub(super) is_folding: AtomicBool,
    /// Whether the provider has ended. A background job holds it from before it takes hold of this core until it has let go
    /// of it, so that the provider does not end while a job keeps the index open. Taken before `moving`.
    pub(super) has_ended: Arc<Mutex<bool>>,
    /// The provider is about to end: long work stops at its next look.
    is_ending: AtomicBool,
    /// Guards which layers are current. Held for moments only: no I/O and no other lock is taken under it.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    epoch: Epoch,
    /// Whether a commit was tried with that epoch, whatever came of it.
    is_epoch_used: bool,
    pub(super) layers: Arc<Layers>,
    /// The newest committed version, which is above the layers' while an older one was begun on and nothing committed.
    head: VersionId,
    /// Up to which version the deltas are collapsed; above it every version is a file to open and a mapping.
    pub(super) collapsed_to: Version,
    /// Something failed half-way: the next `begin` must claim a new epoch and load afresh.
    is_stale: bool,
    fenced: Option<Epoch>,
    /// Files that the current layers should have been made of but were damaged or gone.
    passed_over: Vec<PathBuf>,
    /// `None` once the provider has left.
    admission: Option<Admission>,
    /// The generation that marks where the base is going to end; it stays in its place until then, even if it is empty.
    pub(super) sealed: Option<GenerationId>,
}

impl Core {
    pub(super) fn commit(&self, changes: &ChangeSet<'_>) -> Result<Version> {
        let writer = {
            let mut state = self.state();
            state.is_epoch_used = true;
            Writer { uid: self.uid, epoch: state.epoch, parent: state.layers.mark }
        };
        #[cfg(feature = "conformance")]
        super::planted::apply_before_publish(self.options.planted, &self.layers(), changes)?;
        let outcome = commit(&self.directory, &writer, changes);
        let mut state = self.state();
        match outcome {
            Ok(name) => {
                state.head = writer.to();
                drop(state);
                self.put_on_top(&name);
                Ok(writer.to().version)
            }
            Err(error) => {
                state.is_stale = true;
                if let ErrorKind::Fenced { by } = error.kind() {
                    state.fenced = Some(*by);
                }
                Err(error)
            }
        }
    }

    pub(super) fn open(
        backend: &Backend,
        checkpoint: Arc<dyn Checkpoint>,
        id: StateStoreId,
        options: StoreOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let use_of = DirectoryOptions::from(&options);
        let directory =
            Arc::new(StoreDirectory::new(checkpoint, id, use_of, ids, clock).with_precedence(backend.precedence()));
        let holder = format!("process {}", std::process::id());
        // Before the claim, which would fence a writer for nothing if the store is then refused.
        let listed = directory.catalog()?;
        let admission = listed.uid().map(|uid| backend.admit(uid, directory.id())).transpose()?;
        let claimed = directory.claim_on(listed, options.wanted(), None, &holder).map_err(with_a_way_out)?;
        let admission = admission.map_or_else(|| backend.admit(claimed.uid, directory.id()), Ok)?;
        let store = backend.engine().store(claimed.uid, directory.id())?;
        let layers = {
            let above = |from: &Mark| directory.open_above(&claimed.catalog, from, claimed.chain.mark.at);
            load(backend, store, &claimed.chain, &options, &[], &above)?
        };
        let state = State {
            epoch: claimed.epoch,
            is_epoch_used: false,
            layers: Arc::new(layers),
            head: claimed.head,
            collapsed_to: claimed.chain.base_mark().at.version,
            is_stale: false,
            fenced: None,
            passed_over: directory.passed_over(&claimed.chain),
            admission: Some(admission),
            sealed: None,
        };
        let name = Arc::from(directory.id().to_string());
        let listing = claimed.catalog.listing();
        let files_at_open = listing.runs.len() + listing.forks.len();
        Ok(Self {
            directory,
            backend: backend.clone(),
            store,
            uid: claimed.uid,
            files_at_open,
            name,
            options,
            holder,
            slot: Arc::default(),
            readers: Arc::default(),
            caretaker: OnceLock::new(),
            upkeep_ended: Arc::default(),
            rewriting: Mutex::default(),
            moving: Mutex::default(),
            is_folding: AtomicBool::new(false),
            has_ended: Arc::default(),
            is_ending: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// What a new transaction's memory is taken from.
    pub(super) fn overlay_lease(&self) -> Result<Lease> {
        self.backend.budget().lease(0, self.purpose("transaction", true))
    }

    fn purpose(&self, kind: &'static str, can_give: bool) -> Purpose {
        Purpose { kind, owner: Some(Arc::clone(&self.name)), can_give }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.state().epoch
    }

    /// How many deltas wait to be folded.
    pub(crate) fn waiting(&self) -> usize {
        self.state().layers.waiting()
    }

    /// Files that the current layers should have been made of but were damaged or gone.
    pub(crate) fn passed_over(&self) -> Vec<PathBuf> {
        self.state().passed_over.clone()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one assignment, so it is whole whatever happened to a thread that held it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "conformance")]
    fn layers(&self) -> Arc<Layers> {
        Arc::clone(&self.state().layers)
    }

    pub(super) fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layers of `version`, ready to be written on. The caller holds the writer slot.
    pub(super) fn layers_at(&self, version: Version) -> Result<Arc<Layers>> {
        let epoch = {
            let state = self.state();
            if let Some(by) = state.fenced {
                return Err(Error::new(ErrorKind::Fenced { by }, "this provider may not write any more"));
            }
            // A claim that failed half-way may have left its fork, which would fence a commit of the epoch before.
            let holds_newest = self.directory.last_tried() == state.epoch;
            if !state.is_stale && holds_newest && state.layers.mark.at.version == version {
                return Ok(Arc::clone(&state.layers));
            }
            state.epoch
        };
        // Anything else is an opening of its own: after a failure, or on an older version. If an interrupted commit turned
        // out to be there, it is above `version` and unacknowledged: the next commit supersedes it.
        let claimed = self.directory.claim(Wanted::At(version), Some(epoch), &self.holder).inspect_err(|error| {
            if let ErrorKind::Fenced { by } = error.kind() {
                self.state().fenced = Some(*by);
            }
        })?;
        self.install(&claimed)?;
        Ok(Arc::clone(&self.state().layers))
    }

    /// Makes the layers of a fresh claim current.
    fn install(&self, claimed: &Claimed) -> Result<()> {
        let _moving = self.moving();
        let mine = self.state().layers.generations();
        let above = |from: &Mark| self.directory.open_above(&claimed.catalog, from, claimed.chain.mark.at);
        let layers = load(&self.backend, self.store, &claimed.chain, &self.options, &mine, &above)?;
        let unused = {
            let mut state = self.state();
            let unused = (!state.is_epoch_used).then_some(state.epoch);
            state.epoch = claimed.epoch;
            state.is_epoch_used = false;
            state.head = claimed.head;
            state.collapsed_to = claimed.chain.base_mark().at.version;
            state.layers = Arc::new(layers);
            state.is_stale = false;
            state.passed_over = self.directory.passed_over(&claimed.chain);
            unused
        };
        unused.inspect(|epoch| self.directory.give_back(*epoch));
        self.rebuild_filters_soon();
        Ok(())
    }

    /// Step 4 of a commit. It cannot fail the commit: if the new delta cannot be read now, the next `begin` loads afresh.
    fn put_on_top(&self, name: &RunName) {
        let opened = self.directory.open_run(name);
        let mut state = self.state();
        match opened {
            Ok(run) => state.layers = Arc::new(state.layers.with_commit(run)),
            Err(error) => {
                tracing::warn!(%error, "the delta just committed cannot be read; loading afresh");
                state.is_stale = true;
            }
        }
    }

    /// Lets go of all layers, after the folding of one delta if that is under way: nobody reads or writes any more.
    pub(super) fn leave(&self) {
        let _moving = self.moving();
        let nothing = Arc::new(Layers::nothing());
        let (unused, last) = {
            let mut state = self.state();
            let unused = (!state.is_epoch_used).then_some(state.epoch);
            (unused, (std::mem::replace(&mut state.layers, nothing), state.admission.take()))
        };
        unused.inspect(|epoch| self.directory.give_back(*epoch));
        drop(last); // not under the state's lock, since the index may be called
    }

    /// Whether long work goes on: not once the provider has been dropped.
    pub(crate) fn go_on(&self) -> ControlFlow<()> {
        if self.is_ending.load(Ordering::Acquire) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Waits until no background job holds on to this core, and lets none do so any more.
    pub(super) fn end_jobs(&self) {
        self.is_ending.store(true, Ordering::Release);
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        *self.upkeep_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Gives a generation that was taken up from an earlier process its filter back, in the background.
    pub(super) fn rebuild_filters_soon(&self) {
        for generation in self.state().layers.sources.iter().filter_map(Source::generation) {
            let (generation, has_ended) = (Arc::downgrade(generation), Arc::clone(&self.has_ended));
            self.backend.worker().submit(Box::new(move || {
                let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
                let rebuilt = generation
                    .upgrade()
                    .filter(|_| !*has_ended)
                    .map(|generation| generation.rebuild_filter(Generation::FILTER_BYTES));
                if let Some(Err(error)) = rebuilt {
                    tracing::warn!(%error, "a filter was not rebuilt; reads ask the index for every key");
                }
            }));
        }
    }

    /// Rewrites the chain of the newest version as one run with `write`, and moves the base up to it.
    ///
    /// While the run is written, new commits fold into a new generation; when it is there, the old one is dropped.
    pub(crate) fn move_base(
        &self,
        write: impl Fn(&StoreDirectory, &OpenChain) -> Result<Option<RunName>>,
    ) -> Result<Version> {
        let _one_at_a_time = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        let _buffers = self.backend.lease_buffers(self.purpose("merge", false), 1)?;
        if let Some((to, top)) = self.left_behind() {
            // Nothing is sealed anew before the base has moved up to where it should have been long ago, or every failure would
            // leave one generation more.
            match self.rewrite(to, &write) {
                Ok(chain) => self.rebase(&chain, top.id()),
                Err(error) if is_about_the_listing(&error) => {} // given up or rolled back meanwhile
                Err(error) => return Err(error),
            }
        }
        let (mut attempt, mut to) = (0, self.head()?);
        loop {
            let sealed = self.seal(to)?;
            let outcome = self.rewrite(to, &write);
            if let (Ok(chain), Some(sealed)) = (&outcome, &sealed) {
                self.rebase(chain, sealed.id());
            }
            self.state().sealed = None;
            let Err(error) = outcome else {
                self.state().collapsed_to = to.version;
                return Ok(to.version);
            };
            sealed.inspect(|sealed| self.unseal(sealed));
            // A rollback or a clean-up took the version or its files away: see what is there now.
            attempt += 1;
            if attempt == MOST_ATTEMPTS || !is_about_the_listing(&error) {
                return Err(error);
            }
            // The directory knows of a commit that supersedes `to` before the committer has said so.
            to = self.directory.catalog()?.head();
        }
    }

    /// Writes the chain of `to` anew, and gives the one that it has now.
    fn rewrite(
        &self,
        to: VersionId,
        write: impl Fn(&StoreDirectory, &OpenChain) -> Result<Option<RunName>>,
    ) -> Result<OpenChain> {
        let chain = self.directory.open_chain(&self.directory.catalog()?, to)?;
        match write(&self.directory, &chain)? {
            Some(_) => self.directory.open_chain(&self.directory.catalog()?, to),
            None => Ok(chain), // it is as short as it gets
        }
    }

    /// The version that the tail lies on: what is above it is being folded, and may join the base as runs that begin there.
    pub(crate) fn folded_to(&self) -> Version {
        let state = self.state();
        let lowest = state.layers.sources.iter().filter_map(Source::waiting).next_back();
        lowest.map_or(state.layers.mark.at.version, |run| run.header().from)
    }

    /// How many runs and generations a read may touch.
    pub(crate) fn sources(&self) -> usize {
        self.state().layers.sources.len()
    }

    /// How the maintenance is doing.
    pub(crate) fn upkeep(&self) -> UpkeepState {
        let told = self.caretaker.get().map(|caretaker| caretaker.tell()).unwrap_or_default();
        UpkeepState { read_sources: self.sources() as u64, ..told }
    }

    /// Reads a run that has been collapsed on the disk in the place of its parts, where the base consists of these.
    pub(crate) fn adopt_collapsed(&self, from: Version, to: VersionId) -> Result<()> {
        let merged = self.directory.open_run(&RunName::delta(from, to)?)?;
        let _moving = self.moving();
        let layers = Arc::clone(&self.state().layers);
        if let Some(parts) = layers.base_between(from, to) {
            self.swap(&parts, None, Some(&Source::Base(merged)));
        }
        Ok(())
    }

    /// Reads runs that have been made anew in the place of the damaged ones.
    pub(crate) fn adopt_remade(&self) -> Result<()> {
        let _moving = self.moving();
        let layers = Arc::clone(&self.state().layers);
        for old in layers.sources.iter().filter_map(Source::base) {
            let new = self.directory.open_run(&name_of(old.header())?)?;
            if !Arc::ptr_eq(old, &new) {
                self.swap(std::slice::from_ref(old), None, Some(&Source::Base(new)));
            }
        }
        self.state().passed_over.clear();
        Ok(())
    }

    /// The newest committed version.
    pub(crate) fn head(&self) -> Result<VersionId> {
        let (head, epoch, is_stale) = {
            let state = self.state();
            (state.head, state.epoch, state.is_stale)
        };
        if is_stale { self.directory.head_of(epoch, head) } else { Ok(head) }
    }

    /// The newest generation of several, and the version that it lies on: where commits went on after a move of the base that failed.
    fn left_behind(&self) -> Option<(VersionId, Arc<Generation>)> {
        let state = self.state();
        let mut generations = state.layers.sources.iter().filter_map(Source::generation);
        let top = generations.next()?;
        (generations.count() >= 2).then(|| (top.from().at, Arc::clone(top)))
    }

    /// Starts a new generation if `at` is what the layers make, so that what is folded from now on is above it.
    fn seal(&self, at: VersionId) -> Result<Option<Arc<Generation>>> {
        let _moving = self.moving();
        let layers = Arc::clone(&self.state().layers);
        if layers.mark.at != at || self.options.residency == Residency::Resident {
            return Ok(None);
        }
        // An empty one on top does: where there was nothing to rewrite, nothing is added either.
        if let Some(Source::Generation(top)) = layers.sources.first().filter(|_| layers.is_sealed()) {
            self.state().sealed = Some(top.id());
            return Ok(Some(Arc::clone(top)));
        }
        let generation = create(&self.backend, self.store, layers.mark, Coverage::Changes)?;
        let mut state = self.state();
        // Commits may have put deltas on top meanwhile; they belong above it.
        let place = state.layers.sources.len().saturating_sub(layers.sources.len());
        let mut sources = state.layers.sources.clone();
        sources.insert(place, Source::Generation(Arc::clone(&generation)));
        state.layers = Arc::new(Layers { sources, ..(*state.layers).clone() });
        state.sealed = Some(generation.id());
        drop(state);
        Ok(Some(generation))
    }

    /// Takes a generation that was started in vain out again, unless it has been used.
    fn unseal(&self, sealed: &Arc<Generation>) {
        let _moving = self.moving();
        let layers = Arc::clone(&self.state().layers);
        if sealed.is_empty() && layers.generations().len() > 1 && self.swap(&[], Some(sealed), None) {
            sealed.retire();
        }
    }

    /// Replaces everything below the generation `sealed` by the runs of `chain`, and retires the generations among it.
    fn rebase(&self, chain: &OpenChain, sealed: GenerationId) {
        let _moving = self.moving();
        // Before the state's lock, so that what is let go of here is dropped after it: that may call the index.
        let current;
        let mut state = self.state();
        current = Arc::clone(&state.layers);
        let is_sealed = |source: &Source| matches!(source, Source::Generation(generation) if generation.id() == sealed);
        // Gone after a rollback or a fresh load: the new run stays for whoever opens that version.
        let Some(place) = current.sources.iter().position(is_sealed) else { return };
        // An empty one on top takes the next fold; below a run of the base it would only be in the way of reads.
        let is_empty = current.sources.get(place).and_then(Source::generation).is_some_and(|sealed| sealed.is_empty());
        let (kept, replaced) = current.sources.split_at(place + usize::from(place == 0 || !is_empty));
        // Each is dropped when the last transaction that reads through it has ended.
        replaced.iter().filter_map(Source::generation).for_each(|generation| generation.retire());
        let base = chain.newest_first().into_iter().map(Source::Base);
        let sources = kept.iter().cloned().chain(base).collect();
        state.layers = Arc::new(Layers { sources, ..(*current).clone() });
    }
}

/// What the version metadata family keeps of a commit.
pub(super) fn record_of(run: &Run) -> VersionRecord {
    VersionRecord {
        at: run.header().mark(),
        entries: run.properties().entries,
        bytes: run.file_bytes(),
        metadata: run.metadata().clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::LocalCheckpoint;
    use crate::clock::SystemClock;
    use crate::entry::FamilyId;
    use crate::fs::SimDisk;
    use crate::store::{RocksDbProvider, StateStoreProvider, WriteStore};

    fn provider(options: StoreOptions) -> RocksDbProvider {
        let checkpoint = LocalCheckpoint::on(Arc::new(SimDisk::new(1)), "/checkpoint").unwrap();
        let id = StateStoreId::new("op", 0, "state").unwrap();
        let (ids, clock) = (IdSource::random(), Arc::new(SystemClock::new()));
        RocksDbProvider::open_with(&Backend::in_memory().unwrap(), checkpoint, id, options, ids, clock).unwrap()
    }

    fn generations(provider: &RocksDbProvider) -> usize {
        provider.core().state().layers.generations().len()
    }

    fn commit(provider: &RocksDbProvider, version: u64, value_bytes: usize) {
        let mut batch = provider.begin(Version(version)).unwrap();
        batch.put(FamilyId::DEFAULT, &version.to_be_bytes(), &vec![b'x'; value_bytes]).unwrap();
        batch.commit().unwrap();
    }

    #[test]
    fn upkeep_with_nothing_to_do_adds_no_generations() {
        let provider = provider(StoreOptions::default());
        for version in 0..4 {
            for _ in 0..5 {
                provider.snapshot().unwrap();
                provider.collapse().unwrap();
            }
            assert_eq!(generations(&provider), 1, "at version {version}");
            commit(&provider, version, 10);
        }
    }

    #[test]
    fn a_snapshot_that_cannot_be_made_adds_no_generations() {
        let provider = provider(StoreOptions::default());
        commit(&provider, 0, 10);
        for _ in 0..5 {
            let failing = |_: &StoreDirectory, _: &OpenChain| Err(Error::invalid("a test"));
            provider.core().move_base(failing).unwrap_err();
            assert_eq!(generations(&provider), 1);
        }
    }

    #[test]
    fn snapshots_that_fail_while_others_commit_leave_few_generations() {
        let provider = provider(StoreOptions::default().upkeep(crate::store::Upkeep::Manual));
        commit(&provider, 0, 10);
        for version in 1..20 {
            let failing = |_: &StoreDirectory, _: &OpenChain| {
                if provider.latest().unwrap() == Version(version) {
                    commit(&provider, version, 10);
                    provider.core().fold(0).unwrap(); // into the generation above the seal
                }
                Err(Error::new(ErrorKind::DiskFull { path: "/checkpoint".into() }, "a test"))
            };
            provider.core().move_base(failing).unwrap_err();
            assert!(generations(&provider) <= 3, "{} at version {version}", generations(&provider));
        }
        provider.snapshot().unwrap();
        assert_eq!(generations(&provider), 1);
        let found = provider.begin(Version(20)).unwrap();
        assert_eq!(crate::store::ReadStore::scan(&found, FamilyId::DEFAULT).unwrap().count(), 20);
    }

    #[test]
    fn many_and_few_changes_in_turns_do_not_pile_up_generations() {
        // The merges are this test's: the background has its turns when it has time.
        let options = StoreOptions::default().collapse_from(4000).upkeep(crate::store::Upkeep::Manual);
        let provider = provider(options);
        let mut version = 0;
        for round in 0..40 {
            let (commits, value_bytes) = if round % 2 == 0 { (1, 10) } else { (3, 3000) };
            for _ in 0..commits {
                commit(&provider, version, value_bytes);
                version += 1;
            }
            provider.settle().unwrap();
            assert!(generations(&provider) <= 3, "{} after round {round}", generations(&provider));
        }
        let found = provider.begin(Version(version)).unwrap();
        let scanned = crate::store::ReadStore::scan(&found, FamilyId::DEFAULT).unwrap().count();
        assert_eq!(scanned as u64, version);
        provider.core().merge_base().unwrap();
        let sources = provider.core().state().layers.sources.len();
        assert!(sources < 25, "{sources} sources");
    }

    #[test]
    fn opening_folds_nothing_by_itself() {
        let checkpoint: Arc<dyn Checkpoint> =
            LocalCheckpoint::on(Arc::new(SimDisk::new(1)), "/checkpoint").unwrap().into();
        let open = |backend: &Backend| {
            let id = StateStoreId::new("op", 0, "state").unwrap();
            let options = StoreOptions::default().upkeep(crate::store::Upkeep::Manual); // 40 deltas stay 40
            RocksDbProvider::open(backend, Arc::clone(&checkpoint), id, options).unwrap()
        };
        let first = open(&Backend::in_memory().unwrap());
        (0..40).for_each(|version| commit(&first, version, 10));
        drop(first);
        let index = crate::backend::SimIndex::from_image(&crate::backend::IndexImage::default());
        let second = open(index.backend());
        assert_eq!(second.tail_length(), 40);
        index.run_pending();
        assert_eq!(second.tail_length(), 0);
    }
}
