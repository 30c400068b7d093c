//! Damaged, cut and exchanged files, seen through the store: the right content, or an error that names the file.

use std::path::{Path, PathBuf};
use std::thread;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;
use alluvium::prelude::*;
use alluvium::store::Planted;
use alluvium::{Access, Error, ErrorKind, RocksDbProvider, StoreOptions, Version};

use super::checks::{Verdict, read};
use super::model::{Line, Machine, Op, Process};

/// A store with the versions 1 to 3 and a snapshot of 2; `attempt` makes its values differ from those of another.
fn store(attempt: u64) -> Machine {
    let machine = Machine { attempt, starts: attempt << 8, ..Machine::new() };
    let mut process = Process::on(&machine, &StoreOptions::default());
    process.open().unwrap();
    [Op::Commit, Op::Commit, Op::Snapshot, Op::DeleteRange].iter().try_for_each(|op| process.run(*op)).unwrap();
    let machine = process.machine();
    // The index is lost, so that everything is read from the files.
    Machine { disk: machine.disk.survive(Survivors::All), index: Default::default(), ..machine }
}

/// The same without the deltas below the snapshot.
fn store_without_old_deltas() -> Machine {
    let machine = store(1);
    let old: Vec<PathBuf> = files(&machine.disk, ".delta");
    for path in old.iter().take(2) {
        alluvium::fs::Disk::remove(&machine.disk, path).unwrap();
    }
    Machine { disk: machine.disk.survive(Survivors::All), ..machine }
}

fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

/// How often something was right and how often it was refused.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    right: u32,
    refused: u32,
}

impl Outcome {
    /// Counts an error, which has to be typed and name a file that `is_to_blame`.
    fn refuse(&mut self, error: &Error, is_to_blame: &dyn Fn(&Path) -> bool) -> Verdict<()> {
        self.refused += 1;
        match error.kind() {
            ErrorKind::Corrupt { file, .. } | ErrorKind::Missing { file } if is_to_blame(file) => Ok(()),
            ErrorKind::Unsupported if error.to_string().contains("/state/") => Ok(()),
            kind => Err(format!("an error that blames nobody or the wrong file, {kind:?}: {error}")),
        }
    }
}

/// Opens the store and reads everything; each answer is right, or an error that names a file that `is_to_blame`.
fn examine(machine: &Machine, options: &StoreOptions, is_to_blame: &dyn Fn(&Path) -> bool) -> Verdict<Outcome> {
    let mut process = Process::on(machine, options);
    let mut outcome = Outcome::default();
    if let Err(error) = process.open() {
        outcome.refuse(&error, is_to_blame)?;
        return Ok(outcome);
    }
    let provider = process.provider();
    let oldest = Version(u64::from(!machine.has_version_1()) + 1);
    for version in oldest.0..machine.line.len() as u64 {
        examine_version(provider, Version(version), &machine.line, &mut outcome, is_to_blame)?;
    }
    match provider.latest() {
        Ok(latest) if latest.0 + 1 == machine.line.len() as u64 => outcome.right += 1,
        Ok(latest) => return Err(format!("latest() is {latest}")),
        Err(error) => outcome.refuse(&error, is_to_blame)?,
    }
    if let Err(error) = provider.versions() {
        outcome.refuse(&error, is_to_blame)?;
    }
    Ok(outcome)
}

impl Machine {
    fn has_version_1(&self) -> bool {
        files(&self.disk, "00000000000000000001.00000000000000000001.delta").len() == 1
    }
}

