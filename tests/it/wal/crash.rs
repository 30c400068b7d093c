//! The power goes at every operation, also during recovery.

use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;
use alluvium::wal::{Durability, LogOptions, Lsn, NewRecord, Planted, Wait, WriteAheadLog, WriteOptions};

use super::support::*;

/// What a run has asked for and what it was told.
#[derive(Debug, Default, Clone)]
struct Told {
    /// Payloads by LSN, from 1 on.
    attempted: Vec<Vec<u8>>,
    /// Up to this LSN, everything was acknowledged as durable.
    acknowledged: u64,
    /// Below this LSN, records may have been cleaned away.
    cleaned: u64,
}

/// Segments of three records or so.
fn short() -> LogOptions {
    LogOptions { rolling_interval: Duration::from_millis(2), ..small() }
}

fn payload(number: usize) -> Vec<u8> {
    let length = [0, 3, 700, 40, 1500, 90][number % 6];
    format!("{number}:").into_bytes().into_iter().chain(std::iter::repeat_n(b'p', length)).collect()
}

/// Writes, rolls, cleans and closes, until something fails.
fn run(sim: &SimDisk, options: &LogOptions, planted: Planted, told: &mut Told) -> alluvium::Result<()> {
    let log = open_planted(sim, options, planted)?;
    let unsynced = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    for number in 0..14 {
        told.attempted.push(payload(number));
        let payload = payload(number);
        let record = [NewRecord::new(&payload, number as u64)];
        let how = if number % 5 == 3 { unsynced } else { WriteOptions::default() };
        let handle = log.write_with(&record, &how)?;
        assert_eq!(handle[0].lsn.0, told.attempted.len() as u64);
        if number % 5 != 3 {
            told.acknowledged = handle[0].lsn.0;
        }
        if number == 4 {
            told.cleaned = 3;
            log.clean_below(Lsn(3))?;
        }
        if number == 12 {
            told.cleaned = 11;
            log.clean(10, Wait::ForIt)?;
        }
    }
    log.close()?;
    told.acknowledged = told.attempted.len() as u64;
    Ok(())
}

/// What is wrong with a disk that was found after a crash.
fn check(sim: &SimDisk, options: &LogOptions, planted: Planted, told: &Told) -> Result<(), String> {
    let log = open_planted(sim, options, planted).map_err(|error| format!("opening: {error}"))?;
    let found = read_all(&log).map_err(|error| format!("reading: {error}"))?;
    let first = found.first().map_or(1, |read| read.lsn);
    if first > told.cleaned.max(1) {
        return Err(format!("the first record has LSN {first}"));
    }
    let last = found.last().map_or(first - 1, |read| read.lsn);
    if last < told.acknowledged {
        return Err(format!("acknowledged up to {}, found up to {last}", told.acknowledged));
    }
    for (read, lsn) in found.iter().zip(first..) {
        let attempted = told.attempted.get(usize::try_from(lsn).unwrap() - 1);
        if read.lsn != lsn || attempted != Some(&read.payload) {
            return Err(format!("record {lsn}: found {read:?}"));
        }
    }
    // What goes on from there is there next time.
    let lsn = log.write(b"after", 99).map_err(|error| format!("writing: {error}"))?.lsn;
    if lsn.0 != last + 1 {
        return Err(format!("the next record has LSN {lsn} after {last}"));
    }
    drop(log);
    let log = open_planted(sim, options, planted).map_err(|error| format!("opening again: {error}"))?;
    let again = read_all(&log).map_err(|error| format!("reading again: {error}"))?;
    if again.len() != found.len() + 1 {
        return Err(format!("{} records, then {}", found.len() + 1, again.len()));
    }
    Ok(())
}

fn survivors(seeds: u64) -> impl Iterator<Item = Survivors> {
    [Survivors::All, Survivors::None].into_iter().chain((0..seeds).map(Survivors::Seeded))
}

/// Crashes at every operation; returns how many images were looked at, or the first that is wrong.
fn crash_everywhere(options: &LogOptions, planted: Planted, seeds: u64, depth2: bool) -> Result<u64, String> {
    let counting = SimDisk::new(1);
    run(&counting, options, planted, &mut Told::default()).unwrap();
    let mut images = 0;
    for operation in 1..=counting.operations() {
        for after in [false, true] {
            let sim = SimDisk::new(operation);
            if after {
                sim.crash_after(operation);
            } else {
                sim.crash_at(operation);
            }
            let mut told = Told::default();
            let outcome = run(&sim, options, planted, &mut told);
            assert!(sim.faults_fired() == 1, "the crash at operation {operation} did not fire");
            // A crash in what nobody needs (the reserve, a leftover) may go unnoticed until the end.
            drop(outcome);
            for which in survivors(seeds) {
                let found = sim.survive(which);
                images += 1;
                check(&found, options, planted, &told)
                    .map_err(|wrong| format!("operation {operation} after={after} {which:?}: {wrong}"))?;
                if depth2 {
                    images += crash_again(&sim.survive(which), options, planted, &told)
                        .map_err(|wrong| format!("operation {operation} after={after} {which:?}, then {wrong}"))?;
                }
            }
        }
    }
    Ok(images)
}

/// Crashes at every operation of the recovery.
fn crash_again(first: &SimDisk, options: &LogOptions, planted: Planted, told: &Told) -> Result<u64, String> {
    let counting = first.fork();
    drop(open_planted(&counting, options, planted).map_err(|error| error.to_string())?);
    let mut images = 0;
    for operation in 1..=counting.operations() {
        let sim = first.fork();
        sim.crash_at(operation);
        assert!(open_planted(&sim, options, planted).is_err() || sim.faults_fired() == 1);
        for which in [Survivors::All, Survivors::None, Survivors::Seeded(operation)] {
            images += 1;
            check(&sim.survive(which), options, planted, told)
                .map_err(|wrong| format!("operation {operation} of the recovery {which:?}: {wrong}"))?;
        }
    }
    Ok(images)
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let images = crash_everywhere(&short(), Planted::Nothing, 8, false).unwrap();
    assert!(images > 1000, "{images}");
}

#[test]
fn a_crash_at_any_operation_of_the_recovery_loses_nothing_either() {
    let images = crash_everywhere(&short(), Planted::Nothing, 1, true).unwrap();
    assert!(images > 1000, "{images}");
}

#[test]
fn reserved_and_recycled_segments_survive_crashes_too() {
    for (preallocates, recycles) in [(true, 0), (false, 2), (true, 2)] {
        let options = LogOptions { preallocates, recycles, ..short() };
        crash_everywhere(&options, Planted::Nothing, 6, false).unwrap();
    }
    // With a segment for every write a spare is taken often, and its old name may outlive a crash.
    for recycles in [0, 1] {
        let options = LogOptions { close_after_write: true, recycles, ..short() };
        crash_everywhere(&options, Planted::Nothing, 4, false).unwrap();
    }
}

#[test]
fn planted_bugs_show() {
    for planted in [Planted::AcknowledgeBeforeSync, Planted::SkipDirectorySync, Planted::CleanWithoutHorizon] {
        let found = crash_everywhere(&short(), planted, 12, false);
        assert!(found.is_err(), "{planted:?} goes unnoticed: {found:?}");
    }
}
