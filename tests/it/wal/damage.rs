//! Bytes that change on disk: acknowledged records are all there, in order, or there is a typed error.

use std::path::Path;
use std::sync::Arc;

use alluvium::fs::sim::{Operation, Persistence};
use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{LogOptions, Lsn, NewRecord, Planted, RecoveryMode, Skipped, WriteAheadLog, inspect};
use alluvium::{Error, ErrorKind};

use super::support::*;

/// A log of several segments, the last one closed or not.
fn written(closes: bool, options: &LogOptions) -> (SimDisk, Vec<Read>) {
    let sim = SimDisk::new(1);
    let log = open(&sim, options).unwrap();
    for number in 0..9_u64 {
        let length = usize::try_from(number * 97 % 400).unwrap();
        log.write(format!("{number} {}", "d".repeat(length)).as_bytes(), number).unwrap();
    }
    let all = read_all(&log).unwrap();
    if closes {
        log.close().unwrap();
    }
    drop(log);
    (sim, all)
}

fn tiny() -> LogOptions {
    LogOptions { segment_bytes: 4096, ..small() }
}

fn is_typed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } | ErrorKind::Unsupported)
}

/// All of it, or a typed error.
fn check(sim: &SimDisk, options: &LogOptions, planted: Planted, all: &[Read]) -> Result<bool, String> {
    let found = open_planted(sim, options, planted).and_then(|log| read_all(&log));
    match found {
        Ok(found) if found == all => Ok(true),
        Ok(found) => Err(format!("{} records of {}", found.len(), all.len())),
        Err(error) if is_typed(&error) => Ok(false),
        Err(error) => Err(format!("an untyped error: {error}")),
    }
}

