//! The behaviours of `docs/log-behaviours.md`, by number.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;
use alluvium::wal::{
    BatchedLog, Cleaned, Durability, FileLog, LogId, LogOptions, LogRegistry, LogRole, LogSettings, Lsn,
    MAX_RECORD_BYTES, NewRecord, RecordHandle, RecordKind, Records, RecoveryMode, Wait, WriteAheadLog, WriteOptions,
    inspect,
};
use alluvium::{Bytes, Error, ErrorKind, Result};

use super::support::*;

fn settings(role: LogRole, pairs: &[(&str, &str)]) -> LogSettings {
    LogSettings::from_pairs(role, pairs.iter().copied()).unwrap()
}

fn is_batched(log: &dyn WriteAheadLog) -> bool {
    let handle = log.write(b"x", 1).unwrap();
    matches!(log.read(&handle), Err(error) if matches!(error.kind(), ErrorKind::Unsupported))
}

#[test]
fn b01_to_b03_only_the_jobs_log_is_batched_and_only_if_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let registry = LogRegistry::new();
    let open = |name: &str, role, pairs: &[(&str, &str)]| {
        registry.open(role, &dir.path().join(name), &settings(role, pairs)).unwrap()
    };
    assert!(is_batched(&*open("1", LogRole::Job, &[])));
    for key in ["spark.streaming.driver.writeAheadLog.allowBatching", "job.log.allowBatching", "log.allowBatching"] {
        assert!(!is_batched(&*open(key, LogRole::Job, &[(key, "false")])));
    }
    let on = [("spark.streaming.receiver.writeAheadLog.allowBatching", "true")];
    assert!(!is_batched(&*open("3", LogRole::Receiver, &on)));
}

#[test]
fn b04_to_b06_a_users_own_class_is_used_for_its_role_and_batched_for_the_job() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let mut registry = LogRegistry::new();
    registry.register("my-log", move |_: &Path, _: &LogSettings| {
        count.fetch_add(1, Ordering::Relaxed);
        let log: Arc<dyn WriteAheadLog> = Arc::new(Mock::default());
        Ok(log)
    });
    let pairs = [("job.log.class", "my-log"), ("spark.streaming.receiver.writeAheadLog.maxFailures", "7")];
    let (job, receiver) = (settings(LogRole::Job, &pairs), settings(LogRole::Receiver, &pairs));
    assert_eq!((job.class.as_str(), receiver.class.as_str()), ("my-log", "file"));
    assert_eq!((job.options.max_failures, receiver.options.max_failures), (3, 7));
    assert!(is_batched(&*registry.open(LogRole::Job, Path::new("/nowhere"), &job).unwrap()));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    let both = settings(LogRole::Receiver, &[("log.class", "my-log")]);
    assert!(!is_batched(&*registry.open(LogRole::Receiver, Path::new("/nowhere"), &both).unwrap()));
    let unknown = settings(LogRole::Job, &[("log.class", "their-log")]);
    let error = registry.open(LogRole::Job, Path::new("/nowhere"), &unknown).unwrap_err();
    assert!(error.to_string().contains("their-log") && error.to_string().contains("file, my-log"), "{error}");
    for (key, value) in [("log.maxFailures", "many"), ("log.nonsense", "1")] {
        assert!(LogSettings::from_pairs(LogRole::Job, [(key, value)]).unwrap_err().to_string().contains(key));
    }
}

#[test]
fn b07_the_callers_time_rolls_segments() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { rolling_interval: Duration::from_secs(1), ..LogOptions::default() }).unwrap();
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    for (number, text) in expected.iter().enumerate() {
        log.write(text.as_bytes(), number as u64 * 500).unwrap();
    }
    assert!(segments(&sim).len() > 1);
    assert_eq!(payloads(&log), expected);
}

