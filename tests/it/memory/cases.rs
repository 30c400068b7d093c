//! The cases that need a process of their own: what it does, and what must hold of its numbers.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::prelude::*;
use alluvium::{ErrorKind, LocalCheckpoint, Residency, RocksDbProvider, StateStoreId, StoreOptions};

use super::child::{Numbers, run as run_in_child, tell};
use super::many;
use super::stores::{
    CONSTANT, FAMILY, KEYS, LIMIT, backend, check_gets, check_scan, key, load, newest, open, open_with, put,
};
use super::watch::{Watch, anonymous_bytes};

/// The child's side.
pub(super) fn run(case: &str, place: &Path) {
    match case {
        "large-mapped" => large_state(place, Residency::Mapped),
        "large-resident" => large_state(place, Residency::Resident),
        "restored-mapped" => restored(place, Residency::Mapped),
        "restored-resident" => restored(place, Residency::Resident),
        "ten-times" => ten_times_the_limit(place),
        "thousand" => a_thousand_commits(place),
        "overwritten" => overwritten(place),
        "opened" => opened(place),
        "twelve" => many::twelve_stores(place),
        "few-files" => many::few_files(place),
        _ => panic!("no case {case}"),
    }
}

/// The peak of every phase told is within the limit and the constant.
fn assert_within_limit(numbers: &Numbers) {
    for (name, bytes) in numbers.iter().filter(|(name, _)| name.ends_with("peak")) {
        assert!(*bytes <= LIMIT as u64 + CONSTANT, "{name}: {} KiB", bytes >> 10);
    }
}

/// Loads 20 times the limit, overwrites, snapshots, scans, reads an old version.
fn large_state(place: &Path, residency: Residency) {
    let watch = Watch::start();
    let backend = backend(place, LIMIT);
    let provider = open(&backend, place, "state", residency);
    load(&provider, KEYS, 100_000, 0);
    let loaded = newest(&provider);
    tell("load peak", watch.peak_bytes());
    let mut batch = provider.begin(loaded).unwrap();
    (0..KEYS).step_by(20).for_each(|number| put(&mut batch, number, 1));
    batch.commit().unwrap();
    tell("overwrite peak", watch.peak_bytes());
    provider.snapshot().unwrap();
    tell("snapshot peak", watch.peak_bytes());
    let before = anonymous_bytes();
    let transaction = provider.begin(newest(&provider)).unwrap();
    assert_eq!(transaction.scan(FAMILY).unwrap().map(Result::unwrap).count() as u64, KEYS);
    drop(transaction);
    let peak = watch.peak_bytes();
    tell("scan peak", peak);
    tell("scan growth", peak.saturating_sub(before));
    check_scan(&provider.read_at(loaded).unwrap(), KEYS, 0);
    check_gets(&provider.read_at(loaded).unwrap(), KEYS, 13, 0);
    tell("old version peak", watch.peak_bytes());
    let held = backend.memory().held_bytes;
    tell("held", held);
    tell("unexplained", anonymous_bytes().saturating_sub(held));
}

