//! [`StoreDirectory`]: one store's directory in the checkpoint: listing, claiming, opening and making files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::open_chain::OpenChain;
#[cfg(feature = "conformance")]
use super::options::Planted;
use super::options::StoreOptions;
use super::proven::Proven;
use super::unpublished::Unpublished;
use crate::backend::Precedence;
use crate::catalog::{
    Catalog, Claim, Confirmation, Doomed, FORKS, FileName, Fork, ForkRecord, Listing, MAX_FORK_BYTES, RunName,
    TemporaryName, Wanted, fenced_by,
};
use crate::checkpoint::{Checkpoint, PendingFile};
use crate::clock::Clock;
use crate::entry::StateStoreId;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{FileKind, PublishError};
use crate::run::{Access, PageCodec, Run};
use crate::version::{Epoch, IdSource, Mark, RunId, StoreUid, Version, VersionId};

/// A listing can move under a reader when another process cleans up; after this many times it is something else.
const MOST_LISTINGS: usize = 64;
/// Clean-up by another process can take a file between the listing and the look at it; a fresh listing then knows better.
pub(crate) const MOST_ATTEMPTS: usize = 8;

/// The directory of a checkpoint that holds the stores.
pub(super) const STATE: &str = "state";

/// One store's directory in the checkpoint. It knows files, not layers.
#[derive(Debug)]
pub(crate) struct StoreDirectory {
    pub(super) checkpoint: Arc<dyn Checkpoint>,
    pub(super) id: StateStoreId,
    path: String,
    pub(super) access: Access,
    codec: PageCodec,
    #[cfg(feature = "conformance")]
    pub(super) planted: Planted,
    ids: IdSource,
    clock: Arc<dyn Clock>,
    /// Ends the holder text of every fork made here, so that a claim whose outcome was lost is known again.
    claimant: String,
    /// The highest epoch that was tried to claim here, whatever came of it.
    last_tried: AtomicU64,
    /// The highest epoch that any listing showed: what is rewritten here goes by it until it is published.
    highest_seen: AtomicU64,
    /// The runs that are open, so that a file is mapped and verified once. Guards the map only; files are opened outside.
    pub(super) open_runs: Mutex<HashMap<RunName, Weak<Run>>>,
    unpublished: Unpublished,
    pub(super) proven: Proven,
    /// Which writing goes first.
    precedence: Arc<Precedence>,
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
            proven: Proven::default(),
            precedence: Arc::default(),
        }
    }

    /// Shares the order of writing with other stores.
    pub(super) fn with_precedence(self, precedence: &Arc<Precedence>) -> Self {
        Self { precedence: Arc::clone(precedence), ..self }
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
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
        let entries = self.checkpoint.list(&self.path)?;
        let files = entries.iter().filter(|entry| entry.kind == FileKind::File);
        let mut listing = Listing::of(files.map(|entry| entry.name.as_str()));
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

    /// The newest version for whoever has claimed `epoch` when `head` was that, after a commit that was cut off: only the directory knows. What
    /// a fenced writer has left there lies below the claim and is nothing to the claimant.
    pub(super) fn head_of(&self, epoch: Epoch, head: VersionId) -> Result<VersionId> {
        let found = self.catalog()?.head();
        Ok(if found.epoch >= epoch { found } else { head })
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

    /// Whether a file is a temporary that nobody is writing any more.
    pub(crate) fn is_abandoned(&self, file: &Doomed) -> Result<bool> {
        Ok(!self.is_being_written(file)? && self.checkpoint.is_abandoned(&self.file(file))?)
    }

    /// Deletes a temporary that nobody is writing any more; says whether it was one.
    pub(crate) fn delete_abandoned(&self, file: &Doomed) -> Result<bool> {
        Ok(!self.is_being_written(file)? && self.checkpoint.delete_abandoned(&self.file(file))?)
    }

    /// Whether a file is a temporary that is being written right now, here or in another process of this machine.
    pub(crate) fn is_being_written(&self, file: &Doomed) -> Result<bool> {
        let Doomed::Temporary(temporary) = file else { return Ok(false) };
        Ok(self.unpublished.has(temporary) || self.checkpoint.is_held(&self.file(file))?)
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

    /// Starts a new run under a temporary name.
    pub(super) fn create_run(&self, name: &RunName) -> Result<Box<dyn PendingFile>> {
        self.create(name.to().epoch, FileName::Run(*name))
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

    /// Removes what writers of lower epochs left half-written. They are fenced, so nothing of theirs can count any more. What is being
    /// written stays: it may be a repair's. Only to save space: a failure is nobody's problem.
    fn sweep_temporaries(&self, epoch: Epoch, catalog: &Catalog) {
        let stale = catalog.listing().temporaries.iter().filter(|temporary| temporary.epoch < epoch);
        for temporary in stale.map(|temporary| Doomed::Temporary(*temporary)) {
            let swept = match self.is_being_written(&temporary) {
                Ok(true) => Ok(()),
                Ok(false) => self.delete(&temporary),
                Err(error) => Err(error),
            };
            if let Err(error) = swept {
                tracing::debug!(file = %temporary, %error, "a stale temporary stays");
            }
        }
    }

    fn create(&self, epoch: Epoch, target: FileName) -> Result<Box<dyn PendingFile>> {
        let temporary = TemporaryName { epoch, id: self.ids.run_id(), target };
        self.unpublished.begin(&temporary, || self.checkpoint.create(&self.file(target), &temporary.file_name()))
    }

    pub(super) fn file(&self, name: impl std::fmt::Display) -> String {
        format!("{}/{name}", self.path)
    }

    fn forks_path(&self) -> String {
        format!("{}/{FORKS}", self.path)
    }
}

/// Whether an error can come of a listing that was overtaken by a clean-up: a fresh one then knows better.
pub(crate) fn is_about_the_listing(error: &Error) -> bool {
    error.is_not_found() || matches!(error.kind(), ErrorKind::Missing { .. })
}
