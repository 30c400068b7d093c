//! What is done to a store, and what it must hold afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::fs::{Disk, SimDisk};
use alluvium::prelude::*;
use alluvium::{
    Clock, IdSource, LocalCheckpoint, Maintenance, MaintenanceOptions, Result, RocksDbProvider, StateStoreId,
    StoreOptions, Transaction, Version,
};

use super::disk::Recorder;

const GO_ON: &(dyn Fn(u64) -> ControlFlow<()> + Sync) = &|_| ControlFlow::Continue(());

/// Where the checkpoint lies on the simulated disk.
pub(super) const ROOT: &str = "/checkpoint";
pub(super) const FAMILIES: [&str; 2] = ["left", "right"];
/// Few and tiny, the empty one and a prefix of another among them.
pub(super) const KEYS: [&[u8]; 5] = [b"", b"a", b"ab", b"b", b"c"];

/// One version of the state: its families with their entries, and the metadata of its commit.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Content {
    pub(super) families: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) metadata: Vec<u8>,
    /// Set in the model where the version was let go of, which may not be done yet; in what is observed, where it is gone.
    pub(super) is_given_up: bool,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]{}", self.metadata.escape_ascii(), if self.is_given_up { " given up" } else { "" })?;
        for (family, map) in &self.families {
            write!(f, " {family}:")?;
            map.iter().try_for_each(|(k, v)| write!(f, " {}={:?}", k.escape_ascii(), v.escape_ascii().to_string()))?;
        }
        Ok(())
    }
}

/// The content of every version from 0 on.
pub(super) type Line = Vec<Content>;

/// One step of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// Puts, an overwrite and removes in both families; commit on the newest version.
    Commit,
    /// A transaction on the version below the newest that writes and is given up.
    Abort,
    /// A commit on the version below the newest, which supersedes that.
    Older,
    /// Deletes ranges and writes into them; commit on the newest version.
    DeleteRange,
    Snapshot,
    Collapse,
    /// The provider is dropped, and another one takes over.
    Reopen,
    /// The index takes in all deltas.
    Settle,
    /// All but the newest two versions are let go.
    Retire,
    /// Somebody who has no provider takes a snapshot and lets go of the same versions.
    Outsider,
    /// Everything is verified, and what is damaged made anew.
    Repair,
}

/// The versions that stay when others are let go.
const RETAINED: usize = 2;

impl Op {
    pub(super) const ALL: [Self; 8] = [
        Self::Commit,
        Self::Abort,
        Self::Older,
        Self::DeleteRange,
        Self::Snapshot,
        Self::Collapse,
        Self::Reopen,
        Self::Settle,
    ];

    /// The line after this operation, where it is the `attempt`th that writes.
    pub(super) fn after(self, line: &Line, attempt: u64) -> Line {
        if let Self::Retire | Self::Outsider = self {
            let mut next = line.clone();
            let given_up = line.len().saturating_sub(RETAINED);
            next.iter_mut().take(given_up).skip(1).for_each(|content| content.is_given_up = true);
            return next;
        }
        let base = match self {
            Self::Commit | Self::DeleteRange => line.len() - 1,
            Self::Older => line.len().saturating_sub(2),
            _ => return line.clone(),
        };
        let mut next = line[..=base].to_vec();
        let mut content = line[base].clone();
        content.metadata = metadata(attempt);
        content.is_given_up = false;
        for edit in batch(self, attempt) {
            edit.make(&mut content);
        }
        next.push(content);
        next
    }
}

fn metadata(attempt: u64) -> Vec<u8> {
    format!("offset {attempt}").into_bytes()
}

