//! [`VersionSurvey`]: which versions there are, what is known of them, and which cannot be read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::contract::VersionInfo;
use super::directory::StoreDirectory;
use super::opening::is_about_the_file;
use super::upkeep::{VersionSpan, check_tip, readable_and_lost};
use crate::backend::VersionRecord;
use crate::bytes::Bytes;
use crate::catalog::{Catalog, RunName};
use crate::error::{Error, ErrorKind, Result};
use crate::run::Run;
use crate::version::{Epoch, Version, VersionId};

/// The retained versions of a store, as its files have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionSurvey {
    /// The versions, oldest first.
    pub versions: Vec<SurveyedVersion>,
    /// The runs that are damaged, each with what is wrong: some versions may be lost by it, or none.
    pub damaged: Vec<(PathBuf, String)>,
}

/// What the files tell of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyedVersion {
    /// The version; several only where they are lost and no file leads to any of them.
    pub versions: VersionSpan,
    /// The epoch of the writer that made it; `None` where no file tells.
    pub epoch: Option<Epoch>,
    /// The keys that the commit put or removed; `None` where its own delta is gone or damaged.
    pub changes: Option<u64>,
    /// The size of the commit's file, in bytes; `None` where it is gone or damaged.
    pub file_bytes: Option<u64>,
    /// The length of the commit's metadata, in bytes; `None` where no file tells.
    pub metadata_bytes: Option<u64>,
    /// The metadata, where it was asked for and a file has it.
    pub metadata: Option<Bytes>,
    /// Why the version cannot be read; `None` where it can.
    pub unreadable: Option<String>,
}

impl SurveyedVersion {
    fn unknown(versions: VersionSpan, epoch: Option<Epoch>) -> Self {
        Self {
            versions,
            epoch,
            changes: None,
            file_bytes: None,
            metadata_bytes: None,
            metadata: None,
            unreadable: None,
        }
    }
}

/// Looks at every run of the head's lineage, once. `keep` says what is kept of metadata.
pub(super) fn survey(directory: &StoreDirectory, keep: &dyn Fn(&[u8]) -> Option<Bytes>) -> Result<VersionSurvey> {
    directory.at_a_listing(|catalog| Survey::of(directory, catalog, keep)?.told(directory, catalog))
}

/// What was found in the runs.
#[derive(Default)]
struct Survey {
    versions: BTreeMap<Version, SurveyedVersion>,
    damaged: BTreeMap<RunName, String>,
    /// The same by the version that a run makes.
    damage_at: BTreeMap<Version, String>,
    /// Runs that were cleaned up since they were listed.
    gone: Vec<(RunName, Error)>,
}

