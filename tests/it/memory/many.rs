//! Many stores in one process.

use std::path::Path;
use std::thread;

use alluvium::Residency;
use alluvium::prelude::*;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::child::{run, tell};
use super::stores::{CONSTANT, ENTRY_BYTES, FAMILY, LIMIT, backend, check_scan, key, load, newest, open};
use super::watch::Watch;

/// Twelve stores, four threads, ten times the limit in all.
pub(super) fn twelve_stores(place: &Path) {
    let watch = Watch::start();
    let backend = backend(place, LIMIT);
    let keys = 10 * LIMIT as u64 / ENTRY_BYTES / 12;
    thread::scope(|scope| {
        for thread in 0..4 {
            let backend = &backend;
            scope.spawn(move || {
                for store in 0..3 {
                    let residency = if store == 0 { Residency::Resident } else { Residency::Mapped };
                    let provider = open(backend, place, &format!("s{}", thread * 3 + store), residency);
                    load(&provider, keys, 5_000, 0);
                    if store > 0 {
                        provider.snapshot().unwrap();
                    }
                    check_scan(&provider.begin(newest(&provider)).unwrap(), keys, 0);
                }
            });
        }
    });
    tell("peak", watch.peak_bytes());
    tell(
        "held by transactions",
        backend.memory().holders.iter().filter(|one| one.kind == "transaction").count() as u64,
    );
}

#[test]
fn m1_twelve_stores_share_one_limit() {
    let place = tempfile::tempdir().unwrap();
    let numbers = run("twelve", place.path());
    assert!(numbers["peak"] <= LIMIT as u64 + CONSTANT, "{numbers:?}");
    assert_eq!(numbers["held by transactions"], 0);
}

/// 64 stores, all open, with 256 files for the process.
pub(super) fn few_files(place: &Path) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: Some(256) }).unwrap();
    let backend = alluvium::Backend::open(
        place.join("work"),
        alluvium::BackendOptions::default().memory_limit(LIMIT).max_open_files(64),
    );
    let backend = backend.unwrap();
    let providers: Vec<_> = (0..64).map(|n| open(&backend, place, &format!("s{n}"), Residency::Mapped)).collect();
    for round in 0..20 {
        for provider in &providers {
            load(provider, 200, 200, round);
        }
    }
    for provider in &providers {
        provider.settle().unwrap();
        provider.snapshot().unwrap();
        check_scan(&provider.begin(newest(provider)).unwrap(), 200, 19);
    }
    tell("stores", providers.len() as u64);
}

#[test]
fn f1_sixty_four_stores_work_with_256_open_files() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(run("few-files", place.path())["stores"], 64);
}

/// M11: many families and stores, each far below any flush of its own, the sum far above what memtables may have.
#[test]
fn m11_many_small_writers_at_the_limit_go_on_and_nobody_waits() {
    let place = tempfile::tempdir().unwrap();
    let backend = backend(place.path(), LIMIT);
    let providers: Vec<_> =
        (0..16).map(|n| open(&backend, place.path(), &format!("s{n}"), Residency::Resident)).collect();
    for round in 0..40_u64 {
        for provider in &providers {
            let mut batch = provider.begin(newest(provider)).unwrap();
            for family in 0..8 {
                let family = batch.create_family(&format!("f{family}")).unwrap();
                (0..20).for_each(|n| batch.put(family, &key(round * 20 + n), &[1; 100]).unwrap());
            }
            batch.commit().unwrap();
        }
    }
    for provider in &providers {
        provider.settle().unwrap();
        let batch = provider.begin(newest(provider)).unwrap();
        let family = batch.family("f7").unwrap();
        assert_eq!(batch.scan(family).unwrap().count(), 800);
        assert_eq!(batch.scan(FAMILY).unwrap().count(), 0);
    }
    let memory = backend.memory();
    assert!(memory.index.memtables_bytes <= LIMIT as u64 / 2, "{memory:?}");
    assert_eq!((memory.shortages.waiting, memory.shortages.refusals), (0, 0));
}
