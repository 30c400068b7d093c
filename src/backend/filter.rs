//! [`Filter`]: which keys a generation may know, in a fixed amount of memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of one block: 64 bytes, one cache line, so that a probe costs one miss.
const BLOCK_WORDS: usize = 8;
const BITS_PER_KEY: usize = 6;

/// A blocked bloom filter (Putze, Sanders, Singler 2007): six bits of one block a key.
///
/// At 10 bits a key about 1.5 % of unknown keys pass; past that it lets more and more through and stays right. Keys are
/// added and asked for from any thread; who must see a key has been told of it by other means, which order the two.
#[derive(Debug)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// A filter of about `bytes`, at least one block.
    pub(super) fn with_bytes(bytes: usize) -> Self {
        let blocks = (bytes / (BLOCK_WORDS * 8)).max(1);
        Self { words: (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect() } // the whole bound of it
    }

    pub(super) fn insert(&self, hash: u64) {
        for (word, bits) in self.block(hash).iter().zip(masks(hash)) {
            // Most words get no bit; a plain load is far cheaper than a locked write.
            if bits != 0 && word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.block(hash).iter().zip(masks(hash)).all(|(word, bits)| word.load(Ordering::Relaxed) & bits == bits)
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The block of a hash, by its upper half; the lower half chooses the bits.
    fn block(&self, hash: u64) -> &[AtomicU64] {
        let blocks = (self.words.len() / BLOCK_WORDS) as u64;
        let block = usize::try_from(((hash >> 32) * blocks) >> 32).unwrap_or(0);
        self.words.get(block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS).unwrap_or_default()
    }
}

/// The bits of a key in each word of its block.
fn masks(hash: u64) -> [u64; BLOCK_WORDS] {
    let mut masks = [0; BLOCK_WORDS];
    // Each step of the multiplier moves fresh bits to the top, from where nine are taken: 512 places.
    let mut mixed = (hash & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..BITS_PER_KEY {
        let place = mixed >> 55;
        if let Some(mask) = usize::try_from(place / 64).ok().and_then(|word| masks.get_mut(word)) {
            *mask |= 1 << (place % 64);
        }
        mixed = mixed.rotate_left(9).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::key_hash;

    fn hashes(from: u64, count: u64) -> impl Iterator<Item = u64> {
        (from..from + count).map(|number| key_hash(&number.to_be_bytes()))
    }

    #[test]
    fn every_added_key_passes_and_few_others_do() {
        let filter = Filter::with_bytes(128 << 10); // 10.5 bits for each of 100,000 keys
        hashes(0, 100_000).for_each(|hash| filter.insert(hash));
        assert!(hashes(0, 100_000).all(|hash| filter.may_contain(hash)));
        let wrong = hashes(1 << 32, 100_000).filter(|hash| filter.may_contain(*hash)).count();
        assert!(wrong < 2_500, "{wrong} of 100,000 unknown keys pass");
    }

    #[test]
    fn a_full_filter_is_still_right() {
        let filter = Filter::with_bytes(1);
        assert_eq!(filter.memory_bytes(), 64);
        hashes(0, 10_000).for_each(|hash| filter.insert(hash));
        assert!(hashes(0, 10_000).all(|hash| filter.may_contain(hash)));
    }
}
