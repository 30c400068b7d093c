//! [`Transaction`]: uncommitted writes over the state at one version.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::below::{LookupKey, SharedBelow};
use super::commit::ChangeSet;
use super::contract::{ReadStore, WriteStore};
use super::scan::{Readers, Scan};
use super::slot::SlotGuard;
use super::view::check_family;
use crate::bytes::Bytes;
use crate::entry::{Change, Families, FamilyId, KeyRange, MAX_METADATA_BYTES, MAX_VALUE_BYTES, Name, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::overlay::Overlay;
use crate::run::Merge;
use crate::version::Version;

/// What makes a commit out of a transaction's writes: the provider that opened it.
pub(super) trait Committer: Send + Sync + std::fmt::Debug {
    /// Commits `changes`, which were made on top of the version that the writer slot was taken for.
    fn commit(&self, changes: ChangeSet<'_>) -> Result<Version>;

    /// Drops what the writes were made on, which may be the last of it.
    fn let_go(&self, below: SharedBelow) {
        drop(below);
    }
}

/// The writes of one batch over one version. It owns the store's writer slot until it ends.
#[derive(Debug)]
pub struct Transaction {
    version: Version,
    families: Families,
    below: SharedBelow,
    /// Borrowed mutably only inside single calls, none of which calls back: scans sort what is new.
    overlay: RefCell<Overlay>,
    readers: Arc<Readers>,
    poisoned: Cell<bool>,
    committer: Arc<dyn Committer>,
    /// Last, so that everything else is gone before the next writer comes in.
    slot: SlotGuard,
}

/// What a transaction is opened on.
pub(super) struct Opened {
    pub(super) version: Version,
    pub(super) families: Families,
    pub(super) below: SharedBelow,
    pub(super) overlay: Overlay,
    pub(super) readers: Arc<Readers>,
    pub(super) committer: Arc<dyn Committer>,
    pub(super) slot: SlotGuard,
}

impl Transaction {
    pub(super) fn new(opened: Opened) -> Self {
        Self {
            version: opened.version,
            families: opened.families,
            below: opened.below,
            overlay: RefCell::new(opened.overlay),
            readers: opened.readers,
            poisoned: Cell::new(false),
            committer: opened.committer,
            slot: opened.slot,
        }
    }

    /// The families as this transaction sees them, by number.
    #[must_use]
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Runs one operation; its failure poisons the transaction.
    fn operation<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.poisoned.get() {
            return Err(Error::new(ErrorKind::Poisoned, "an operation of this transaction has failed; abort it"));
        }
        let outcome = operation();
        self.poisoned.set(outcome.is_err());
        outcome.inspect_err(|error| self.readers.hear(error))
    }

    fn write(&self, family: FamilyId, key: &[u8], change: Change<&[u8]>) -> Result<()> {
        self.operation(|| {
            check_family(&self.families, family)?;
            let full_key = LookupKey::new(family, key)?;
            let length = change.into_value().map_or(0, <[u8]>::len);
            check_length("a value is too long", length, MAX_VALUE_BYTES)?;
            self.overlay.borrow_mut().write(&Probe::new(full_key.as_slice()), change)
        })
    }

    fn range(&self, family: FamilyId, range: &KeyRange) -> Result<Scan> {
        self.operation(|| {
            check_family(&self.families, family)?;
            let mut layers = self.overlay.borrow_mut().layers(range)?;
            layers.extend(self.below.layers(range)?);
            Ok(Scan::new(Box::new(Merge::new(layers)), self.readers.open()))
        })
    }
}

impl ReadStore for Transaction {
    fn version(&self) -> Version {
        self.version
    }

    fn family(&self, name: &str) -> Option<FamilyId> {
        self.families.find(name)
    }

    fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Bytes>> {
        self.operation(|| {
            check_family(&self.families, family)?;
            let full_key = LookupKey::new(family, key)?;
            let probe = Probe::new(full_key.as_slice());
            match self.overlay.borrow().get(&probe)? {
                Some(change) => Ok(change.into_value()),
                None => self.below.get(&probe),
            }
        })
    }

    fn scan_range(&self, family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Scan> {
        self.range(family, &KeyRange::within(family, start, end))
    }

    fn scan_prefix(&self, family: FamilyId, prefix: &[u8]) -> Result<Scan> {
        self.range(family, &KeyRange::prefix(family, prefix))
    }
}

impl WriteStore for Transaction {
    fn create_family(&mut self, name: &str) -> Result<FamilyId> {
        let mut families = self.families.clone();
        let family = self.operation(|| families.find_or_add(Name::new(name)?))?;
        self.families = families;
        Ok(family.0)
    }

    fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(family, key, Change::Put(value))
    }

    fn remove(&mut self, family: FamilyId, key: &[u8]) -> Result<()> {
        self.write(family, key, Change::Tombstone)
    }

    fn delete_range(&mut self, family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.operation(|| {
            check_family(&self.families, family)?;
            for bound in [start, end].into_iter().flatten() {
                LookupKey::new(family, bound)?;
            }
            self.overlay.borrow_mut().delete_range(KeyRange::within(family, start, end))
        })
    }

    fn commit_with(self, metadata: &[u8]) -> Result<Version> {
        self.operation(|| check_length("the metadata is too long", metadata.len(), MAX_METADATA_BYTES))?;
        let mut overlay = self.overlay.into_inner();
        overlay.finish()?;
        let changes = ChangeSet { overlay: &overlay, families: &self.families, metadata };
        let version = self.committer.commit(changes);
        drop(self.slot); // the next writer comes in only now
        self.committer.let_go(self.below);
        version
    }

    fn abort(self) {
        drop(self);
    }
}

fn check_length(what: &str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded { limit: limit as u64, found: found as u64 }, what))
}
