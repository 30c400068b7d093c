//! [`RangeSet`]: deleted key ranges, kept merged.

use crate::entry::KeyRange;

/// A set of full keys as disjoint ranges in ascending order: what range deletes say.
///
/// Its memory is that of its ranges; ranges that touch are kept as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<KeyRange>);

impl RangeSet {
    /// Adds a range; empty ranges change nothing.
    pub(crate) fn insert(&mut self, range: KeyRange) {
        if range.is_empty() {
            return;
        }
        // All ranges that overlap or touch the new one lie between these two places.
        let first = self.0.partition_point(|old| old.end.as_ref().is_some_and(|end| *end < range.start));
        let last = self.0.partition_point(|old| range.end.as_ref().is_none_or(|end| old.start <= *end));
        let mut merged = range;
        for old in self.0.drain(first..last.max(first)) {
            merged.start = merged.start.min(old.start);
            merged.end = merged.end.zip(old.end).map(|(a, b)| a.max(b));
        }
        self.0.insert(first, merged);
    }

    /// Whether `full_key` lies in one of the ranges.
    #[inline]
    pub(crate) fn contains(&self, full_key: &[u8]) -> bool {
        !self.0.is_empty() && self.holds(full_key)
    }

    fn holds(&self, full_key: &[u8]) -> bool {
        let after = self.0.partition_point(|range| range.start.as_slice() <= full_key);
        after.checked_sub(1).and_then(|place| self.0.get(place)).is_some_and(|range| range.is_before_end(full_key))
    }

    /// Adds all ranges of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.insert(range.clone()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The heap that the ranges take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let keys = |range: &KeyRange| range.start.capacity() + range.end.as_ref().map_or(0, Vec::capacity);
        self.0.capacity() * size_of::<KeyRange>() + self.0.iter().map(keys).sum::<usize>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KeyRange> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &[u8], end: Option<&[u8]>) -> KeyRange {
        KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) }
    }

    #[test]
    fn a_set_of_ranges_agrees_with_a_set_of_keys() {
        // Every set of up to three ranges over single-byte keys 0..6, with and without an open end.
        let all: Vec<KeyRange> =
            (0u8..6).flat_map(|a| (0u8..6).map(move |b| range(&[a], Some(&[b]))).chain([range(&[a], None)])).collect();
        for a in &all {
            for b in &all {
                for c in &all {
                    let mut set = RangeSet::default();
                    for r in [a, b, c] {
                        set.insert(r.clone());
                    }
                    for key in 0u8..8 {
                        let expected = [a, b, c].iter().any(|r| r.contains(&[key]));
                        assert_eq!(set.contains(&[key]), expected, "{set:?} {key}");
                    }
                    let ends: Vec<_> = set.iter().map(|r| (r.start.clone(), r.end.clone())).collect();
                    assert!(ends.windows(2).all(|w| w[0].1.as_ref().is_some_and(|end| *end < w[1].0)), "{set:?}");
                }
            }
        }
    }
}