/// What salvage gives is a part of what was written.
fn check_salvage(sim: &SimDisk, options: &LogOptions, all: &[Read]) -> usize {
    let options = LogOptions { recovery: RecoveryMode::Salvage, ..options.clone() };
    let log = open(sim, &options).unwrap();
    let mut records = log.read_all().unwrap();
    let found = drain(records.as_mut()).unwrap();
    let skipped = records.skipped().records;
    assert!(found.iter().all(|read| all.contains(read)), "salvage made something up");
    assert!(found.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
    assert!(found.len() as u64 + skipped <= all.len() as u64 + 1, "{} and {skipped} skipped", found.len());
    found.len()
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for closes in [false, true] {
        let (sim, all) = written(closes, &tiny());
        let (mut detected, mut harmless) = (0, 0);
        for path in segments(&sim) {
            let bits = sim.read_file(&path).unwrap().len() as u64 * 8;
            for bit in 0..bits {
                let found = sim.fork();
                found.flip_bit(&path, bit).unwrap();
                match check(&found, &tiny(), Planted::Nothing, &all) {
                    Ok(true) => harmless += 1,
                    Ok(false) => detected += 1,
                    Err(wrong) => panic!("bit {bit} of {} closed={closes}: {wrong}", path.display()),
                }
                if bit % 61 == 0 {
                    check_salvage(&found, &tiny(), &all);
                }
            }
        }
        assert!(detected > 10_000, "{detected} {harmless}");
    }
}

#[test]
fn every_cut_and_every_replaced_tail_is_found_or_harmless() {
    for closes in [false, true] {
        let (sim, all) = written(closes, &tiny());
        for path in segments(&sim) {
            let bytes = sim.read_file(&path).unwrap();
            for cut in 0..bytes.len() {
                let mut variants = vec![bytes[..cut].to_vec()];
                for fill in [0, 0xff] {
                    let mut filled = bytes[..cut].to_vec();
                    filled.resize(bytes.len(), fill);
                    variants.push(filled);
                }
                let mut old = bytes[..cut].to_vec();
                old.extend_from_slice(&bytes[..bytes.len() - cut]);
                variants.push(old);
                for (variant, content) in variants.iter().enumerate() {
                    if content == &bytes[..] {
                        continue;
                    }
                    let found = sim.fork();
                    found.write_file(&path, content).unwrap();
                    if let Err(wrong) = check(&found, &tiny(), Planted::Nothing, &all) {
                        panic!("variant {variant} at byte {cut} of {} closed={closes}: {wrong}", path.display());
                    }
                }
            }
        }
    }
}

#[test]
fn unacknowledged_records_at_the_end_are_there_whole_or_not_at_all() {
    // The watermark is what knows of the last group; without it the end of the newest segment may be cut anywhere.
    let (sim, all) = written(false, &tiny());
    let path = segments(&sim).pop().unwrap();
    let bytes = sim.read_file(&path).unwrap();
    for cut in 80..bytes.len() as u64 {
        let found = sim.fork();
        found.truncate(&path, cut).unwrap();
        found.write_file("/log/durable", b"").unwrap();
        let log = open(&found, &tiny()).unwrap();
        let left = read_all(&log).unwrap();
        assert!(all.starts_with(&left));
        let cut_bytes = log.recovery().cut.clone().map_or(0, |(bytes, _)| bytes);
        drop(log);
        let kept: u64 = found
            .files()
            .iter()
            .filter(|path| named(path, "cut-"))
            .map(|path| found.read_file(path).unwrap().len() as u64)
            .sum();
        assert_eq!(kept, cut_bytes, "cut bytes are kept aside");
    }
}

#[test]
fn swapped_missing_and_doubled_segments_are_found() {
    let (sim, all) = written(true, &LogOptions { rolling_interval: std::time::Duration::from_millis(2), ..tiny() });
    let paths = segments(&sim);
    assert!(paths.len() >= 3);
    for one in &paths {
        let found = sim.fork();
        let disk: &dyn alluvium::fs::Disk = &found;
        disk.remove(one).unwrap();
        match check(&found, &tiny(), Planted::Nothing, &all) {
            Ok(false) => {}
            other => panic!("{} is missing: {other:?}", one.display()),
        }
        for other in paths.iter().filter(|other| *other != one) {
            let found = sim.fork();
            found.write_file(one, &sim.read_file(other).unwrap()).unwrap();
            assert_eq!(check(&found, &tiny(), Planted::Nothing, &all), Ok(false));
        }
    }
    let foreign = [
        "/log/xlog-1-2-00000000000000000001",
        "/log/log-1-2",
        "/log/log-1-2-00000000000000000001.tmp",
        "/log/notes.txt",
    ];
    for name in foreign {
        sim.write_file(name, b"whatever").unwrap();
    }
    assert_eq!(check(&sim, &tiny(), Planted::Nothing, &all), Ok(true));
    assert!(foreign.iter().all(|name| sim.read_file(name).is_ok()), "foreign files are left alone");
}

#[test]
fn the_first_segment_that_a_clean_has_kept_is_missed_too() {
    let options = LogOptions { recycles: 0, ..tiny() };
    let sim = SimDisk::new(1);
    let log = open(&sim, &options).unwrap();
    for number in 0..40 {
        log.write(&[7; 700], number).unwrap();
    }
    log.clean_below(Lsn(12)).unwrap();
    let all = read_all(&log).unwrap();
    assert!(all.first().is_some_and(|first| first.lsn > 1), "nothing was cleaned");
    drop(log);
    assert_eq!(check(&sim, &options, Planted::Nothing, &all), Ok(true));
    let disk: &dyn Disk = &sim;
    disk.remove(&segments(&sim)[0]).unwrap();
    assert_eq!(check(&sim, &options, Planted::Nothing, &all), Ok(false));
    let found = inspect::inspect(&sim, Path::new(DIR)).unwrap();
    assert!(found.has_loss(), "{found:?}");
}

/// Numbers that somebody has made up, near the highest one that a reader believes.
#[test]
fn what_is_written_can_be_read_whatever_numbers_the_names_there_have() {
    for name in ["tmp-04611686018427387903", "log-1-2-04611686018427387903"] {
        for whole in [false, true] {
            let sim = SimDisk::new(1);
            if whole {
                open(&sim, &small()).unwrap().write(b"one", 1).unwrap();
            }
            sim.write_file(Path::new(DIR).join(name), b"").unwrap();
            let files = sim.files();
            for mode in [RecoveryMode::Salvage, RecoveryMode::PointInTime, RecoveryMode::Strict] {
                let error = open(&sim, &LogOptions { recovery: mode, ..small() }).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{name} {mode:?}: {error}");
            }
            // But for the lock.
            let left: Vec<_> = sim.files().into_iter().filter(|path| !named(path, "LOCK")).collect();
            assert!(files.iter().filter(|path| !named(path, "LOCK")).eq(&left), "{name}: {left:?}");
        }
    }
}

#[test]
fn salvage_counts_what_no_segment_shows_and_nothing_twice() {
    let options = LogOptions { recycles: 0, close_after_write: true, ..tiny() };
    let salvaging = LogOptions { recovery: RecoveryMode::Salvage, ..options.clone() };
    for deleted in [&[][..], &[0], &[7], &[0, 1, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]] {
        let sim = SimDisk::new(1);
        let log = open(&sim, &options).unwrap();
        for number in 0..8 {
            log.write(&[7; 100], number).unwrap();
        }
        log.close().unwrap();
        drop(log);
        let paths = segments(&sim);
        let disk: &dyn Disk = &sim;
        for place in deleted {
            disk.remove(&paths[*place]).unwrap();
        }
        let log = open(&sim, &salvaging).unwrap();
        let read = |from: u64| {
            let mut records = log.read_from(Lsn(from)).unwrap();
            (drain(records.as_mut()).unwrap().len(), records.skipped().clone())
        };
        let lost = deleted.len() as u64;
        let (found, skipped) = read(0);
        assert_eq!((found as u64, skipped.records, skipped.never_durable), (8 - lost, lost, 0), "{deleted:?}");
        assert_eq!(read(3).1.records, deleted.iter().filter(|place| **place >= 2).count() as u64, "{deleted:?}");
        for number in 0..4 {
            log.write(&[8; 100], number).unwrap();
        }
        assert_eq!(read(0), (found + 4, skipped), "{deleted:?}, written to");
        // What is cleaned is not lost, and neither is what was lost in front of it.
        log.clean_below(Lsn(4)).unwrap();
        let behind = deleted.iter().filter(|place| **place > 2 && lost < 8).count() as u64;
        assert_eq!(read(0).1.records, if lost == 8 { 8 } else { behind }, "{deleted:?}, cleaned");
        log.clean_below(Lsn(12)).unwrap();
        assert_eq!(read(0), (1, Skipped::default()), "{deleted:?}, cleaned");
    }
}

/// It is only evidence.
#[test]
fn a_watermark_that_cannot_be_read_counts_as_missing() {
    let (sim, all) = written(false, &tiny());
    let disk: &dyn Disk = &sim;
    disk.remove(Path::new("/log/durable")).unwrap();
    disk.create_dir(Path::new("/log/durable")).unwrap();
    assert!(!inspect::inspect(&sim, Path::new(DIR)).unwrap().has_loss());
    assert_eq!(check(&sim, &tiny(), Planted::Nothing, &all), Ok(true));
    let log = open(&sim, &tiny()).unwrap();
    log.write(b"goes on", 1).unwrap();
    drop(log);
    assert_eq!(read_all(&open(&sim, &tiny()).unwrap()).unwrap().len(), all.len() + 1);
}

#[test]
fn a_watermark_whose_sectors_are_bad_counts_as_missing() {
    let (sim, all) = written(true, &tiny());
    for operation in [Operation::Open, Operation::Read] {
        // The watermark is what is read first.
        let found = sim.fork();
        found.fail_at(1, &[operation], std::io::ErrorKind::Other, Persistence::Once);
        assert_eq!(check(&found, &tiny(), Planted::Nothing, &all), Ok(true), "{operation:?}");
        assert_eq!(found.faults_fired(), 1);
    }
}

#[test]
fn the_segments_are_what_is_missing_where_all_are_gone() {
    let (sim, _) = written(true, &tiny());
    let disk: &dyn Disk = &sim;
    for path in segments(&sim) {
        disk.remove(&path).unwrap();
    }
    let error = open(&sim, &tiny()).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Missing { file: Path::new(DIR).join("log-*") }, "{error}");
}

