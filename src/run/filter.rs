//! The filter of a stripe: a blocked Bloom filter, in which one key touches one cache line.
//!
//! Blocked filters: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007).

/// One line is one cache line.
pub(super) const LINE_BYTES: usize = 64;
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 6;
/// Spreads the hash's low bits, which did not choose the line, over the bits that choose within it: 2^64 / golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The filter of keys with these hashes.
pub(super) fn build(hashes: &[u64]) -> Vec<u8> {
    let lines = hashes.len().saturating_mul(BITS_PER_KEY).div_ceil(LINE_BYTES * 8).max(1);
    let mut filter = vec![0; lines * LINE_BYTES];
    let (chunks, _) = filter.as_chunks_mut::<LINE_BYTES>();
    for hash in hashes {
        if let Some(line) = chunks.get_mut(line_of(*hash, lines)) {
            for bit in bits_of(*hash) {
                if let Some(byte) = line.get_mut(bit / 8) {
                    *byte |= 1 << (bit % 8);
                }
            }
        }
    }
    filter
}

/// Whether a key with this hash may be in the filter. A filter without lines holds everything.
#[inline]
pub(super) fn may_hold(filter: &[u8], hash: u64) -> bool {
    let (lines, _) = filter.as_chunks::<LINE_BYTES>();
    lines
        .get(line_of(hash, lines.len()))
        // All bits, whatever the first ones say: a branch that is taken at random costs more than a look at a line that is here.
        .is_none_or(|line| {
            bits_of(hash)
                .fold(true, |all, bit| all & line.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0))
        })
}

/// The upper half of the hash, scaled to the number of lines (which fits 32 bits, as filters do).
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    let scaled = (u128::from(hash >> 32) * lines as u128) >> 32;
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

/// Six bit numbers below 512: the top six groups of nine bits of the spread hash.
#[inline]
fn bits_of(hash: u64) -> impl Iterator<Item = usize> {
    let spread = hash.wrapping_mul(SPREAD);
    (1..=PROBES).map(move |probe| usize::from(u16::try_from((spread >> (64 - 9 * probe)) & 511).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::key_hash;

    #[test]
    fn every_key_is_found_and_few_others() {
        let hash = |n: u64| key_hash(&n.to_be_bytes());
        let filter = build(&(0..30_000).map(hash).collect::<Vec<_>>());
        assert!((0..30_000).all(|n| may_hold(&filter, hash(n))));
        let wrong = (1_000_000..1_100_000).filter(|n| may_hold(&filter, hash(*n))).count();
        assert!(wrong < 1_800, "{wrong} of 100,000 absent keys pass");
    }

    #[test]
    fn one_key_makes_one_line() {
        let filter = build(&[7]);
        assert_eq!(filter.len(), LINE_BYTES);
        assert!(may_hold(&filter, 7) && !may_hold(&filter, 8));
    }
}
