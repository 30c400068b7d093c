//! Index blocks: the fences of pages (in a stripe) or of stripes (in the top index), searched where they lie.
//!
//! A fence is the shortest prefix of a page's first key that is greater than the last key before the page. So entry `i`
//! holds the keys from its fence up to the next one's, and the entry of a key is the last whose fence is not above it.

use std::cmp::Ordering;

use super::footer::Place;
use super::header::align_up;
use crate::codec::Put;
use crate::entry::KeyRange;
use crate::error::{Error, Result};

/// Bytes of a fence that are compared as one number.
const HEAD_BYTES: usize = 8;
/// Every 16th head is repeated in front of all heads, so that a search touches few cache lines.
const GROUP: usize = 16;

/// What an index says about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagePlace {
    /// From the start of the stripe.
    pub(super) offset: u32,
    pub(super) stored_bytes: u32,
    /// Equal to `stored_bytes` where the page is not compressed.
    pub(super) raw_bytes: u32,
    /// Of the stored bytes.
    pub(super) crc: u32,
}

/// What the top index says about a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StripePlace {
    /// Where the first page starts in the file.
    pub(super) offset: u64,
    /// The running number of the first page in the file.
    pub(super) first_page: u64,
    /// Where the page index starts, from the start of the stripe.
    pub(super) index_offset: u32,
    pub(super) index_bytes: u32,
    pub(super) index_crc: u32,
    /// Where not 0: page `i` starts `i` times this behind the first one and is no longer, so that a page which has been
    /// checked is found without its entry in the page index.
    pub(super) stride: u32,
    /// The filter starts at the next multiple of the block alignment behind the page index.
    pub(super) filter_bytes: u32,
    pub(super) filter_crc: u32,
}

impl StripePlace {
    /// Where the page index lies.
    #[inline]
    pub(super) fn page_index(&self) -> Place {
        let offset = self.offset.saturating_add(u64::from(self.index_offset));
        Place { offset, length: self.index_bytes, crc: self.index_crc }
    }

    /// Where the filter lies, in a run whose blocks are aligned to `block_align`.
    #[inline]
    pub(super) fn filter(&self, block_align: u64) -> Place {
        let offset = align_up(self.page_index().end(), block_align).unwrap_or(u64::MAX);
        Place { offset, length: self.filter_bytes, crc: self.filter_crc }
    }

    /// Whether page `number` may lie at `place`, as far as the stripe's stride says.
    pub(super) fn allows(&self, number: usize, place: &PagePlace) -> bool {
        let expected = (number as u64).checked_mul(u64::from(self.stride));
        let fits = place.stored_bytes <= self.stride && place.stored_bytes == place.raw_bytes;
        self.stride == 0 || (fits && expected == Some(u64::from(place.offset)))
    }
}

/// The entry of an index block: where something lies, after the end of its fence.
pub(super) trait Entry: Sized {
    /// Four bytes of fence end, then the place.
    const STORED_BYTES: usize;
    fn encode(&self, out: &mut Vec<u8>);
    fn decode(stored: &[u8]) -> Option<Self>;
}

fn field_u32(stored: &[u8], at: usize) -> Option<u32> {
    stored.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn field_u64(stored: &[u8], at: usize) -> Option<u64> {
    stored.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Entry for PagePlace {
    const STORED_BYTES: usize = 20;

    fn encode(&self, out: &mut Vec<u8>) {
        for field in [self.offset, self.stored_bytes, self.raw_bytes, self.crc] {
            out.put_u32(field);
        }
    }

    #[inline]
    fn decode(stored: &[u8]) -> Option<Self> {
        Some(Self {
            offset: field_u32(stored, 4)?,
            stored_bytes: field_u32(stored, 8)?,
            raw_bytes: field_u32(stored, 12)?,
            crc: field_u32(stored, 16)?,
        })
    }
}

impl Entry for StripePlace {
    const STORED_BYTES: usize = 44;

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.offset);
        out.put_u64(self.first_page);
        let small =
            [self.index_offset, self.index_bytes, self.index_crc, self.stride, self.filter_bytes, self.filter_crc];
        for field in small {
            out.put_u32(field);
        }
    }

    #[inline]
    fn decode(stored: &[u8]) -> Option<Self> {
        Some(Self {
            offset: field_u64(stored, 4)?,
            first_page: field_u64(stored, 12)?,
            index_offset: field_u32(stored, 20)?,
            index_bytes: field_u32(stored, 24)?,
            index_crc: field_u32(stored, 28)?,
            stride: field_u32(stored, 32)?,
            filter_bytes: field_u32(stored, 36)?,
            filter_crc: field_u32(stored, 40)?,
        })
    }
}

