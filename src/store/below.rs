//! What lies below a transaction or a view: something that answers gets and gives cursors at one fixed version.

use std::fmt::Debug;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::entry::{FamilyId, KeyRange, MAX_KEY_BYTES, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Layer, Run};

/// The state at one version, in whatever form a provider holds it.
pub(crate) trait Below: Send + Sync + Debug {
    /// The value of a key.
    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>>;

    /// Cursors whose merge is the content of `range`, newest first.
    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>>;

    /// The large files that nobody else reads any more.
    fn last_reads(&self) -> Vec<Arc<Run>> {
        Vec::new()
    }
}

/// A full key for one look-up, on the stack where it is short.
pub(super) struct LookupKey {
    short: [u8; Self::SHORT],
    long: Vec<u8>,
    length: usize,
}

impl LookupKey {
    const SHORT: usize = 66;

    /// Joins `family` and `key`.
    ///
    /// # Errors
    /// `LimitExceeded` for a key over [`MAX_KEY_BYTES`].
    pub(super) fn new(family: FamilyId, key: &[u8]) -> Result<Self> {
        if key.len() > MAX_KEY_BYTES {
            let kind = ErrorKind::LimitExceeded { limit: MAX_KEY_BYTES as u64, found: key.len() as u64 };
            return Err(Error::new(kind, "a key is too long"));
        }
        let mut lookup = Self { short: [0; Self::SHORT], long: Vec::new(), length: key.len() + 2 };
        match lookup.short.get_mut(..lookup.length).and_then(|short| short.split_first_chunk_mut::<2>()) {
            Some((head, rest)) => {
                *head = family.0.to_be_bytes();
                rest.copy_from_slice(key);
            }
            None => lookup.long = crate::entry::full_key(family, key),
        }
        Ok(lookup)
    }

    /// The full key.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.short.get(..self.length).unwrap_or(&self.long)
    }
}

/// Shared handle to what lies below.
pub(super) type SharedBelow = Arc<dyn Below>;
