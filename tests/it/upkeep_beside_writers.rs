//! A writer that commits and rolls back while snapshots, collapses, folds and clean-ups run beside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::{Backend, FamilyId, LocalCheckpoint, Residency, RocksDbProvider, StateStoreId, StoreOptions, Version};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The generator called `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

fn change(batch: &mut impl WriteStore, state: &mut State, dice: &mut Dice) {
    for _ in 0..=dice.below(20) {
        let name = key(dice.below(60));
        match dice.below(8) {
            0 => {
                let end = key(dice.below(60));
                batch.delete_range(FamilyId::DEFAULT, Some(&name), Some(&end)).unwrap();
                state.retain(|key, _| *key < name || *key >= end);
            }
            1 => {
                batch.remove(FamilyId::DEFAULT, &name).unwrap();
                state.remove(&name);
            }
            _ => {
                let value = vec![b'x'; usize::try_from(dice.below(300)).unwrap()];
                let value = [dice.below(u64::MAX).to_le_bytes().to_vec(), value].concat();
                batch.put(FamilyId::DEFAULT, &name, &value).unwrap();
                state.insert(name, value);
            }
        }
    }
}

fn check(store: &impl ReadStore, expected: &State, context: &str) {
    let found: State = store
        .scan(FamilyId::DEFAULT)
        .unwrap()
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).unwrap())
        .collect();
    assert_eq!(found, *expected, "{context}");
    for number in 0..60 {
        let got = store.get(FamilyId::DEFAULT, &key(number)).unwrap().map(|value| value.to_vec());
        assert_eq!(got.as_ref(), expected.get(&key(number)), "{context}, key {number}");
    }
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn history(seed: u64, residency: Residency, with_clean_up: bool) {
    let mut dice = Dice(seed);
    let checkpoint: Arc<dyn alluvium::Checkpoint> =
        LocalCheckpoint::on(Arc::new(SimDisk::new(seed)), "/checkpoint").unwrap().into();
    let tail = usize::try_from(1 + dice.below(4)).unwrap();
    let options =
        StoreOptions::default().residency(residency).longest_tail(tail).unwrap().collapse_from(1000 + dice.below(8000));
    let id = || StateStoreId::new("op", 0, "state").unwrap();
    let backend = Backend::in_memory().unwrap();
    let open = || RocksDbProvider::open(&backend, Arc::clone(&checkpoint), id(), options.clone()).unwrap();
    let mut provider = open();
    let mut versions = vec![State::new()];
    let horizon = AtomicU64::new(0);
    for round in 0..3 {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for turn in 0..2_u64 {
                let (done, horizon, provider) = (&done, &horizon, provider.clone());
                let mut dice = Dice(seed ^ (turn << 32) ^ round);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        let outcome = match dice.below(if with_clean_up { 8 } else { 7 }) {
                            0 | 1 => provider.collapse().map(drop),
                            2 => provider.snapshot().map(drop),
                            3 => provider.settle(),
                            4 => provider.versions().map(drop),
                            5 => provider.latest().and_then(|at| provider.metadata(at)).map(drop),
                            6 => provider.latest().and_then(|at| provider.read_at(at)).map(drop),
                            _ => provider.retire(12).map(|gone| {
                                horizon.fetch_max(gone.oldest.0, Ordering::AcqRel);
                            }),
                        };
                        if let Err(error) = outcome {
                            let gone = matches!(error.kind(), alluvium::ErrorKind::VersionNotFound { .. });
                            assert!(gone, "seed {seed}: {error:?}");
                        }
                    }
                });
            }
            for step in 0..40 {
                let newest = versions.len() as u64 - 1;
                let lowest = horizon.load(Ordering::Acquire).max(newest.saturating_sub(4));
                let back = if dice.below(6) == 0 { dice.below(newest - lowest + 1) } else { 0 };
                let at = newest - back;
                let context = format!("seed {seed}, round {round}, step {step}, version {at}");
                let mut batch = match provider.begin(Version(at)) {
                    Ok(batch) => batch,
                    Err(error) => panic!("{context}: {error:?}"),
                };
                let mut state = versions[usize::try_from(at).unwrap()].clone();
                check(&batch, &state, &context);
                change(&mut batch, &mut state, &mut dice);
                check(&batch, &state, &context);
                if dice.below(5) == 0 {
                    batch.abort();
                    continue;
                }
                batch.commit_with(&at.to_le_bytes()).unwrap();
                versions.truncate(usize::try_from(at + 1).unwrap());
                versions.push(state);
            }
            done.store(true, Ordering::Release);
        });
        drop(provider);
        provider = open();
    }
    let newest = versions.len() as u64 - 1;
    assert_eq!(provider.latest().unwrap(), Version(newest));
    for at in newest.saturating_sub(6)..=newest {
        check(
            &provider.read_at(Version(at)).unwrap(),
            &versions[usize::try_from(at).unwrap()],
            &format!("seed {seed}"),
        );
    }
}