/// The shortest prefix of `key` that is greater than `before`, which must be below `key`.
pub(super) fn fence<'a>(before: &[u8], key: &'a [u8]) -> &'a [u8] {
    let shared = shared_bytes(before, key);
    key.get(..=shared).unwrap_or(key)
}

pub(super) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Collects the entries of one index block; holds their fences and places until [`IndexBuilder::encode`].
#[derive(Debug)]
pub(super) struct IndexBuilder<E> {
    /// All fences but the first, one after the other.
    fences: Vec<u8>,
    /// The end of each fence in `fences`; that of the first entry is 0.
    entries: Vec<(usize, E)>,
}

impl<E: Entry> IndexBuilder<E> {
    pub(super) fn new() -> Self {
        Self { fences: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn push(&mut self, fence: &[u8], entry: E) {
        // The first fence separates nothing from nothing: leaving it out keeps the common prefix of the others long.
        if !self.entries.is_empty() {
            self.fences.extend_from_slice(fence);
        }
        self.entries.push((self.fences.len(), entry));
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that the collected entries take.
    pub(super) fn held_bytes(&self) -> usize {
        self.fences.len() + self.entries.len() * (E::STORED_BYTES + 8)
    }

    /// The block; the builder is empty afterwards.
    pub(super) fn encode(&mut self) -> Result<Vec<u8>> {
        let fences = std::mem::take(&mut self.fences);
        let entries = std::mem::take(&mut self.entries);
        let starts = std::iter::once(0).chain(entries.iter().map(|(end, _)| *end));
        let fence_of = |(start, (end, _)): (usize, &(usize, E))| fences.get(start..*end).unwrap_or_default();
        let spans = || starts.clone().zip(&entries).map(fence_of);
        // Fences ascend, so what the second and the last share, all share.
        let common = spans().nth(1).zip(spans().last()).map_or(0, |(low, high)| shared_bytes(low, high));
        let suffixes = || spans().map(|fence| fence.get(common..).unwrap_or_default());

        let mut out = Vec::with_capacity(8 + entries.len() * (HEAD_BYTES + E::STORED_BYTES) + fences.len());
        out.put_u32(narrow(entries.len())?);
        out.put_u32(narrow(common)?);
        let heads = || suffixes().map(|suffix| head_of(suffix).to_be_bytes());
        heads().step_by(GROUP).skip(1).for_each(|head| out.extend_from_slice(&head));
        heads().for_each(|head| out.extend_from_slice(&head));
        let mut end = 0_usize;
        for (suffix, (_, entry)) in suffixes().zip(&entries) {
            end += suffix.len();
            out.put_u32(narrow(end)?);
            entry.encode(&mut out);
        }
        out.extend_from_slice(spans().nth(1).and_then(|fence| fence.get(..common)).unwrap_or_default());
        suffixes().for_each(|suffix| out.extend_from_slice(suffix));
        Ok(out)
    }
}

fn narrow(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|e| Error::invalid("an index of 4 GiB or more").with_source(e))
}

/// The first eight bytes as a big-endian number, short ones filled with zeros: sorts as the bytes do, but for ties.
#[inline]
fn head_of(suffix: &[u8]) -> u64 {
    if let Some(head) = suffix.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_BYTES];
    head.iter_mut().zip(suffix).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}

/// An index block where it lies.
#[derive(Debug)]
pub(super) struct IndexView<'a, E: Entry> {
    samples: &'a [[u8; HEAD_BYTES]],
    heads: &'a [[u8; HEAD_BYTES]],
    entries: &'a [u8],
    common: &'a [u8],
    suffixes: &'a [u8],
    kind: std::marker::PhantomData<E>,
}

