//! [`Stats`]: how many keys a version has, and how large they are.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::changes::take_apart;
use super::directory::StoreDirectory;
use super::history::{History, chain_of};
use super::load::merged;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, FAMILY_BYTES, FamilyId, Name, split_full_key};
use crate::error::{Error, ErrorKind, Result};
use crate::version::Version;

/// The buckets of a [`Histogram`]: one for 0, one for each power of two up to 2^63.
const BUCKETS: usize = 65;

/// How often which size occurs, by powers of two.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// How many sizes there are.
    pub count: u64,
    /// Their sum, in bytes.
    pub bytes: u64,
    /// The smallest, in bytes; 0 where there is none.
    pub smallest: u64,
    /// The largest, in bytes; 0 where there is none.
    pub largest: u64,
    buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { count: 0, bytes: 0, smallest: 0, largest: 0, buckets: [0; BUCKETS] }
    }
}

impl Histogram {
    fn add(&mut self, length: usize) {
        let length = length as u64;
        self.smallest = if self.count == 0 { length } else { self.smallest.min(length) };
        self.largest = self.largest.max(length);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(length);
        // 0 has 64 leading zeros, 1 has 63: bucket i > 0 is for sizes with i bits.
        let bits = usize::try_from(u64::BITS - length.leading_zeros()).unwrap_or(0);
        if let Some(bucket) = self.buckets.get_mut(bits) {
            *bucket += 1;
        }
    }

    /// The buckets that hold something: the smallest and the largest size of each, and how many sizes lie there.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bits, count)| {
            let most = 1_u64.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX)).map_or(u64::MAX, |beyond| beyond - 1);
            (most.div_ceil(2).min(most), most, *count)
        })
    }
}

/// The keys of one family at a version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyStats {
    /// The family.
    pub family: Name,
    /// The lengths of the keys that have a value.
    pub keys: Histogram,
    /// The lengths of their values.
    pub values: Histogram,
    /// Removed keys whose tombstones still lie in the files that make the version: what a snapshot would leave out. A get
    /// of such a key finds the tombstone; a scan steps over it.
    pub tombstones: u64,
    /// Entries in those files altogether, older values and tombstones among them.
    pub stored: u64,
}

/// A key that is among the largest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargeEntry {
    /// Its family.
    pub family: Name,
    /// The key.
    pub key: Bytes,
    /// The length of its value, in bytes.
    pub value_bytes: u64,
}

/// What a pass over a version has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The version.
    pub version: Version,
    /// By the number of the family.
    pub families: Vec<FamilyStats>,
    /// The entries with the most bytes of key and value, the largest first.
    pub largest: Vec<LargeEntry>,
    /// Damaged files that were passed over, because others hold the same.
    pub passed_over: Vec<PathBuf>,
}

impl History {
    /// Counts the keys of `version`, by family, and finds the `largest` ones. Reads the whole version once, in the memory of a
    /// few pages and of those keys. `observe` hears of the bytes of keys and values read so far, and may end it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and `Cancelled`.
    pub fn stats(
        &self,
        version: Version,
        largest: usize,
        mut observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Stats> {
        stats(&self.directory, version, largest, &mut observe)
    }
}

/// Walks over `version` once. The memory is that of a few pages, of the histograms of each family, and of `largest` keys.
fn stats(
    directory: &StoreDirectory,
    version: Version,
    largest: usize,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Stats> {
    let chain = chain_of(directory, version)?;
    let runs = chain.newest_first();
    let mut families: Vec<FamilyStats> = // one a family
        chain.families.names().iter().map(|name| FamilyStats::of(name.clone())).collect();
    for (family, entries) in runs.iter().flat_map(|run| &run.properties().families) {
        if let Some(stats) = families.get_mut(usize::from(family.0)) {
            stats.stored = stats.stored.saturating_add(*entries);
        }
    }
    let mut largest = Largest { most: largest, entries: Vec::new() };
    let mut content = merged(runs.iter());
    let mut bytes = 0_u64;
    while content.advance()? {
        let (family, key) = split_full_key(content.key()).unwrap_or((FamilyId::DEFAULT, &[]));
        let value_bytes = content.change().into_value().map(<[u8]>::len);
        bytes = bytes.saturating_add((key.len() + FAMILY_BYTES + value_bytes.unwrap_or(0)) as u64);
        if observe(bytes).is_break() {
            return Err(Error::new(ErrorKind::Cancelled, "counting was ended"));
        }
        let Some(stats) = families.get_mut(usize::from(family.0)) else { continue };
        match value_bytes {
            Some(value_bytes) => {
                stats.keys.add(key.len());
                stats.values.add(value_bytes);
                largest.offer(&content, key.len() + value_bytes, &stats.family);
            }
            None => stats.tombstones += 1,
        }
    }
    let largest = largest.entries.into_iter().map(|(_, entry)| entry).collect(); // as many as were asked for
    Ok(Stats { version, families, largest, passed_over: directory.passed_over(&chain) })
}

impl FamilyStats {
    fn of(family: Name) -> Self {
        Self { family, keys: Histogram::default(), values: Histogram::default(), tombstones: 0, stored: 0 }
    }
}

/// The largest entries so far, with their sizes, the largest first; of equals the first one met.
struct Largest {
    most: usize,
    entries: Vec<(usize, LargeEntry)>,
}

impl Largest {
    fn offer(&mut self, at: &dyn Cursor, bytes: usize, family: &Name) {
        let place = self.entries.partition_point(|(larger, _)| *larger >= bytes);
        if place < self.most {
            let Change::Put(value) = at.change() else { return };
            // A copy, so that no mapping is kept for it.
            let key = Bytes::copy_from(&take_apart(&at.key_bytes()).1);
            let entry = LargeEntry { family: family.clone(), key, value_bytes: value.len() as u64 };
            self.entries.insert(place, (bytes, entry));
            self.entries.truncate(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_by_powers_of_two() {
        let mut histogram = Histogram::default();
        for length in [0, 1, 2, 3, 4, 7, 8, 1000] {
            histogram.add(length);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1), (512, 1023, 1)]);
        assert_eq!((histogram.count, histogram.bytes, histogram.smallest, histogram.largest), (8, 1025, 0, 1000));
        histogram.add(usize::MAX);
        assert_eq!(histogram.buckets().last(), Some((1 << 63, u64::MAX, 1)));
    }
}
