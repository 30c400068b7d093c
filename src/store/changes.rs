//! [`Changes`]: what single commits wrote, in the order of versions.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::below::Below;
use super::directory::StoreDirectory;
use super::layers::RunStack;
use super::scan::{OpenScan, Readers};
use crate::bytes::Bytes;
use crate::catalog::{Catalog, RunName};
use crate::entry::{Change, Cursor, FAMILY_BYTES, Families, FamilyId, KeyRange, Probe, split_full_key};
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Run, RunCursor};
use crate::version::{Epoch, Version, VersionId};

/// One thing that a commit did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeEvent {
    /// The version that the commit made.
    pub version: Version,
    /// The epoch of the writer who made it. A rollback shows as a version with another epoch.
    pub epoch: Epoch,
    /// The family that was changed; [`Changes::families`] has its name.
    pub family: FamilyId,
    /// What was changed, and how.
    pub change: Changed,
}

/// How something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The key has got this value.
    Upsert {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Its value before, if it had one and [`Changes::with_old_values`] was asked for.
        old: Option<Bytes>,
    },
    /// The key was removed, whether or not it was there.
    Delete {
        /// The key.
        key: Bytes,
        /// Its value before, if it had one and [`Changes::with_old_values`] was asked for.
        old: Option<Bytes>,
    },
    /// Every key from `start` on was removed. What the same commit put into the range follows as upserts.
    DeleteRange {
        /// The first key of the range; empty: from the first of the family.
        start: Bytes,
        /// The key that the range ends before; `None`: to the last of the family.
        end: Option<Bytes>,
    },
}

/// An iterator over what commits wrote: by version, then by family and key; a range delete stands where its start does, before
/// the entries that lie in it. Applied one after the other to the state before, they give the state after.
///
/// `Send`, and independent of the handle that made it. Files are opened one commit at a time: a clean-up by somebody else may take
/// a later one, which is a `Collapsed` error then. After an error it stays at that error.
pub struct Changes {
    directory: Arc<StoreDirectory>,
    catalog: Catalog,
    families: Arc<Families>,
    to_come: std::vec::IntoIter<RunName>,
    current: Option<Commit>,
    with_old: bool,
    /// A file each.
    passed_over: BTreeSet<PathBuf>,
    failed: Option<ErrorKind>,
    _open: OpenScan,
}

/// A single delta that is being told.
struct Commit {
    at: VersionId,
    cursor: RunCursor,
    /// Whether the cursor stands at an entry that is still to be told.
    has_entry: bool,
    /// The range deletes still to come, as full keys, each within one family.
    ranges: VecDeque<KeyRange>,
    /// The state below, where old values are wanted.
    below: Option<RunStack>,
}

impl Changes {
    pub(super) fn of(
        directory: &Arc<StoreDirectory>,
        readers: &Arc<Readers>,
        catalog: &Catalog,
        versions: RangeInclusive<Version>,
    ) -> Result<Self> {
        let from = versions.start().previous();
        let to = *versions.end();
        let names = if versions.is_empty() { Vec::new() } else { catalog.singles(from, to)? };
        let families = match names.last() {
            Some(newest) => Arc::new(directory.open_run_of(catalog, newest)?.header().families.clone()),
            None => Arc::default(),
        };
        Ok(Self {
            directory: Arc::clone(directory),
            catalog: catalog.clone(),
            families,
            to_come: names.into_iter(),
            current: None,
            with_old: false,
            passed_over: BTreeSet::new(),
            failed: None,
            _open: readers.open(),
        })
    }

    /// The same with the value that each key had before: one point get for each changed key.
    ///
    /// # Errors
    /// `VersionNotFound` where the version below the first one cannot be read any more.
    pub fn with_old_values(mut self) -> Result<Self> {
        if let Some(first) = self.to_come.as_slice().first() {
            self.catalog.readable(first.from())?;
        }
        self.with_old = true;
        Ok(self)
    }

    /// The families as of the newest of the versions, by number.
    #[must_use]
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Damaged files that values from before should have been read from, so far; others hold the same.
    pub fn passed_over(&self) -> impl Iterator<Item = &Path> {
        self.passed_over.iter().map(PathBuf::as_path)
    }

    fn step(&mut self) -> Result<Option<ChangeEvent>> {
        loop {
            if let Some(commit) = &mut self.current
                && let Some(event) = commit.next_event()?
            {
                return Ok(Some(event));
            }
            let Some(name) = self.to_come.next() else {
                self.current = None;
                return Ok(None);
            };
            self.current = Some(self.open(&name).map_err(|error| self.explain(&name, error))?);
        }
    }

    fn open(&mut self, name: &RunName) -> Result<Commit> {
        let run = self.directory.open_run_of(&self.catalog, name)?;
        let below = if self.with_old {
            let at = self.catalog.readable(name.from())?;
            let chain = self.directory.open_chain(&self.catalog, at)?;
            self.passed_over.extend(self.directory.passed_over(&chain));
            Some(RunStack(chain.newest_first()))
        } else {
            None
        };
        Commit::open(&run, below)
    }