impl<'a, E: Entry> IndexView<'a, E> {
    /// Takes a block apart; `None` where its lengths do not fit it.
    #[inline]
    pub(super) fn parse(block: &'a [u8]) -> Option<Self> {
        let (count, rest) = block.split_first_chunk::<4>()?;
        let (common, rest) = rest.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let common = usize::try_from(u32::from_le_bytes(*common)).ok()?;
        let (samples, rest) = rest.split_at_checked(count.saturating_sub(1) / GROUP * HEAD_BYTES)?;
        let (heads, rest) = rest.split_at_checked(count.checked_mul(HEAD_BYTES)?)?;
        let (entries, rest) = rest.split_at_checked(count.checked_mul(E::STORED_BYTES)?)?;
        let (common, suffixes) = rest.split_at_checked(common)?;
        let (samples, heads) = (samples.as_chunks().0, heads.as_chunks().0);
        Some(Self { samples, heads, entries, common, suffixes, kind: std::marker::PhantomData })
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// The place of the entry that would hold `key`: the last one whose fence is not above it, or the first.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let (lead, suffix) = key.split_at(self.common.len().min(key.len()));
        if !self.common.is_empty() {
            match lead.cmp(self.common) {
                Ordering::Less => return 0,
                Ordering::Greater => return self.len().saturating_sub(1),
                Ordering::Equal => (),
            }
        }
        let probe = head_of(suffix);
        let is_below = |head: &[u8; HEAD_BYTES]| u64::from_be_bytes(*head) < probe;
        let group = self.samples.partition_point(is_below) * GROUP;
        let end = self.len().min(group + GROUP);
        let below = group + self.heads.get(group + 1..end).unwrap_or_default().partition_point(is_below);
        match self.heads.get(below + 1) {
            Some(head) if u64::from_be_bytes(*head) == probe => self.find_among_ties(below, probe, suffix),
            _ => below,
        }
    }

    /// The fences behind `below` that have the same head as `suffix` are compared in full.
    #[cold]
    fn find_among_ties(&self, below: usize, probe: u64, suffix: &[u8]) -> usize {
        let (mut low, mut high) = (below, self.len().saturating_sub(1));
        while low < high {
            let middle = low.midpoint(high);
            let place = middle.saturating_add(1);
            let tied = self.heads.get(place).is_some_and(|head| u64::from_be_bytes(*head) == probe);
            if tied && self.suffix(place).is_some_and(|fence| fence <= suffix) {
                low = place;
            } else {
                high = middle;
            }
        }
        low
    }

