//! Opening and reading the runs of a [`StoreDirectory`], and making sure that they are what their names and their neighbours say.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use super::directory::StoreDirectory;
use super::open_chain::{OpenChain, name_of};
use super::proven::Finding;
use crate::catalog::{Catalog, RunName};
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Access, Run};
use crate::version::{Mark, RunId, VersionId};

impl StoreDirectory {
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
        self.of_this_store(catalog, name, self.open_run(name)?)
    }

    fn of_this_store(&self, catalog: &Catalog, name: &RunName, run: Arc<Run>) -> Result<Arc<Run>> {
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
        let run = self.open_anew(name, self.access)?;
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

    /// Opens the run called `name`, and looks whether it is the one.
    fn open_anew(&self, name: &RunName, access: Access) -> Result<Arc<Run>> {
        let file = self.checkpoint.open(&self.file(name))?;
        #[cfg(not(feature = "conformance"))]
        let run = Run::open(file, self.display_path(name), access)?;
        #[cfg(feature = "conformance")]
        let run = super::planted::open_run(self.planted, file, self.display_path(name), access)?;
        let header = run.header();
        if name_of(header)? != *name || header.store != self.id {
            let found = format!("run {} of store {}", header.to_id(), header.store);
            return Err(Error::corrupt(self.display_path(name), 0, format!("run {name} of store {}", self.id), found));
        }
        Ok(run)
    }

    /// Reads the run called `name` from end to end, and checks every byte of it. Not through a mapping, where a bad sector would be a
    /// signal instead of an error.
    pub(super) fn verify_run(
        &self,
        catalog: &Catalog,
        name: &RunName,
        observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Arc<Run>> {
        let run = self.of_this_store(catalog, name, self.open_anew(name, Access::Positioned)?)?;
        self.forget_other(name, run.header().id);
        let read = run.verify(observe);
        let finding = match &read {
            Ok(()) => Some(Finding::Whole),
            Err(error) => is_about_the_file(error).then_some(Finding::Damaged),
        };
        finding.inspect(|finding| self.proven.note(*name, run.header().id, *finding, catalog));
        read.map(|()| run)
    }

    /// Whether all that the run called `name` holds can be read, though it is damaged.
    ///
    /// # Errors
    /// What is not about the file.
    pub(super) fn can_be_read(&self, catalog: &Catalog, name: &RunName) -> Result<bool> {
        let opened = self.open_anew(name, Access::Positioned).and_then(|run| self.of_this_store(catalog, name, run));
        match opened.and_then(|run| run.can_be_read()) {
            Ok(()) => Ok(true),
            Err(error) if is_about_the_file(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`verify_run`](Self::verify_run), unless that was done before.
    pub(super) fn prove_run(
        &self,
        catalog: &Catalog,
        name: &RunName,
        observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        // Not one that is held open: somebody else may have made it anew since.
        let run = self.of_this_store(catalog, name, self.open_anew(name, Access::Positioned)?)?;
        self.forget_other(name, run.header().id);
        match self.proven.find(name, run.header().id) {
            Some(Finding::Whole) => Ok(()),
            Some(Finding::Damaged) => {
                Err(Error::corrupt(self.display_path(name), 0, "a whole run", "damage, when it was read before"))
            }
            None => self.verify_run(catalog, name, observe).map(drop),
        }
    }

    /// Where another run is open under this name, made anew since by somebody else, the next opening opens this one.
    fn forget_other(&self, name: &RunName, id: RunId) {
        let mut runs = self.lock_runs();
        let is_other = runs.get(name).and_then(Weak::upgrade).is_some_and(|open| open.header().id != id);
        if is_other {
            runs.remove(name);
        }
    }

    /// Which run has the name `name`, as far as it says so.
    pub(crate) fn run_id(&self, name: &RunName) -> Option<RunId> {
        self.open_anew(name, Access::Positioned).ok().map(|run| run.header().id)
    }

    /// How often reading a run from end to end has found damage that was not known before.
    pub(crate) fn damage_found(&self) -> u64 {
        self.proven.news()
    }

    /// Where the files lie that a chain should have been made of.
    pub(crate) fn passed_over(&self, chain: &OpenChain) -> Vec<PathBuf> {
        chain.passed_over.iter().map(|name| self.display_path(name)).collect() // a few
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

    pub(super) fn lock_runs(&self) -> MutexGuard<'_, HashMap<RunName, Weak<Run>>> {
        // A cache is right whatever happened to a thread that held it.
        self.open_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error says that the file is no good, rather than that the machine could not read it now.
pub(crate) fn is_about_the_file(error: &Error) -> bool {
    let is_unusable = error.is_corrupt() || error.is_unreadable();
    is_unusable || error.is_not_found() || matches!(error.kind(), ErrorKind::Unsupported)
}

/// Says what to do about a store whose newest version cannot be made.
pub(super) fn with_a_way_out(error: Error) -> Error {
    if error.is_corrupt() || matches!(error.kind(), ErrorKind::Missing { .. }) {
        let way = "the store cannot be opened here; a repair makes anew what it can and says which versions are left, and \
                   StoreOptions::open_at opens at one of them";
        return error.context(way);
    }
    error
}