/// One write of a transaction.
#[derive(Debug)]
enum Edit {
    Put(usize, &'static [u8], Vec<u8>),
    Remove(usize, &'static [u8]),
    DeleteRange(usize, Option<&'static [u8]>, Option<&'static [u8]>),
}

impl Edit {
    fn make(&self, content: &mut Content) {
        let (Self::Put(family, ..) | Self::Remove(family, _) | Self::DeleteRange(family, ..)) = self;
        let map = content.families.entry(FAMILIES[*family]).or_default();
        match self {
            Self::Put(_, key, value) => {
                map.insert(key.to_vec(), value.clone());
            }
            Self::Remove(_, key) => {
                map.remove(*key);
            }
            Self::DeleteRange(_, start, end) => map.retain(|key, _| {
                start.is_some_and(|start| key.as_slice() < start) || end.is_some_and(|end| key.as_slice() >= end)
            }),
        }
    }

    fn write(&self, transaction: &mut Transaction) -> Result<()> {
        let (Self::Put(family, ..) | Self::Remove(family, _) | Self::DeleteRange(family, ..)) = self;
        let family = transaction.create_family(FAMILIES[*family])?;
        match self {
            Self::Put(_, key, value) => transaction.put(family, key, value),
            Self::Remove(_, key) => transaction.remove(family, key),
            Self::DeleteRange(_, start, end) => transaction.delete_range(family, *start, *end),
        }
    }
}

/// The writes of an attempt. No two attempts write the same value, so that any mix of them shows; the first one knows only
/// one family.
fn batch(op: Op, attempt: u64) -> Vec<Edit> {
    let key = |step: u64| KEYS[usize::try_from((attempt + step) % 5).unwrap()];
    let value = |place: &str| format!("{place} of attempt {attempt}").into_bytes();
    let mut edits = Vec::new();
    if op == Op::DeleteRange {
        let (start, end): (Option<&[u8]>, Option<&[u8]>) = match attempt % 3 {
            0 => (Some(b"a"), Some(b"b")),
            1 => (None, Some(b"ab")),
            _ => (Some(b"ab"), None),
        };
        edits.push(Edit::Put(0, key(0), value("hidden by the range")));
        edits.push(Edit::DeleteRange(0, start, end));
        edits.push(Edit::Put(0, key(1), value("left after the range")));
        edits.push(Edit::DeleteRange(1, Some(b"a"), None));
        return edits;
    }
    edits.push(Edit::Put(0, b"a", value("overwritten")));
    edits.push(Edit::Put(0, key(1), value("left")));
    edits.push(Edit::Remove(0, key(2)));
    if attempt > 1 {
        edits.push(Edit::Put(1, key(0), value("right")));
        edits.push(Edit::Put(1, key(3), value("also right")));
        edits.push(Edit::Remove(1, key(4)));
    }
    edits
}

/// Time that stands still, so that the bytes of forks repeat.
#[derive(Debug)]
pub(super) struct Still;

impl Clock for Still {
    fn wall_ms(&self) -> u64 {
        0
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

pub(super) fn store_id() -> StateStoreId {
    StateStoreId::new("operator", 0, "store").unwrap()
}

/// A disk, an index and what the model knows of them: a machine that a process can be started on.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) index: IndexImage,
    /// What is acknowledged.
    pub(super) line: Line,
    /// Writing operations so far.
    pub(super) attempt: u64,
    /// Processes started so far, so that none draws another one's ids.
    pub(super) starts: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            disk: SimDisk::new(1),
            index: IndexImage::default(),
            line: vec![Content::default()],
            attempt: 0,
            starts: 0,
        }
    }

    /// The same machine on a disk and an index of its own.
    pub(super) fn fork(&self) -> Self {
        Self { disk: self.disk.fork(), ..self.clone() }
    }
}

/// A process that works on a store.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) recorder: Recorder,
    pub(super) index: SimIndex,
    options: StoreOptions,
    provider: Option<RocksDbProvider>,
    pub(super) line: Line,
    pub(super) attempt: u64,
    starts: u64,
}

