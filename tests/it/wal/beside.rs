//! Looking at a log, and reading it, while somebody else writes to it and cleans it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{
    Durability, FileLog, LogOptions, Lsn, NewRecord, RecoveryMode, WriteAheadLog, WriteOptions, inspect,
};

use super::disk::Beside;
use super::support::*;

fn fill(log: &FileLog, records: u64) {
    for number in 0..records {
        log.write(&[7; 700], number).unwrap();
    }
}

/// The logs that are looked at.
fn kinds() -> [LogOptions; 3] {
    [small(), LogOptions { preallocates: true, ..small() }, LogOptions { recycles: 2, ..small() }]
}

/// Writes before every operation that is due, and now and then cleans.
fn write_beside(log: Arc<FileLog>, every: u64, phase: u64) -> impl FnMut() + Send + 'static {
    let mut operations = 0;
    move || {
        operations += 1;
        if operations % every != phase {
            return;
        }
        let last = log.write(&[8; 900], 1).unwrap().lsn;
        if operations / every % 3 == 2 {
            log.clean_below(Lsn(last.0.saturating_sub(9))).unwrap();
        }
    }
}

#[test]
fn whatever_a_writer_does_during_a_look_is_no_loss() {
    for options in kinds() {
        for (every, phase) in (1..=9).flat_map(|every| (0..every).map(move |phase| (every, phase))) {
            let sim = SimDisk::new(1);
            let log = Arc::new(open(&sim, &options).unwrap());
            fill(&log, 20);
            let disk = Beside::new(&sim);
            disk.set(write_beside(log, every, phase));
            let found = inspect::verify(&disk, Path::new(DIR), &mut |_| ()).unwrap();
            assert!(!found.has_loss(), "verify, {every} {phase} {options:?}: {:?}", found.findings);
            let found = inspect::inspect(&disk, Path::new(DIR)).unwrap();
            assert!(!found.has_loss(), "inspect, {every} {phase} {options:?}: {:?}", found.findings);
        }
    }
}

#[test]
fn what_is_damaged_is_found_also_beside_a_writer() {
    for every in 1..=5 {
        let sim = SimDisk::new(1);
        let log = Arc::new(open(&sim, &small()).unwrap());
        fill(&log, 40);
        sim.flip_bit(&segments(&sim)[3], 8 * 120).unwrap();
        let disk = Beside::new(&sim);
        let mut operations = 0;
        disk.set(move || {
            operations += 1;
            if operations % every == 0 {
                log.write(&[8; 900], 1).unwrap();
            }
        });
        let found = inspect::verify(&disk, Path::new(DIR), &mut |_| ()).unwrap();
        assert!(found.findings.iter().any(|finding| finding.segment == 4 && finding.verdict.is_loss()), "{found:?}");
    }
}

/// A log on a disk, and how to give up its oldest records there; it keeps neither.
fn cleaned_beside(options: &LogOptions) -> (Beside, Arc<FileLog>) {
    let sim = SimDisk::new(1);
    let disk = Beside::new(&sim);
    let ids = alluvium::IdSource::seeded(1);
    let clock = Arc::new(alluvium::SystemClock::new());
    let log = FileLog::open_on(Arc::new(disk.clone()), DIR, options.clone(), clock, ids).unwrap();
    fill(&log, 60);
    (disk, Arc::new(log))
}

/// Cleans before the operation with this number.
fn clean_at(disk: &Beside, log: &Arc<FileLog>, operation: u64) {
    let (log, mut operations) = (Arc::downgrade(log), 0);
    disk.set(move || {
        operations += 1;
        if operations == operation {
            log.upgrade().unwrap().clean_below(Lsn(50)).unwrap();
        }
    });
}