#[test]
fn reads_are_right_whatever_upkeep_runs_beside_the_writer() {
    for seed in 0..2 {
        history(seed, Residency::Mapped, false);
        history(seed + 100, Residency::Resident, false);
    }
}

#[test]
fn reads_are_right_while_old_versions_are_let_go() {
    for seed in 0..2 {
        history(seed, Residency::Mapped, true);
        history(seed + 100, Residency::Resident, true);
    }
}

/// A store of 20 MiB in a snapshot, on an index whose jobs run when they are told to.
#[cfg(target_os = "linux")]
fn large(dir: &std::path::Path, index: &SimIndex) -> RocksDbProvider {
    let id = StateStoreId::new("op", 0, "state").unwrap();
    let options = StoreOptions::default().upkeep(alluvium::Upkeep::Manual);
    let checkpoint = LocalCheckpoint::open(dir).unwrap();
    let provider = RocksDbProvider::open(index.backend(), checkpoint, id, options).unwrap();
    if provider.latest().unwrap() == Version::EMPTY {
        let mut batch = provider.begin(Version::EMPTY).unwrap();
        for number in 0..20 {
            batch.put(FamilyId::DEFAULT, &key(number), &vec![b'x'; 1 << 20]).unwrap();
        }
        batch.commit().unwrap();
        provider.snapshot().unwrap();
    }
    provider
}

/// Unmapping much takes long, so a commit leaves it to the background, but not for longer than the provider lives.
#[cfg(target_os = "linux")]
#[test]
fn a_replaced_base_is_unmapped_after_the_commit_that_read_it_last() {
    let dir = tempfile::tempdir().unwrap();
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = large(dir.path(), &index);
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let dir = dir.path().to_str().unwrap();
        maps.lines().filter(|line| line.contains(dir) && line.contains(".snapshot")).count()
    };
    let on_a_replaced_base = |name: &[u8]| {
        let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
        batch.put(FamilyId::DEFAULT, name, b"first").unwrap();
        batch.commit().unwrap();
        let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
        batch.put(FamilyId::DEFAULT, name, b"second").unwrap();
        provider.snapshot().unwrap();
        assert_eq!(mapped(), 2, "the transaction still reads the old one");
        batch
    };
    on_a_replaced_base(b"a").commit().unwrap();
    assert_eq!(mapped(), 2, "the commit has left it to the background");
    index.run_pending();
    assert_eq!(mapped(), 1);
    on_a_replaced_base(b"b").commit().unwrap();
    let mut fenced = provider.begin(provider.latest().unwrap()).unwrap();
    fenced.put(FamilyId::DEFAULT, b"c", b"d").unwrap();
    let successor = large(dir.path(), &SimIndex::from_image(&IndexImage::default()));
    assert!(fenced.commit().is_err());
    drop((provider, successor));
    assert_eq!(mapped(), 0, "a job holds what its provider has let go of");
}
