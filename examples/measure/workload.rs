//! Keys, values and picks, from one seed: everybody who is measured is given the same, and nobody needs to remember it.

use std::collections::HashSet;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The length of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// The length of a value.
pub(crate) const VALUE_BYTES: usize = 100;
/// Keys that a batch reads and writes.
pub(crate) const BATCH_KEYS: usize = 10_000;

/// A key.
pub(crate) type Key = [u8; KEY_BYTES];
/// A value: a count of its updates, 42 bytes that look random, 50 that don't; so about half of it can be compressed.
pub(crate) type Value = [u8; VALUE_BYTES];

/// The mixing function of `SplitMix64` (Steele, Lea, Flood 2014): a bijection, so that no two keys are the same.
pub(crate) fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The key of a number.
pub(crate) fn key(number: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    let (first, second) = key.split_at_mut(KEY_BYTES / 2);
    first.copy_from_slice(&mix(number).to_be_bytes());
    second.copy_from_slice(&mix(!number).to_be_bytes());
    key
}

/// The value of a key after `updates` updates.
pub(crate) fn value(key: &Key, updates: u64) -> Value {
    let mut value = [b'.'; VALUE_BYTES];
    let seed = key.iter().fold(updates, |seed, byte| seed.wrapping_mul(257).wrapping_add(u64::from(*byte)));
    let words = std::iter::successors(Some(seed), |seed| Some(mix(*seed))).skip(1);
    let (count, rest) = value.split_at_mut(8);
    count.copy_from_slice(&updates.to_le_bytes());
    for (place, word) in rest.chunks_mut(8).take(5).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    value
}

/// How many updates a stored value has seen; `None` for what is no value of this key.
pub(crate) fn updates(key: &Key, stored: &[u8]) -> Option<u64> {
    let count = u64::from_le_bytes(stored.first_chunk::<8>().copied()?);
    (value(key, count) == *stored).then_some(count)
}

/// What a key and its value add to the checksum of a version, which is the wrapping sum over its entries: it can be computed in
/// any order, of what is stored and of what should be.
pub(crate) fn fingerprint(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64(key))
}

/// Keys, and who is picked when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) keys: u64,
    pub(crate) seed: u64,
}

impl Workload {
    /// The keys of a batch: uniformly random, each at most once, so that nobody needs to read its own writes.
    pub(crate) fn picks(&self, batch: u64) -> Vec<Key> {
        let mut state = mix(self.seed ^ mix(batch));
        let mut seen = HashSet::with_capacity(BATCH_KEYS);
        let mut picks = Vec::with_capacity(BATCH_KEYS);
        let wanted = usize::try_from(self.keys).unwrap_or(usize::MAX).min(BATCH_KEYS);
        while picks.len() < wanted {
            state = mix(state);
            // The bias of a remainder is below 2^-40 here.
            let number = state % self.keys.max(1);
            if seen.insert(number) {
                picks.push(key(number));
            }
        }
        picks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_key_and_its_update() {
        let (one, two) = (key(1), key(2));
        assert_eq!((updates(&one, &value(&one, 7)), updates(&two, &value(&one, 7))), (Some(7), None));
        assert_ne!(fingerprint(&one, &value(&one, 7)), fingerprint(&one, &value(&one, 8)));
    }
}