#[test]
fn what_is_cleaned_while_it_is_read_is_left_out() {
    for (threads, from) in [(1, 0), (1, 13), (3, 0), (3, 13)] {
        for options in kinds() {
            let mut was_short = 0;
            for operation in 1..60 {
                let (disk, log) = cleaned_beside(&LogOptions { read_threads: threads, ..options.clone() });
                clean_at(&disk, &log, operation);
                let read = log.read_from(Lsn(from)).and_then(|mut records| drain(records.as_mut()));
                let read = read.unwrap_or_else(|error| panic!("{operation} {threads} {options:?}: {error}"));
                assert_eq!(read.last().unwrap().lsn, 60);
                assert!(read.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
                was_short += usize::from((read.len() as u64) < 60 - from);
            }
            assert!(was_short > 3, "{was_short}");
        }
    }
}

#[test]
fn whoever_reads_in_the_middle_of_a_clean_misses_nothing() {
    for threads in [1, 3] {
        for options in kinds() {
            let mut reads = 0;
            for operation in 1..20 {
                let (disk, log) = cleaned_beside(&LogOptions { read_threads: threads, ..options.clone() });
                let (beside, mut operations) = (Arc::downgrade(&log), 0);
                let (told, heard) = std::sync::mpsc::channel();
                disk.set(move || {
                    operations += 1;
                    if operations == operation {
                        told.send(read_all(&*beside.upgrade().unwrap())).unwrap();
                    }
                });
                log.clean_below(Lsn(50)).unwrap();
                let Ok(read) = heard.try_recv() else { continue };
                let read = read.unwrap_or_else(|error| panic!("{operation} {threads} {options:?}: {error}"));
                assert_eq!(read.last().unwrap().lsn, 60);
                assert!(read.windows(2).all(|pair| pair[0].lsn + 1 == pair[1].lsn));
                reads += 1;
            }
            assert!(reads > 8, "{reads} {options:?}");
        }
    }
}

#[test]
fn a_record_that_is_cleaned_while_it_is_read_is_not_found() {
    let mut gone = 0;
    for operation in 1..6 {
        let (disk, log) = cleaned_beside(&small());
        let handle = handles(&*log)[1];
        clean_at(&disk, &log, operation);
        match log.read(&handle) {
            Ok(payload) => assert_eq!(payload.len(), 700),
            Err(error) => {
                gone += 1;
                assert!(error.is_not_found() && error.to_string().contains("stale"), "{error}");
            }
        }
    }
    assert!(gone > 0);
}

#[test]
fn a_reader_beside_the_log_leaves_out_what_is_cleaned_meanwhile() {
    let mut found = 0;
    for options in kinds() {
        for (every, phase) in (1..=9).flat_map(|every| (0..every).map(move |phase| (every, phase))) {
            let sim = SimDisk::new(1);
            let log = Arc::new(open(&sim, &options).unwrap());
            fill(&log, 20);
            let disk = Beside::new(&sim);
            disk.set(write_beside(log, every, phase));
            let records = inspect::read(Arc::new(disk), Path::new(DIR), RecoveryMode::Strict, Lsn::NONE);
            let read = records.and_then(|mut records| drain(records.as_mut()));
            let read = read.unwrap_or_else(|error| panic!("{every} {phase} {options:?}: {error}"));
            assert!(read.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
            found += read.len();
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn a_segment_that_somebody_deletes_is_missed_by_whoever_reads() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    fill(&log, 40);
    let handle = log.read_from(Lsn(12)).unwrap().next_record().unwrap().unwrap().handle;
    drop(log);
    let log = open(&sim, &small()).unwrap();
    let disk: &dyn Disk = &sim;
    disk.remove(&segments(&sim)[usize::try_from(handle.segment).unwrap() - 1]).unwrap();
    for error in [log.read(&handle).unwrap_err(), read_all(&log).unwrap_err()] {
        assert!(matches!(error.kind(), alluvium::ErrorKind::Missing { .. }), "{error}");
    }
}

#[test]
fn what_is_held_back_while_a_reading_begins_is_not_missed() {
    for threads in [1, 2] {
        let sim = SimDisk::new(1);
        let disk = Beside::new(&sim);
        let options =
            LogOptions { gather_bytes: 1 << 16, durability: Durability::None, read_threads: threads, ..small() };
        let (clock, ids) = (Arc::new(alluvium::SystemClock::new()), alluvium::IdSource::seeded(1));
        let log = Arc::new(FileLog::open_on(Arc::new(disk.clone()), DIR, options, clock, ids).unwrap());
        fill(&log, 20);
        let (beside, mut has_written) = (Arc::downgrade(&log), false);
        // While the reader hands over what is held back, somebody writes, and leaves that to the reader too.
        disk.set(move || {
            if !std::mem::replace(&mut has_written, true) {
                let log = beside.upgrade().unwrap();
                let at_once = WriteOptions { timeout: Some(Duration::ZERO), ..WriteOptions::default() };
                let left = std::thread::spawn(move || log.write_with(&[NewRecord::new(b"held", 1)], &at_once));
                left.join().unwrap().unwrap_err();
            }
        });
        assert_eq!(read_all(&*log).unwrap().len(), 20);
        assert_eq!(read_all(&*log).unwrap().len(), 21);
    }
}
