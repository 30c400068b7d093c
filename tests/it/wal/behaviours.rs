//! What a user sees of the log, by the list of behaviours in `docs/log-behaviours.md`.

use std::sync::{Arc, Mutex};

use alluvium::ErrorKind;
use alluvium::fs::SimDisk;
use alluvium::wal::{
    Durability, FileLog, LogOptions, Lsn, NewRecord, RecordCodec, RecoveryObserver, Wait, WriteAheadLog, WriteOptions,
};

use super::support::*;

fn texts(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| format!("record {number}")).collect()
}

#[test]
fn what_was_written_is_read_by_handle_and_in_order_before_and_after_a_restart() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let mut written = Vec::new();
    for (number, text) in texts(0..300).iter().enumerate() {
        let handle = log.write(text.as_bytes(), 1000 + number as u64).unwrap();
        assert_eq!(log.read(&handle).unwrap(), *text.as_bytes());
        assert_eq!(log.durable_lsn(), handle.lsn);
        written.push(handle);
    }
    assert_eq!(payloads(&log), texts(0..300));
    assert_eq!(handles(&log), written);
    drop(log);
    let log = open(&sim, &small()).unwrap();
    assert_eq!(payloads(&log), texts(0..300));
    for (handle, text) in written.iter().zip(texts(0..300)) {
        assert_eq!(log.read(handle).unwrap(), *text.as_bytes());
    }
    assert!(segments(&sim).len() > 3);
    assert_eq!(log.write(b"next", 2000).unwrap().lsn, Lsn(301));
    log.close().unwrap();
}

#[test]
fn every_durability_and_codec_gives_the_records_back() {
    for durability in [Durability::Each, Durability::Group, Durability::Interval(1), Durability::None] {
        for codec in [RecordCodec::None, RecordCodec::Lz4, RecordCodec::Zstd] {
            for gather_bytes in [0, 1 << 16] {
                let sim = SimDisk::new(1);
                let options = LogOptions { durability, codec, gather_bytes, ..small() };
                let log = open(&sim, &options).unwrap();
                let payload = |number: u64| format!("{number} ").repeat(40 * usize::try_from(number % 9).unwrap());
                let mut written = Vec::new();
                for number in 0..60 {
                    written.push(log.write(payload(number).as_bytes(), number).unwrap());
                }
                let expected: Vec<String> = (0..60).map(payload).collect();
                for (handle, text) in written.iter().zip(&expected) {
                    assert_eq!(log.read(handle).unwrap(), *text.as_bytes());
                }
                assert_eq!(payloads(&log), expected);
                assert_eq!(log.sync().unwrap(), Lsn(60));
                log.close().unwrap();
                assert_eq!(payloads(&open(&sim, &options).unwrap()), expected);
            }
        }
    }
}

#[test]
fn a_batch_is_one_behind_the_other_and_large_payloads_are_too() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { segment_bytes: 1 << 20, ..small() }).unwrap();
    let payloads: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; usize::from(n) * 3000]).collect();
    let records: Vec<NewRecord<'_>> = payloads.iter().map(|payload| NewRecord::new(payload, 5)).collect();
    let written = log.write_batch(&records).unwrap();
    for (handle, payload) in written.iter().zip(&payloads) {
        assert_eq!(log.read(handle).unwrap(), **payload);
    }
    assert_eq!(handles(&log), written);
    assert!(log.write_batch(&[]).unwrap().is_empty());
    let one = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    log.write_with(&[NewRecord::new(b"unsynced", 6)], &one).unwrap();
    assert_eq!((log.durable_lsn(), log.written_lsn()), (Lsn(20), Lsn(21)));
}

#[test]
fn writers_that_come_together_are_all_acknowledged_with_their_own_handles() {
    let sim = SimDisk::new(1);
    let log = Arc::new(open(&sim, &LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() }).unwrap());
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let log = Arc::clone(&log);
            scope.spawn(move || {
                let mut last = Lsn::NONE;
                for number in 0..50 {
                    let text = format!("{writer} {number} {}", "x".repeat(number * 7));
                    let handle = log.write(text.as_bytes(), 1).unwrap();
                    assert!(handle.lsn > last && log.durable_lsn() >= handle.lsn);
                    assert_eq!(log.read(&handle).unwrap(), *text.as_bytes());
                    last = handle.lsn;
                }
            });
        }
    });
    let found = read_all(&*log).unwrap();
    assert_eq!(found.len(), 400);
    assert!(found.iter().zip(1..).all(|(read, lsn)| read.lsn == lsn));
}

#[test]
fn reading_from_an_lsn_skips_what_is_before_it_and_threads_change_nothing() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { segment_bytes: 200_000, ..small() }).unwrap();
    for number in 0..900_u64 {
        log.write(format!("{number} {}", "y".repeat(1000)).as_bytes(), number).unwrap();
    }
    let all = read_all(&log).unwrap();
    for from in [0, 1, 2, 150, 199, 200, 450, 899, 900, 901, 5000] {
        let found = drain(log.read_from(Lsn(from)).unwrap().as_mut()).unwrap();
        let skipped = usize::try_from(from.saturating_sub(1)).unwrap().min(900);
        assert!(found == all[skipped..], "{from}");
    }
    log.close().unwrap();
    let threads = open(&sim, &LogOptions { read_threads: 3, ..small() }).unwrap();
    assert!(read_all(&threads).unwrap() == all);
    let mut some = threads.read_all().unwrap();
    assert!(some.next_record().unwrap().is_some());
    let progress = some.progress();
    assert!(progress.done_bytes > 0 && progress.done_bytes < progress.total_bytes && progress.records == 1);
}

