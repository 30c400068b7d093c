//! The power goes at every operation of an opening that ends the log before damage, or skips it, and of the writes after it.

use std::path::Path;
use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;
use alluvium::wal::{LogOptions, Planted, RecoveryMode, WriteAheadLog};

use super::support::*;

/// Segments of three records or so.
fn options(recovery: RecoveryMode) -> LogOptions {
    LogOptions { rolling_interval: Duration::from_millis(2), recovery, ..small() }
}

const NEW: [&str; 3] = ["new 1", "new 2", "new 3"];

/// A log of several segments, and its records.
fn written() -> (SimDisk, Vec<Read>) {
    let sim = SimDisk::new(1);
    let log = open(&sim, &options(RecoveryMode::Strict)).unwrap();
    for number in 0..12_u64 {
        let padding = "d".repeat(usize::try_from(number * 97 % 400).unwrap());
        log.write(format!("{number} {padding}").as_bytes(), number).unwrap();
    }
    let all = read_all(&log).unwrap();
    drop(log);
    (sim, all)
}

/// What the mode makes of a damaged log, without a crash.
fn left(damaged: &SimDisk, mode: RecoveryMode) -> Vec<Read> {
    let sim = damaged.fork();
    read_all(&open(&sim, &options(mode)).unwrap()).unwrap()
}

/// Opens and writes, until something fails; returns how many writes were acknowledged.
fn run(sim: &SimDisk, mode: RecoveryMode, planted: Planted) -> usize {
    let Ok(log) = open_planted(sim, &options(mode), planted) else { return 0 };
    let written = (100..).zip(NEW).take_while(|(time_ms, text)| log.write(text.as_bytes(), *time_ms).is_ok()).count();
    drop(log.close());
    written
}

/// What is wrong with a disk that was found after a crash: what the mode had left is there, and what was acknowledged since.
fn check(sim: &SimDisk, mode: RecoveryMode, all: &[Read], left: &[Read], acknowledged: usize) -> Result<(), String> {
    let log = open(sim, &options(mode)).map_err(|error| format!("opening: {error}"))?;
    let found = read_all(&log).map_err(|error| format!("reading: {error}"))?;
    let (new, old): (Vec<&Read>, Vec<&Read>) = found.iter().partition(|read| read.payload.starts_with(b"new"));
    if !old.iter().all(|read| all.contains(read)) || !left.iter().all(|read| old.contains(&read)) {
        return Err(format!("{} of the {} old records that were left", old.len(), left.len()));
    }
    if mode == RecoveryMode::PointInTime && !old.iter().copied().eq(all.iter().take(old.len())) {
        return Err("a hole in the old records".to_owned());
    }
    let is_prefix = new.iter().zip(NEW).all(|(read, text)| read.payload == text.as_bytes());
    if new.len() < acknowledged || !is_prefix || !found.is_sorted_by(|one, other| one.lsn < other.lsn) {
        return Err(format!("{acknowledged} new ones were acknowledged, found {new:?}"));
    }
    log.write(b"new after", 200).map_err(|error| format!("writing: {error}"))?;
    drop(log);
    // After an end before the damage the log is whole again.
    let then = if mode == RecoveryMode::PointInTime { RecoveryMode::Strict } else { mode };
    let again = open(sim, &options(then)).and_then(|log| read_all(&log)).map_err(|error| format!("then: {error}"))?;
    let is_there = again.len() == found.len() + 1 && again.starts_with(&found);
    if is_there { Ok(()) } else { Err(format!("{} records, then {}", found.len() + 1, again.len())) }
}

/// Crashes at every operation, for damage in every segment; returns how many images were looked at, or the first that is wrong.
fn crash_everywhere(mode: RecoveryMode, planted: Planted) -> Result<u64, String> {
    let (sim, all) = written();
    let mut images = 0;
    for path in segments(&sim) {
        let length = sim.read_file(&path).unwrap().len() as u64;
        // The segment's header, a record's, something in between, and the seal.
        for place in [10, 90, length / 2, length - 30] {
            let damaged = sim.fork();
            damaged.flip_bit(&path, place * 8).unwrap();
            images += crash_in(&damaged, mode, planted, &all)
                .map_err(|wrong| format!("damage at {place} of {}: {wrong}", Path::display(&path)))?;
        }
    }
    Ok(images)
}

fn crash_in(damaged: &SimDisk, mode: RecoveryMode, planted: Planted, all: &[Read]) -> Result<u64, String> {
    let left = left(damaged, mode);
    let counting = damaged.fork();
    let before = counting.operations();
    assert_eq!(run(&counting, mode, planted), NEW.len());
    let mut images = 0;
    for operation in 1..=counting.operations() - before {
        for after in [false, true] {
            let sim = damaged.fork();
            if after {
                sim.crash_after(operation);
            } else {
                sim.crash_at(operation);
            }
            let acknowledged = run(&sim, mode, planted);
            assert!(sim.faults_fired() == 1, "the crash at operation {operation} did not fire");
            for which in
                [Survivors::All, Survivors::None, Survivors::Seeded(operation), Survivors::Seeded(operation + 77)]
            {
                images += 1;
                check(&sim.survive(which), mode, all, &left, acknowledged)
                    .map_err(|wrong| format!("operation {operation} after={after} {which:?}: {wrong}"))?;
            }
        }
    }
    Ok(images)
}

#[test]
fn a_crash_while_the_log_is_ended_before_damage_loses_nothing_before_it() {
    let images = crash_everywhere(RecoveryMode::PointInTime, Planted::Nothing).unwrap();
    assert!(images > 2000, "{images}");
}

#[test]
fn a_crash_while_damage_is_skipped_loses_nothing_around_it() {
    let images = crash_everywhere(RecoveryMode::Salvage, Planted::Nothing).unwrap();
    assert!(images > 2000, "{images}");
}

#[test]
fn planted_bugs_show() {
    for mode in [RecoveryMode::PointInTime, RecoveryMode::Salvage] {
        let found = crash_everywhere(mode, Planted::AcknowledgeBeforeSync);
        assert!(found.is_err(), "{mode:?}: goes unnoticed: {found:?}");
    }
}
