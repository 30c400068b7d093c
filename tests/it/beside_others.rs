//! Maintenance of a store that somebody else has taken over, writes to, or looks after as well.

use std::io;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::{Operation, Persistence};
use alluvium::prelude::*;
use alluvium::{Backend, ErrorKind, LocalCheckpoint, Result, RocksDbProvider, StateStoreId, StoreOptions, Version};

use super::care::*;

/// Whoever takes longer never comes back.
const SILENCE: Duration = Duration::from_mins(3);

fn commit(provider: &RocksDbProvider, version: u64, bytes: usize) -> Result<Version> {
    let mut batch = provider.begin(Version(version - 1))?;
    batch.put(FAMILY, &version.to_be_bytes(), &vec![b'x'; bytes])?;
    batch.commit()
}

fn within_time<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || sender.send(act()));
    let outcome = receiver.recv_timeout(SILENCE).expect("it never ends, or has panicked");
    thread.join().unwrap().unwrap();
    outcome
}

#[test]
fn the_maintenance_of_a_provider_that_was_taken_over_ends() {
    let disk = SimDisk::new(1);
    let old = open(&disk, manual());
    (1..=5).for_each(|version| _ = commit(&old, version, 100).unwrap());
    let new = open(&disk, manual());
    (6..=8).for_each(|version| _ = commit(&new, version, 1 << 20).unwrap());
    // What the plan asks for is a snapshot of a version that the old one does not have.
    within_time(move || old.maintain(GO_ON).unwrap());
    assert_eq!(new.begin(Version(8)).unwrap().scan(FAMILY).unwrap().count(), 8);
}

#[test]
fn an_opening_that_catches_up_beside_a_commit_that_comes_too_late_ends() {
    let disk = SimDisk::new(2);
    let old = open(&disk, manual());
    (1..=400).for_each(|version| _ = commit(&old, version, 5_000).unwrap());
    let mut late = old.begin(Version(400)).unwrap();
    late.put(FAMILY, b"late", &vec![1; 10 << 20]).unwrap();
    let (opens, sender) = (disk.clone(), channel());
    let opening = thread::spawn(move || {
        let provider = open(&opens, StoreOptions::default().retain_versions(1).unwrap());
        sender.0.send(provider).unwrap(); // with its claim: one that ended would let the late commit count
    });
    while files(&disk, "forks/00000000000000000002").is_empty() {
        thread::yield_now();
    }
    // Before the claim is confirmed it may still count.
    let committed = late.commit();
    let provider = sender.1.recv_timeout(SILENCE).expect("the opening never ends");
    opening.join().unwrap();
    match committed {
        Ok(version) => assert_eq!(provider.latest().unwrap(), version),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error}"),
    }
}

#[test]
fn a_commit_that_was_refused_since_its_writer_is_fenced_takes_no_version_from_the_next_one() {
    let disk = SimDisk::new(3);
    let old = open(&disk, manual());
    (1..=25).for_each(|version| _ = commit(&old, version, 10).unwrap());
    let new = open(&disk, manual());
    let refused = commit(&old, 26, 10).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{refused}");
    for retain in [2, 1] {
        maintenance(&disk, retain).maintain(GO_ON).unwrap();
        for version in 26 - retain as u64..=25 {
            let read = new.read_at(Version(version)).unwrap();
            assert_eq!(read.scan(FAMILY).unwrap().count() as u64, version, "{retain} retained");
        }
    }
    // Nor does it come back when a commit fails.
    disk.fail_at(1, &[Operation::Append], io::ErrorKind::StorageFull, Persistence::Once);
    commit(&new, 26, 10).unwrap_err();
    assert_eq!(new.latest().unwrap(), Version(25));
    assert_eq!(commit(&new, 26, 20).unwrap(), Version(26));
    let read = new.read_at(Version(26)).unwrap().get(FAMILY, &26_u64.to_be_bytes()).unwrap();
    assert_eq!(read.unwrap().len(), 20);
}

#[test]
fn a_store_that_is_maintained_by_hand_does_not_hold_up_the_others() {
    let disk = SimDisk::new(4);
    let backend = Backend::in_memory().unwrap();
    let open = |partition| {
        let checkpoint: LocalCheckpoint = checkpoint(&disk);
        let id = StateStoreId::new("op", partition, "state").unwrap();
        RocksDbProvider::open(&backend, checkpoint, id, StoreOptions::default().retain_versions(5).unwrap()).unwrap()
    };
    let (one, other) = (open(0), open(1));
    (1..=15).for_each(|version| _ = commit(&one, version, 200_000).unwrap());
    let (begun, goes_on) = (channel(), channel::<()>());
    let was_maintained = thread::scope(|scope| {
        let by_hand = scope.spawn(|| {
            let (told, waits) = (Mutex::new(Some(begun.0)), Mutex::new(goes_on.1));
            one.maintain(&|_| {
                if let Some(told) = told.lock().unwrap().take() {
                    told.send(()).unwrap();
                    waits.lock().unwrap().recv().unwrap();
                }
                ControlFlow::Continue(())
            })
        });
        begun.1.recv_timeout(SILENCE).expect("its maintenance has nothing to write");
        (16..=80).for_each(|version| _ = commit(&one, version, 10).unwrap());
        (1..=200).for_each(|version| _ = commit(&other, version, 10).unwrap());
        let was_maintained = comes(|| other.upkeep().tasks_done > 0);
        goes_on.0.send(()).unwrap();
        by_hand.join().unwrap().unwrap();
        was_maintained
    });
    assert!(was_maintained, "the other store was never maintained");
}

#[test]
fn a_snapshot_in_whose_place_a_damaged_one_lies_is_not_said_to_be_taken() {
    let disk = SimDisk::new(5);
    let provider = open(&disk, manual());
    (1..=20).for_each(|version| _ = commit(&provider, version, 10).unwrap());
    provider.snapshot().unwrap();
    drop(provider);
    disk.flip_bit(files(&disk, ".snapshot").pop().unwrap(), 8 * 20).unwrap();
    let provider = open(&disk, manual());
    let refused = provider.snapshot().unwrap_err();
    assert!(refused.is_corrupt() && refused.to_string().contains("repair the store"), "{refused}");
    let refused = maintenance(&disk, 100).compact(GO_ON).unwrap_err();
    assert!(refused.is_corrupt(), "{refused}");
    assert_eq!(provider.repair(GO_ON).unwrap().into_result().unwrap().remade.len(), 1);
    assert_eq!(provider.snapshot().unwrap(), Version(20));
    assert_eq!(maintenance(&disk, 100).verify(GO_ON).unwrap().damaged, []);
}
