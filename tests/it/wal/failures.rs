//! Disks that say no.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use std::{io, panic};

use alluvium::fs::SimDisk;
use alluvium::fs::sim::{Operation, Persistence};
use alluvium::wal::{Durability, FileLog, LogOptions, Lsn, NewRecord, Planted, Wait, WriteAheadLog, WriteOptions};
use alluvium::{Backend, ErrorKind};

use super::disk::Beside;
use super::support::*;
use crate::care;

/// Writes with one failure on the way; afterwards every acknowledged record is there, once and in order.
fn fail_once(
    options: &LogOptions,
    nth: u64,
    operations: &[Operation],
    error: io::ErrorKind,
    planted: Planted,
) -> Result<bool, String> {
    let sim = SimDisk::new(nth);
    let log = open_planted(&sim, options, planted).unwrap();
    sim.fail_at(nth, operations, error, Persistence::Once);
    let mut acknowledged = Vec::new();
    for number in 0..12_u64 {
        let text = format!("{number} {}", "f".repeat(usize::try_from(number * 131 % 900).unwrap()));
        if log.write(text.as_bytes(), number).is_ok() {
            acknowledged.push(text.into_bytes());
        }
        if number == 8 {
            drop(log.clean_below(Lsn(2)));
        }
    }
    drop(log.close());
    let fired = sim.faults_fired() > 0;
    let all = read_all(&log).map_err(|error| error.to_string())?;
    let check = |found: &[Read]| {
        let mut rest = found.iter();
        let cleaned = acknowledged
            .iter()
            .skip_while(|payload| found.first().is_some_and(|first| first.lsn > 1 && first.payload != **payload));
        for payload in cleaned {
            if !rest.any(|read| read.payload == *payload) {
                return Err(format!(
                    "acknowledged, but not among {:?}: {}",
                    found.iter().map(|r| (r.lsn, r.time_ms)).collect::<Vec<_>>(),
                    String::from_utf8_lossy(&payload[..10.min(payload.len())])
                ));
            }
        }
        Ok(())
    };
    check(&all)?;
    drop(log);
    let after = sim.survive(alluvium::fs::sim::Survivors::None);
    for sim in [&sim, &after] {
        sim.clear_faults();
        let log = open_planted(sim, options, planted).map_err(|error| format!("reopening: {error}"))?;
        check(&read_all(&log).map_err(|error| format!("rereading: {error}"))?)?;
    }
    Ok(fired)
}

#[test]
fn any_operation_that_fails_once_loses_nothing_acknowledged() {
    let mut fired = 0;
    let unforgiving = LogOptions { rewrites_after_failed_sync: false, ..small() };
    let closing = LogOptions { close_after_write: true, ..small() };
    let recycling = LogOptions { recycles: 1, preallocates: true, ..small() };
    for options in [small(), recycling, unforgiving, closing.clone(), LogOptions { recycles: 1, ..closing }] {
        for error in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
            for nth in 1..150 {
                match fail_once(&options, nth, &[], error, Planted::Nothing) {
                    Ok(true) => fired += 1,
                    Ok(false) => break,
                    Err(wrong) => panic!("{error:?} at operation {nth}: {wrong}"),
                }
            }
        }
    }
    assert!(fired > 100, "{fired}");
}

#[test]
fn a_failed_sync_is_followed_by_a_new_segment_and_a_second_one_stops_the_log() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    log.write(b"one", 1).unwrap();
    sim.fail_at(1, &[Operation::Sync], io::ErrorKind::Other, Persistence::Once);
    let handle = log.write(b"two", 2).unwrap();
    assert_eq!((handle.segment, handle.lsn), (2, Lsn(2)));
    assert_eq!(payloads(&log), ["one", "two"]);
    sim.fail_at(1, &[Operation::Sync], io::ErrorKind::Other, Persistence::ForEver);
    assert!(matches!(log.write(b"three", 3).unwrap_err().kind(), ErrorKind::Io { .. }));
    sim.clear_faults();
    assert!(matches!(log.write(b"four", 4).unwrap_err().kind(), ErrorKind::Poisoned));
    assert_eq!(log.durable_lsn(), Lsn(2));
    drop(log);
    let after = sim.survive(alluvium::fs::sim::Survivors::None);
    assert_eq!(payloads(&open(&after, &small()).unwrap()), ["one", "two"]);
}

