//! The example in `docs/formats/log.md` is decoded, and is what is written today.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use alluvium::IdSource;
use alluvium::fs::SimDisk;
use alluvium::wal::{FileLog, LogOptions, NewRecord, WriteAheadLog, inspect};

use super::support::*;

const PAGE: &str = include_str!("../../../docs/formats/log.md");
const NAME: &str = "/log/log-1700000000000-1700000060000-00000000000000000001";

fn example() -> Vec<u8> {
    let block = PAGE.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let words = block.lines().flat_map(|line| line.split_whitespace().skip(1));
    words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
}

fn write(sim: &SimDisk) -> FileLog {
    let clock = Arc::new(ManualClock(AtomicU64::new(1_700_000_000_000)));
    let log = FileLog::open_on(Arc::new(sim.clone()), DIR, LogOptions::default(), clock, IdSource::seeded(1)).unwrap();
    log.write(b"alpha", 1_700_000_000_000).unwrap();
    log.write_batch(&[NewRecord { stream: 7, ..NewRecord::new(b"b", 1_700_000_000_001) }]).unwrap();
    log.close().unwrap();
    log
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}  {}\n", line * 16, words.join(" "))
    });
    lines.collect()
}

#[test]
fn the_example_is_read_and_is_what_is_written() {
    let sim = SimDisk::new(1);
    write(&sim);
    let written = sim.read_file(NAME).unwrap();
    assert_eq!(written, example()[..], "the page should say:\n{}", hex(&written));
    let other = SimDisk::new(2);
    other.write_file(NAME, &example()).unwrap();
    let log = open(&other, &small()).unwrap();
    let expected = [(1, 1_700_000_000_000, "alpha"), (2, 1_700_000_000_001, "b")];
    let expected = expected.map(|(lsn, time_ms, text)| Read { lsn, time_ms, payload: text.into() });
    assert_eq!(read_all(&log).unwrap(), expected);
    let report = inspect::verify(&other, &PathBuf::from(DIR), &mut |_| ()).unwrap();
    assert!(report.findings.is_empty() && report.segments[0].is_sealed && report.segments[0].records == 2);
}