#[test]
fn only_old_segments_are_cleaned_and_never_the_newest() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let first = log.write(b"first", 0).unwrap();
    for number in 1..200 {
        log.write(format!("record {number}").as_bytes(), number).unwrap();
    }
    let before = segments(&sim).len();
    let cleaned = log.clean(100, Wait::ForIt).unwrap();
    let after = segments(&sim).len();
    assert!(cleaned.segments > 0 && cleaned.failed.is_empty() && after == before - cleaned.segments);
    let left = read_all(&log).unwrap();
    assert!(left[0].lsn > 1 && left[0].lsn <= 101 && left.last().unwrap().lsn == 200);
    assert!(matches!(log.read(&first).unwrap_err().kind(), ErrorKind::NotFound { .. }));
    log.clean(u64::MAX, Wait::ForIt).unwrap();
    assert_eq!(segments(&sim).len(), 1);
    drop(log);
    let log = open(&sim, &small()).unwrap();
    assert_eq!(log.write(b"next", 1).unwrap().lsn, Lsn(201));
    log.clean_below(Lsn(201)).unwrap();
    assert_eq!(payloads(&log), ["next"]);
    drop(log);
    assert_eq!(payloads(&open(&sim, &small()).unwrap()), ["next"]);
}

#[test]
fn opening_says_how_far_it_is() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    for number in 0..200 {
        log.write(format!("record {number}").as_bytes(), number).unwrap();
    }
    log.close().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    let observer = RecoveryObserver::new(move |progress| told.lock().unwrap().push(progress));
    drop(open(&sim, &LogOptions { recovery_observer: observer, ..small() }).unwrap());
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 2, "once a segment: {heard:?}");
    assert!(heard.windows(2).all(|pair| pair[0].done_bytes < pair[1].done_bytes), "{heard:?}");
    let last = heard.last().unwrap();
    assert_eq!((last.done_bytes, last.records), (last.total_bytes, 200));
}

#[test]
fn a_new_log_and_reading_it_make_no_file_and_no_folder() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    assert!(read_all(&log).unwrap().is_empty());
    assert_eq!(sim.operations(), 0);
    log.close().unwrap();
    assert!(sim.files().is_empty());
    assert!(matches!(log.write(b"x", 1).unwrap_err().kind(), ErrorKind::InvalidInput));
}

#[test]
fn two_logs_in_one_folder_are_refused() {
    let sim = SimDisk::new(1);
    let (first, second) = (open(&sim, &small()).unwrap(), open(&sim, &small()).unwrap());
    first.write(b"x", 1).unwrap();
    assert!(matches!(second.write(b"y", 1).unwrap_err().kind(), ErrorKind::Locked { .. }));
    assert!(matches!(open(&sim, &small()).unwrap_err().kind(), ErrorKind::Locked { .. }));
    first.close().unwrap();
    assert!(matches!(second.write(b"y", 1).unwrap_err().kind(), ErrorKind::AlreadyExists { .. }));
    drop(second);
    assert_eq!(payloads(&open(&sim, &small()).unwrap()), ["x"]);
    let real = tempfile::tempdir().unwrap();
    let log = FileLog::open(real.path().join("a/b"), LogOptions::default()).unwrap();
    log.write(b"x", 1).unwrap();
    let error = FileLog::open(real.path().join("a/b"), LogOptions::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
}

#[test]
fn recycled_segments_are_written_over_and_stale_handles_are_errors() {
    for preallocates in [false, true] {
        let sim = SimDisk::new(1);
        let options = LogOptions { recycles: 2, preallocates, ..small() };
        let log = open(&sim, &options).unwrap();
        let mut written = Vec::new();
        for number in 0..600_u64 {
            written.push(log.write(format!("record {number:5}").as_bytes(), number).unwrap());
            if number % 50 == 49 {
                log.clean(number - 20, Wait::ForIt).unwrap();
            }
        }
        let left = read_all(&log).unwrap();
        let first = usize::try_from(left[0].lsn).unwrap();
        for (number, handle) in written.iter().enumerate() {
            match log.read(handle) {
                Ok(payload) => assert!(number + 1 >= first && payload == *format!("record {number:5}").as_bytes()),
                Err(error) => assert!(number + 1 < first && error.is_not_found(), "{error}"),
            }
        }
        drop(log);
        let log = open(&sim, &options).unwrap();
        assert_eq!(read_all(&log).unwrap(), left);
        log.write(b"more", 700).unwrap();
        drop(log);
        assert_eq!(read_all(&open(&sim, &options).unwrap()).unwrap().len(), left.len() + 1);
    }
}