#[test]
fn without_rewriting_the_writers_get_the_error_and_the_log_goes_on() {
    let sim = SimDisk::new(1);
    let options = LogOptions { rewrites_after_failed_sync: false, ..small() };
    let log = open(&sim, &options).unwrap();
    log.write(b"one", 1).unwrap();
    sim.fail_at(1, &[Operation::Sync], io::ErrorKind::Other, Persistence::Once);
    assert!(log.write(b"two", 2).is_err());
    assert_eq!(log.write(b"three", 3).unwrap().segment, 2);
    // So that the segment itself says that LSN 3 was durable, which is more than the lost record's.
    log.write(b"four", 4).unwrap();
    drop(log);
    let after = sim.survive(alluvium::fs::sim::Survivors::None);
    let log = open(&after, &options).unwrap();
    assert_eq!(payloads(&log), ["one", "three", "four"]);
    assert_eq!(log.recovery().never_durable, [Lsn(2)]);
    let found = alluvium::wal::inspect::verify(&after, std::path::Path::new(DIR), &mut |_| ()).unwrap();
    assert!(!found.has_loss(), "{found:?}");
}

#[test]
fn retrying_a_failed_sync_would_lose_records() {
    let wrong = (1..40).any(|nth| {
        fail_once(&small(), nth, &[Operation::Sync], io::ErrorKind::Other, Planted::RetryFailedSync).is_err()
    });
    assert!(wrong);
    for nth in 1..40 {
        fail_once(&small(), nth, &[Operation::Sync], io::ErrorKind::Other, Planted::Nothing).unwrap();
    }
}

#[test]
fn a_full_disk_is_a_typed_error_and_the_log_resumes_by_itself() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    for number in 0..100 {
        log.write(format!("record {number}").as_bytes(), number).unwrap();
    }
    sim.fail_at(1, &[Operation::Append, Operation::Create], io::ErrorKind::StorageFull, Persistence::ForEver);
    for _ in 0..3 {
        assert!(matches!(log.write(b"no room", 200).unwrap_err().kind(), ErrorKind::DiskFull { .. }));
    }
    assert_eq!(payloads(&log).len(), 100);
    sim.clear_faults();
    log.clean(50, Wait::ForIt).unwrap();
    assert_eq!(log.write(b"room again", 201).unwrap().lsn, Lsn(101));
    drop(log);
    let log = open(&sim, &small()).unwrap();
    assert_eq!(payloads(&log).last().unwrap(), "room again");
}

/// A log whose disk is full from the second record on, and beside that one a writer who left.
fn full_beside_one_who_left() -> (SimDisk, Arc<FileLog>) {
    let sim = SimDisk::new(1);
    let disk = Beside::new(&sim);
    let clock = Arc::new(alluvium::SystemClock::new());
    let ids = alluvium::IdSource::seeded(1);
    let log = Arc::new(FileLog::open_on(Arc::new(disk.clone()), DIR, small(), clock, ids).unwrap());
    log.write(b"one", 1).unwrap();
    let (beside, full, mut has_left) = (Arc::downgrade(&log), sim.clone(), false);
    disk.set(move || {
        if !std::mem::replace(&mut has_left, true) {
            let log = beside.upgrade().unwrap();
            let at_once = WriteOptions { timeout: Some(Duration::ZERO), ..WriteOptions::default() };
            let left = thread::spawn(move || log.write_with(&[NewRecord::new(b"left", 3)], &at_once));
            let error = left.join().unwrap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unknown { lsn: 3 }), "{error}");
            full.fail_at(1, &[Operation::Append, Operation::Create], io::ErrorKind::StorageFull, Persistence::ForEver);
        }
    });
    for text in ["two", "three"] {
        let error = log.write(text.as_bytes(), 2).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error}");
    }
    assert_eq!(log.durable_lsn(), Lsn(1));
    (sim, log)
}

#[test]
fn after_a_full_disk_the_record_of_one_who_left_is_written_first() {
    let (sim, log) = full_beside_one_who_left();
    sim.clear_faults();
    assert_eq!(log.write(b"four", 4).unwrap().lsn, Lsn(4));
    assert_eq!((payloads(&*log), log.durable_lsn()), (vec!["one".into(), "left".into(), "four".into()], Lsn(4)));
    log.close().unwrap();
    let log = open(&sim, &small()).unwrap();
    assert_eq!(payloads(&log), ["one", "left", "four"]);
    assert_eq!(log.recovery().never_durable, [Lsn(2)], "the LSN of the one who was refused");
}