fn examine_version(
    provider: &RocksDbProvider,
    version: Version,
    line: &Line,
    outcome: &mut Outcome,
    is_to_blame: &dyn Fn(&Path) -> bool,
) -> Verdict<()> {
    let expected = &line[usize::try_from(version.0).unwrap()];
    match provider.metadata(version) {
        Ok(metadata) if *metadata == *expected.metadata => outcome.right += 1,
        Ok(metadata) => return Err(format!("the metadata of {version} is {metadata:?}")),
        Err(error) => outcome.refuse(&error, is_to_blame)?,
    }
    let mut compare = |content: Result<super::model::Content, Error>| match content {
        Ok(content) if content.families == expected.families => {
            outcome.right += 1;
            Ok(())
        }
        Ok(content) => Err(format!("version {version} reads {content:?} instead of {expected:?}")),
        Err(error) => outcome.refuse(&error, is_to_blame),
    };
    compare(provider.read_at(version).and_then(|view| read(&view)))?;
    if version.0 + 1 == line.len() as u64 {
        compare(provider.begin(version).and_then(|transaction| read(&transaction)))?;
    }
    Ok(())
}

/// What damaging `path` in each of these ways leads to; the ways whose every answer was right.
fn damage_each<W: Copy + Send + Sync + std::fmt::Debug>(
    machine: &Machine,
    path: &Path,
    ways: &[W],
    damage: impl Fn(&SimDisk, W) + Sync,
) -> Vec<W> {
    let try_all = |ways: &[W]| -> Vec<W> {
        let is_harmless = |way: &&W| {
            let disk = machine.disk.fork();
            damage(&disk, **way);
            let machine = Machine { disk, ..machine.clone() };
            let options = StoreOptions::default();
            let outcome = examine(&machine, &options, &|file| path.ends_with(file) || blames_gap(file));
            outcome.unwrap_or_else(|what| panic!("{} {way:?}: {what}", path.display())).refused == 0
        };
        ways.iter().filter(is_harmless).copied().collect()
    };
    let (front, back) = ways.split_at(ways.len() / 2);
    thread::scope(|scope| {
        let [front, back] = [front, back].map(|part| scope.spawn(|| try_all(part)));
        [front.join().unwrap(), back.join().unwrap()].concat()
    })
}

/// An error about a version whose file was passed over names the versions that are not covered.
fn blames_gap(file: &Path) -> bool {
    !file.is_absolute() && file.extension().is_some_and(|extension| extension == "delta")
}

/// Every bit of every byte that holds something or lies near it; of long stretches of zeros one bit a byte.
fn bits(bytes: &[u8]) -> Vec<u64> {
    let is_padding = |at: usize| bytes[at.saturating_sub(16)..bytes.len().min(at + 17)].iter().all(|byte| *byte == 0);
    let of_byte = |at: usize| {
        let (first, step) = if is_padding(at) { (at % 8, 8) } else { (0, 1) };
        (first..8).step_by(step).map(move |bit| (at * 8 + bit) as u64)
    };
    (0..bytes.len()).flat_map(of_byte).collect()
}

