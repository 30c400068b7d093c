//! Looking at a log, and reading it, while somebody else writes to it and cleans it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{FileLog, LogOptions, Lsn, WriteAheadLog, inspect};

use super::support::*;

/// What somebody else does before each operation of a disk.
type Act = Box<dyn FnMut() + Send>;

/// A disk on which somebody else is at work.
#[derive(Clone)]
struct Beside {
    sim: SimDisk,
    /// Taken out while it acts, so that what it does itself is left alone.
    act: Arc<Mutex<Option<Act>>>,
}

impl Beside {
    fn new(sim: &SimDisk) -> Self {
        Self { sim: sim.clone(), act: Arc::default() }
    }

    fn set(&self, act: impl FnMut() + Send + 'static) {
        *self.act.lock().unwrap() = Some(Box::new(act));
    }

    fn step(&self) {
        let taken = self.act.lock().unwrap().take();
        if let Some(mut act) = taken {
            act();
            *self.act.lock().unwrap() = Some(act);
        }
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beside")
    }
}

impl Disk for Beside {
    fn create_new(&self, path: &Path) -> alluvium::Result<Box<dyn alluvium::fs::WriteFile>> {
        self.sim.create_new(path)
    }

    fn overwrite(&self, path: &Path) -> alluvium::Result<Box<dyn alluvium::fs::WriteFile>> {
        self.sim.overwrite(path)
    }

    fn open(&self, path: &Path) -> alluvium::Result<Arc<dyn alluvium::fs::ReadFile>> {
        self.step();
        let file = self.sim.open(path)?;
        Ok(Arc::new(BesideFile { on: self.clone(), file }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> alluvium::Result<()> {
        self.sim.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> alluvium::Result<()> {
        self.sim.remove(path)
    }

    fn create_dir(&self, path: &Path) -> alluvium::Result<bool> {
        self.sim.create_dir(path)
    }

    fn list(&self, path: &Path) -> alluvium::Result<Vec<alluvium::fs::DirEntry>> {
        self.step();
        self.sim.list(path)
    }

    fn stat(&self, path: &Path) -> alluvium::Result<Option<alluvium::fs::Stat>> {
        self.step();
        self.sim.stat(path)
    }

    fn sync_dir(&self, path: &Path) -> alluvium::Result<()> {
        self.sim.sync_dir(path)
    }

    fn lock(&self, path: &Path, clock: &dyn alluvium::Clock) -> alluvium::Result<alluvium::fs::DiskLock> {
        self.sim.lock(path, clock)
    }
}

#[derive(Debug)]
struct BesideFile {
    on: Beside,
    file: Arc<dyn alluvium::fs::ReadFile>,
}

impl alluvium::fs::ReadFile for BesideFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> alluvium::Result<()> {
        self.on.step();
        self.file.read_exact_at(buffer, offset)
    }

    fn map(&self) -> alluvium::Result<alluvium::Bytes> {
        self.file.map()
    }
}

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
