//! Random histories against a list.

use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;
use alluvium::wal::{Durability, FileLog, LogOptions, Lsn, NewRecord, RecordCodec, Wait, WriteAheadLog, WriteOptions};
use proptest::prelude::*;

use super::support::*;

#[derive(Debug, Clone)]
enum Step {
    Write {
        lengths: Vec<usize>,
        time_ms: u64,
        durability: Durability,
    },
    Sync,
    Clean(u64),
    CleanBelow(u64),
    ReadFrom(u64),
    Close,
    /// The process dies and nothing on the disk is lost.
    Kill,
    /// The power goes.
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let durability = prop::sample::select(vec![Durability::Each, Durability::Group, Durability::None]);
    let length = prop_oneof![Just(0_usize), 1..50_usize, 500..3000_usize, Just(9000)];
    prop::collection::vec(
        prop_oneof![
            8 => (prop::collection::vec(length, 1..4), 0..200_u64, durability)
                .prop_map(|(lengths, time_ms, durability)| Step::Write { lengths, time_ms, durability }),
            1 => Just(Step::Sync),
            1 => (0..200_u64).prop_map(Step::Clean),
            1 => (0..60_u64).prop_map(Step::CleanBelow),
            1 => (0..60_u64).prop_map(Step::ReadFrom),
            1 => Just(Step::Close),
            1 => Just(Step::Kill),
            1 => any::<u64>().prop_map(Step::Crash),
        ],
        1..40,
    )
}

/// What should be there: every record by its LSN, from 1 on.
#[derive(Debug, Default)]
struct Model {
    records: Vec<(u64, Vec<u8>)>,
    durable: usize,
    /// Records below this LSN may be gone.
    cleaned: u64,
}

impl Model {
    /// Whether what was read is right; returns the first LSN that is still there.
    fn check(&self, found: &[Read], from: u64) -> Result<(), String> {
        let first = found.first().map_or(self.records.len() as u64 + 1, |read| read.lsn);
        if first > self.cleaned.max(from).max(1) && first <= self.records.len() as u64 {
            return Err(format!("begins with {first}, cleaned below {}, from {from}", self.cleaned));
        }
        let end = first + found.len() as u64;
        if end != self.records.len() as u64 + 1 && !found.is_empty() {
            return Err(format!("ends with {}, {} were written", end - 1, self.records.len()));
        }
        for (read, lsn) in found.iter().zip(first..) {
            let (time_ms, payload) = &self.records[usize::try_from(lsn).unwrap() - 1];
            if (read.lsn, read.time_ms, &read.payload) != (lsn, *time_ms, payload) {
                return Err(format!("record {lsn} is another one"));
            }
        }
        Ok(())
    }
}

fn options(codec: RecordCodec, preallocates: bool, recycles: usize) -> LogOptions {
    LogOptions { rolling_interval: Duration::from_millis(40), codec, preallocates, recycles, ..small() }
}

fn run(steps: &[Step], options: &LogOptions, seed: u64) -> Result<(), String> {
    let mut sim = SimDisk::new(seed);
    let mut log: FileLog = open(&sim, options).unwrap();
    let mut model = Model::default();
    let all = |log: &FileLog| read_all(log).map_err(|error| error.to_string());
    for step in steps {
        match step {
            Step::Write { lengths, time_ms, durability } => {
                let payloads: Vec<Vec<u8>> =
                    lengths.iter().map(|length| vec![b'a' + u8::try_from(length % 26).unwrap(); *length]).collect();
                let records: Vec<NewRecord<'_>> =
                    payloads.iter().map(|payload| NewRecord::new(payload, *time_ms)).collect();
                let how = WriteOptions { durability: Some(*durability), ..WriteOptions::default() };
                let handles = log.write_with(&records, &how).map_err(|error| error.to_string())?;
                for (handle, payload) in handles.iter().zip(payloads) {
                    if log.read(handle).map_err(|error| error.to_string())? != *payload {
                        return Err(format!("{handle:?} leads elsewhere"));
                    }
                    model.records.push((*time_ms, payload));
                }
                if *durability != Durability::None {
                    model.durable = model.records.len();
                }
            }
            Step::Sync => {
                log.sync().map_err(|error| error.to_string())?;
                model.durable = model.records.len();
            }
            Step::Clean(threshold) => {
                log.clean(*threshold, Wait::ForIt).map_err(|error| error.to_string())?;
                let young = model.records.iter().skip(usize::try_from(model.cleaned).unwrap().saturating_sub(1));
                let old = young.take_while(|(time_ms, _)| time_ms < threshold).count() as u64;
                model.cleaned = model.cleaned.max(1) + old;
            }
            Step::CleanBelow(lsn) => {
                log.clean_below(Lsn(*lsn)).map_err(|error| error.to_string())?;
                model.cleaned = model.cleaned.max(*lsn);
            }
            Step::ReadFrom(lsn) => {
                let found = drain(log.read_from(Lsn(*lsn)).unwrap().as_mut()).map_err(|error| error.to_string())?;
                model.check(&found, *lsn)?;
            }
            Step::Close => {
                log.close().map_err(|error| error.to_string())?;
                model.durable = model.records.len();
                log = open(&sim, options).map_err(|error| error.to_string())?;
            }
            Step::Kill => {
                sim = sim.fork();
                log = open(&sim, options).map_err(|error| error.to_string())?;
                model.durable = model.records.len();
            }
            Step::Crash(seed) => {
                sim = sim.survive(Survivors::Seeded(*seed));
                log = open(&sim, options).map_err(|error| error.to_string())?;
                let found = all(&log)?;
                // Where nothing is left, records that were cleaned may have had numbers that are not given out again.
                let none_left = model.durable.max(usize::try_from(log.durable_lsn().0).unwrap());
                let last = found.last().map_or(none_left, |read| usize::try_from(read.lsn).unwrap());
                if last < model.durable {
                    return Err(format!("{} were durable, {last} are there", model.durable));
                }
                model.records.truncate(last);
                model.durable = last;
            }
        }
        model.check(&all(&log)?, 0)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn a_log_is_a_list_whatever_happens_to_it(
        steps in steps(),
        codec in prop::sample::select(vec![RecordCodec::None, RecordCodec::Lz4, RecordCodec::Zstd]),
        preallocates in any::<bool>(),
        recycles in 0..2_usize,
        seed in any::<u64>(),
    ) {
        if let Err(wrong) = run(&steps, &options(codec, preallocates, recycles), seed) {
            prop_assert!(false, "{}", wrong);
        }
    }
}
