//! [`Inventory`]: which files a store has, and what reading and opening it touches.

use super::directory::{STATE, StoreDirectory};
use super::upkeep::{VersionSpan, lost};
use crate::catalog::{Catalog, FORKS, FileName};
use crate::checkpoint::Checkpoint;
use crate::entry::{Name, StateStoreId};
use crate::error::Result;
use crate::fs::FileKind;
use crate::version::{Epoch, RunKind, Version};

/// What a file of a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FileRole {
    /// The changes of one commit.
    Delta,
    /// The changes of several commits together.
    Collapsed,
    /// The whole state at a version.
    Snapshot,
    /// A run of a writer that was overtaken, or of a version that was rolled back: nothing builds on it.
    Abandoned,
    /// The claim of an epoch.
    Fork,
    /// The announcement that older versions are given up.
    Horizon,
    /// Not published: being written, or left behind by a crash.
    Temporary,
    /// Not one of ours; never read and never touched.
    Foreign,
}

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its path within the store's directory.
    pub name: String,
    /// What it is.
    pub role: FileRole,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a store's directory holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// The oldest version that can be read.
    pub oldest: Version,
    /// The newest version.
    pub newest: Version,
    /// The epoch that made it.
    pub epoch: Epoch,
    /// How many versions can be read.
    pub versions: u64,
    /// Every file, sorted by name.
    pub files: Vec<FileInfo>,
    /// How many runs make the newest version: as many as a read of an absent key asks.
    pub runs: u64,
    /// How many single deltas lie above the newest snapshot or collapsed delta: what an opening without an index replays.
    pub lag_deltas: u64,
    /// The bytes of those.
    pub lag_bytes: u64,
    /// The retained versions that cannot be read, since files are missing; damage inside of files is not looked for.
    pub lost: Vec<VersionSpan>,
}

pub(super) fn inventory(directory: &StoreDirectory, catalog: &Catalog) -> Result<Inventory> {
    let mut files: Vec<FileInfo> = // a few dozen bytes a file, as a listing has
        directory.files()?.into_iter().map(|(name, bytes)| FileInfo { role: role(catalog, &name), name, bytes }).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let head = catalog.head();
    // Where the newest version cannot be made, the inventory still shows what there is.
    let chain =
        catalog.readable(head.version).and_then(|at| catalog.chain(at, &std::collections::BTreeSet::new())).ok();
    let singles = chain.as_ref().map(|chain| chain.singles.as_slice()).unwrap_or_default();
    Ok(Inventory {
        oldest: catalog.versions().next().map_or(Version::EMPTY, |id| id.version),
        newest: head.version,
        epoch: head.epoch,
        versions: catalog.versions().count() as u64,
        files,
        runs: chain.as_ref().map_or(0, |chain| (chain.base.len() + chain.singles.len()) as u64),
        lag_deltas: singles.len() as u64,
        lost: lost(directory, catalog, &[])?,
        lag_bytes: singles.iter().try_fold(0, |sum, run| Ok(sum + directory.length(run)?))?,
    })
}

fn role(catalog: &Catalog, path: &str) -> FileRole {
    let in_forks = path.strip_prefix(FORKS).and_then(|rest| rest.strip_prefix('/'));
    if path.starts_with(".tmp-") || in_forks.is_some_and(|name| name.starts_with(".tmp-")) {
        return FileRole::Temporary;
    }
    match in_forks.map_or_else(|| FileName::parse(path), FileName::parse_fork) {
        Some(FileName::Run(run)) if !catalog.lineage().owns(run.to()) => FileRole::Abandoned,
        Some(FileName::Run(run)) if run.kind() == RunKind::Snapshot => FileRole::Snapshot,
        Some(FileName::Run(run)) if run.is_single() => FileRole::Delta,
        Some(FileName::Run(_)) => FileRole::Collapsed,
        Some(FileName::Fork(_)) => FileRole::Fork,
        Some(FileName::Horizon(_)) => FileRole::Horizon,
        None => FileRole::Foreign,
    }
}

/// The stores of a checkpoint, sorted. Directories that hold nothing, or whose names no store can have, are passed over.
pub(super) fn stores(checkpoint: &dyn Checkpoint) -> Result<Vec<StateStoreId>> {
    let mut paths = vec![String::new()];
    for _level in ["operator", "partition", "name"] {
        let mut below = Vec::new(); // one a store at most
        for path in paths {
            let dir = if path.is_empty() { STATE.to_owned() } else { format!("{STATE}/{path}") };
            let entries = checkpoint.list(&dir)?.into_iter().filter(|entry| entry.kind == FileKind::Directory);
            let named = entries.filter(|entry| Name::new(entry.name.as_str()).is_ok());
            below
                .extend(named.map(|entry| if path.is_empty() { entry.name } else { format!("{path}/{}", entry.name) }));
        }
        paths = below;
    }
    let mut stores: Vec<StateStoreId> = Vec::new(); // one each
    for path in paths {
        let holds = |dir: &str, is_ours: fn(&str) -> Option<FileName>| -> Result<bool> {
            let mut files = checkpoint.list(dir)?.into_iter().filter(|entry| entry.kind == FileKind::File);
            Ok(files.any(|entry| matches!(is_ours(&entry.name), Some(FileName::Run(_) | FileName::Fork(_)))))
        };
        let dir = format!("{STATE}/{path}");
        // What was opened once and given up leaves a directory with nothing in it, or with what others have put there.
        if holds(&dir, FileName::parse)? || holds(&format!("{dir}/{FORKS}"), FileName::parse_fork)? {
            stores.extend(path.parse::<StateStoreId>());
        }
    }
    stores.sort();
    Ok(stores)
}
