//! [`Differences`]: what is different between two versions.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::below::Below;
use super::changes::take_apart;
use super::directory::StoreDirectory;
use super::layers::RunStack;
use super::load::merged_with_ranges;
use super::open_chain::OpenChain;
use super::opening::is_about_the_file;
use super::scan::{OpenScan, Readers};
use crate::bytes::Bytes;
use crate::catalog::Catalog;
use crate::entry::{Change, Cursor, Families, FamilyId, KeyRange, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::run::{Merge, Run};
use crate::version::Version;

/// A key whose value differs between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The key's family; [`Differences::families`] has its name.
    pub family: FamilyId,
    /// The key.
    pub key: Bytes,
    /// Its value in the version that was compared from; `None` where it is not there.
    pub old: Option<Bytes>,
    /// Its value in the version that was compared to; `None` where it is not there. Never the same as `old`.
    pub new: Option<Bytes>,
}

/// An iterator over what differs between two versions, in ascending order of (family, key).
///
/// `Send`, independent of the handle that made it, and unmoved by commits and clean-up: its files are pinned. After an error it
/// stays at that error.
pub struct Differences {
    families: Arc<Families>,
    /// What the first version may have had at a key.
    old: Peeked,
    /// What the second version has there, or (where deltas are read) what was written on the way to it.
    new: Peeked,
    /// Where only the changed keys are walked over: the first version, to be asked for them.
    below: Option<RunStack>,
    passed_over: Vec<PathBuf>,
    _open: OpenScan,
}

impl Differences {
    pub(super) fn between(
        directory: &StoreDirectory,
        readers: &Readers,
        catalog: &Catalog,
        from: Version,
        to: Version,
    ) -> Result<Self> {
        let old = directory.open_chain(catalog, catalog.readable(from)?)?;
        let new = directory.open_chain(catalog, catalog.readable(to)?)?;
        let families = if from < to { &new.families } else { &old.families };
        let families = Arc::clone(families);
        let mut passed_over = directory.passed_over(&old);
        passed_over.extend(directory.passed_over(&new));
        let (old, new, below) = match deltas(directory, catalog, from, to, &mut passed_over)? {
            Some(deltas) => {
                let below = RunStack(old.newest_first());
                let (changes, ranges) = merged_with_ranges(&deltas);
                let deleted = Box::new(Within::new(RunStack(old.newest_first()), &ranges));
                (deleted as Box<dyn Cursor>, Box::new(changes) as Box<dyn Cursor>, Some(below))
            }
            None => (whole(&old)?, whole(&new)?, None),
        };
        passed_over.sort();
        passed_over.dedup();
        Ok(Self { families, old: Peeked::new(old), new: Peeked::new(new), below, passed_over, _open: readers.open() })
    }

    /// Damaged files that should have been read; others hold the same.
    #[must_use]
    pub fn passed_over(&self) -> &[PathBuf] {
        &self.passed_over
    }

    /// The families of the newer of the two versions, by number.
    #[must_use]
    pub fn families(&self) -> &Families {
        &self.families
    }

    fn step(&mut self) -> Result<Option<Difference>> {
        loop {
            let (old, new) = (self.old.peek()?, self.new.peek()?);
            let first = match (old, new) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            let (key, old, new) = match first {
                Ordering::Less => {
                    let (key, old) = self.old.take();
                    (key, old, None)
                }
                Ordering::Equal => {
                    let (_, old) = self.old.take();
                    let (key, new) = self.new.take();
                    (key, old, new)
                }
                Ordering::Greater => {
                    let (key, new) = self.new.take();
                    let old = self.below.as_ref().map(|below| below.get(&Probe::new(&key))).transpose()?.flatten();
                    (key, old, new)
                }
            };
            if old != new {
                let (family, key) = take_apart(&key);
                return Ok(Some(Difference { family, key, old, new }));
            }
        }
    }
}

/// The deltas from one version to the next, newest first; `None` where none lead there or one of them is no good.
fn deltas(
    directory: &StoreDirectory,
    catalog: &Catalog,
    from: Version,
    to: Version,
    passed_over: &mut Vec<PathBuf>,
) -> Result<Option<Vec<Arc<Run>>>> {
    let names = if from <= to { catalog.deltas(from, to, &BTreeSet::new()) } else { None };
    let Some(names) = names else { return Ok(None) };
    match directory.open_deltas(catalog, &names) {
        Ok(mut runs) => {
            runs.reverse();
            Ok(Some(runs))
        }
        Err((name, error)) if is_about_the_file(&error) => {
            tracing::warn!(file = %directory.display_path(name).display(), %error, "comparing whole states instead");
            passed_over.push(directory.display_path(name));
            Ok(None)
        }
        Err((_, error)) => Err(error),
    }
}

fn whole(chain: &OpenChain) -> Result<Box<dyn Cursor>> {
    Ok(Box::new(Merge::new(RunStack(chain.newest_first()).layers(&KeyRange::ALL)?).live()))
}

/// A cursor that shows its next entry before it is taken.
struct Peeked {
    cursor: Box<dyn Cursor>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    /// The cursor has still to be moved on.
    Taken,
    /// The cursor stands at the next entry.
    Shown,
    Ended,
    Failed(ErrorKind),
}

impl Peeked {
    fn new(cursor: Box<dyn Cursor>) -> Self {
        Self { cursor, state: State::Taken }
    }

    /// The next full key.
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        match &self.state {
            State::Failed(kind) => return Err(Error::new(kind.clone(), "the difference could not be read on")),
            State::Taken => {
                let more =
                    self.cursor.advance().inspect_err(|error| self.state = State::Failed(error.kind().clone()))?;
                self.state = if more { State::Shown } else { State::Ended };
            }
            State::Shown | State::Ended => {}
        }
        Ok((self.state == State::Shown).then(|| self.cursor.key()))
    }

    /// The full key and the value that were shown.
    fn take(&mut self) -> (Bytes, Option<Bytes>) {
        self.state = State::Taken;
        (self.cursor.key_bytes(), self.cursor.change_bytes().into_value())
    }
}

/// The entries of a version that lie in some ranges.
struct Within {
    version: RunStack,
    ranges: std::vec::IntoIter<KeyRange>,
    current: Option<Box<dyn Cursor>>,
}

impl Within {
    fn new(version: RunStack, ranges: &RangeSet) -> Self {
        let ranges: Vec<KeyRange> = ranges.iter().cloned().collect(); // what the deltas hold in heap anyway
        Self { version, ranges: ranges.into_iter(), current: None }
    }
}

impl Cursor for Within {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(current) = &mut self.current
                && current.advance()?
            {
                return Ok(true);
            }
            let Some(range) = self.ranges.next() else { return Ok(false) };
            self.current = Some(Box::new(Merge::new(self.version.layers(&range)?).live()));
        }
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| current.key())
    }

    fn change(&self) -> Change<&[u8]> {
        self.current.as_ref().map_or(Change::Tombstone, |current| current.change())
    }

    fn key_bytes(&self) -> Bytes {
        self.current.as_ref().map_or_else(Bytes::default, Cursor::key_bytes)
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.current.as_ref().map_or(Change::Tombstone, Cursor::change_bytes)
    }
}

impl Iterator for Differences {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl fmt::Debug for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Differences").field("walks_deltas", &self.below.is_some()).finish_non_exhaustive()
    }
}
