//! Pages: entries sorted by full key, found by tag or by bisection.

use std::ops::Range;

use crate::codec::Put;
use crate::entry::Change;

/// Set in a slot's second number: the entry is a tombstone.
const TOMBSTONE: u16 = 0x8000;
/// Ends are 15-bit numbers, so that the tombstone bit has room.
pub(super) const MAX_PAGE_BYTES: usize = 32 << 10;
const HEAD_BYTES: usize = 4;
const SLOT_BYTES: usize = 4;
/// What an entry costs in a page beside its key and value: a tag and a slot.
const ENTRY_BYTES: usize = 1 + SLOT_BYTES;
/// An entry that has a page to itself: a zero count, the kind, a spare byte, two lengths.
pub(super) const SINGLE_HEAD_BYTES: usize = 12;

/// The tag of a key: the low byte of its hash, which neither chooses the filter's line nor much of its bits.
#[inline]
pub(super) fn tag_of(hash: u64) -> u8 {
    hash.to_le_bytes()[0]
}

/// Collects the entries of one page.
#[derive(Debug, Default)]
pub(super) struct PageBuilder {
    tags: Vec<u8>,
    slots: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl PageBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// The length of the page if an entry of this size joined it.
    pub(super) fn bytes_with(&self, key_bytes: usize, value_bytes: usize) -> usize {
        let entries = self.tags.len() + 1;
        HEAD_BYTES + entries * ENTRY_BYTES + self.keys.len() + self.values.len() + key_bytes + value_bytes
    }

    /// Adds an entry; the caller has seen that the page stays within [`MAX_PAGE_BYTES`].
    pub(super) fn push(&mut self, key: &[u8], change: Change<&[u8]>, tag: u8) {
        self.tags.push(tag);
        self.keys.extend_from_slice(key);
        let mark = match change {
            Change::Put(value) => {
                self.values.extend_from_slice(value);
                0
            }
            Change::Tombstone => TOMBSTONE,
        };
        self.slots.put_u16(u16::try_from(self.keys.len()).unwrap_or(u16::MAX));
        self.slots.put_u16(u16::try_from(self.values.len()).unwrap_or(u16::MAX) | mark);
    }

    /// Appends the page to `out` and empties the builder.
    pub(super) fn encode_into(&mut self, out: &mut Vec<u8>) {
        out.put_u16(u16::try_from(self.tags.len()).unwrap_or(u16::MAX));
        out.put_u16(u16::try_from(self.keys.len()).unwrap_or(u16::MAX));
        for part in [&mut self.tags, &mut self.slots, &mut self.keys, &mut self.values] {
            out.extend_from_slice(part);
            part.clear();
        }
    }
}

/// What comes before the key and the value of an entry that has a page to itself.
pub(super) fn single_head(key: &[u8], change: Change<&[u8]>) -> Vec<u8> {
    let mut head = Vec::with_capacity(SINGLE_HEAD_BYTES);
    head.put_u16(0);
    head.put_u8(u8::from(change == Change::Tombstone));
    head.put_u8(0);
    head.put_u32(u32::try_from(key.len()).unwrap_or(u32::MAX)); // both are limited to megabytes
    head.put_u32(u32::try_from(change.into_value().map_or(0, <[u8]>::len)).unwrap_or(u32::MAX));
    head
}

/// Where an entry lies in its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: Range<usize>,
    pub(super) value: Change<Range<usize>>,
}

/// Where the parts of a page lie. Holds no bytes; every method takes those of the page it was parsed from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Page {
    count: usize,
    slots_at: usize,
    keys_at: usize,
    values_at: usize,
    /// For the page of a single large entry: what it is.
    single: Option<Change<()>>,
}