    #[inline]
    fn stored(&self, place: usize) -> Option<&'a [u8]> {
        let start = place.checked_mul(E::STORED_BYTES)?;
        self.entries.get(start..start.checked_add(E::STORED_BYTES)?)
    }

    #[inline]
    pub(super) fn entry(&self, place: usize) -> Option<E> {
        E::decode(self.stored(place)?)
    }

    fn fence_end(&self, place: usize) -> Option<usize> {
        usize::try_from(field_u32(self.stored(place)?, 0)?).ok()
    }

    fn suffix(&self, place: usize) -> Option<&'a [u8]> {
        let start = place.checked_sub(1).map_or(Some(0), |before| self.fence_end(before))?;
        self.suffixes.get(start..self.fence_end(place)?)
    }

    /// How `key` compares with the fence at `place`; `None` where there is no such fence. The first entry has none.
    pub(super) fn compare(&self, key: &[u8], place: usize) -> Option<Ordering> {
        if place == 0 {
            return None;
        }
        let fence = self.suffix(place)?;
        let (lead, suffix) = key.split_at(self.common.len().min(key.len()));
        Some(lead.cmp(self.common).then_with(|| suffix.cmp(fence)))
    }

    /// Whether the range ends before every key that the entry at `place` can hold.
    pub(super) fn starts_beyond(&self, range: &KeyRange, place: usize) -> bool {
        range.end.as_ref().and_then(|end| self.compare(end, place)).is_some_and(Ordering::is_le)
    }

    /// Whether the block is as the builder makes it: heads that go with their fences, fences that ascend, no more bytes.
    pub(super) fn is_sound(&self) -> bool {
        let all = (0..self.len()).map(|place| self.suffix(place));
        let heads_fit = all
            .clone()
            .zip(self.heads)
            .all(|(suffix, head)| suffix.is_some_and(|suffix| head_of(suffix) == u64::from_be_bytes(*head)));
        let samples_fit = self.heads.iter().step_by(GROUP).skip(1).eq(self.samples);
        let ascend = all.clone().skip(1).is_sorted_by(|a, b| a < b);
        let first_is_empty = self.len() == 0 || self.suffix(0).is_some_and(<[u8]>::is_empty);
        let ends = self.len().checked_sub(1).map_or(Some(0), |last| self.fence_end(last));
        heads_fit && samples_fit && ascend && first_is_empty && ends == Some(self.suffixes.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(number: usize) -> PagePlace {
        PagePlace { offset: u32::try_from(number).unwrap(), stored_bytes: 1, raw_bytes: 2, crc: 3 }
    }

    fn check(fences: &[Vec<u8>], keys: &[Vec<u8>]) {
        let mut builder = IndexBuilder::new();
        fences.iter().enumerate().for_each(|(number, fence)| builder.push(fence, place(number)));
        let block = builder.encode().unwrap();
        let index = IndexView::<PagePlace>::parse(&block).unwrap();
        assert!(index.is_sound());
        for key in keys.iter().chain(fences) {
            let expected = fences.iter().skip(1).filter(|fence| *fence <= key).count();
            assert_eq!(index.find(key), expected, "{key:?} in {fences:?}");
            assert_eq!(index.entry(expected), Some(place(expected)));
            for (number, fence) in fences.iter().enumerate().skip(1) {
                assert_eq!(index.compare(key, number), Some(key.cmp(fence)));
            }
        }
    }

    /// Few byte values and long runs of them: fences with one head, and fences that are prefixes of others.
    fn keys(most: usize) -> impl Strategy<Value = std::collections::BTreeSet<Vec<u8>>> {
        let part = prop_oneof![prop::collection::vec(0u8..3, 0..4), Just(vec![0; 8]), Just(vec![7; 9])];
        prop::collection::btree_set(prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat()), 1..most)
    }

    proptest! {
        #[test]
        fn a_search_agrees_with_counting(fences in keys(80), probes in keys(40), prefix in prop::collection::vec(any::<u8>(), 0..20)) {
            let with = |keys: std::collections::BTreeSet<Vec<u8>>| -> Vec<Vec<u8>> {
                keys.into_iter().map(|key| [prefix.as_slice(), &key].concat()).collect()
            };
            let mut probes_too = with(probes.clone());
            probes_too.extend(probes); // without the prefix that all fences share
            check(&with(fences), &probes_too);
        }
    }

    #[test]
    fn a_fence_is_the_shortest_prefix_above_the_key_before() {
        assert_eq!(fence(b"", b"apple"), b"a");
        assert_eq!(fence(b"apple", b"apricot"), b"apr");
        assert_eq!(fence(b"app", b"apple"), b"appl");
    }
}
