//! Failures that others met in the field, held against maintenance: the names are those of the list of field cases.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::{
    Backend, FamilyId, LocalCheckpoint, Maintenance, MaintenanceOptions, Residency, RocksDbProvider, StateStoreId,
    StoreOptions, Upkeep, Version,
};

const FAMILY: FamilyId = FamilyId::DEFAULT;
const GO_ON: &(dyn Fn(u64) -> ControlFlow<()> + Sync) = &|_| ControlFlow::Continue(());

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

fn checkpoint(disk: &SimDisk) -> LocalCheckpoint {
    LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap()
}

fn manual() -> StoreOptions {
    StoreOptions::default().upkeep(Upkeep::Manual)
}

fn open_on(backend: &Backend, disk: &SimDisk, options: StoreOptions) -> RocksDbProvider {
    RocksDbProvider::open(backend, checkpoint(disk), id(), options).unwrap()
}

fn open(disk: &SimDisk, options: StoreOptions) -> RocksDbProvider {
    open_on(&Backend::in_memory().unwrap(), disk, options)
}

fn put(provider: &RocksDbProvider, base: u64, keys: impl Iterator<Item = u64>, what: &str) {
    let mut batch = provider.begin(Version(base)).unwrap();
    for key in keys {
        batch.put(FAMILY, &key.to_be_bytes(), format!("{what} {key}").as_bytes()).unwrap();
    }
    assert_eq!(batch.commit().unwrap(), Version(base + 1));
}