impl Survey {
    fn of(directory: &StoreDirectory, catalog: &Catalog, keep: &dyn Fn(&[u8]) -> Option<Bytes>) -> Result<Self> {
        let (mut found, mut tips) = (Self::default(), BTreeMap::new()); // a few dozen bytes a run
        for name in catalog.listing().runs.iter().filter(|run| catalog.lineage().owns(run.to())) {
            let to = name.to();
            let version = found.versions.entry(to.version).or_insert_with(|| {
                SurveyedVersion::unknown(VersionSpan { first: to.version, last: to.version }, Some(to.epoch))
            });
            let opened = directory.open_run_of(catalog, name);
            match opened.and_then(|run| check_tip(catalog, &run, &mut tips).map(|()| run)) {
                Ok(run) => {
                    version.metadata_bytes = Some(run.metadata().len() as u64);
                    version.metadata = keep(run.metadata());
                    if name.is_single() {
                        version.changes = Some(run.properties().entries);
                        version.file_bytes = Some(run.file_bytes());
                    }
                }
                Err(error) if error.is_not_found() => found.gone.push((*name, error)),
                Err(error) if is_about_the_file(&error) => {
                    found.damaged.insert(*name, error.to_string());
                    found.damage_at.insert(to.version, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn told(mut self, directory: &StoreDirectory, catalog: &Catalog) -> Result<VersionSurvey> {
        let unusable: BTreeSet<RunName> =
            self.damaged.keys().chain(self.gone.iter().map(|(name, _)| name)).copied().collect();
        let (readable, lost) = readable_and_lost(catalog, &unusable);
        if let Some((_, error)) = self.gone.pop().filter(|_| !lost.is_empty()) {
            return Err(error); // a fresh listing knows better
        }
        let mut spans: Vec<(VersionSpan, bool)> = // a few: damage is rare
            readable.into_iter().map(|span| (span, true)).chain(lost.into_iter().map(|span| (span, false))).collect();
        spans.sort_by_key(|(span, _)| span.first);
        let mut versions = Vec::with_capacity(self.versions.len());
        for (span, is_readable) in spans {
            if is_readable {
                versions.extend(self.take(span));
            } else {
                let reason = reason(directory, catalog, span.first);
                versions.extend(self.take_lost(span, &reason));
            }
        }
        let damaged = self.damaged.into_iter().map(|(name, why)| (directory.display_path(name), why)).collect();
        Ok(VersionSurvey { versions, damaged })
    }

    /// The versions of a span that a file leads to.
    fn take(&mut self, span: VersionSpan) -> Vec<SurveyedVersion> {
        self.versions.extract_if(span.first..=span.last, |_, _| true).map(|(_, version)| version).collect() // each once
    }

    /// All versions of a span that is lost; those that no file leads to together, since there may be any number of them.
    fn take_lost(&mut self, span: VersionSpan, reason: &str) -> Vec<SurveyedVersion> {
        let mut lost = Vec::new();
        let mut next = span.first;
        for known in self.take(span) {
            let at = known.versions.first;
            lost.extend(gap(next, at.previous()));
            next = at.next();
            lost.push(known);
        }
        lost.extend(gap(next, span.last));
        for version in &mut lost {
            let own = self.damage_at.get(&version.versions.first).map(String::as_str);
            version.unreadable = Some(own.unwrap_or(reason).to_owned());
        }
        lost
    }
}

fn gap(first: Version, last: Version) -> Option<SurveyedVersion> {
    (first <= last).then(|| SurveyedVersion::unknown(VersionSpan { first, last }, None))
}

/// Why the first of some lost versions cannot be read.
fn reason(directory: &StoreDirectory, catalog: &Catalog, version: Version) -> String {
    let error = match catalog.at(version) {
        Some(at) => directory.open_chain(catalog, at).map(drop),
        None => catalog.readable(version).map(drop),
    };
    error.err().map_or_else(|| "a file that it needs is damaged or missing".into(), |error| error.to_string())
}

/// Every readable version. What the index remembers of a version is used, where there is one to show it; of the others a footer is read.
pub(super) fn versions(
    directory: &StoreDirectory,
    show: impl FnOnce(&mut dyn FnMut(VersionRecord) -> Result<()>) -> Result<()>,
) -> Result<Vec<VersionInfo>> {
    let mut known = HashMap::new(); // one a retained version, without its metadata
    show(&mut |record| {
        let own = (record.entries, record.bytes);
        known.insert(record.at.at, info(record.at.at, Some(own), &record.metadata));
        Ok(())
    })?;
    directory.at_a_listing(|catalog| {
        let info_of = |at: VersionId| match known.get(&at) {
            Some(info) => Ok(info.clone()),
            None => open_any(directory, catalog, at).map(|(name, run)| {
                let own = name.is_single().then(|| (run.properties().entries, run.file_bytes()));
                info(at, own, run.metadata())
            }),
        };
        catalog.versions().map(info_of).collect() // one a retained version
    })
}

/// `own` is what the commit's own delta has: entries and bytes.
fn info(at: VersionId, own: Option<(u64, u64)>, metadata: &[u8]) -> VersionInfo {
    let metadata_bytes = metadata.len() as u64;
    let (changes, file_bytes) = own.unzip();
    VersionInfo { version: at.version, epoch: at.epoch, changes, file_bytes, metadata_bytes }
}

/// Opens the smallest run that ends at `at`: its own delta if that is still there.
pub(super) fn open_any(directory: &StoreDirectory, catalog: &Catalog, at: VersionId) -> Result<(RunName, Arc<Run>)> {
    let mut last_error = None;
    for name in catalog.leading_to(at) {
        match directory.open_run_of(catalog, &name) {
            Ok(run) => return Ok((name, run)),
            Err(error) => last_error = Some(error),
        }
    }
    let file = directory.display_path(RunName::single(at)?);
    Err(last_error.unwrap_or_else(|| Error::new(ErrorKind::Missing { file }, "the version has no file")))
}