#[test]
fn point_in_time_ends_before_the_damage_and_goes_on_from_there() {
    let options = LogOptions { rolling_interval: std::time::Duration::from_millis(2), ..tiny() };
    let (sim, all) = written(true, &options);
    let path = segments(&sim)[1].clone();
    sim.flip_bit(&path, (sim.read_file(&path).unwrap().len() as u64 - 200) * 8).unwrap();
    assert_eq!(check(&sim, &options, Planted::Nothing, &all), Ok(false));
    let point = LogOptions { recovery: RecoveryMode::PointInTime, ..options.clone() };
    let log = open(&sim, &point).unwrap();
    let left = read_all(&log).unwrap();
    assert!(!left.is_empty() && left.len() < all.len() && all.starts_with(&left));
    assert!(!log.recovery().put_aside.is_empty() && log.recovery().cut.is_some());
    log.write(b"goes on", 50).unwrap();
    drop(log);
    let log = open(&sim, &options).unwrap();
    assert_eq!(read_all(&log).unwrap().len(), left.len() + 1);
}

#[test]
fn salvage_holds_few_records_at_once_also_if_they_are_empty() {
    let sim = SimDisk::new(1);
    let log = open(&sim, &LogOptions { segment_bytes: 1 << 20, ..small() }).unwrap();
    let empty = vec![NewRecord::new(b"", 1); 20_000];
    log.write_batch(&empty).unwrap();
    log.close().unwrap();
    let mut heard = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let to = Path::new("/saved");
    let skipped = inspect::salvage(Arc::clone(&disk), Path::new(DIR), to, &mut |at| heard.push(at.records)).unwrap();
    assert_eq!(skipped.records, 0);
    assert!(heard.len() > 3, "all were held at once: {heard:?}");
    let mut saved = inspect::read(disk, to, RecoveryMode::Strict, Lsn::NONE).unwrap();
    assert_eq!(drain(saved.as_mut()).unwrap().len(), empty.len());
}

#[test]
fn planted_bugs_show() {
    for planted in [Planted::SkipPayloadChecksum, Planted::CutAcknowledged] {
        let (sim, all) = written(false, &tiny());
        let path = segments(&sim).pop().unwrap();
        let bits = sim.read_file(&path).unwrap().len() as u64 * 8;
        let wrong = (0..bits).any(|bit| {
            let found = sim.fork();
            found.flip_bit(&path, bit).unwrap();
            check(&found, &tiny(), planted, &all).is_err()
        });
        assert!(wrong, "{planted:?} goes unnoticed");
    }
}
