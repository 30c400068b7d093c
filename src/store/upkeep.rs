//! Looking after a store's files: checking every byte, and letting go of old versions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::core::Core;
use super::directory::{MOST_ATTEMPTS, StoreDirectory, is_about_the_listing};
use super::opening::is_about_the_file;
use super::rewrite::Observer;
use crate::catalog::{Catalog, Deletion, FileName, Fork, RunName, Sparing};
use crate::error::{Error, ErrorKind, Result};
use crate::run::Run;
use crate::version::{RunId, RunKind, Version, VersionId};

/// What a verification has read, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Runs that were read from end to end.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The files that are damaged, each with what is wrong.
    pub damaged: Vec<(PathBuf, String)>,
    /// The retained versions that can no longer be read, by what is damaged or missing; ascending.
    pub lost: Vec<VersionSpan>,
    /// The runs among the damaged files.
    pub(crate) damaged_runs: Vec<DamagedRun>,
}

/// A run that is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DamagedRun {
    pub(crate) name: RunName,
    /// Which one it is, if it says so: another one of its name was made anew meanwhile.
    pub(crate) id: Option<RunId>,
    pub(crate) damage: String,
    /// Whether all that it holds can be read all the same: the damage lies in padding, say.
    pub(crate) can_be_read: bool,
}

/// Versions from one to another, both among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionSpan {
    /// The oldest.
    pub first: Version,
    /// The newest.
    pub last: Version,
}

impl std::fmt::Display for VersionSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{} to {}", self.first, self.last) }
    }
}

/// The retained versions, from the horizon or from the first that any file leads to, up to the head: those that can be made without the
/// `damaged` runs, and those that are lost. In spans, since a number in a name may be anything.
pub(crate) fn readable_and_lost(
    catalog: &Catalog,
    damaged: &BTreeSet<RunName>,
) -> (Vec<VersionSpan>, Vec<VersionSpan>) {
    // Where a damaged fork hides what lies below it, whatever is there may have been of the lineage.
    let known = catalog.listing().runs.iter().filter(|run| catalog.is_cut_short() || catalog.lineage().owns(run.to()));
    let first = known.map(|run| run.to().version).filter(|version| *version >= catalog.horizon()).min();
    let head = catalog.head().version;
    let mut next = first.unwrap_or(head).max(Version(1));
    let (mut readable, mut lost) = (Vec::<VersionSpan>::new(), Vec::new()); // a few: damage is rare
    let makeable = catalog.versions_without(damaged).into_iter().map(|id| id.version);
    for version in makeable.filter(|version| *version >= next).collect::<BTreeSet<_>>() {
        if next < version {
            lost.push(VersionSpan { first: next, last: Version(version.0 - 1) });
        }
        match readable.last_mut().filter(|span| span.last.next() == version) {
            Some(span) => span.last = version,
            None => readable.push(VersionSpan { first: version, last: version }),
        }
        next = version.next();
    }
    if next <= head {
        lost.push(VersionSpan { first: next, last: head });
    }
    (readable, lost)
}

/// What a retirement has deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retired {
    /// The oldest version that can still be read.
    pub oldest: Version,
    /// The files that are gone, each with the reason.
    pub deleted: Vec<(PathBuf, String)>,
}