#[test]
fn b08_b09_b13_generations_of_logs_are_read_back_in_order() {
    let sim = SimDisk::new(1);
    let mut expected = Vec::new();
    for generation in 0..10 {
        let log = open(&sim, &small()).unwrap();
        assert_eq!(payloads(&log), expected);
        for number in 0..20 {
            let text = format!("{generation} {number}");
            // All generations have the same times: the names would be the same without the segment's number.
            log.write(text.as_bytes(), number).unwrap();
            expected.push(text);
        }
        if generation % 2 == 0 {
            log.close().unwrap();
        }
    }
    assert_eq!(payloads(&open(&sim, &small()).unwrap()), expected);
}

#[test]
fn b10_b11_cleaning_leaves_fewer_files() {
    for wait in [Wait::ForIt, Wait::No] {
        let sim = SimDisk::new(1);
        let log = open(&sim, &small()).unwrap();
        for time in 0..200 {
            log.write(b"0123456789", time).unwrap();
        }
        let before = segments(&sim).len();
        log.clean(100, wait).unwrap();
        // Closing waits for what runs in the background.
        log.close().unwrap();
        assert!(segments(&sim).len() < before, "{wait:?}");
    }
}

#[test]
fn b12_segments_that_were_cut_are_an_error_and_salvage_says_what_is_missing() {
    let sim = SimDisk::new(1);
    let options = LogOptions { rolling_interval: Duration::from_millis(5), ..small() };
    let log = open(&sim, &options).unwrap();
    for time in 0..40 {
        log.write(time.to_string().as_bytes(), time).unwrap();
    }
    log.close().unwrap();
    let paths = segments(&sim);
    let half = paths.len() / 2;
    paths[..half].iter().for_each(|path| sim.truncate(path, 1).unwrap());
    assert!(open(&sim, &options).unwrap_err().is_corrupt());
    let log = open(&sim, &LogOptions { recovery: RecoveryMode::Salvage, ..options }).unwrap();
    let found = read_all(&log).unwrap();
    assert!(found.len() < 40 && found.len() >= 15 && found.last().unwrap().payload == b"39");
    assert_eq!(log.recovery().damage.len(), half);
}

#[test]
fn b14_reading_by_handle_makes_no_file() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let handle = RecordHandle { log: log.id(), segment: 1, offset: 80, length: 1, crc: 0, lsn: Lsn(1) };
    assert!(log.read(&handle).unwrap_err().is_not_found());
    assert_eq!(sim.operations(), 0);
}

#[test]
fn b15_b16_reading_goes_on_after_the_close() {
    for close_after_write in [false, true] {
        let sim = SimDisk::new(1);
        let log = open(&sim, &LogOptions { close_after_write, read_threads: 2, ..small() }).unwrap();
        for time in 0..50 {
            log.write(b"x", time).unwrap();
        }
        let mut records = log.read_all().unwrap();
        log.close().unwrap();
        assert_eq!(drain(records.as_mut()).unwrap().len(), 50);
    }
}

#[test]
fn b17_reading_with_threads_is_in_order_and_may_end_early() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { close_after_write: true, read_threads: 8, ..small() }).unwrap();
    for time in 0..300_u64 {
        log.write(&time.to_le_bytes(), time).unwrap();
    }
    let found = read_all(&log).unwrap();
    assert!(found.len() == 300 && found.iter().zip(0..).all(|(read, time)| read.time_ms == time));
    let mut some = log.read_all().unwrap();
    assert!(some.next_record().unwrap().is_some());
}

#[test]
fn b18_close_after_write_makes_a_file_a_write_and_seals_it_at_once() {
    for durability in [Durability::Group, Durability::None] {
        let sim = SimDisk::new(1);
        let log = open(&sim, &LogOptions { close_after_write: true, durability, ..small() }).unwrap();
        for number in 0..3_u64 {
            let handle = log.write(number.to_string().as_bytes(), 1).unwrap();
            let found = inspect::inspect(&sim, Path::new(DIR)).unwrap();
            let sealed = found.segments.iter().map(|segment| (segment.records, segment.is_sealed));
            assert!(sealed.eq((0..=number).map(|_| (1, true))), "{durability:?} {found:?}");
            assert_eq!(log.read(&handle).unwrap(), *number.to_string().as_bytes());
        }
        assert_eq!((segments(&sim).len(), payloads(&log)), (3, vec!["0".into(), "1".into(), "2".into()]));
        let after = sim.survive(Survivors::None);
        assert_eq!(payloads(&open(&after, &small()).unwrap()), ["0", "1", "2"]);
    }
}