    /// What a file that is gone means now: the delta was collapsed since the listing.
    fn explain(&self, name: &RunName, error: Error) -> Error {
        if !error.is_not_found() {
            return error;
        }
        let now = self.directory.catalog().and_then(|catalog| catalog.singles(name.from(), name.to().version));
        now.err().unwrap_or(error)
    }
}

impl Commit {
    fn open(run: &Arc<Run>, below: Option<RunStack>) -> Result<Self> {
        let mut cursor = run.cursor(KeyRange::ALL);
        let has_entry = cursor.advance()?;
        let families = run.header().families.names().len();
        let ranges = run.ranges().iter().flat_map(|range| by_family(range, families)).collect(); // one commit's
        Ok(Self { at: run.header().to_id(), cursor, has_entry, ranges, below })
    }

    fn next_event(&mut self) -> Result<Option<ChangeEvent>> {
        let is_first = |range: &KeyRange| !self.has_entry || range.start.as_slice() <= self.cursor.key();
        if self.ranges.front().is_some_and(is_first)
            && let Some(range) = self.ranges.pop_front()
        {
            let (family, start) = take_apart(&range.start.into());
            let end = range.end.map(|end| take_apart(&end.into()).1);
            return Ok(Some(self.event(family, Changed::DeleteRange { start, end })));
        }
        if !self.has_entry {
            return Ok(None);
        }
        let full = self.cursor.key_bytes();
        let old = match &self.below {
            Some(below) => below.get(&Probe::new(&full))?,
            None => None,
        };
        let (family, key) = take_apart(&full);
        let change = match self.cursor.change_bytes() {
            Change::Put(value) => Changed::Upsert { key, value, old },
            Change::Tombstone => Changed::Delete { key, old },
        };
        self.has_entry = self.cursor.advance()?;
        Ok(Some(self.event(family, change)))
    }

    fn event(&self, family: FamilyId, change: Changed) -> ChangeEvent {
        ChangeEvent { version: self.at.version, epoch: self.at.epoch, family, change }
    }
}

/// The family and the user's key of a full key.
pub(super) fn take_apart(full: &Bytes) -> (FamilyId, Bytes) {
    let family = split_full_key(full).map_or(FamilyId::DEFAULT, |(family, _)| family);
    (family, full.slice(FAMILY_BYTES..full.len()).unwrap_or_default())
}

/// A range of full keys as ranges that lie within one family each, the end left out where it is the family's own. Deletes of
/// neighbouring families are kept as one range.
fn by_family(range: &KeyRange, families: usize) -> impl Iterator<Item = KeyRange> + use<> {
    let range = range.clone();
    let first = split_full_key(&range.start).map_or(0, |(family, _)| family.0);
    let families = u16::try_from(families).unwrap_or(u16::MAX); // at most 1024
    (first..families).filter_map(move |family| {
        let whole = KeyRange::within(FamilyId(family), None, None);
        let start = range.start.clone().max(whole.start.clone());
        let end = range.end.clone().filter(|end| whole.is_before_end(end));
        let part = KeyRange { start, end };
        (whole.contains(&part.start) && !part.is_empty()).then_some(part)
    })
}

impl Iterator for Changes {
    type Item = Result<ChangeEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(kind) = &self.failed {
            return Some(Err(Error::new(kind.clone(), "the changes could not be read on")));
        }
        let step = self.step();
        self.failed = step.as_ref().err().map(|error| error.kind().clone());
        step.transpose()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("to_come", &self.to_come.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &[u8], end: Option<&[u8]>) -> KeyRange {
        KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) }
    }

    #[test]
    fn a_range_is_told_family_by_family() {
        let parts = |start: &[u8], end: Option<&[u8]>, families| -> Vec<_> {
            by_family(&range(start, end), families).map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(b"\0\0b", Some(b"\0\0d"), 3), [(b"\0\0b".to_vec(), Some(b"\0\0d".to_vec()))]);
        assert_eq!(parts(b"\0\x01b", Some(b"\0\x02"), 3), [(b"\0\x01b".to_vec(), None)]);
        let all = [(vec![0, 0], None), (vec![0, 1], None), (vec![0, 2], None)];
        assert_eq!(parts(b"", None, 3), all);
        assert_eq!(parts(b"\0", Some(b"\x01"), 3), all);
        let two = [(b"\0\0z".to_vec(), None), (b"\0\x01".to_vec(), Some(b"\0\x01a".to_vec()))];
        assert_eq!(parts(b"\0\0z", Some(b"\0\x01a"), 3), two);
        assert_eq!(parts(b"\0\x05", None, 3), []);
    }
}