/// Reads every page, index, filter and footer of every run, and checks them, and how the runs and forks build on each other.
/// `observe` hears of the bytes read so far, and may end it.
///
/// # Errors
/// `Cancelled`, or what the disk reports. Damage is no error here but the answer.
pub(crate) fn verify(directory: &StoreDirectory, observe: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Verified> {
    let mut verified = Verified::default();
    let catalog = directory.catalog()?;
    let mut tips = BTreeMap::new(); // a few dozen bytes a run
    for name in &catalog.listing().runs {
        let before = verified.bytes;
        let read = directory.verify_run(&catalog, name, &mut |bytes| observe(before.saturating_add(bytes)));
        match read.and_then(|run| check_tip(&catalog, &run, &mut tips)) {
            Ok(()) => {}
            Err(error) if error.is_not_found() => continue, // cleaned up since the listing
            Err(error) if is_about_the_file(&error) => {
                verified.damaged.push((directory.display_path(name), error.to_string()));
                let (id, can_be_read) = (directory.run_id(name), directory.can_be_read(&catalog, name)?);
                verified.damaged_runs.push(DamagedRun { name: *name, id, damage: error.to_string(), can_be_read });
            }
            Err(error) => return Err(error),
        }
        verified.bytes += directory.length(name)?;
        verified.runs += 1;
    }
    for (epoch, fork) in &catalog.listing().forks {
        if let Fork::Damaged(damage) = fork {
            verified.damaged.push((directory.display_path(FileName::Fork(*epoch)), damage.clone()));
        }
    }
    verified.lost = lost(directory, &catalog, &verified.damaged_runs)?;
    Ok(verified)
}

/// The versions that are lost; looks again where a clean-up by somebody else may have overtaken the listing.
pub(super) fn lost(directory: &StoreDirectory, catalog: &Catalog, damaged: &[DamagedRun]) -> Result<Vec<VersionSpan>> {
    let damaged: BTreeSet<RunName> = damaged.iter().filter(|run| !run.can_be_read).map(|run| run.name).collect();
    let mut lost = readable_and_lost(catalog, &damaged).1;
    for _ in 1..MOST_ATTEMPTS {
        if lost.is_empty() {
            break;
        }
        lost = readable_and_lost(&directory.catalog()?, &damaged).1;
    }
    Ok(lost)
}

/// Every run that ends at a version, or starts from it, names the one delta that made it. Runs are met in the order of the
/// versions that they make, so whatever one starts from has been met.
pub(super) fn check_tip(catalog: &Catalog, run: &Run, tips: &mut BTreeMap<VersionId, RunId>) -> Result<()> {
    let header = run.header();
    let mismatch = |what: &str, expected: &RunId, found: &RunId| {
        Error::corrupt(run.path().to_path_buf(), 0, format!("{what} {expected}"), format!("{what} {found}"))
    };
    let is_delta = header.kind == RunKind::Delta && catalog.lineage().owns(header.to_id());
    let below = catalog.at(header.from).filter(|_| is_delta);
    if let Some(expected) = below.and_then(|below| tips.get(&below)).filter(|tip| **tip != header.parent) {
        return Err(mismatch("parent", expected, &header.parent));
    }
    match tips.insert(header.to_id(), header.tip) {
        Some(known) if known != header.tip => {
            tips.insert(header.to_id(), known);
            Err(mismatch("tip", &known, &header.tip))
        }
        _ => Ok(()),
    }
}

/// What a retirement keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retained {
    /// The newest versions that stay readable.
    pub(crate) versions: usize,
    /// The newest versions whose single deltas stay.
    pub(crate) changes: u64,
}

/// Keeps the newest versions readable and deletes what nothing needs any more.
///
/// Announces first what it gives up, then lists again and deletes by that second listing: so a writer that rolls back at the
/// same time either sees the announcement or is seen. Views that are open read on: their files are mapped.
///
/// What others go for the sake of is read from end to end before, once; `observe` hears how far that has come, and may end it.
///
/// # Errors
/// `Cancelled`, or what the disk reports. Stopping anywhere leaves every retained version readable; calling again goes on.
pub(crate) fn retire(directory: &StoreDirectory, retained: Retained, observe: Observer<'_>) -> Result<Retired> {
    if retained.versions == 0 {
        return Err(Error::invalid("at least the newest version stays"));
    }
    let mut attempt = 0;
    loop {
        attempt += 1;
        match retire_once(directory, retained, observe) {
            Err(error) if attempt < MOST_ATTEMPTS && is_about_the_listing(&error) => {}
            outcome => return outcome,
        }
    }
}

fn retire_once(directory: &StoreDirectory, retained: Retained, observe: Observer<'_>) -> Result<Retired> {
    let seen = directory.catalog()?;
    let horizon = seen.next_horizon(retained.versions);
    let before = match horizon {
        None => seen,
        Some(horizon) => {
            check_what_stays(directory, &seen, horizon, retained, observe)?;
            let before = directory.catalog()?; // that took a while, and what goes meanwhile makes the clean-up cautious
            directory.announce(horizon, before.highest_epoch())?;
            before
        }
    };
    let catalog = directory.catalog()?;
    if catalog.head().epoch < before.head().epoch {
        // Heads only move on to higher epochs: the listing was overtaken by another retirement.
        let file = directory.display_path(catalog.head());
        return Err(Error::new(ErrorKind::Missing { file }, "the files of the newest version were replaced meanwhile"));
    }
    // What has gone in between was overtaken by something that this listing may have missed.
    let gone = before.listing().runs.iter().filter(|run| !catalog.listing().runs.contains(run));
    let plan = checked_plan(directory, &catalog, retained, gone.copied().collect(), observe)?;
    if !plan.is_empty() {
        // What the others go for may be visible but not yet durable, left by a maintainer that was killed.
        directory.sync()?;
    }
    let mut retired = Retired { oldest: oldest(&catalog), deleted: Vec::new() };
    for deletion in plan {
        if directory.is_being_written(&deletion.file)? {
            continue;
        }
        match directory.delete(&deletion.file) {
            Err(error) if error.is_not_found() => {}
            outcome => outcome?,
        }
        retired.deleted.push((directory.display_path(deletion.file), deletion.reason.to_string()));
    }
    for deletion in catalog.unfinished() {
        if directory.delete_abandoned(&deletion.file)? {
            retired.deleted.push((directory.display_path(deletion.file), deletion.reason.to_string()));
        }
    }
    Ok(retired)
}