#[test]
fn closing_writes_the_record_of_one_who_left_if_there_is_room() {
    for has_room in [false, true] {
        let (sim, log) = full_beside_one_who_left();
        if has_room {
            sim.clear_faults();
        }
        log.close().unwrap();
        assert_eq!(log.durable_lsn(), if has_room { Lsn(3) } else { Lsn(1) });
        sim.clear_faults();
        let found = payloads(&open(&sim, &small()).unwrap());
        assert_eq!(found, if has_room { vec!["one", "left"] } else { vec!["one"] });
    }
}

#[test]
fn who_will_not_wait_gets_its_turn_though_what_is_owed_fills_the_queue() {
    let (backend, sim) = (Backend::in_memory().unwrap(), SimDisk::new(1));
    let disk = Beside::new(&sim);
    let clock = Arc::new(alluvium::SystemClock::new());
    let memory = Some(backend.share_memory());
    let options = LogOptions { queue_bytes: 1000, memory, segment_bytes: 1 << 20, ..small() };
    let ids = alluvium::IdSource::seeded(1);
    let log = Arc::new(FileLog::open_on(Arc::new(disk.clone()), DIR, options, clock, ids).unwrap());
    log.write(b"one", 1).unwrap();
    let at_once = || WriteOptions { timeout: Some(Duration::ZERO), ..WriteOptions::default() };
    let (beside, full, queue, mut has_left) = (Arc::downgrade(&log), sim.clone(), backend, false);
    let stayed = Arc::new(Mutex::new(None));
    let stays = Arc::clone(&stayed);
    disk.set(move || {
        if !std::mem::replace(&mut has_left, true) {
            // One who leaves at once, and one who waits, in a batch that will not fit.
            let log = beside.upgrade().unwrap();
            let left = Arc::clone(&log);
            let left = thread::spawn(move || left.write_with(&[NewRecord::new(&[b'l'; 600], 3)], &at_once()));
            assert!(matches!(left.join().unwrap().unwrap_err().kind(), ErrorKind::Unknown { lsn: 3 }));
            *stays.lock().unwrap() = Some(thread::spawn(move || log.write(&[b's'; 200], 4)));
            let is_queued = || queue.memory().holders.iter().any(|one| one.kind == "log queue" && one.bytes > 800);
            assert!(care::comes(is_queued));
            full.fail_at(2, &[Operation::Append, Operation::Create], io::ErrorKind::StorageFull, Persistence::ForEver);
        }
    });
    log.write(b"two", 2).unwrap();
    let stayed = stayed.lock().unwrap().take().unwrap();
    assert!(matches!(stayed.join().unwrap().unwrap_err().kind(), ErrorKind::Unknown { lsn: 4 }));
    sim.clear_faults();
    let written = log.write_with(&[NewRecord::new(&[b'n'; 900], 5)], &at_once());
    assert_eq!(written.unwrap().first().unwrap().lsn, Lsn(5));
    assert_eq!(read_all(&*log).unwrap().len(), 5, "what was owed came first");
}

#[test]
fn a_full_disk_stops_no_log_whose_records_wait_for_their_sync_either() {
    let options = LogOptions { durability: Durability::None, ..small() };
    let text = |number: usize| format!("{number} {}", "n".repeat(700));
    for nth in 1..14 {
        let sim = SimDisk::new(nth);
        let log = open(&sim, &options).unwrap();
        let mut written: Vec<String> = (0..4).map(text).collect();
        for text in &written {
            log.write(text.as_bytes(), 1).unwrap();
        }
        // Also where a segment ends, or begins.
        sim.fail_at(nth, &[Operation::Append, Operation::Create], io::ErrorKind::StorageFull, Persistence::ForEver);
        let error = (4..30).find_map(|number| {
            let refused = log.write(text(number).as_bytes(), 1).err();
            refused.is_none().then(|| written.push(text(number)));
            refused
        });
        assert!(matches!(error.unwrap().kind(), ErrorKind::DiskFull { .. }), "at {nth}");
        sim.clear_faults();
        log.write(b"room again", 1).unwrap_or_else(|error| panic!("at {nth}: {error}"));
        written.push("room again".into());
        assert!(payloads(&log) == written, "at {nth}");
        drop(log);
        assert!(payloads(&open(&sim, &options).unwrap()) == written, "at {nth}, after opening again");
    }
}