fn content(store: &impl ReadStore) -> State {
    let entries = store.scan(FAMILY).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn runs(disk: &SimDisk) -> Vec<PathBuf> {
    let is_run = |path: &PathBuf| path.extension().is_some_and(|one| one == "delta" || one == "snapshot");
    disk.files().into_iter().filter(is_run).collect()
}

#[test]
fn r11_very_many_tiny_commits_are_opened_from_few_files() {
    let disk = SimDisk::new(11);
    let commits = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    let provider = open(&disk, StoreOptions::default().retain_versions(10).unwrap());
    (0..commits).for_each(|version| put(&provider, version, version * 10..version * 10 + 10, "tiny"));
    provider.maintain(GO_ON).unwrap();
    assert!(disk.files().len() < 64, "{} files", disk.files().len());
    drop(provider);
    let provider = open(&disk, manual());
    assert!(provider.tail_length() < 32, "{} deltas to replay", provider.tail_length());
    let head = provider.begin(Version(commits)).unwrap();
    assert_eq!(content(&head).len() as u64, commits * 10);
}

#[test]
fn r20_after_a_restart_one_more_commit_writes_only_a_delta() {
    let disk = SimDisk::new(20);
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = open_on(index.backend(), &disk, StoreOptions::default());
    put(&provider, 0, 0..20_000, "first");
    provider.snapshot().unwrap();
    put(&provider, 1, 0..10, "second");
    drop(provider);
    let before = runs(&disk);
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = open_on(index.backend(), &disk, StoreOptions::default());
    put(&provider, 2, 0..10, "third");
    index.run_pending();
    drop(provider);
    let new: Vec<PathBuf> = runs(&disk).into_iter().filter(|path| !before.contains(path)).collect();
    let [delta] = new.as_slice() else { panic!("{new:#?}") };
    assert!(disk.read_file(delta).unwrap().len() < 2_000, "{}", delta.display());
}

#[test]
fn r21_a_restore_over_what_an_interrupted_restore_has_left_is_the_same_restore() {
    let resident = || manual().residency(Residency::Resident);
    let disk = SimDisk::new(21);
    let provider = open(&disk, resident());
    put(&provider, 0, 0..3_000, "first");
    provider.snapshot().unwrap();
    put(&provider, 1, 10..20, "second");
    let expected = content(&provider.begin(Version(2)).unwrap());
    drop(provider);
    let index = SimIndex::from_image(&IndexImage::default());
    drop(open_on(index.backend(), &disk, resident()));
    assert!(index.moments() > 2, "{}", index.moments());
    for moment in 0..index.moments() {
        let left = SimIndex::from_image(&index.moment(moment).unwrap());
        for _ in 0..2 {
            let provider = open_on(left.backend(), &disk, resident());
            assert_eq!(content(&provider.begin(Version(2)).unwrap()), expected, "moment {moment}");
        }
    }
}

#[test]
fn c8_the_same_changes_cost_the_same_whatever_the_size_of_the_state() {
    let cost = |keys: u64| {
        let disk = SimDisk::new(8);
        let provider = open(&disk, manual());
        put(&provider, 0, 0..keys, "state");
        provider.snapshot().unwrap();
        let (before, operations) = (runs(&disk), disk.operations());
        put(&provider, 1, (0..1_000).map(|number| number * keys / 1_000 % keys), "0123456789");
        let done = disk.operations() - operations;
        let new = runs(&disk).into_iter().filter(|path| !before.contains(path));
        let bytes: usize = new.map(|path| disk.read_file(&path).unwrap().len()).sum();
        (bytes, done)
    };
    let [(small, few), (large, many)] = [2_000, 100_000].map(cost);
    assert_eq!(few, many, "operations on the disk");
    assert!(large <= small + small / 20, "{small} and {large} bytes"); // the numbers in the values are longer
}

#[test]
fn g1_whoever_reads_a_version_reads_on_while_it_is_cleaned_up() {
    let disk = SimDisk::new(1);
    let provider = open(&disk, manual());
    for version in 0..30 {
        put(&provider, version, version * 5..version * 5 + 40, &format!("version {version}"));
    }
    let view = provider.read_at(Version(7)).unwrap();
    let expected = content(&provider.read_at(Version(7)).unwrap());
    let mut scan = view.scan(FAMILY).unwrap();
    let first = scan.next().unwrap().unwrap();
    let transaction = provider.begin(Version(30)).unwrap();
    let head = content(&provider.read_at(Version(30)).unwrap());
    let outsider = Maintenance::on(checkpoint(&disk), id(), MaintenanceOptions::default().retain_versions(1).unwrap());
    outsider.compact(GO_ON).unwrap();
    assert!(outsider.retire(GO_ON).unwrap().deleted.len() >= 29);
    assert_eq!(runs(&disk).len(), 2, "only the snapshot and the newest delta are left");
    assert_eq!(content(&view), expected);
    assert_eq!(content(&transaction), head, "a transaction too");
    let rest: State = scan.map(|entry| entry.map(|one| (one.key.to_vec(), one.value.to_vec())).unwrap()).collect();
    assert_eq!(rest.len() + 1, expected.len());
    assert_eq!(expected.get(&first.key.to_vec()).unwrap().as_slice(), &*first.value);
    drop(transaction);
    put(&provider, 30, 0..10, "goes on");
}

#[test]
fn g5_a_version_that_is_written_again_with_other_bytes_is_never_taken_for_the_first_one() {
    let disk = SimDisk::new(5);
    let provider = open(&disk, manual());
    for version in 0..20 {
        put(&provider, version, version..version + 5, "first");
    }
    // Everything that can be made of the first attempt is made of it.
    provider.collapse().unwrap();
    provider.snapshot().unwrap();
    let before = content(&provider.read_at(Version(15)).unwrap());
    for version in 15..20 {
        put(&provider, version, version..version + 5, "second");
    }
    let mut expected = before;
    for version in 15..20_u64 {
        let keys = version..version + 5;
        expected.extend(keys.map(|key| (key.to_be_bytes().to_vec(), format!("second {key}").into_bytes())));
    }
    let outsider = Maintenance::on(checkpoint(&disk), id(), MaintenanceOptions::default().retain_versions(2).unwrap());
    for step in 0..4 {
        match step {
            0 => {}
            1 => _ = provider.collapse().unwrap(),
            2 => _ = provider.snapshot().unwrap(),
            _ => _ = outsider.maintain(GO_ON).unwrap(),
        }
        assert_eq!(content(&provider.read_at(Version(20)).unwrap()), expected, "step {step}");
        assert_eq!(content(&provider.begin(Version(20)).unwrap()), expected, "step {step}");
        let elsewhere = open(&SimDisk::fork(&disk), manual());
        assert_eq!(content(&elsewhere.begin(Version(20)).unwrap()), expected, "step {step}");
    }
    let abandoned =
        runs(&disk).iter().filter(|path| path.to_string_lossy().contains("0020.00000000000000000001.")).count();
    assert_eq!(abandoned, 0, "nothing is left of the first attempt");
}
