//! Many bytes that nobody of ours has written, through the entry function of the fuzz target.

use super::support::segments;
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

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn byte(&mut self) -> u8 {
        let any = self.next().to_le_bytes()[0];
        self.one_of(&[0xff, 0xff, 0, 1, 2, 3, 4, 0x7f, 0x80, any, any, any])
    }
}

/// Where the fields of a segment begin: those of its header, of its frames and of its seal. Most are of eight bytes.
fn fields(segment: &[u8]) -> Vec<usize> {
    let mut fields: Vec<usize> = (0..80).step_by(8).collect();
    let mut at = 80;
    while let Some(header) = segment.get(at..at + 32) {
        fields.extend([at, at + 4, at + 8, at + 12, at + 13, at + 14, at + 16, at + 24]);
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        match header[12] {
            3 => at += 32,
            4 => {
                fields.extend((0..7).map(|field| at + 32 + 8 * field));
                break;
            }
            _ => at += 32 + length,
        }
    }
    fields
}

#[test]
fn mutated_and_random_segments_are_read_or_refused() {
    let seed = std::env::var("ALLUVIUM_SEED").map_or(12, |text| text.parse().unwrap());
    println!("seed {seed}");
    let (mut dice, good) = (Dice(seed), good());
    let segment = good.read_file(segments(&good).last().unwrap()).unwrap();
    let fields = fields(&segment);
    let whole = feed(&good, &[], &[]);
    let (mut read, mut changed) = (0, 0);
    for _ in 0..2000 {
        // Whole fields above all, and their single bytes.
        let mut replaced = Vec::new();
        for _ in 0..dice.below(4) {
            let anywhere = dice.below(segment.len());
            let field = dice.one_of(&fields);
            let (place, run) = (dice.one_of(&[field, field, field, anywhere]), dice.one_of(&[1, 4, 8, 8]));
            let same = (dice.below(4) > 0).then(|| dice.byte());
            let bytes = (place..place + run).map(|place| u16::try_from(place).unwrap());
            replaced.extend(bytes.map(|place| (place, same.unwrap_or_else(|| dice.byte()))));
        }
        let length = dice.one_of(&[0, 0, 20, 200]);
        let behind: Vec<u8> = (0..length).map(|_| dice.byte()).collect();
        let found = feed(&good, &replaced, &behind);
        read += found;
        changed += usize::from(found != whole);
    }
    // Each makes four segments, verified, salvaged, and read in three modes.
    println!("{read} records read; {changed} of 2000 inputs differ from the good segment");
    assert!(read > 20_000 && changed > 600, "{read} {changed}");
}
