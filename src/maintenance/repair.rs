//! Repair: damaged runs are made anew from what is left.
//!
//! A run holds what others held before it, so where those (or others) are still there it can be made again. No file is ever
//! overwritten, so a damaged one has to make room first:
//! 1. write the new file under a temporary name, and make that durable;
//! 2. take the damaged file away, durably;
//! 3. give the new file its name.
//!
//! A crash between any two of these leaves the parts, from which the next repair makes it again. A damaged run that can't be
//! made again stays where it is: what can still be read of it may be all there is.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::catalog::{Catalog, RunName};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    DamagedRun, MOST_ATTEMPTS, Prepared, StoreDirectory, VersionSpan, is_about_the_file, is_about_the_listing,
    prepare_collapsed, prepare_snapshot, readable_and_lost, verify,
};

/// A damaged file that nothing is left to make anew from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Irreparable {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub damage: String,
}

/// What a repair has found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "what could not be repaired is in here"]
pub struct Repaired {
    /// Runs that were read from end to end.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The damaged files that were made anew, each with what was wrong.
    pub remade: Vec<(PathBuf, String)>,
    /// The damaged files that could not be.
    pub irreparable: Vec<Irreparable>,
    /// The retained versions that can no longer be read, ascending.
    pub lost: Vec<VersionSpan>,
    /// The retained versions that can be read, ascending.
    pub readable: Vec<VersionSpan>,
}

impl Repaired {
    /// An error where something is left that could not be repaired.
    ///
    /// # Errors
    /// `Corrupt` with the first of the files, `Missing` where files are gone; the text says which versions are lost, and which are not.
    pub fn into_result(self) -> Result<Self> {
        if self.irreparable.is_empty() && self.lost.is_empty() {
            return Ok(self);
        }
        let spans = |spans: &[VersionSpan]| match spans {
            [] => "none".to_owned(),
            spans => spans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let (lost, readable) = (spans(&self.lost), spans(&self.readable));
        let text = format!("not everything could be repaired: lost versions: {lost}; readable versions: {readable}");
        Err(match self.irreparable.first() {
            Some(first) => Error::corrupt(&first.file, 0, "a file that its checksums fit", first.damage.clone()),
            None => Error::new(ErrorKind::Missing { file: lost.into() }, "versions whose files are gone"),
        }
        .context(text))
    }
}

/// Reads everything, and makes anew what is damaged and can be made.
pub(super) fn repair(
    directory: &StoreDirectory,
    observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Repaired> {
    let found = verify(directory, &mut |bytes| observe(bytes))?;
    let mut repaired = Repaired { runs: found.runs, bytes: found.bytes, ..Repaired::default() };
    let mut damaged: BTreeSet<RunName> = found.damaged_runs.iter().map(|run| run.name).collect();
    let mut catalog = directory.catalog()?;
    // Snapshots first, the oldest first: what one is made of may be another one.
    let mut left: Vec<DamagedRun> = found.damaged_runs.clone();
    left.sort_by_key(|run| (!run.name.is_snapshot(), run.name));
    loop {
        let before = left.len();
        let mut still = Vec::new();
        for run in left {
            let at = |bytes: u64| observe(found.bytes.saturating_add(bytes));
            if remake(directory, &catalog, &run, &mut damaged, &at)? {
                repaired.remade.push((directory.display_path(run.name), run.damage));
                catalog = directory.catalog()?;
            } else {
                still.push(run);
            }
        }
        left = still;
        if left.is_empty() || left.len() == before {
            break;
        }
    }
    let not_runs = found
        .damaged
        .iter()
        .filter(|(file, _)| !found.damaged_runs.iter().any(|run| directory.display_path(run.name) == *file));
    let irreparable = left.into_iter().map(|run| (directory.display_path(run.name), run.damage));
    let irreparable = irreparable.chain(not_runs.cloned());
    repaired.irreparable = irreparable.map(|(file, damage)| Irreparable { file, damage }).collect();
    // What is damaged where nobody looks still makes its version.
    for run in found.damaged_runs.iter().filter(|run| run.can_be_read) {
        damaged.remove(&run.name);
    }
    let mut attempt = 0;
    loop {
        attempt += 1;
        (repaired.readable, repaired.lost) = readable_and_lost(&catalog, &damaged);
        if repaired.lost.is_empty() || attempt == MOST_ATTEMPTS {
            break;
        }
        catalog = directory.catalog()?; // a clean-up by somebody else may have overtaken that listing
    }
    Ok(repaired)
}

/// Makes one run anew; `false` where nothing is left to make it from.
fn remake(
    directory: &StoreDirectory,
    catalog: &Catalog,
    run: &DamagedRun,
    damaged: &mut BTreeSet<RunName>,
    observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<bool> {
    let name = &run.name;
    if !catalog.lineage().owns(name.to()) || name.is_single() {
        return Ok(false); // void anyway, or the only one of its kind
    }
    let made = if name.is_snapshot() {
        snapshot_without(directory, catalog, name, damaged, observe)?
    } else {
        collapsed_without(directory, catalog, name, damaged, observe)?
    };
    let Some(mut made) = made else { return Ok(false) };
    made.sync()?; // durable, though not to be seen: from here on the damaged one is not needed
    directory.replace_damaged(name, run.id, made)?;
    damaged.remove(name);
    Ok(true)
}

fn snapshot_without(
    directory: &StoreDirectory,
    catalog: &Catalog,
    name: &RunName,
    damaged: &BTreeSet<RunName>,
    observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<Prepared>> {
    match directory.open_chain_without(catalog, name.to(), damaged) {
        Ok(chain) => prepare_snapshot(directory, &chain, observe),
        Err(error) if is_about_the_file(&error) || is_about_the_listing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn collapsed_without(
    directory: &StoreDirectory,
    catalog: &Catalog,
    name: &RunName,
    damaged: &BTreeSet<RunName>,
    observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<Prepared>> {
    let Some(names) = catalog.deltas(name.from(), name.to().version, damaged) else { return Ok(None) };
    match directory.open_deltas(catalog, &names) {
        Ok(mut runs) => {
            runs.reverse();
            prepare_collapsed(directory, &runs, observe)
        }
        Err((_, error)) if is_about_the_file(&error) => Ok(None),
        Err((_, error)) => Err(error),
    }
}
