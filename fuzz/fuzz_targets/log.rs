//! Any bytes as the newest segment of a log, and a good one with bytes replaced: read or refused, in every mode, nothing worse.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{FileLog, LogOptions, NewRecord, WriteAheadLog, read_untrusted};
use alluvium::{IdSource, SystemClock};
use libfuzzer_sys::fuzz_target;

const NAME: &str = "/log/log-1-60001-00000000000000000001";

fn good() -> SimDisk {
    let sim = SimDisk::new(1);
    let clock = Arc::new(SystemClock::new());
    let log = FileLog::open_on(Arc::new(sim.clone()), "/log", LogOptions::default(), clock, IdSource::seeded(1)).unwrap();
    for payload in [&b"first"[..], b"", &[7; 300]] {
        log.write_batch(&[NewRecord::new(payload, 1)]).unwrap();
    }
    log.close().unwrap();
    sim
}

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    let sim = good();
    let mut bytes = sim.read_file(NAME).unwrap().to_vec();
    for (place, byte) in &input.0 {
        if let Some(found) = bytes.get_mut(usize::from(*place)) {
            *found = *byte;
        }
    }
    bytes.extend_from_slice(input.1);
    sim.write_file(NAME, &bytes).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(sim.fork());
    read_untrusted(&disk, Path::new("/log"));
    sim.write_file(NAME, input.1).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(sim);
    read_untrusted(&disk, Path::new("/log"));
});
