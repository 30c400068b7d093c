//! [`View`]: the state at one version, to be read by anyone, any time.

use std::path::PathBuf;
use std::sync::Arc;

use super::below::{LookupKey, SharedBelow};
use super::contract::ReadStore;
use super::scan::{Readers, Scan};
use crate::bytes::Bytes;
use crate::entry::{Families, FamilyId, KeyRange, Probe};
use crate::error::{Error, Result};
use crate::run::Merge;
use crate::version::Version;

/// A reader of one version. Cheap to clone, `Send`, and unmoved by commits and clean-up: it pins what it reads.
#[derive(Debug, Clone)]
pub struct View {
    version: Version,
    families: Arc<Families>,
    below: SharedBelow,
    readers: Arc<Readers>,
    passed_over: Arc<[PathBuf]>,
}

impl View {
    pub(super) fn new(version: Version, families: Arc<Families>, below: SharedBelow, readers: Arc<Readers>) -> Self {
        Self { version, families, below, readers, passed_over: Arc::default() }
    }

    /// The same, which got around these files.
    pub(super) fn around(self, passed_over: Vec<PathBuf>) -> Self {
        Self { passed_over: passed_over.into(), ..self }
    }

    /// Damaged files that this version should have been read from; others hold the same. Repair them: the next damage may have no
    /// way around it.
    #[must_use]
    pub fn passed_over(&self) -> &[PathBuf] {
        &self.passed_over
    }

    /// The families of this version, by number.
    #[must_use]
    pub fn families(&self) -> &Families {
        &self.families
    }

    fn range(&self, family: FamilyId, range: &KeyRange) -> Result<Scan> {
        check_family(&self.families, family)?;
        let layers = self.below.layers(range).inspect_err(|error| self.readers.hear(error))?;
        Ok(Scan::new(Box::new(Merge::new(layers)), self.readers.open()))
    }
}

impl ReadStore for View {
    fn version(&self) -> Version {
        self.version
    }

    fn family(&self, name: &str) -> Option<FamilyId> {
        self.families.find(name)
    }

    fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Bytes>> {
        check_family(&self.families, family)?;
        let found = self.below.get(&Probe::new(LookupKey::new(family, key)?.as_slice()));
        found.inspect_err(|error| self.readers.hear(error))
    }

    fn scan_range(&self, family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Scan> {
        self.range(family, &KeyRange::within(family, start, end))
    }

    fn scan_prefix(&self, family: FamilyId, prefix: &[u8]) -> Result<Scan> {
        self.range(family, &KeyRange::prefix(family, prefix))
    }
}

/// Checks that a store has `family`.
///
/// # Errors
/// `InvalidInput` where it has not: the number comes from another store, or from a transaction that was not committed.
pub(super) fn check_family(families: &Families, family: FamilyId) -> Result<()> {
    if usize::from(family.0) < families.names().len() {
        return Ok(());
    }
    Err(Error::invalid(format!("the store has no family number {}; make it with create_family first", family.0)))
}