/// What is announced is given up for good. Before that, what leads from the versions that are given up to the one at the horizon and to
/// the newest is read from end to end: or damage in there would cost the versions below it as well, which are all that can be read.
fn check_what_stays(
    directory: &StoreDirectory,
    seen: &Catalog,
    horizon: Version,
    retained: Retained,
    observe: Observer<'_>,
) -> Result<()> {
    let after = seen.giving_up(Some(horizon));
    checked_plan(directory, &after, retained, BTreeSet::new(), observe)?;
    let given_up = oldest(seen);
    let mut damaged = BTreeSet::new();
    [after.at(horizon), Some(after.head())]
        .into_iter()
        .flatten()
        .try_for_each(|kept| prove_chain(directory, &after, kept, given_up, &mut damaged, observe))
}

/// Makes sure that `at` can be made from runs that are whole, as far as they reach above the version `from`.
fn prove_chain(
    directory: &StoreDirectory,
    catalog: &Catalog,
    at: VersionId,
    from: Version,
    damaged: &mut BTreeSet<RunName>,
    observe: Observer<'_>,
) -> Result<()> {
    let mut damage = None;
    loop {
        let chain = match directory.open_chain_without(catalog, at, damaged) {
            Ok(chain) => chain,
            // The damage is the reason, not the gap that going round it has left.
            Err(gap) => return Err(damage.unwrap_or(gap)),
        };
        let before = damaged.len();
        for name in chain.names().filter(|name| name.to().version > from) {
            match directory.prove_run(catalog, &name, &mut |bytes| observe(bytes)) {
                Err(error) if is_about_the_file(&error) => {
                    damaged.insert(name);
                    damage = Some(
                        error.context("no version is given up, since what would be left of the others cannot be read"),
                    );
                    break;
                }
                outcome => outcome?,
            }
        }
        if damaged.len() == before {
            return Ok(());
        }
    }
}

impl Core {
    /// As [`retire`]; the index forgets the versions too.
    pub(crate) fn retire(&self, retained: Retained, observe: Observer<'_>) -> Result<Retired> {
        let retired = retire(&self.directory, retained, observe)?;
        // The index forgets only to save space: a failure is nobody's problem.
        let Ok(catalog) = self.directory.catalog() else { return Ok(retired) };
        // What a commit has made since this listing lies above its head.
        let is_abandoned = |at: VersionId| at.version <= catalog.head().version && !catalog.lineage().owns(at);
        self.backend.engine().forget_versions(self.store, retired.oldest, &is_abandoned)?;
        Ok(retired)
    }
}

/// What [`retire`] would delete, and why. Reads what the others would go for as well, but announces and deletes nothing.
///
/// # Errors
/// As [`retire`].
pub(crate) fn retirable(directory: &StoreDirectory, retained: Retained, observe: Observer<'_>) -> Result<Retired> {
    let (catalog, plan) = directory.at_a_listing(|before| {
        let horizon = before.next_horizon(retained.versions);
        if let Some(horizon) = horizon {
            check_what_stays(directory, before, horizon, retained, observe)?;
        }
        let catalog = before.giving_up(horizon);
        let plan = checked_plan(directory, &catalog, retained, BTreeSet::new(), observe)?;
        Ok((catalog, plan))
    })?;
    let mut doomed = Vec::with_capacity(plan.len());
    for deletion in plan {
        if !directory.is_being_written(&deletion.file)? {
            doomed.push(deletion);
        }
    }
    for deletion in catalog.unfinished() {
        if directory.is_abandoned(&deletion.file)? {
            doomed.push(deletion);
        }
    }
    let deleted = doomed.iter().map(|one| (directory.display_path(one.file), one.reason.to_string())).collect();
    Ok(Retired { oldest: oldest(&catalog), deleted })
}

/// The deletions, none of them for the sake of a run that is damaged anywhere.
fn checked_plan(
    directory: &StoreDirectory,
    catalog: &Catalog,
    retained: Retained,
    doubtful: BTreeSet<RunName>,
    observe: Observer<'_>,
) -> Result<Vec<Deletion>> {
    let mut sparing = Sparing { pins: Vec::new(), changes: retained.changes, doubtful };
    loop {
        let plan = catalog.retire(&sparing)?;
        #[cfg(feature = "conformance")]
        if !super::planted::looks_before_retiring(directory.planted()) {
            return Ok(plan.delete);
        }
        let mut unsound = BTreeSet::new();
        for run in &plan.relied_on {
            match directory.prove_run(catalog, run, &mut |bytes| observe(bytes)) {
                Ok(()) => {}
                Err(error) if is_about_the_file(&error) => _ = unsound.insert(*run),
                Err(error) => return Err(error),
            }
        }
        if unsound.is_empty() {
            return Ok(plan.delete);
        }
        // Each turn adds one at least, so there are no more turns than files.
        sparing.doubtful.extend(unsound);
    }
}

fn oldest(catalog: &Catalog) -> Version {
    catalog.versions().next().map_or(Version::EMPTY, |id| id.version)
}
