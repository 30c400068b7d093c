//! Stores of many keys whose content follows from numbers, so that checking it takes no memory.

use std::path::Path;

use alluvium::prelude::*;
use alluvium::store::Transaction;
use alluvium::{
    Backend, BackendOptions, FamilyId, LocalCheckpoint, Residency, RocksDbProvider, StateStoreId, StoreOptions, Version,
};

pub(super) const FAMILY: FamilyId = FamilyId::DEFAULT;
/// The limit of most cases, in bytes.
pub(super) const LIMIT: usize = 8 << 20;
/// What an entry takes in files, about, in bytes.
pub(super) const ENTRY_BYTES: u64 = 120;
/// So many keys are 20 times the limit.
pub(super) const KEYS: u64 = 20 * LIMIT as u64 / ENTRY_BYTES;
/// What may come on top of the limit: the program, its threads' stacks, what the allocator keeps.
pub(super) const CONSTANT: u64 = 48 << 20;

pub(super) fn key(number: u64) -> [u8; 16] {
    // Scattered, so that neighbours in time are no neighbours in the file.
    let high = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&high.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn value(number: u64, round: u64) -> [u8; 100] {
    let mut value = [0; 100];
    let mut mixed = number ^ round.wrapping_mul(0xff51_afd7_ed55_8ccd);
    for part in value.chunks_mut(8) {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ number;
        part.copy_from_slice(&mixed.to_le_bytes()[..part.len()]);
    }
    value
}

pub(super) fn backend(place: &Path, limit: usize) -> Backend {
    Backend::open(place.join("work"), BackendOptions::default().memory_limit(limit)).unwrap()
}

pub(super) fn open(backend: &Backend, place: &Path, name: &str, residency: Residency) -> RocksDbProvider {
    open_with(backend, place, name, StoreOptions::default().residency(residency))
}

pub(super) fn open_with(backend: &Backend, place: &Path, name: &str, options: StoreOptions) -> RocksDbProvider {
    let checkpoint = LocalCheckpoint::open(place.join("checkpoint")).unwrap();
    RocksDbProvider::open(backend, checkpoint, StateStoreId::new("op", 0, name).unwrap(), options).unwrap()
}

pub(super) fn put(transaction: &mut Transaction, number: u64, round: u64) {
    transaction.put(FAMILY, &key(number), &value(number, round)).unwrap();
}

/// Commits the keys `0..keys` of `round`, so many at a time.
pub(super) fn load(provider: &RocksDbProvider, keys: u64, at_a_time: u64, round: u64) {
    for first in (0..keys).step_by(usize::try_from(at_a_time).unwrap()) {
        let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
        (first..keys.min(first + at_a_time)).for_each(|number| put(&mut batch, number, round));
        batch.commit().unwrap();
    }
}

/// Scans all of `store`, which holds the keys `0..keys` of `round`.
pub(super) fn check_scan(store: &impl ReadStore, keys: u64, round: u64) {
    let (mut count, mut sum) = (0_u64, 0_u64);
    for entry in store.scan(FAMILY).unwrap() {
        let entry = entry.unwrap();
        let number = u64::from_be_bytes(entry.key[8..].try_into().unwrap());
        assert!(entry.value == value(number, round)[..], "the value of {number}");
        (count, sum) = (count + 1, sum.wrapping_add(number));
    }
    assert_eq!((count, sum), (keys, (0..keys).fold(0, u64::wrapping_add)));
}

/// Gets every so-and-so-many-th key.
pub(super) fn check_gets(store: &impl ReadStore, keys: u64, step: usize, round: u64) {
    for number in (0..keys).step_by(step) {
        let found = store.get(FAMILY, &key(number)).unwrap();
        assert!(found.is_some_and(|found| found == value(number, round)[..]), "the value of {number}");
    }
}

pub(super) fn newest(provider: &RocksDbProvider) -> Version {
    provider.latest().unwrap()
}