#[test]
fn b19_to_b25_records_are_read_at_once_in_any_order_and_the_end_is_the_end() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let written: Vec<RecordHandle> = (0..150_u64)
        .map(|number| {
            let handle = log.write(&number.to_le_bytes(), number).unwrap();
            assert_eq!(log.read(&handle).unwrap(), number.to_le_bytes());
            handle
        })
        .collect();
    for step in [1, 7, 61, 149] {
        for place in (0..150).map(|number| number * step % 150) {
            assert_eq!(log.read(&written[place]).unwrap(), (place as u64).to_le_bytes());
        }
    }
    let mut records = log.read_all().unwrap();
    assert_eq!(drain(records.as_mut()).unwrap().len(), 150);
    assert!(records.next_record().unwrap().is_none() && records.next_record().unwrap().is_none());
    for wrong in [
        RecordHandle { offset: written[3].offset + 1, ..written[3] },
        RecordHandle { length: written[3].length + 1, ..written[3] },
        RecordHandle { lsn: Lsn(5), ..written[3] },
        RecordHandle { crc: 1, ..written[3] },
        RecordHandle { segment: 99, ..written[3] },
        RecordHandle { offset: u64::MAX, ..written[3] },
    ] {
        assert!(log.read(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn b24_a_deleted_segment_is_missed() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    for time in 0..200 {
        log.write(b"0123456789", time).unwrap();
    }
    drop(log);
    for place in 0..segments(&sim).len() {
        let found = sim.fork();
        let disk: &dyn alluvium::fs::Disk = &found;
        disk.remove(&segments(&sim)[place]).unwrap();
        let error = open(&found, &small()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{place}: {error}");
    }
}

/// A log in memory that can be held up and can fail.
#[derive(Debug, Default)]
struct Mock {
    written: Mutex<Vec<(Vec<u8>, u64, RecordKind)>>,
    /// A write waits here twice: when it begins and before it ends.
    gate: Option<Arc<(Barrier, Barrier)>>,
    fails: bool,
    /// Whether payloads are only measured.
    keeps_nothing: bool,
    lengths: Mutex<Vec<(usize, RecordKind)>>,
    closed: AtomicUsize,
}

impl WriteAheadLog for Mock {
    fn write_with(&self, records: &[NewRecord<'_>], _: &WriteOptions) -> Result<Vec<RecordHandle>> {
        let is_first = self.written.lock().unwrap().is_empty();
        if let Some(gate) = self.gate.as_ref().filter(|_| is_first) {
            gate.0.wait();
            gate.1.wait();
        }
        if self.fails {
            return Err(Error::invalid("the mock fails"));
        }
        let mut written = self.written.lock().unwrap();
        let mut handles = Vec::new();
        for record in records {
            self.lengths.lock().unwrap().push((record.payload.len(), record.kind));
            let payload = if self.keeps_nothing { Vec::new() } else { record.payload.to_vec() };
            written.push((payload, record.time_ms, record.kind));
            let lsn = Lsn(written.len() as u64);
            handles.push(RecordHandle { log: LogId::default(), segment: 1, offset: 0, length: 0, crc: 0, lsn });
        }
        Ok(handles)
    }

    fn read(&self, _: &RecordHandle) -> Result<Bytes> {
        Ok(Bytes::default())
    }

    fn read_from(&self, _: Lsn) -> Result<Box<dyn Records>> {
        Err(Error::invalid("the mock keeps nothing"))
    }

    fn clean(&self, _: u64, _: Wait) -> Result<Cleaned> {
        Ok(Cleaned::default())
    }

    fn clean_below(&self, _: Lsn) -> Result<Cleaned> {
        Ok(Cleaned::default())
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(self.written.lock().unwrap().len() as u64)
    }

    fn close(&self) -> Result<()> {
        self.closed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn b26_b33_batches_come_apart_again_and_plain_records_pass_through() {
    let sim = SimDisk::new(1);
    let file = Arc::new(open(&sim, &small()).unwrap());
    file.write(b"from before", 1).unwrap();
    let log = BatchedLog::new(file, TIMEOUT);
    let records: Vec<NewRecord<'_>> =
        [("addition", 9), ("allocation", 7), ("", 8)].map(|(text, time)| NewRecord::new(text.as_bytes(), time)).into();
    let handles = log.write_batch(&records).unwrap();
    assert!(handles.iter().all(|handle| *handle == handles[0]));
    log.write(b"cleanup", 10).unwrap();
    let found = read_all(&log).unwrap();
    let found: Vec<(u64, String)> =
        found.into_iter().map(|read| (read.time_ms, String::from_utf8(read.payload).unwrap())).collect();
    let expected = [(1, "from before"), (7, "allocation"), (8, ""), (9, "addition"), (10, "cleanup")];
    assert_eq!(found, expected.map(|(time, text)| (time, text.to_owned())));
    assert!(matches!(log.read(&handles[0]).unwrap_err().kind(), ErrorKind::Unsupported));
}

#[test]
fn b27_the_failure_of_the_wrapped_log_reaches_the_caller() {
    let log = BatchedLog::new(Arc::new(Mock { fails: true, ..Mock::default() }), TIMEOUT);
    assert!(log.write(b"x", 1).unwrap_err().to_string().contains("the mock fails"));
}

#[test]
fn b28_b29_what_comes_during_a_write_becomes_one_batch_sorted_by_time() {
    let gate = Arc::new((Barrier::new(2), Barrier::new(2)));
    let mock = Arc::new(Mock { gate: Some(Arc::clone(&gate)), ..Mock::default() });
    let log = BatchedLog::new(Arc::clone(&mock) as Arc<dyn WriteAheadLog>, TIMEOUT);
    let queued = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (log, queued) = (&log, &queued);
        scope.spawn(move || log.write(b"first", 1).unwrap());
        gate.0.wait();
        for time in [5_u64, 3, 9, 4] {
            scope.spawn(move || {
                queued.fetch_add(1, Ordering::AcqRel);
                log.write(&time.to_le_bytes(), time).unwrap()
            });
        }
        while queued.load(Ordering::Acquire) < 4 {
            std::thread::yield_now();
        }
        gate.1.wait();
    });
    let written = mock.written.lock().unwrap();
    assert!(written.iter().all(|(_, _, kind)| *kind == RecordKind::Batch));
    // Those that were slow to queue up may have made a batch of their own.
    assert!(written.len() <= 5, "{written:?}");
    for (payload, time, _) in written.iter() {
        let times: Vec<u64> = times(payload);
        assert!(times.is_sorted() && times.last() == Some(time), "{times:?} {time}");
    }
    let all: usize = written.iter().map(|(payload, ..)| times(payload).len()).sum();
    assert_eq!(all, 5);
}

/// The times in a batch.
fn times(batch: &[u8]) -> Vec<u64> {
    let number = |at: usize, bytes: usize| {
        batch[at..at + bytes].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (mut at, mut found) = (4, Vec::new());
    for _ in 0..number(0, 4) {
        found.push(number(at, 8));
        at += 14 + usize::try_from(number(at + 10, 4)).unwrap();
    }
    found
}

#[test]
fn a_batch_is_bounded_and_the_largest_record_fits() {
    let mock = Arc::new(Mock { keeps_nothing: true, ..Mock::default() });
    let log = BatchedLog::new(Arc::clone(&mock) as Arc<dyn WriteAheadLog>, TIMEOUT);
    let large = vec![0; MAX_RECORD_BYTES + 1];
    let refused = |records: &[NewRecord<'_>], found: usize| {
        let error = log.write_batch(records).unwrap_err();
        let expected = ErrorKind::LimitExceeded { limit: MAX_RECORD_BYTES as u64, found: found as u64 };
        assert_eq!(error.kind(), &expected, "{error}");
    };
    refused(&[NewRecord::new(&large, 1)], MAX_RECORD_BYTES + 1);
    let half = NewRecord::new(&large[..MAX_RECORD_BYTES / 2], 1);
    refused(&[half, half], MAX_RECORD_BYTES + 4 + 2 * 14);
    assert!(mock.written.lock().unwrap().is_empty());
    log.write(&large[..MAX_RECORD_BYTES], 7).unwrap();
    log.write(&large[..MAX_RECORD_BYTES - 18], 8).unwrap();
    let written = mock.lengths.lock().unwrap();
    assert_eq!(*written, [(MAX_RECORD_BYTES, RecordKind::Plain), (MAX_RECORD_BYTES, RecordKind::Batch)]);
}

#[test]
fn what_joins_a_batch_keeps_it_small() {
    let gate = Arc::new((Barrier::new(2), Barrier::new(2)));
    let mock = Arc::new(Mock { gate: Some(Arc::clone(&gate)), keeps_nothing: true, ..Mock::default() });
    let log = BatchedLog::new(Arc::clone(&mock) as Arc<dyn WriteAheadLog>, TIMEOUT);
    std::thread::scope(|scope| {
        scope.spawn(|| log.write(b"first", 1).unwrap());
        gate.0.wait();
        // Who leaves at once has queued up, and its record stays.
        let at_once = WriteOptions { timeout: Some(Duration::ZERO), ..WriteOptions::default() };
        for time in 0..6 {
            let payload = vec![7; 3 << 20];
            let error = log.write_with(&[NewRecord::new(&payload, time)], &at_once).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unknown { .. }), "{error}");
        }
        gate.1.wait();
    });
    log.close().unwrap();
    let lengths = mock.lengths.lock().unwrap();
    assert_eq!(lengths.len(), 4, "two in each batch of at most 8 MiB: {lengths:?}");
    assert!(lengths.iter().all(|(length, _)| *length <= 8 << 20), "{lengths:?}");
}

#[test]
fn b30_b31_closing_writes_what_is_queued_closes_the_wrapped_log_once_and_refuses_the_rest() {
    let mock = Arc::new(Mock::default());
    let log = BatchedLog::new(Arc::clone(&mock) as Arc<dyn WriteAheadLog>, TIMEOUT);
    std::thread::scope(|scope| {
        let log = &log;
        let writers: Vec<_> = (0..4_u64).map(|time| scope.spawn(move || log.write(b"x", time).is_ok())).collect();
        log.close().unwrap();
        let written = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|written| *written).count();
        let found: usize = mock.written.lock().unwrap().iter().map(|(payload, ..)| times(payload).len()).sum();
        assert_eq!(written, found, "acknowledged is what was written");
    });
    log.close().unwrap();
    assert_eq!(mock.closed.load(Ordering::Relaxed), 1);
    assert!(matches!(log.write(b"late", 1).unwrap_err().kind(), ErrorKind::InvalidInput));
}

#[test]
fn handles_are_kept_anywhere() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &small()).unwrap();
    let handle = log.write(b"kept", 1).unwrap();
    log.close().unwrap();
    let bytes = bincode::serde::encode_to_vec(handle, bincode::config::standard()).unwrap();
    let (again, _): (RecordHandle, usize) =
        bincode::serde::decode_from_slice(&bytes, bincode::config::standard()).unwrap();
    let log: FileLog = open(&sim, &small()).unwrap();
    assert_eq!(log.read(&again).unwrap(), *b"kept");
}
