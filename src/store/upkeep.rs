//! Looking after a store's files: checking every byte, and letting go of old versions.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::directory::StoreDirectory;
use crate::catalog::{Catalog, Sparing};
use crate::error::{Error, ErrorKind, Result};
use crate::version::Version;

/// What a verification has read, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Runs that were read from end to end.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The runs that are damaged, each with what is wrong.
    pub damaged: Vec<(PathBuf, String)>,
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

/// Reads every page, index, filter and footer of every run, and checks them. `observe` hears of the bytes read so far, and
/// may end it.
///
/// # Errors
/// `Cancelled`, or what the disk reports. Damage is no error here but the answer.
pub(super) fn verify(directory: &StoreDirectory, observe: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Verified> {
    let mut verified = Verified::default();
    for name in directory.catalog()?.listing().runs.keys() {
        let before = verified.bytes;
        let outcome = directory.open_run(name).and_then(|run| {
            verified.bytes += run.file_bytes();
            run.verify(&mut |bytes| observe(before.saturating_add(bytes)))
        });
        match outcome {
            Ok(()) => {}
            Err(error) if error.is_corrupt() || matches!(error.kind(), ErrorKind::Unsupported) => {
                verified.damaged.push((directory.display_path(name), error.to_string()));
            }
            Err(error) if error.is_not_found() => continue, // cleaned up since the listing
            Err(error) => return Err(error),
        }
        verified.runs += 1;
    }
    Ok(verified)
}

/// Keeps the newest `retain` versions readable and deletes what nothing needs any more.
///
/// Announces first what it gives up, then lists again and deletes by that second listing: so a writer that rolls back at the
/// same time either sees the announcement or is seen. Views that are open read on: their files are mapped.
///
/// # Errors
/// What the disk reports. Stopping anywhere leaves every retained version readable; calling again goes on.
pub(super) fn retire(directory: &StoreDirectory, retain: usize) -> Result<Retired> {
    if retain == 0 {
        return Err(Error::invalid("at least the newest version stays"));
    }
    let before = directory.catalog()?;
    if let Some(horizon) = before.next_horizon(retain) {
        directory.announce(horizon, before.highest_epoch())?;
    }
    let catalog = directory.catalog()?;
    let mut retired = Retired { oldest: oldest(&catalog), deleted: Vec::new() };
    let doomed = catalog.retire(&Sparing::default())?.delete;
    for deletion in doomed.into_iter().filter(|deletion| !directory.is_being_written(&deletion.file)) {
        match directory.delete(&deletion.file) {
            Err(error) if error.is_not_found() => {}
            outcome => outcome?,
        }
        retired.deleted.push((directory.display_path(deletion.file), deletion.reason.to_string()));
    }
    Ok(retired)
}

fn oldest(catalog: &Catalog) -> Version {
    catalog.versions().next().map_or(Version::EMPTY, |id| id.version)
}