#[test]
fn too_many_open_files_change_nothing() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    log.write(b"one", 1).unwrap();
    sim.fail_at(1, &[Operation::Create], io::ErrorKind::Other, Persistence::ForEver);
    assert!(matches!(log.write(b"two", 1_000_000).unwrap_err().kind(), ErrorKind::Io { .. }));
    sim.clear_faults();
    assert_eq!(log.write(b"two", 1_000_000).unwrap().lsn, Lsn(2));
    assert_eq!(payloads(&log), ["one", "two"]);
}

#[test]
fn a_failed_delete_is_reported_and_tried_again() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { recycles: 0, ..small() }).unwrap();
    for number in 0..200 {
        log.write(format!("record {number}").as_bytes(), number).unwrap();
    }
    sim.fail_at(1, &[Operation::Remove], io::ErrorKind::Other, Persistence::ForEver);
    let cleaned = log.clean(100, Wait::ForIt).unwrap();
    assert!(cleaned.deleted == 0 && cleaned.failed.len() == cleaned.segments && cleaned.segments > 0);
    let left = payloads(&log);
    let files = segments(&sim).len();
    sim.clear_faults();
    drop(log);
    let log = open(&sim, &small()).unwrap();
    assert_eq!(payloads(&log), left);
    assert_eq!(segments(&sim).len(), files - cleaned.segments, "opening removes what is given up");
    log.clean(100, Wait::ForIt).unwrap();
}

#[test]
fn names_that_cannot_be_synced_leave_no_heap_of_empty_segments() {
    for options in [small(), LogOptions { recycles: 2, ..small() }, LogOptions { close_after_write: true, ..small() }] {
        let sim = SimDisk::new(1);
        let log = open(&sim, &options).unwrap();
        let text = |number: u64| format!("{number} {}", "s".repeat(900));
        let mut written: Vec<String> = (0..4).map(text).collect();
        for text in &written {
            log.write(text.as_bytes(), 1).unwrap();
        }
        let before = segments(&sim).len();
        sim.fail_at(1, &[Operation::SyncDir], io::ErrorKind::Other, Persistence::ForEver);
        for number in 4..60 {
            if log.write(text(number).as_bytes(), 1).is_ok() {
                written.push(text(number));
            }
        }
        assert!(written.len() < 20 && segments(&sim).len() <= before + 2, "{options:?}: {:?}", segments(&sim));
        sim.clear_faults();
        log.write(b"goes on", 1).unwrap();
        written.push("goes on".into());
        assert!(payloads(&log) == written, "{options:?}");
        drop(log);
        for sim in [sim.survive(alluvium::fs::sim::Survivors::None), sim] {
            assert!(payloads(&open(&sim, &options).unwrap()) == written, "{options:?}, after opening again");
        }
    }
}

#[test]
fn an_opening_on_a_full_disk_takes_the_reserve_to_keep_what_it_cuts() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    log.write(b"one", 1).unwrap();
    drop(log);
    let path = segments(&sim).pop().unwrap();
    let torn = [&sim.read_file(&path).unwrap()[..], b"torn"].concat();
    sim.write_file(&path, &torn).unwrap();
    for operation in [Operation::Create, Operation::Append, Operation::Sync] {
        let found = sim.fork();
        assert!(found.read_file("/log/reserve").is_ok());
        found.fail_at(1, &[operation], io::ErrorKind::StorageFull, Persistence::Once);
        let log = open(&found, &small()).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        assert_eq!(found.faults_fired(), 1);
        let (bytes, aside) = log.recovery().cut.clone().unwrap();
        assert_eq!((bytes, &found.read_file(aside).unwrap()[..]), (4, &b"torn"[..]), "{operation:?}");
        assert!(found.read_file("/log/reserve").is_err(), "{operation:?}");
        log.write(b"two", 2).unwrap();
        assert_eq!(payloads(&log), ["one", "two"]);
        assert!(found.read_file("/log/reserve").is_ok(), "there is room for one again");
    }
}

