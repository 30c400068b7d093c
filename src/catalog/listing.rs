//! What a look into a store's directory shows, sorted by kind and not yet judged.

use std::collections::{BTreeMap, BTreeSet};

use super::fork::Fork;
use super::name::{FileName, RunName, TemporaryName};
use crate::version::{Epoch, Version};

/// The files of a store. A few dozen bytes a file; files per store stay near the number of retained versions.
///
/// List the store's directory **first** and the forks **after** it. Then every run in the listing has its fork in it, and
/// every claim that was confirmed before one of these runs appeared is in it: retirement depends on that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The runs.
    pub(crate) runs: BTreeSet<RunName>,
    /// The claims.
    pub(crate) forks: BTreeMap<Epoch, Fork>,
    /// The announcements of retirements: versions below the highest of them are given up.
    pub(crate) horizons: BTreeSet<Version>,
    /// Files that were never published.
    pub(crate) temporaries: BTreeSet<TemporaryName>,
    /// Names that are not ours; they are reported and never touched.
    pub(crate) foreign: BTreeSet<String>,
}

impl Listing {
    /// With the files of these names that lie directly in the store's directory.
    pub(crate) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut listing = Self::default();
        // The runs all at once: they are sorted then, and not searched for a place one by one.
        let runs = names.into_iter().filter_map(|name| match FileName::parse(name) {
            Some(FileName::Run(run)) => Some(run),
            Some(FileName::Horizon(version)) => {
                listing.horizons.insert(version);
                None
            }
            Some(FileName::Fork(_)) | None => {
                listing.add_temporary(name, TemporaryName::parse(name));
                None
            }
        });
        let runs = runs.collect();
        Self { runs, ..listing }
    }

    /// Adds a file that lies in the directory of forks. `read` is asked for the fork of a file that is one.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn add_fork<E>(
        &mut self,
        name: &str,
        read: impl FnOnce(Epoch) -> Result<Option<Fork>, E>,
    ) -> Result<(), E> {
        let Some(FileName::Fork(epoch)) = FileName::parse_fork(name) else {
            self.add_temporary(name, TemporaryName::parse_fork(name));
            return Ok(());
        };
        if let Some(fork) = read(epoch)? {
            self.forks.insert(epoch, fork);
        }
        Ok(())
    }

    fn add_temporary(&mut self, name: &str, temporary: Option<TemporaryName>) {
        match temporary {
            Some(temporary) => {
                self.temporaries.insert(temporary);
            }
            None => {
                self.foreign.insert(name.to_owned());
            }
        }
    }
}
