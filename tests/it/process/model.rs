//! What a writer does, and what the store must hold afterwards. Everything follows from numbers, so parent and child agree.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use alluvium::prelude::*;
use alluvium::{Result, StateStoreId, Transaction};

pub(super) const FAMILIES: [&str; 2] = ["left", "right"];
/// Different keys that there can be in one family.
const KEYS: u64 = 3_000;

pub(super) fn store_id() -> StateStoreId {
    StateStoreId::new("operator", 0, "store").unwrap()
}

/// Numbers that look random and repeat with the seed.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The dice of a test, whose seed is printed; `ALLUVIUM_SEED` repeats a run.
    pub(super) fn of_test(name: &str) -> Self {
        let given = std::env::var("ALLUVIUM_SEED").ok().map(|text| text.parse().unwrap());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(name));
        println!("{name}: ALLUVIUM_SEED={seed}");
        Self(seed)
    }

    /// The generator called `SplitMix64`.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// One step of a plan, which is a text of their letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Commit,
    /// A commit that takes the index several batches to take in.
    Large,
    DeleteRange,
    /// A commit on the version below the newest, which supersedes that.
    Older,
    /// A transaction on the version below the newest that writes and is given up.
    Abort,
    Snapshot,
    Collapse,
    /// The index takes in all deltas, and writes itself to disk.
    Settle,
    /// Provider and index are closed and opened again.
    Reopen,
}

impl Op {
    pub(super) fn of(letter: char) -> Self {
        match letter {
            'c' => Self::Commit,
            'l' => Self::Large,
            'd' => Self::DeleteRange,
            'o' => Self::Older,
            'a' => Self::Abort,
            's' => Self::Snapshot,
            'k' => Self::Collapse,
            'w' => Self::Settle,
            'r' => Self::Reopen,
            other => panic!("no step is called {other}"),
        }
    }

    /// A plan of `steps` steps in which commits prevail.
    pub(super) fn plan(dice: &mut Dice, steps: usize) -> String {
        let letters: Vec<char> = "ccccccccccccdddllooaskkwwr".chars().collect();
        (0..steps).map(|_| *dice.pick(&letters)).collect()
    }
}

/// What one step of one writer commits. Written into the commit's metadata, so that it is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) op: Op,
    pub(super) run: u64,
    pub(super) step: usize,
}

/// What made each version, from 1 on.
pub(super) type Line = Vec<Batch>;

impl Batch {
    pub(super) fn metadata(&self) -> String {
        format!("run {} step {}", self.run, self.step)
    }

    /// The line after this step.
    pub(super) fn after(self, line: &Line) -> Line {
        let kept = match self.op {
            Op::Commit | Op::Large | Op::DeleteRange => line.len(),
            Op::Older => line.len().saturating_sub(1),
            _ => return line.clone(),
        };
        let mut next = line[..kept].to_vec();
        next.push(self);
        next
    }

    /// The writes of this batch. No two batches write the same values, so that any mix of them shows.
    pub(super) fn edits(&self) -> Vec<Edit> {
        let mut dice = Dice::new(self.run.rotate_left(20) ^ self.step as u64);
        let mut edits = Vec::new();
        if self.op == Op::DeleteRange {
            edits.push(self.put(&mut dice));
            edits.push(Edit::DeleteRange(family(&mut dice), Some(key(&mut dice)), None).narrowed(&mut dice));
            edits.push(Edit::DeleteRange(family(&mut dice), None, Some(key(&mut dice))).narrowed(&mut dice));
        }
        let puts = if self.op == Op::Large { 2_500 } else { 5 + dice.roll(40) };
        edits.extend((0..puts).map(|_| self.put(&mut dice)));
        edits.extend((0..dice.roll(10)).map(|_| Edit::Remove(family(&mut dice), key(&mut dice))));
        edits
    }

    fn put(&self, dice: &mut Dice) -> Edit {
        let length = if dice.roll(50) == 0 { 6_000 } else { dice.roll(150) };
        let mut value = format!("{} of {}.{} ", dice.roll(1 << 30), self.run, self.step).into_bytes();
        value.resize(usize::try_from(length).unwrap(), b'.');
        Edit::Put(family(dice), key(dice), value)
    }
}

fn family(dice: &mut Dice) -> usize {
    usize::from(dice.roll(3) == 0)
}

fn key(dice: &mut Dice) -> Vec<u8> {
    if dice.roll(50) == 0 { Vec::new() } else { format!("key {:04}", dice.roll(KEYS)).into_bytes() }
}

/// One write of a transaction.
#[derive(Debug)]
pub(super) enum Edit {
    Put(usize, Vec<u8>, Vec<u8>),
    Remove(usize, Vec<u8>),
    DeleteRange(usize, Option<Vec<u8>>, Option<Vec<u8>>),
}

impl Edit {
    /// Mostly deletes a part only, so that not everything goes every time.
    fn narrowed(self, dice: &mut Dice) -> Self {
        match self {
            Self::DeleteRange(family, ..) if dice.roll(8) > 0 => {
                let start = dice.roll(KEYS);
                let key = |number: u64| Some(format!("key {number:04}").into_bytes());
                Self::DeleteRange(family, key(start), key(start + dice.roll(KEYS / 10)))
            }
            other => other,
        }
    }

    pub(super) fn write(&self, transaction: &mut Transaction) -> Result<()> {
        let (Self::Put(family, ..) | Self::Remove(family, _) | Self::DeleteRange(family, ..)) = self;
        let family = transaction.create_family(FAMILIES[*family])?;
        match self {
            Self::Put(_, key, value) => transaction.put(family, key, value),
            Self::Remove(_, key) => transaction.remove(family, key),
            Self::DeleteRange(_, start, end) => transaction.delete_range(family, start.as_deref(), end.as_deref()),
        }
    }

    fn make(self, content: &mut Content) {
        match self {
            Self::Put(family, key, value) => {
                content[family].insert(key, value);
            }
            Self::Remove(family, key) => {
                content[family].remove(&key);
            }
            Self::DeleteRange(family, start, end) => content[family].retain(|key, _| {
                start.as_ref().is_some_and(|start| key < start) || end.as_ref().is_some_and(|end| key >= end)
            }),
        }
    }
}

/// The entries of both families.
pub(super) type Content = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// What the store holds at the end of a line.
pub(super) fn content(line: &[Batch]) -> Content {
    let mut content = Content::default();
    line.iter().flat_map(Batch::edits).for_each(|edit| edit.make(&mut content));
    content
}
