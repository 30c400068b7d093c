//! A store's directory without a disk, for the tests of the catalogue.

use std::collections::{BTreeMap, BTreeSet};

use super::name::FileName;
use super::reachable::Doomed;
use super::{Fork, ForkRecord, Listing, RunName};
use crate::entry::StateStoreId;
use crate::version::{Epoch, Mark, RunId, StoreUid, Version, VersionId};

/// The durable files.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Directory {
    pub(super) runs: BTreeSet<RunName>,
    pub(super) horizons: BTreeSet<Version>,
    /// What each epoch builds on.
    pub(super) forks: BTreeMap<Epoch, VersionId>,
}

impl Directory {
    /// The listing, through the texts of names and the bytes of forks.
    pub(super) fn listing(&self) -> Listing {
        let runs = self.runs.iter().map(RunName::to_string);
        let names: Vec<String> =
            runs.chain(self.horizons.iter().map(|version| FileName::Horizon(*version).file_name())).collect();
        let mut listing = Listing::of(names.iter().map(String::as_str));
        for (epoch, base) in &self.forks {
            let record = fork_record(*epoch, *base);
            let read = |epoch| Ok::<_, ()>(Some(Fork::read(epoch, &record.store, &record.encode())));
            listing.add_fork(&FileName::Fork(*epoch).file_name(), read).unwrap();
        }
        assert!(listing.foreign.is_empty() && listing.forks.values().all(|fork| fork.base().is_some()));
        listing
    }

    pub(super) fn remove(&mut self, file: Doomed) {
        match file {
            Doomed::Published(FileName::Run(run)) => _ = self.runs.remove(&run),
            Doomed::Published(FileName::Fork(epoch)) => _ = self.forks.remove(&epoch),
            Doomed::Published(FileName::Horizon(version)) => _ = self.horizons.remove(&version),
            Doomed::Temporary(_) => {}
        }
    }
}

/// The record of a claim.
pub(super) fn fork_record(epoch: Epoch, at: VersionId) -> ForkRecord {
    let tip = if at == VersionId::ROOT { RunId::NONE } else { RunId([1; 16]) };
    let store = StateStoreId::new("operator", 0, "store").unwrap();
    let (base, holder) = (Mark { at, tip }, "a process".to_owned());
    ForkRecord { uid: StoreUid([7; 16]), store, epoch, base, holder, claimed_at_ms: 0 }
}
