//! Reading versions straight from the checkpoint, beside whatever the writer does.

use std::collections::HashMap;
use std::sync::Arc;

use super::contract::VersionInfo;
use super::directory::{OpenChain, StoreDirectory};
use super::layers::RunStack;
use super::scan::OpenScans;
use super::view::View;
use crate::backend::VersionRecord;
use crate::bytes::Bytes;
use crate::catalog::{Catalog, RunName};
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Version, VersionId};

/// Opens a view of `version` over mapped runs.
pub(super) fn read_at(directory: &StoreDirectory, version: Version, scans: &Arc<OpenScans>) -> Result<View> {
    let chain = chain_of(directory, version)?;
    let stack = Arc::new(RunStack(chain.newest_first()));
    Ok(View::new(version, chain.families, stack, Arc::clone(scans)))
}

/// The runs of `version`.
pub(super) fn chain_of(directory: &StoreDirectory, version: Version) -> Result<OpenChain> {
    directory.at_a_listing(|catalog| directory.open_chain(catalog, catalog.readable(version)?))
}

/// The metadata that `version` was committed with.
pub(super) fn metadata(directory: &StoreDirectory, version: Version) -> Result<Bytes> {
    directory.at_a_listing(|catalog| match catalog.readable(version)? {
        VersionId::ROOT => Ok(Bytes::default()),
        at => Ok(open_any(directory, catalog, at)?.metadata().clone()),
    })
}

/// Every readable version. What the index remembers of a version is used; of the others a footer is read.
pub(super) fn versions(directory: &StoreDirectory, records: &[VersionRecord]) -> Result<Vec<VersionInfo>> {
    let known: HashMap<VersionId, &VersionRecord> = records.iter().map(|record| (record.at.at, record)).collect();
    directory.at_a_listing(|catalog| infos(directory, catalog, &known))
}

fn infos(
    directory: &StoreDirectory,
    catalog: &Catalog,
    known: &HashMap<VersionId, &VersionRecord>,
) -> Result<Vec<VersionInfo>> {
    let mut infos = Vec::new(); // one a retained version
    for at in catalog.versions() {
        let info = |changes, file_bytes, metadata: &[u8]| VersionInfo {
            version: at.version,
            epoch: at.epoch,
            changes,
            file_bytes,
            metadata_bytes: metadata.len() as u64,
        };
        infos.push(if let Some(record) = known.get(&at) {
            info(record.entries, record.bytes, &record.metadata)
        } else {
            let run = open_any(directory, catalog, at)?;
            info(run.properties().entries, run.file_bytes(), run.metadata())
        });
    }
    Ok(infos)
}

/// Opens the smallest run that ends at `at`: its own delta if that is still there.
fn open_any(directory: &StoreDirectory, catalog: &Catalog, at: VersionId) -> Result<Arc<crate::run::Run>> {
    let mut last_error = None;
    for name in catalog.leading_to(at) {
        match directory.open_run_of(catalog, &name) {
            Ok(run) => return Ok(run),
            Err(error) => last_error = Some(error),
        }
    }
    let file = directory.display_path(RunName::single(at)?);
    Err(last_error.unwrap_or_else(|| Error::new(ErrorKind::Missing { file }, "the version has no file")))
}