/// Opens what `large_state` left, with the work directory gone.
fn restored(place: &Path, residency: Residency) {
    fs::remove_dir_all(place.join("work")).unwrap();
    let watch = Watch::start();
    let backend = backend(place, LIMIT);
    let reported = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&reported);
    let options = StoreOptions::default().residency(residency).observe_restore(move |progress| {
        assert!(progress.done_bytes <= progress.total_bytes);
        heard.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    let provider = open_with(&backend, place, "state", options);
    tell("restore peak", watch.peak_bytes());
    tell("reports", reported.load(Ordering::Relaxed));
    let transaction = provider.begin(newest(&provider)).unwrap();
    let every_twentieth = (0..KEYS).step_by(20).filter(|number| number % 260 == 0);
    for number in every_twentieth {
        let found = transaction.get(FAMILY, &key(number)).unwrap();
        assert!(found.is_some_and(|found| found == super::stores::value(number, 1)[..]));
    }
    tell("reads peak", watch.peak_bytes());
}

#[test]
fn m3_m24_a_state_of_twenty_times_the_limit_is_loaded_scanned_and_restored_within_it() {
    for residency in ["mapped", "resident"] {
        let place = tempfile::tempdir().unwrap();
        let numbers = run_in_child(&format!("large-{residency}"), place.path());
        assert_within_limit(&numbers);
        // What a scan may hold: pages in the cache, which is bounded, and what the allocator keeps.
        assert!(numbers["scan growth"] < LIMIT as u64, "{numbers:?}");
        assert!(numbers["unexplained"] < CONSTANT, "{numbers:?}");
        let numbers = run_in_child(&format!("restored-{residency}"), place.path());
        assert_within_limit(&numbers);
        assert_eq!(numbers["reports"] > 0, residency == "resident", "{numbers:?}");
    }
}

#[test]
fn a_restore_can_be_cancelled_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let first = backend(&place.path().join("first"), LIMIT);
    let provider = open(&first, place.path(), "state", Residency::Mapped);
    load(&provider, 100_000, 100_000, 0);
    provider.snapshot().unwrap();
    drop(provider);
    let second = backend(&place.path().join("second"), LIMIT);
    let cancelled = |place: &Path| {
        let checkpoint = LocalCheckpoint::open(place.join("checkpoint")).unwrap();
        let options =
            StoreOptions::default().residency(Residency::Resident).observe_restore(|_| ControlFlow::Break(()));
        RocksDbProvider::open(&second, checkpoint, StateStoreId::new("op", 0, "state").unwrap(), options)
    };
    assert_eq!(*cancelled(place.path()).unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(second.memory().holders.iter().all(|holder| holder.kind != "restore"));
    let provider = open(&second, place.path(), "state", Residency::Resident);
    check_gets(&provider.read_at(newest(&provider)).unwrap(), 100_000, 97, 0);
}

/// One transaction of ten times the limit: aborted once, scanned while it is open, committed.
fn ten_times_the_limit(place: &Path) {
    let keys = KEYS / 2;
    let watch = Watch::start();
    let backend = backend(place, LIMIT);
    let provider = open(&backend, place, "state", Residency::Mapped);
    let mut batch = provider.begin(newest(&provider)).unwrap();
    (0..keys).for_each(|number| put(&mut batch, number, 7));
    assert!(fs::read_dir(place.join("work/spill")).unwrap().count() > 0);
    batch.abort();
    assert_eq!(fs::read_dir(place.join("work/spill")).unwrap().count(), 0, "an abort leaves no trace");
    assert_eq!(newest(&provider).0, 0);
    tell("abort peak", watch.peak_bytes());
    let mut batch = provider.begin(newest(&provider)).unwrap();
    (0..keys).for_each(|number| put(&mut batch, number, 0));
    tell("write peak", watch.peak_bytes());
    check_scan(&batch, keys, 0);
    check_gets(&batch, keys, 31, 0);
    tell("scan peak", watch.peak_bytes());
    batch.commit().unwrap();
    tell("commit peak", watch.peak_bytes());
    assert_eq!(fs::read_dir(place.join("work/spill")).unwrap().count(), 0);
    let shortages = backend.memory().shortages;
    tell("spills", shortages.spills);
    tell("refusals", shortages.refusals);
    check_scan(&provider.read_at(newest(&provider)).unwrap(), keys, 0);
}

#[test]
fn m4_one_transaction_of_ten_times_the_limit_commits_and_can_be_scanned_and_aborted() {
    let place = tempfile::tempdir().unwrap();
    let numbers = run_in_child("ten-times", place.path());
    assert_within_limit(&numbers);
    assert!(numbers["spills"] >= 20 && numbers["refusals"] == 0, "{numbers:?}");
}

/// Many commits over the same keys; afterwards nothing is held that was not held early on.
fn a_thousand_commits(place: &Path) {
    let backend = backend(place, LIMIT);
    let provider = open(&backend, place, "state", Residency::Mapped);
    load(&provider, 50_000, 50_000, 0);
    for round in 1..=1_000 {
        let mut batch = provider.begin(newest(&provider)).unwrap();
        (0..2_000).for_each(|step| put(&mut batch, (round * 2_000 + step) % 50_000, round));
        batch.commit().unwrap();
        let memory = backend.memory();
        assert!(memory.holders.iter().all(|holder| holder.kind != "transaction"), "{memory:?}");
        if round == 200 {
            tell("early", anonymous_bytes());
        }
    }
    tell("late", anonymous_bytes());
    provider.retire(100).unwrap();
}

#[test]
fn m5_after_a_thousand_commits_memory_is_where_it_was_early_on() {
    let place = tempfile::tempdir().unwrap();
    let numbers = run_in_child("thousand", place.path());
    assert!(numbers["late"] < numbers["early"] + LIMIT as u64, "{numbers:?}");
}

/// A hundred overwrites of the same keys, replayed without the index.
fn overwritten(place: &Path) {
    let keys = 30_000;
    {
        let backend = backend(place, 64 << 20);
        let provider = open_with(&backend, place, "state", StoreOptions::default().longest_tail(1_000).unwrap());
        (0..100).for_each(|round| load(&provider, keys, keys, round));
    }
    fs::remove_dir_all(place.join("work")).unwrap();
    let watch = Watch::start();
    let backend = backend(place, LIMIT);
    let provider = open(&backend, place, "state", Residency::Mapped);
    provider.settle().unwrap();
    assert_eq!(provider.tail_length(), 0);
    tell("replay peak", watch.peak_bytes());
    check_scan(&provider.begin(newest(&provider)).unwrap(), keys, 99);
    tell("scan peak", watch.peak_bytes());
}

#[test]
fn m25_replaying_a_hundred_overwrites_of_the_same_keys_keeps_to_the_limit() {
    let place = tempfile::tempdir().unwrap();
    assert_within_limit(&run_in_child("overwritten", place.path()));
}

/// Opens a store in a fresh process and a fresh work directory.
fn opened(place: &Path) {
    let backend = backend(&place.join("fresh"), LIMIT);
    let before = anonymous_bytes();
    let provider = open(&backend, place, "state", Residency::Mapped);
    let view = provider.read_at(newest(&provider)).unwrap();
    check_gets(&view, 20_000, 1_000, 0);
    tell("growth", anonymous_bytes().saturating_sub(before));
}

#[test]
fn m27_the_heap_of_an_open_does_not_depend_on_the_number_of_keys() {
    let growth = [20_000, 1_000_000].map(|keys| {
        let place = tempfile::tempdir().unwrap();
        let backend = backend(place.path(), LIMIT);
        let provider = open(&backend, place.path(), "state", Residency::Mapped);
        load(&provider, keys, 20_000, 0);
        provider.snapshot().unwrap();
        drop((provider, backend));
        run_in_child("opened", place.path())["growth"]
    });
    assert!(growth[1] < growth[0] + (512 << 10), "{growth:?}");
}