fn cuts_and_flips(machine: &Machine, path: &Path) -> (Vec<u64>, Vec<u64>, usize) {
    let bytes = machine.disk.read_file(path).unwrap();
    let cuts: Vec<u64> = (0..bytes.len() as u64).collect();
    let bits = bits(&bytes);
    let harmless_cuts = damage_each(machine, path, &cuts, |disk, length| disk.truncate(path, length).unwrap());
    let harmless_bits = damage_each(machine, path, &bits, |disk, bit| disk.flip_bit(path, bit).unwrap());
    println!("{}: {} cuts, {} flips", path.display(), cuts.len(), bits.len());
    (harmless_cuts, harmless_bits, bits.len())
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_delta_is_refused_by_name() {
    let machine = store(1);
    let delta = files(&machine.disk, ".delta").pop().unwrap();
    let (cuts, flips, tried) = cuts_and_flips(&machine, &delta);
    assert!(tried > 1_000);
    assert_eq!((cuts, flips), (vec![], vec![]), "the newest delta has no stand-in and no padding");
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_snapshot_is_refused_by_name_or_lies_in_the_padding() {
    let machine = store_without_old_deltas();
    let snapshot = files(&machine.disk, ".snapshot").pop().unwrap();
    let bytes = machine.disk.read_file(&snapshot).unwrap();
    let (cuts, flips, tried) = cuts_and_flips(&machine, &snapshot);
    assert!(tried > 1_000);
    assert_eq!(cuts, vec![]);
    // Padding between blocks is read by nobody but the scrubber: no answer depends on it.
    let not_zero: Vec<_> = flips.iter().filter(|bit| bytes[usize::try_from(**bit / 8).unwrap()] != 0).collect();
    assert!(not_zero.is_empty(), "harmless flips outside of the padding: {not_zero:?}");
    assert!(!flips.is_empty(), "a file of aligned pages has padding");
}

#[test]
fn a_snapshot_that_cannot_be_opened_is_made_up_for_by_the_deltas() {
    let machine = store(1);
    let snapshot = files(&machine.disk, ".snapshot").pop().unwrap();
    let length = machine.disk.read_file(&snapshot).unwrap().len() as u64;
    for cut in (0..length).step_by(if cfg!(debug_assertions) { 97 } else { 7 }) {
        let disk = machine.disk.fork();
        disk.truncate(&snapshot, cut).unwrap();
        let outcome = examine(&Machine { disk, ..machine.clone() }, &StoreOptions::default(), &|_| false);
        assert_eq!(outcome.unwrap().refused, 0, "cut at {cut}");
    }
}

#[test]
fn every_flipped_bit_of_a_fork_is_refused_or_changes_nothing() {
    let machine = store(1);
    let fork = machine.disk.files().into_iter().find(|path| path.to_string_lossy().contains("/forks/")).unwrap();
    let bytes = machine.disk.read_file(&fork).unwrap();
    let ways = bits(&bytes);
    damage_each(&machine, &fork, &ways, |disk, bit| disk.flip_bit(&fork, bit).unwrap());
}

#[test]
fn any_file_in_the_place_of_any_other_is_noticed() {
    let (machine, other) = (store(1), store(50));
    let (ours, theirs) = (machine.disk.files(), other.disk.files());
    let mut refused = 0;
    for place in &ours {
        let of_ours = ours.iter().map(|path| (path, &machine.disk));
        for (source, disk) in of_ours.chain(theirs.iter().map(|path| (path, &other.disk))) {
            let swapped = machine.disk.fork();
            swapped.write_file(place, &disk.read_file(source).unwrap()).unwrap();
            let outcome = examine(&Machine { disk: swapped, ..machine.clone() }, &StoreOptions::default(), &|_| true);
            let from = if std::ptr::eq(disk, &machine.disk) { "our" } else { "another store's" };
            let told = |what| panic!("{from} {} in the place of {}: {what}", source.display(), place.display());
            refused += outcome.unwrap_or_else(told).refused;
        }
    }
    assert!(refused > 0);
}

/// Finds the first page of a run: the byte of a value in it.
fn bit_of_a_value(disk: &SimDisk, path: &Path) -> u64 {
    let bytes = disk.read_file(path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"attempt").unwrap();
    at as u64 * 8
}

#[test]
fn a_page_is_believed_only_with_its_checksum() {
    for suffix in [".delta", ".snapshot"] {
        let machine = store_without_old_deltas();
        let path = files(&machine.disk, suffix).pop().unwrap();
        let bit = bit_of_a_value(&machine.disk, &path);
        machine.disk.flip_bit(&path, bit).unwrap();
        for access in [Access::Mapped, Access::Positioned] {
            let options = StoreOptions::default().access(access);
            let outcome = examine(&machine, &options, &|file| file == path).unwrap();
            assert!(outcome.refused > 0, "{suffix}");
            let planted = options.planted(Planted::SkipPageChecksum);
            let found = examine(&machine, &planted, &|file| file == path).unwrap_err();
            assert!(found.contains("instead of"), "the planted bug was not found: {found}");
        }
    }
}