#[test]
fn a_clock_that_runs_backwards_changes_no_order() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let times = [5_000, 100_000, 3, 200_000, 0, 50];
    for (number, time) in times.into_iter().enumerate() {
        log.write(number.to_string().as_bytes(), time).unwrap();
    }
    assert_eq!(payloads(&log), ["0", "1", "2", "3", "4", "5"]);
    // The first segment holds 5_000 only; the second one is as new as 100_000, whatever came later.
    log.clean(6_000, Wait::ForIt).unwrap();
    assert_eq!(payloads(&log)[0], "1");
    log.clean(99_000, Wait::ForIt).unwrap();
    assert_eq!(payloads(&log)[0], "1");
}

#[test]
fn the_queue_counts_against_the_memory_of_the_backend_that_it_shares() {
    let backend = Backend::in_memory().unwrap();
    let disk = Beside::new(&SimDisk::new(1));
    let clock = Arc::new(alluvium::SystemClock::new());
    let ids = alluvium::IdSource::seeded(1);
    let options = LogOptions { memory: Some(backend.share_memory()), segment_bytes: 1 << 20, ..LogOptions::default() };
    let log = Arc::new(FileLog::open_on(Arc::new(disk.clone()), DIR, options, clock, ids).unwrap());
    log.write(b"one", 1).unwrap();
    let held = |backend: &Backend| {
        let of_queue = backend.memory().holders.into_iter().filter(|holder| holder.kind == "log queue");
        of_queue.map(|holder| holder.bytes).sum::<u64>()
    };
    let (beside, seen, mut has_left) = (Arc::downgrade(&log), backend.clone(), false);
    disk.set(move || {
        if !std::mem::replace(&mut has_left, true) {
            // Another writer comes while this one is writing, and does not wait for its turn.
            let log = beside.upgrade().unwrap();
            let at_once = WriteOptions { timeout: Some(Duration::ZERO), ..WriteOptions::default() };
            let left = thread::spawn(move || log.write_with(&[NewRecord::new(&vec![7; 64 << 10], 3)], &at_once));
            left.join().unwrap().unwrap_err();
            assert!((64 << 10..66 << 10).contains(&held(&seen)), "{}", held(&seen));
        }
    });
    log.write(b"two", 2).unwrap();
    log.sync().unwrap();
    assert_eq!((read_all(&*log).unwrap().len(), held(&backend)), (3, 0));
}

#[test]
fn a_writer_over_the_queue_waits_and_the_largest_record_gets_its_turn() {
    let sim = SimDisk::new(1);
    let options = LogOptions { queue_bytes: 1000, segment_bytes: 1 << 20, ..LogOptions::default() };
    let log = Arc::new(open(&sim, &options).unwrap());
    thread::scope(|scope| {
        for writer in 0..6_usize {
            let log = Arc::clone(&log);
            scope.spawn(move || {
                for _ in 0..30 {
                    log.write(&vec![7; writer * 600], 1).unwrap();
                }
            });
        }
    });
    assert_eq!(read_all(&*log).unwrap().len(), 180);
}

/// The panic that a test has planned, without a message on the console.
const PLANNED: &str = "planned";

#[test]
fn a_panic_in_the_log_stops_it_and_nobody_waits_for_the_thread_that_is_no_more() {
    for nth in 1..=12_usize {
        let sim = SimDisk::new(1);
        let disk = Beside::new(&sim);
        let (clock, ids) = (Arc::new(alluvium::SystemClock::new()), alluvium::IdSource::seeded(1));
        let log = FileLog::open_on(Arc::new(disk.clone()), DIR, small(), clock, ids).unwrap();
        let mut left = nth;
        disk.set(move || {
            left -= 1;
            if left == 0 {
                panic::resume_unwind(Box::new(PLANNED));
            }
        });
        let write = |thread: usize| -> Vec<String> {
            let texts = (0..6).map(|round| format!("{thread} {round} {}", "p".repeat(900)));
            texts.filter(|text| log.write(text.as_bytes(), 1).is_ok()).collect()
        };
        let written: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || write(thread))).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let panicked: Vec<_> = written.iter().filter_map(|written| written.as_ref().err()).collect();
        assert_eq!(panicked.len(), 1, "at operation {nth}");
        assert_eq!(panicked[0].downcast_ref(), Some(&PLANNED));
        for error in [log.write(b"later", 1).unwrap_err(), log.close().unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::Poisoned), "{error}");
        }
        log.close().unwrap();
        let found = payloads(&open(&sim.survive(alluvium::fs::sim::Survivors::None), &small()).unwrap());
        assert!(written.iter().flatten().flatten().all(|text| found.contains(text)), "at operation {nth}: {found:?}");
    }
}
