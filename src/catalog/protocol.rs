//! The decisions of opening and committing, as pure functions. The store acts on them; the exhaustive check drives them.
//!
//! *Open*: list → [`Claim::plan`] → create `forks/<epoch>` → list again → [`Claim::confirm`]; start over where that says so
//! or where the epoch was taken. *Commit*: publish the run → list the forks → [`fenced_by`] → acknowledge.
//! *Retire*: publish the horizon → list again → delete (see [`super::reachable`]).

use std::collections::BTreeSet;

use super::catalogue::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Epoch, Version, VersionId};

/// Which version a writer wants to build on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    /// The newest one.
    Newest,
    /// This one of the head's lineage. What lies above it is superseded by the first commit.
    At(Version),
}

/// What a writer is about to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    /// The epoch, one above the highest that was seen.
    pub(crate) epoch: Epoch,
    /// The version to build on.
    pub(crate) base: VersionId,
    /// The head at the time: the claim only holds if it still is the head after the claim.
    pub(crate) seen_head: VersionId,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The writer may build on the base.
    Confirmed,
    /// Somebody was faster; the epoch is lost and must never be written with. List and plan again.
    StartOver,
}

impl Claim {
    /// Chooses the epoch and the base from a listing.
    ///
    /// # Errors
    /// `VersionNotFound` where the wanted version is not readable on the lineage; `Missing` or `Corrupt` where the files
    /// of the base do not make it; `LimitExceeded` where no epoch is left.
    pub(crate) fn plan(catalog: &Catalog, wanted: Wanted) -> Result<Self> {
        let seen_head = catalog.head();
        let base = match wanted {
            Wanted::Newest => catalog.chain(seen_head, &BTreeSet::new()).map(|chain| chain.at)?,
            Wanted::At(version) => catalog.readable(version)?,
        };
        let highest = catalog.highest_epoch();
        let epoch = highest.next();
        if epoch == highest {
            let kind = ErrorKind::LimitExceeded { limit: u64::MAX, found: u64::MAX };
            return Err(Error::new(kind, "no epoch is left to claim"));
        }
        Ok(Self { epoch, base, seen_head })
    }

    /// Checks the claim against a listing that was begun after the claim had become durable.
    pub(crate) fn confirm(&self, after: &Catalog) -> Confirmation {
        // An acknowledged commit that this claim did not see would show as another head. A retirement that did not see
        // this claim had announced itself before, so that the base would no longer be readable here.
        let same_head = after.head() == self.seen_head;
        let readable = self.base == self.seen_head || after.readable(self.base.version).is_ok_and(|id| id == self.base);
        if same_head && readable { Confirmation::Confirmed } else { Confirmation::StartOver }
    }
}

/// The epoch that has taken over from `mine`, given a listing of the forks that was begun after the run was published.
/// Only if there is none may the commit be acknowledged.
pub(crate) fn fenced_by(forks: impl IntoIterator<Item = Epoch>, mine: Epoch) -> Option<Epoch> {
    forks.into_iter().filter(|epoch| *epoch > mine).max()
}
