//! A budget that is short: who waits, who is refused, who never is. Without RocksDB too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::store::Transaction;
use alluvium::{
    Backend, BackendOptions, ErrorKind, FamilyId, LocalCheckpoint, RocksDbProvider, StateStoreId, StoreOptions,
};

const FAMILY: FamilyId = FamilyId::DEFAULT;
const LIMIT: usize = 8 << 20;

fn backend(work: &Path) -> Backend {
    let options = BackendOptions::default().memory_limit(LIMIT).memory_timeout(Duration::ZERO);
    Backend::in_memory_with(work, options).unwrap()
}

fn open(backend: &Backend, name: &str) -> RocksDbProvider {
    let checkpoint = LocalCheckpoint::on(Arc::new(SimDisk::new(1)), "/checkpoint").unwrap();
    let id = StateStoreId::new("op", 0, name).unwrap();
    RocksDbProvider::open(backend, checkpoint, id, StoreOptions::default()).unwrap()
}

/// Transactions that are open and idle and hold all there is, together.
fn fill(providers: &[RocksDbProvider]) -> Vec<Transaction> {
    let mut open: Vec<_> = providers.iter().map(|one| one.begin(one.latest().unwrap()).unwrap()).collect();
    let mut number = 0_u32;
    // Each stops just before it would have to spill.
    for transaction in &mut open {
        for _ in 0..60 {
            number += 1;
            if transaction.put(FAMILY, &number.to_be_bytes(), &[1; 500]).is_err() {
                return open;
            }
        }
    }
    open
}

#[test]
fn m6_with_the_budget_full_reads_succeed_and_a_writer_learns_who_holds_it() {
    let work = tempfile::tempdir().unwrap();
    let backend = backend(work.path());
    let read = open(&backend, "read");
    let mut batch = read.begin(read.latest().unwrap()).unwrap();
    (0..1_000_u32).for_each(|n| batch.put(FAMILY, &n.to_be_bytes(), &[7; 100]).unwrap());
    let version = batch.commit().unwrap();
    let providers: Vec<_> = (0..80).map(|n| open(&backend, &format!("s{n}"))).collect();
    let mut held = fill(&providers);
    let memory = backend.memory();
    assert!(memory.shortages.refusals > 0, "{memory:?}");
    // A writer that holds nothing: there is nobody it could wait for, since all others are idle.
    let mut refused = read.begin(version).unwrap();
    let error = refused.put(FAMILY, b"one more", &vec![0; 60 << 10]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::MemoryLimit { .. }), "{error}");
    assert!(error.to_string().contains("transaction of op/0/s"), "{error}");
    refused.abort();
    // Reads of all kinds, in a view and in the transactions that hold the memory.
    let view = read.read_at(version).unwrap();
    assert_eq!(view.scan(FAMILY).unwrap().map(Result::unwrap).count(), 1_000);
    assert!(view.get(FAMILY, &5_u32.to_be_bytes()).unwrap().is_some());
    let transaction = read.begin(version).unwrap();
    assert_eq!(transaction.scan(FAMILY).unwrap().map(Result::unwrap).count(), 1_000);
    assert!(transaction.contains(FAMILY, &999_u32.to_be_bytes()).unwrap());
    transaction.abort();
    let found: usize =
        held.iter().filter(|one| one.scan(FAMILY).is_ok()).map(|one| one.scan(FAMILY).unwrap().count()).sum();
    assert!(found > 500, "{found}");
    // When the others have gone, there is room again.
    held.clear();
    assert!(backend.memory().holders.iter().all(|holder| holder.kind != "transaction"));
    let mut batch = read.begin(version).unwrap();
    batch.put(FAMILY, b"one more", &vec![0; 60 << 10]).unwrap();
    batch.commit().unwrap();
}

#[test]
fn m10_stores_that_close_leave_their_memory_to_those_that_are_open() {
    let work = tempfile::tempdir().unwrap();
    let backend = backend(work.path());
    let stays = open(&backend, "stays");
    let base = backend.memory().held_bytes;
    for round in 0..50_u32 {
        let comes = open(&backend, &format!("comes{}", round % 3));
        let mut other = comes.begin(comes.latest().unwrap()).unwrap();
        (0..1_000_u32).for_each(|n| other.put(FAMILY, &n.to_be_bytes(), &[1; 200]).unwrap());
        let mut batch = stays.begin(stays.latest().unwrap()).unwrap();
        (0..1_000_u32).for_each(|n| batch.put(FAMILY, &n.to_be_bytes(), &[2; 200]).unwrap());
        batch.commit().unwrap();
        if round % 2 == 0 {
            other.commit().unwrap();
        } else {
            other.abort();
        }
        drop(comes);
        let memory = backend.memory();
        assert!(memory.holders.iter().all(|holder| holder.kind != "transaction"), "{memory:?}");
    }
    stays.settle().unwrap();
    let memory = backend.memory();
    // Filters of the one store that is open, and what the index in heap has; nothing of those that left.
    assert!(memory.held_bytes < base + (4 << 20), "{memory:?}");
    assert_eq!(memory.shortages.refusals, 0);
}

#[test]
fn m15_a_scan_outlives_its_provider_and_counts_until_it_ends() {
    let work = tempfile::tempdir().unwrap();
    let backend = backend(work.path());
    let provider = open(&backend, "state");
    let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
    // More than the transaction's memory, so that the open scan reads spilled parts as well.
    (0..40_000_u32).for_each(|n| batch.put(FAMILY, &n.to_be_bytes(), &[3; 100]).unwrap());
    let mut of_transaction = batch.scan(FAMILY).unwrap();
    assert_eq!(of_transaction.next().unwrap().unwrap().key[..], 0_u32.to_be_bytes());
    let version = batch.commit().unwrap();
    let mut of_view = provider.read_at(version).unwrap().scan(FAMILY).unwrap();
    of_view.next().unwrap().unwrap();
    assert_eq!(provider.open_scans(), 2);
    drop(provider);
    let ahead = of_view.map(Result::unwrap).count();
    assert_eq!((ahead, of_transaction.map(Result::unwrap).count()), (39_999, 39_999));
    assert!(backend.memory().shortages.spills > 0);
    assert_eq!(std::fs::read_dir(work.path().join("spill")).unwrap().count(), 0);
    drop(backend);
    drop(backend_again(work.path()));
}

/// The work directory can be taken again, so nothing of the first backend is left.
fn backend_again(work: &Path) -> Backend {
    backend(work)
}

#[test]
fn parts_that_a_crash_left_behind_are_gone_after_an_open() {
    let work = tempfile::tempdir().unwrap();
    drop(backend(work.path()));
    std::fs::write(work.path().join("spill/00000007.part"), b"left behind").unwrap();
    let _again = backend(work.path());
    assert_eq!(std::fs::read_dir(work.path().join("spill")).unwrap().count(), 0);
}
