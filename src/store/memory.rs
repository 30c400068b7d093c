//! [`MemoryProvider`]: whole maps in the heap, version by version.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::below::{Below, SharedBelow};
use super::changes::Changes;
use super::commit::{ChangeSet, Writer, commit};
use super::contract::{StateStoreProvider, VersionInfo};
use super::directory::{DirectoryOptions, StoreDirectory};
use super::export::Exported;
use super::history::{self, History};
use super::layers::RunStack;
use super::load::merged;
use super::open_chain::OpenChain;
use super::opening::with_a_way_out;
use super::options::StoreOptions;
use super::rewrite::write_snapshot;
use super::scan::Readers;
use super::slot::Slot;
use super::transaction::{Committer, Opened, Transaction};
use super::versions;
use super::view::View;
use crate::backend::Room;
use crate::budget::Budget;
use crate::bytes::Bytes;
use crate::catalog::Wanted;
use crate::checkpoint::Checkpoint;
use crate::clock::{Clock, SystemClock};
use crate::entry::{Change, Cursor, Families, KeyRange, Probe, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::overlay::Overlay;
use crate::run::Layer;
use crate::version::{Epoch, IdSource, Mark, StoreUid, Version, VersionId};

/// How many versions are held as whole maps, as Spark's in-memory provider does by default.
const HELD_VERSIONS: usize = 2;

/// A store held as whole maps in the heap, over the same checkpoint files and with the same guarantees as
/// [`RocksDbProvider`](super::RocksDbProvider).
///
/// For tests, for small state, and as the baseline that shows what not holding the state in the heap saves: a commit
/// costs a copy of the map, and memory is that of all keys and values, times the versions held.
#[derive(Debug, Clone)]
pub struct MemoryProvider {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    directory: Arc<StoreDirectory>,
    uid: StoreUid,
    holder: String,
    options: StoreOptions,
    budget: Budget,
    slot: Arc<Slot>,
    readers: Arc<Readers>,
    /// Guards which versions are held. No I/O and no other lock is taken under it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: Epoch,
    /// Whether a commit was tried with that epoch, whatever came of it.
    is_epoch_used: bool,
    current: Arc<Held>,
    /// The newest maps, `current` among them, oldest first.
    held: Vec<Arc<Held>>,
    head: VersionId,
    is_stale: bool,
    fenced: Option<Epoch>,
}

/// One version as a map of full keys.
#[derive(Debug, Clone)]
struct Held {
    mark: Mark,
    families: Arc<Families>,
    map: Arc<BTreeMap<Vec<u8>, Bytes>>,
}

impl MemoryProvider {
    /// Opens the store called `id` in `checkpoint` at its newest version, reads all of it, and claims it.
    ///
    /// # Errors
    /// `Corrupt` or `Missing` where no chain of files makes the newest version, and whatever the disk reports.
    pub fn open(checkpoint: impl Into<Arc<dyn Checkpoint>>, id: StateStoreId, options: StoreOptions) -> Result<Self> {
        Self::open_with(checkpoint, id, options, IdSource::random(), Arc::new(SystemClock::new()))
    }

    /// As [`open`](Self::open), with ids and time from the caller, so that a test can repeat a run.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        options: StoreOptions,
        ids: IdSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let use_of = DirectoryOptions::from(&options);
        let directory = Arc::new(StoreDirectory::new(checkpoint.into(), id, use_of, ids, clock));
        let holder = format!("process {}", std::process::id());
        let claimed = directory.claim(options.wanted(), None, &holder).map_err(with_a_way_out)?;
        let current = Arc::new(Held::load(&claimed.chain)?);
        let state = State {
            epoch: claimed.epoch,
            is_epoch_used: false,
            held: vec![Arc::clone(&current)],
            current,
            head: claimed.head,
            is_stale: false,
            fenced: None,
        };
        let core = Core {
            directory,
            uid: claimed.uid,
            holder,
            options,
            budget: Budget::new(u64::MAX),
            slot: Arc::default(),
            readers: Arc::default(),
            state: Mutex::new(state),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// What can be read of this store's versions without a writer: changes, differences, exports. It shares this provider's
    /// open files and outlives it.
    #[must_use]
    pub fn history(&self) -> History {
        History::of(&self.core.directory, &self.core.readers)
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

    /// Scans that are alive.
    #[must_use]
    pub fn open_scans(&self) -> usize {
        self.core.readers.scans()
    }
}

impl StateStoreProvider for MemoryProvider {
    type Transaction = Transaction;
    type View = View;

    fn id(&self) -> &StateStoreId {
        self.core.directory.id()
    }

    fn begin(&self, version: Version) -> Result<Transaction> {
        let core = &self.core;
        let slot = core.slot.take(core.options.busy_timeout)?;
        let held = core.at(version)?;
        Ok(Transaction::new(Opened {
            version,
            families: (*held.families).clone(),
            below: held as SharedBelow,
            overlay: Overlay::new(core.budget.lease(0, "overlays")?, Room::NONE),
            readers: Arc::clone(&core.readers),
            committer: Arc::clone(core) as Arc<dyn Committer>,
            slot,
        }))
    }

    fn read_at(&self, version: Version) -> Result<View> {
        let chain = history::chain_of(&self.core.directory, version)?;
        let held = self.core.state().held.iter().find(|held| held.mark == chain.mark).cloned();
        let below: SharedBelow = match held {
            Some(held) => held,
            None => Arc::new(RunStack(chain.newest_first())),
        };
        let passed_over = self.core.directory.passed_over(&chain);
        Ok(View::new(version, chain.families, below, Arc::clone(&self.core.readers)).around(passed_over))
    }

    fn latest(&self) -> Result<Version> {
        Ok(self.core.head()?.version)
    }

    fn versions(&self) -> Result<Vec<VersionInfo>> {
        versions::versions(&self.core.directory, |_| Ok(()))
    }

    fn metadata(&self, version: Version) -> Result<Bytes> {
        history::metadata(&self.core.directory, version)
    }

    fn snapshot(&self) -> Result<Version> {
        let to = self.core.head()?;
        let directory = &self.core.directory;
        write_snapshot(directory, &directory.open_chain(&directory.catalog()?, to)?, &|_| ControlFlow::Continue(()))?;
        Ok(to.version)
    }
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> Result<VersionId> {
        let (head, epoch, is_stale) = {
            let state = self.state();
            (state.head, state.epoch, state.is_stale)
        };
        if is_stale { self.directory.head_of(epoch, head) } else { Ok(head) }
    }

    /// The map of `version`, ready to be written on. The caller holds the writer slot.
    fn at(&self, version: Version) -> Result<Arc<Held>> {
        let (epoch, held) = {
            let state = self.state();
            if let Some(by) = state.fenced {
                return Err(Error::new(ErrorKind::Fenced { by }, "this provider may not write any more"));
            }
            // A claim that failed half-way may have left its fork, which would fence a commit of the epoch before.
            let holds_newest = self.directory.last_tried() == state.epoch;
            if !state.is_stale && holds_newest && state.current.mark.at.version == version {
                return Ok(Arc::clone(&state.current));
            }
            (state.epoch, state.held.clone())
        };
        let claimed = self.directory.claim(Wanted::At(version), Some(epoch), &self.holder).inspect_err(|error| {
            if let ErrorKind::Fenced { by } = error.kind() {
                self.state().fenced = Some(*by);
            }
        })?;
        let current = match held.into_iter().find(|held| held.mark == claimed.chain.mark) {
            Some(held) => held,
            None => Arc::new(Held::load(&claimed.chain)?),
        };
        let unused = {
            let mut state = self.state();
            let unused = (!state.is_epoch_used).then_some(state.epoch);
            state.epoch = claimed.epoch;
            state.is_epoch_used = false;
            state.head = claimed.head;
            state.hold(Arc::clone(&current));
            state.is_stale = false;
            unused
        };
        unused.inspect(|epoch| self.directory.give_back(*epoch));
        Ok(current)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let unused = {
            let state = self.state();
            (!state.is_epoch_used).then_some(state.epoch)
        };
        unused.inspect(|epoch| self.directory.give_back(*epoch));
    }
}

impl State {
    fn hold(&mut self, held: Arc<Held>) {
        self.held.retain(|old| old.mark != held.mark);
        self.held.push(Arc::clone(&held));
        let surplus = self.held.len().saturating_sub(HELD_VERSIONS);
        self.held.drain(..surplus);
        self.current = held;
    }
}

impl Committer for Core {
    fn commit(&self, changes: ChangeSet<'_>) -> Result<Version> {
        let (writer, current) = {
            let mut state = self.state();
            state.is_epoch_used = true;
            (Writer { uid: self.uid, epoch: state.epoch, parent: state.current.mark }, Arc::clone(&state.current))
        };
        let outcome = commit(&self.directory, &writer, &changes)
            .inspect_err(|error| self.failed(error))
            .and_then(|name| self.directory.open_run(&name).map(|run| run.header().mark()));
        let to = writer.to();
        let mut state = self.state();
        match outcome {
            Ok(mark) => {
                drop(state);
                let next = Arc::new(current.with(mark, &changes)?);
                state = self.state();
                state.hold(next);
            }
            Err(error) if state.is_stale => return Err(error),
            // Committed, but its id cannot be read now: the next `begin` loads it.
            Err(_) => state.is_stale = true,
        }
        state.head = to;
        Ok(to.version)
    }
}

impl Core {
    fn failed(&self, error: &Error) {
        let mut state = self.state();
        state.is_stale = true;
        if let ErrorKind::Fenced { by } = error.kind() {
            state.fenced = Some(*by);
        }
    }
}

impl Held {
    fn load(chain: &OpenChain) -> Result<Self> {
        let runs = chain.newest_first();
        let mut content = merged(runs.iter()).live();
        let mut map = BTreeMap::new();
        while content.advance()? {
            if let Change::Put(value) = content.change() {
                map.insert(content.key().to_vec(), Bytes::copy_from(value));
            }
        }
        Ok(Self { mark: chain.mark, families: Arc::clone(&chain.families), map: Arc::new(map) })
    }

    /// The map with `changes` made: a copy of all of it, which is the price of this provider.
    fn with(&self, mark: Mark, changes: &ChangeSet<'_>) -> Result<Self> {
        let mut map = (*self.map).clone();
        let deleted = changes.overlay.ranges();
        if !deleted.is_empty() {
            map.retain(|key, _| !deleted.contains(key));
        }
        changes.overlay.for_each(|key, change| {
            match change {
                Change::Put(value) => map.insert(key.to_vec(), Bytes::copy_from(value)),
                Change::Tombstone => map.remove(key),
            };
            Ok(())
        })?;
        Ok(Self { mark, families: Arc::new(changes.families.clone()), map: Arc::new(map) })
    }
}

impl Below for Held {
    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>> {
        Ok(self.map.get(probe.full_key).cloned())
    }

    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>> {
        let cursor = MapCursor { map: Arc::clone(&self.map), range: range.clone(), current: None };
        Ok(vec![Layer::without_ranges(Box::new(cursor))])
    }
}

/// Walks over a map that it shares: each step is one look-up.
#[derive(Debug)]
struct MapCursor {
    map: Arc<BTreeMap<Vec<u8>, Bytes>>,
    range: KeyRange,
    current: Option<(Vec<u8>, Bytes)>,
}

impl Cursor for MapCursor {
    fn advance(&mut self) -> Result<bool> {
        let from = match &self.current {
            Some((key, _)) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(self.range.start.as_slice()),
        };
        let next = self.map.range::<[u8], _>((from, Bound::Unbounded)).next();
        let inside = next.filter(|(key, _)| self.range.is_before_end(key));
        self.current = inside.map(|(key, value)| (key.clone(), value.clone()));
        Ok(self.current.is_some())
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map(|(key, _)| key.as_slice()).unwrap_or_default()
    }

    fn change(&self) -> Change<&[u8]> {
        self.current.as_ref().map_or(Change::Tombstone, |(_, value)| Change::Put(value))
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.current.as_ref().map_or(Change::Tombstone, |(_, value)| Change::Put(value.clone()))
    }
}
