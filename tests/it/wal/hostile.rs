//! Many bytes that nobody of ours has written, through the entry function of the fuzz target.

use super::untrusted::{feed, good};

/// The generator called `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    /// The bytes that matter most are those of the headers.
    fn byte(&mut self) -> u8 {
        [0, 1, 2, 3, 4, 0x7f, 0x80, 0xff].get(self.below(16)).copied().unwrap_or_else(|| self.next().to_le_bytes()[0])
    }
}

#[test]
fn mutated_and_random_segments_are_read_or_refused() {
    let seed = std::env::var("ALLUVIUM_SEED").map_or(12, |text| text.parse().unwrap());
    println!("seed {seed}");
    let (mut dice, good) = (Dice(seed), good());
    let whole = feed(&good, &[], &[]);
    let (mut read, mut changed) = (0, 0);
    for _ in 0..1000 {
        let limit = [100, 300, 2000][dice.below(3)];
        // Single bytes, or a field of eight.
        let mut replaced = Vec::new();
        for _ in 0..dice.below(4) {
            let (place, run) = (dice.below(limit), [1, 1, 4, 8][dice.below(4)]);
            replaced.extend((place..place + run).map(|place| (u16::try_from(place).unwrap(), dice.byte())));
        }
        let behind: Vec<u8> = (0..[0, 0, 20, 200][dice.below(4)]).map(|_| dice.byte()).collect();
        let found = feed(&good, &replaced, &behind);
        read += found;
        changed += usize::from(found != whole);
    }
    // Each makes four segments, read in three modes and salvaged.
    println!("{read} records read; {changed} of 1000 inputs differ from the good segment");
    assert!(read > 10_000 && changed > 300, "{read} {changed}");
}