impl Process {
    /// A process on this machine, whose disk it changes. It has opened nothing yet.
    pub(super) fn on(machine: &Machine, options: &StoreOptions) -> Self {
        machine.disk.short_reads(true); // nobody may rely on whole ones
        Self {
            recorder: Recorder::new(&machine.disk),
            index: SimIndex::from_image(&machine.index),
            options: options.clone(),
            provider: None,
            line: machine.line.clone(),
            attempt: machine.attempt,
            starts: machine.starts,
        }
    }

    /// What the process leaves when it ends now: the disk as it is, pieces pending.
    pub(super) fn machine(&self) -> Machine {
        Machine {
            disk: self.recorder.sim().fork(),
            index: self.index.image(),
            line: self.line.clone(),
            attempt: self.attempt,
            starts: self.starts,
        }
    }

    pub(super) fn provider(&self) -> &RocksDbProvider {
        self.provider.as_ref().unwrap()
    }

    pub(super) fn is_open(&self) -> bool {
        self.provider.is_some()
    }

    pub(super) fn open(&mut self) -> Result<()> {
        self.provider = None;
        self.starts += 1;
        let disk: Arc<dyn Disk> = Arc::new(self.recorder.clone());
        let checkpoint = LocalCheckpoint::on(disk, ROOT)?;
        let (ids, clock) = (IdSource::seeded(self.starts << 32), Arc::new(Still));
        let (backend, options) = (self.index.backend(), self.options.clone());
        self.provider = Some(RocksDbProvider::open_with(backend, checkpoint, store_id(), options, ids, clock)?);
        Ok(())
    }

    /// The line that the operation is about to make.
    pub(super) fn next_line(&self, op: Op) -> Line {
        op.after(&self.line, self.attempt + 1)
    }

    /// Does an operation. Only where it succeeds does the line follow; the attempt counts anyway.
    pub(super) fn run(&mut self, op: Op) -> Result<()> {
        let (next, head) = (self.next_line(op), self.line.len() - 1);
        match op {
            Op::Commit | Op::DeleteRange => self.transact(op, head, true)?,
            Op::Older => self.transact(op, head.saturating_sub(1), true)?,
            Op::Abort => self.transact(op, head.saturating_sub(1), false)?,
            Op::Snapshot => self.provider().snapshot().map(drop)?,
            Op::Collapse => self.provider().collapse().map(drop)?,
            Op::Retire => self.provider().retire(RETAINED).map(drop)?,
            Op::Outsider => {
                let outsider = self.outsider()?;
                outsider.compact(GO_ON)?;
                outsider.retire(GO_ON)?;
            }
            Op::Repair => self.provider().repair(GO_ON)?.into_result().map(drop)?,
            Op::Reopen => self.open()?,
            Op::Settle => {
                self.provider().settle()?;
                self.index.run_pending();
            }
        }
        self.line = next;
        Ok(())
    }

    /// Somebody who looks after the store without opening it.
    fn outsider(&mut self) -> Result<Maintenance> {
        self.starts += 1;
        let disk: Arc<dyn Disk> = Arc::new(self.recorder.clone());
        let options = MaintenanceOptions::default().retain_versions(RETAINED)?;
        let (ids, clock) = (IdSource::seeded(self.starts << 32), Arc::new(Still));
        Ok(Maintenance::on_with(LocalCheckpoint::on(disk, ROOT)?, store_id(), options, ids, clock))
    }

    fn transact(&mut self, op: Op, base: usize, commits: bool) -> Result<()> {
        self.attempt += 1;
        let base = Version(u64::try_from(base).unwrap());
        let mut transaction = self.provider().begin(base)?;
        batch(op, self.attempt).iter().try_for_each(|edit| edit.write(&mut transaction))?;
        if !commits {
            transaction.abort();
            return Ok(());
        }
        let version = transaction.commit_with(&metadata(self.attempt))?;
        assert_eq!(version, base.next(), "a commit says which version it made");
        Ok(())
    }
}