impl Page {
    /// Reads the head of a page; `None` where it cannot be one.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [c0, c1, k0, k1] = *bytes.first_chunk::<HEAD_BYTES>()?;
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        if count == 0 {
            return Self::parse_single(bytes);
        }
        let slots_at = HEAD_BYTES + count;
        let keys_at = slots_at + SLOT_BYTES * count;
        let values_at = keys_at + usize::from(u16::from_le_bytes([k0, k1]));
        Some(Self { count, slots_at, keys_at, values_at, single: None })
    }

    #[cold]
    fn parse_single(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<SINGLE_HEAD_BYTES>()?;
        let [_, _, kind, 0, k0, k1, k2, k3, v0, v1, v2, v3] = *head else { return None };
        let key_bytes = usize::try_from(u32::from_le_bytes([k0, k1, k2, k3])).ok()?;
        let value_bytes = usize::try_from(u32::from_le_bytes([v0, v1, v2, v3])).ok()?;
        let single = match kind {
            0 => Change::Put(()),
            1 if value_bytes == 0 => Change::Tombstone,
            _ => return None,
        };
        let fits = key_bytes.checked_add(value_bytes)? == rest.len();
        let (keys_at, values_at) = (SINGLE_HEAD_BYTES, SINGLE_HEAD_BYTES.checked_add(key_bytes)?);
        fits.then_some(Self { count: 1, slots_at: HEAD_BYTES, keys_at, values_at, single: Some(single) })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether every slot makes sense and the page ends where its last entry does: checked when its CRC is, so that
    /// lookups in a page once accepted cannot fail.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        if self.single.is_some() {
            return true; // `parse_single` has seen that the lengths fit
        }
        let Some((slots, _)) = bytes.get(self.slots_at..self.keys_at).map(<[u8]>::as_chunks::<SLOT_BYTES>) else {
            return false;
        };
        let (mut key_end, mut value_end) = (0, 0);
        for [k0, k1, v0, v1] in slots {
            let (key, value) = (u16::from_le_bytes([*k0, *k1]), u16::from_le_bytes([*v0, *v1]));
            let end = value & !TOMBSTONE;
            if key < key_end || end < value_end || (value != end && end != value_end) {
                return false;
            }
            (key_end, value_end) = (key, end);
        }
        self.keys_at + usize::from(key_end) == self.values_at && self.values_at + usize::from(value_end) == bytes.len()
    }

    #[inline]
    fn slot(&self, bytes: &[u8], number: usize) -> Option<(u16, u16)> {
        let [k0, k1, v0, v1] = *bytes.get(self.slots_at + SLOT_BYTES * number..)?.first_chunk()?;
        Some((u16::from_le_bytes([k0, k1]), u16::from_le_bytes([v0, v1])))
    }

    /// Where entry `number` lies; `None` behind the last one, or where its slot makes no sense.
    #[inline]
    pub(super) fn span(&self, bytes: &[u8], number: usize) -> Option<Span> {
        if number >= self.count {
            return None;
        }
        if let Some(single) = self.single {
            let value = single.map(|()| self.values_at..bytes.len());
            return Some(Span { key: self.keys_at..self.values_at, value });
        }
        let (key_start, value_start) = match number.checked_sub(1) {
            Some(before) => self.slot(bytes, before)?,
            None => (0, 0),
        };
        let (key_end, value_end) = self.slot(bytes, number)?;
        let key = self.keys_at + usize::from(key_start)..self.keys_at + usize::from(key_end);
        let value = if value_end & TOMBSTONE == 0 {
            let start = self.values_at + usize::from(value_start & !TOMBSTONE);
            let end = self.values_at + usize::from(value_end);
            if start > end || end > bytes.len() {
                return None;
            }
            Change::Put(start..end)
        } else {
            Change::Tombstone
        };
        (key.start <= key.end && key.end <= self.values_at).then_some(Span { key, value })
    }

    /// The key of entry `number`.
    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8], number: usize) -> Option<&'a [u8]> {
        bytes.get(self.span(bytes, number)?.key)
    }

    /// The tag of entry `number`; `None` in the page of a single large entry, which has none.
    pub(super) fn tag(&self, bytes: &[u8], number: usize) -> Option<u8> {
        let tags = bytes.get(HEAD_BYTES..self.slots_at)?;
        tags.get(number).copied().filter(|_| self.single.is_none())
    }

    /// Looks for `key`, whose tag is `tag`, eight tags at a time: one cache line of tags, one slot and one key instead of
    /// the five slots and five keys of a bisection.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8], key: &[u8], tag: u8) -> Option<Span> {
        if self.single.is_some() {
            return self.span(bytes, 0).filter(|span| bytes.get(span.key.clone()) == Some(key));
        }
        // Asks for the lines of the slots while that of the tags is still on its way; nothing waits for the answer.
        std::hint::black_box([64, 128].map(|at| bytes.get(at).copied()));
        let (words, rest) = bytes.get(HEAD_BYTES..self.slots_at)?.as_chunks::<8>();
        for (number, word) in words.iter().enumerate() {
            if let found @ Some(_) = self.find_in_word(bytes, key, tag, number * 8, *word) {
                return found;
            }
        }
        // The word's other bytes may look like hits; `find_in_word` drops what lies behind the last entry.
        let mut word = [0; 8];
        word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.find_in_word(bytes, key, tag, words.len() * 8, word)
    }

    #[inline]
    fn find_in_word(&self, bytes: &[u8], key: &[u8], tag: u8, first: usize, word: [u8; 8]) -> Option<Span> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let differs = u64::from_le_bytes(word) ^ LOW.wrapping_mul(u64::from(tag));
        // The highest bit of each byte that is zero; a byte above a zero one may be set as well, and fails on its key.
        let mut hits = differs.wrapping_sub(LOW) & !differs & HIGH;
        while hits != 0 {
            let number = first + usize::try_from(hits.trailing_zeros() / 8).unwrap_or(0);
            let span = self.span(bytes, number)?;
            if bytes.get(span.key.clone()) == Some(key) {
                return Some(span);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The number of entries below `key`, by bisection; `None` where a slot makes no sense.
    pub(super) fn lower_bound(&self, bytes: &[u8], key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(bytes, middle)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        let mut builder = PageBuilder::default();
        builder.push(b"a", Change::Put(b"xyz"), 1);
        builder.push(b"bb", Change::Tombstone, 2);
        builder.push(b"ccc", Change::Put(b""), 2);
        let mut bytes = Vec::new();
        builder.encode_into(&mut bytes);
        bytes
    }

    fn is_whole(bytes: &[u8]) -> bool {
        Page::parse(bytes).is_some_and(|page| page.is_whole(bytes))
    }

    #[test]
    fn a_page_whose_slots_do_not_fill_it_is_refused() {
        let good = page();
        assert!(is_whole(&good));
        for length in 0..good.len() {
            assert!(!is_whole(&good[..length]), "cut at {length}");
        }
        assert!(!is_whole(&[good.as_slice(), &[0]].concat()), "a byte too many");
        // Slots start behind 4 bytes of head and 3 tags: an end below the one before, and a tombstone with a value.
        for (at, byte) in [(7, 9), (11, 0), (13, 2), (13, 4), (2, 5), (0, 2)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(!is_whole(&bad), "byte {at}");
        }
    }

    #[test]
    fn a_tag_alone_finds_nothing() {
        let bytes = page();
        let page = Page::parse(&bytes).unwrap();
        assert_eq!(page.find(&bytes, b"ccc", 2).unwrap().value, Change::Put(20 + 8..20 + 8));
        assert_eq!(page.find(&bytes, b"bb", 2).unwrap().value, Change::Tombstone);
        assert_eq!(page.find(&bytes, b"b", 2), None);
        assert_eq!(page.lower_bound(&bytes, b"b"), Some(1));
    }
}
