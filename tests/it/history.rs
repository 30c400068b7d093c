//! A store's versions read from its checkpoint alone: changes, differences, exports, imports.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::checkpoint::{Checkpoint, PendingFile};
use alluvium::fs::{DirEntry, Disk, ReadFile, SimDisk};
use alluvium::prelude::*;
use alluvium::{
    Backend, Changed, Changes, Differences, ErrorKind, FamilyId, History, LocalCheckpoint, MemoryProvider, Result,
    RocksDbProvider, Scan, StateStoreId, StoreOptions, Version, View,
};

const FAMILIES: [&str; 3] = ["default", "left", "right"];

/// By family and key.
type Content = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

fn checkpoint(disk: &SimDisk) -> LocalCheckpoint {
    LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap()
}

fn history(disk: &SimDisk) -> History {
    History::open(LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/checkpoint").unwrap(), id()).unwrap()
}

fn provider(disk: &SimDisk) -> RocksDbProvider {
    RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint(disk), id(), StoreOptions::default()).unwrap()
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A small generator of numbers; the same seed gives the same ones.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn key(&mut self) -> Vec<u8> {
        let keys: [&[u8]; 4] = [b"", b"\0", b"k", b"\xff\xff"];
        match self.roll(8) {
            short @ 0..4 => keys[usize::try_from(short).unwrap()].to_vec(),
            _ => u16::try_from(self.roll(60)).unwrap().to_be_bytes().to_vec(),
        }
    }
}

/// Commits one random batch, and does the same to the model.
fn commit<P: StateStoreProvider>(provider: &P, dice: &mut Dice, content: &mut Content) {
    let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
    for _ in 0..=dice.roll(12) {
        let family = usize::try_from(dice.roll(3)).unwrap();
        let number = batch.create_family(FAMILIES[family]).unwrap();
        let key = dice.key();
        match dice.roll(8) {
            0 => {
                let (start, end) = (dice.roll(3), dice.roll(3));
                let start = (start > 0).then(|| key.clone());
                let end = (end > 0).then(|| dice.key());
                batch.delete_range(number, start.as_deref(), end.as_deref()).unwrap();
                let is_in = |f: usize, k: &Vec<u8>| {
                    f == family && start.as_ref().is_none_or(|s| k >= s) && end.as_ref().is_none_or(|e| k < e)
                };
                content.retain(|(f, k), _| !is_in(*f, k));
            }
            1 | 2 => {
                batch.remove(number, &key).unwrap();
                content.remove(&(family, key));
            }
            _ => {
                let value = dice.roll(5).to_string().into_bytes();
                batch.put(number, &key, &value).unwrap();
                content.insert((family, key), value);
            }
        }
    }
    batch.commit().unwrap();
}

/// A store of `versions` random commits, and what each version holds.
fn store(disk: &SimDisk, seed: u64, versions: u64) -> (RocksDbProvider, Vec<Content>) {
    let provider = provider(disk);
    let mut dice = Dice(seed);
    let mut contents = vec![Content::new()];
    for _ in 0..versions {
        let mut content = contents.last().unwrap().clone();
        commit(&provider, &mut dice, &mut content);
        contents.push(content);
        match dice.roll(6) {
            0 => drop(provider.snapshot().unwrap()),
            1 => drop(provider.collapse().unwrap()),
            _ => {}
        }
    }
    (provider, contents)
}

fn content(view: &impl ReadStore) -> Content {
    let mut content = Content::new();
    for (number, name) in FAMILIES.iter().enumerate() {
        let Some(family) = view.family(name) else { continue };
        content.extend(
            view.scan(family).unwrap().map(|e| e.unwrap()).map(|e| ((number, e.key.to_vec()), e.value.to_vec())),
        );
    }
    content
}

/// Applies changes to a state; checks old values if they are there; says which versions had any.
fn apply(changes: Changes, state: &mut Content, has_old: bool) -> Vec<u64> {
    let families = changes.families().clone();
    let mut versions = Vec::new();
    let mut before = state.clone();
    for event in changes {
        let event = event.unwrap();
        if versions.last() != Some(&event.version.0) {
            versions.push(event.version.0);
            before.clone_from(state);
        }
        let name = families.name(event.family).unwrap().as_str();
        let family = FAMILIES.iter().position(|known| *known == name).unwrap();
        match event.change {
            Changed::Upsert { key, value, old } => {
                let was = before.get(&(family, key.to_vec())).filter(|_| has_old);
                assert_eq!(old.as_deref(), was.map(Vec::as_slice));
                state.insert((family, key.to_vec()), value.to_vec());
            }
            Changed::Delete { key, old } => {
                let was = before.get(&(family, key.to_vec())).filter(|_| has_old);
                assert_eq!(old.as_deref(), was.map(Vec::as_slice));
                state.remove(&(family, key.to_vec()));
            }
            Changed::DeleteRange { start, end } => state.retain(|(f, key), _| {
                *f != family || *key < start.to_vec() || end.as_ref().is_some_and(|end| *key >= end.to_vec())
            }),
        }
    }
    versions
}

#[test]
fn the_changes_of_any_versions_lead_from_the_state_before_to_the_state_after() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (provider, contents) = store(&disk, seed, 12);
        let alone = history(&disk);
        assert_eq!(alone.latest().unwrap(), Version(12));
        for (from, to) in [(0, 12), (3, 4), (4, 11), (7, 7)] {
            let range = Version(from + 1)..=Version(to);
            let mut state = contents[usize::try_from(from).unwrap()].clone();
            let versions = apply(provider.changes(range.clone()).unwrap(), &mut state, false);
            assert_eq!(state, contents[usize::try_from(to).unwrap()], "seed {seed}, {from} to {to}");
            assert!(versions.is_sorted());
            let mut state = contents[usize::try_from(from).unwrap()].clone();
            apply(alone.changes(range).unwrap().with_old_values().unwrap(), &mut state, true);
            assert_eq!(state, contents[usize::try_from(to).unwrap()], "seed {seed}, {from} to {to}");
        }
        assert!(provider.changes(Version(0)..=Version(12)).is_ok(), "version 0 has no changes");
        assert!(matches!(
            provider.changes(Version(1)..=Version(13)).unwrap_err().kind(),
            ErrorKind::VersionNotFound { .. }
        ));
    }
}

#[test]
fn differences_are_what_two_versions_differ_in_both_ways_with_and_without_deltas_between() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (provider, contents) = store(&disk, seed, 10);
        provider.snapshot().unwrap();
        let check = |history: &History| {
            for (from, old) in (0..).zip(&contents) {
                for (to, new) in (0..).zip(&contents) {
                    let found = history.difference(Version(from), Version(to)).unwrap();
                    let families = found.families().clone();
                    let mut expected = Vec::new();
                    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
                    for key in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
                        expected.push((FAMILIES[key.0], key.1.clone(), old.get(key).cloned(), new.get(key).cloned()));
                    }
                    let found: Vec<_> = found
                        .map(|d| {
                            let d = d.unwrap();
                            let name = families.name(d.family).unwrap().as_str();
                            let name = FAMILIES.iter().find(|known| **known == name).unwrap();
                            (*name, d.key.to_vec(), d.old.map(|v| v.to_vec()), d.new.map(|v| v.to_vec()))
                        })
                        .collect();
                    let order = |name: &str| families.find(name);
                    expected.sort_by_key(|(name, key, ..)| (order(name), key.clone()));
                    assert_eq!(found, expected, "seed {seed}, {from} to {to}");
                }
            }
        };
        check(&history(&disk));
        // Every other single delta that something wider does the work of is gone.
        let singles = files(&disk, ".delta").into_iter().filter(|path| !path.to_string_lossy().contains('-'));
        let survivor = disk.fork();
        for path in singles.step_by(2) {
            let trial = survivor.fork();
            Disk::remove(&trial, &path).unwrap();
            let readable = (1..=10).all(|version| history(&trial).read_at(Version(version)).is_ok());
            if readable {
                Disk::remove(&survivor, &path).unwrap();
            }
        }
        check(&history(&survivor));
    }
}

fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

#[test]
fn where_commits_were_collapsed_the_feed_says_which_range_is_still_known_and_the_difference_tells_it() {
    let disk = SimDisk::new(1);
    let provider = provider(&disk);
    for version in 1..=10_u8 {
        let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
        batch.put(FamilyId::DEFAULT, &[version], &[version]).unwrap();
        batch.put(FamilyId::DEFAULT, b"all", &[version]).unwrap();
        batch.commit().unwrap();
        if version == 3 || version == 7 {
            assert_eq!(provider.collapse().unwrap(), Version(version.into()));
        }
    }
    for path in files(&disk, ".delta").iter().filter(|path| !path.to_string_lossy().contains('-')) {
        let version: u64 = path.file_stem().unwrap().to_string_lossy()[..20].parse().unwrap();
        if (4..=7).contains(&version) {
            Disk::remove(&disk, path).unwrap();
        }
    }
    let history = history(&disk);
    let events =
        |from, to| history.changes(Version(from)..=Version(to)).map(|changes| changes.map(Result::unwrap).count());
    assert_eq!(events(1, 3).unwrap(), 6);
    assert_eq!(events(8, 10).unwrap(), 6);
    assert_eq!(events(11, 10).unwrap(), 0);
    for (from, to) in [(1, 10), (4, 5), (6, 6), (7, 8)] {
        let error = events(from, to).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Collapsed { from: Version(3), to: Version(7) }, "{error}");
    }
    let keys: Vec<_> = history.difference(Version(3), Version(7)).unwrap().map(|d| d.unwrap().key.to_vec()).collect();
    assert_eq!(keys, [vec![4], vec![5], vec![6], vec![7], b"all".to_vec()]);
}

#[test]
fn a_delta_that_is_collapsed_away_while_the_feed_is_read_is_a_typed_error_that_stays() {
    let disk = SimDisk::new(1);
    let (provider, _) = store(&disk, 7, 6);
    provider.snapshot().unwrap();
    let mut changes = history(&disk).changes(Version(1)..=Version(6)).unwrap();
    changes.next().unwrap().unwrap();
    let retired = provider.retire(1).unwrap();
    assert_eq!(retired.oldest, Version(6));
    let error = changes.by_ref().find_map(Result::err).expect("the later deltas are gone");
    assert_eq!(*error.kind(), ErrorKind::Collapsed { from: Version(0), to: Version(6) }, "{error}");
    for _ in 0..3 {
        assert_eq!(changes.next().unwrap().unwrap_err().kind(), error.kind());
    }
}

#[test]
fn a_history_writes_nothing_and_fences_nobody() {
    let disk = SimDisk::new(3);
    let (provider, contents) = store(&disk, 3, 8);
    let (before, files) = (disk.operations(), disk.files());
    let history = history(&disk);
    assert_eq!(content(&history.read_at(Version(5)).unwrap()), contents[5]);
    assert_eq!(history.versions().unwrap(), provider.versions().unwrap());
    assert_eq!(history.verify(go_on).unwrap().damaged, []);
    history.changes(Version(1)..=Version(8)).unwrap().for_each(|event| drop(event.unwrap()));
    let inventory = history.inventory().unwrap();
    assert_eq!((inventory.oldest, inventory.newest, inventory.versions), (Version(1), Version(8), 8));
    let stores = History::stores(&LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/checkpoint").unwrap());
    assert_eq!(stores.unwrap(), [id()]);
    assert_eq!((disk.operations(), disk.files()), (before, files));
    let mut content = contents[8].clone();
    commit(&provider, &mut Dice(9), &mut content);
    assert_eq!(history.latest().unwrap(), Version(9));
}

/// A checkpoint that counts how often it is asked for something.
#[derive(Debug)]
struct Counting {
    inner: LocalCheckpoint,
    lists: AtomicU64,
    opens: AtomicU64,
}

impl Checkpoint for Counting {
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>> {
        self.inner.create(path, temporary)
    }
    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        self.inner.open(path)
    }
    fn list(&self, dir: &str) -> Result<Vec<DirEntry>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(dir)
    }
    fn length(&self, path: &str) -> Result<Option<u64>> {
        self.inner.length(path)
    }
    fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path)
    }
    fn sync(&self, dir: &str) -> Result<()> {
        self.inner.sync(dir)
    }
    fn display_path(&self, path: &str) -> PathBuf {
        self.inner.display_path(path)
    }
}

#[test]
fn a_survey_lists_once_and_opens_each_run_once() {
    let disk = SimDisk::new(3);
    let (provider, _) = store(&disk, 3, 40);
    provider.snapshot().unwrap();
    let inner = LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    let counting = Arc::new(Counting { inner, lists: AtomicU64::new(0), opens: AtomicU64::new(0) });
    let history = History::open(Arc::clone(&counting) as Arc<dyn Checkpoint>, id()).unwrap();
    let before = (counting.lists.load(Ordering::Relaxed), counting.opens.load(Ordering::Relaxed));
    let survey = history.survey_with_metadata().unwrap();
    let runs = history.verify(go_on).unwrap().runs;
    let metadata = |version| provider.metadata(version).unwrap();
    for (surveyed, info) in survey.versions.iter().zip(provider.versions().unwrap()) {
        assert_eq!((surveyed.versions.first, surveyed.changes), (info.version, info.changes));
        assert_eq!((surveyed.file_bytes, surveyed.metadata_bytes), (info.file_bytes, Some(info.metadata_bytes)));
        assert_eq!(surveyed.metadata.as_ref(), Some(&metadata(info.version)));
        assert_eq!(surveyed.unreadable, None);
    }
    assert_eq!((survey.versions.len(), survey.damaged.len()), (40, 0));
    // The directory and its forks; the fork and each run. The verification does the same again.
    let after = (counting.lists.load(Ordering::Relaxed), counting.opens.load(Ordering::Relaxed));
    assert_eq!((after.0 - before.0, after.1 - before.1), (2 * 2, 2 * (1 + runs)));
}

#[test]
fn no_history_is_opened_where_no_store_is() {
    let disk = SimDisk::new(3);
    store(&disk, 3, 1);
    let there = || LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    let missing = History::open(there(), StateStoreId::new("op", 1, "state").unwrap()).unwrap_err();
    assert!(missing.is_not_found() && missing.to_string().contains("op/1/state"), "{missing}");
    assert!(LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/elsewhere").unwrap_err().is_not_found());
    assert!(!disk.files().iter().any(|path| path.starts_with("/elsewhere")));
}

fn export(disk: &SimDisk, version: u64) -> Result<alluvium::Exported> {
    let target = LocalCheckpoint::on(Arc::new(disk.clone()), "/exports")?;
    history(disk).export_to(Version(version), &target, go_on)
}

fn import(disk: &SimDisk, file: &Path, store: &StateStoreId) -> Result<History> {
    let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint")?;
    History::import_from(Disk::open(disk, file)?, file, checkpoint, store.clone(), go_on)
}

#[test]
fn an_exported_version_starts_a_store_that_goes_on_by_itself() {
    for seed in 0..5 {
        let disk = SimDisk::new(seed);
        let (provider, contents) = store(&disk, seed, 9);
        let exported = export(&disk, 6).unwrap();
        assert_eq!(exported.entries, contents[6].len() as u64);
        assert_eq!(exported.file, Path::new("/exports/op.0.state.6.snapshot"));
        assert!(export(&disk, 6).unwrap_err().is_already_exists());
        assert_eq!(*export(&disk, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(matches!(export(&disk, 10).unwrap_err().kind(), ErrorKind::VersionNotFound { .. }));
        drop(provider);
        let other = StateStoreId::new("elsewhere", 3, "copy").unwrap();
        let imported = import(&disk, &exported.file, &other).unwrap();
        assert_eq!(imported.versions().unwrap().len(), 1);
        assert_eq!(content(&imported.read_at(Version(6)).unwrap()), contents[6]);
        assert!(import(&disk, &exported.file, &other).unwrap_err().is_already_exists());
        let store = MemoryProvider::open(checkpoint(&disk), other.clone(), StoreOptions::default()).unwrap();
        assert_eq!(store.latest().unwrap(), Version(6));
        let mut now = contents[6].clone();
        for version in 7..12 {
            commit(&store, &mut Dice(version), &mut now);
            if version == 9 {
                store.snapshot().unwrap();
            }
        }
        drop(store);
        let store =
            RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint(&disk), other, StoreOptions::default());
        let store = store.unwrap();
        assert_eq!(content(&store.begin(Version(11)).unwrap()), now);
        let mut state = contents[6].clone();
        apply(store.changes(Version(7)..=Version(11)).unwrap(), &mut state, false);
        assert_eq!(state, now);
        let all = store.changes(Version(1)..=Version(11)).unwrap_err();
        assert_eq!(*all.kind(), ErrorKind::Collapsed { from: Version(0), to: Version(6) });
        store.retire(2).unwrap();
        assert_eq!(
            content(&store.read_at(Version(10)).unwrap()).len(),
            content(&store.read_at(Version(10)).unwrap()).len()
        );
        assert_eq!(content(&history(&disk).read_at(Version(9)).unwrap()), contents[9], "the first store is untouched");
    }
}

#[test]
fn a_damaged_or_wrong_file_starts_no_store() {
    let disk = SimDisk::new(1);
    store(&disk, 1, 4);
    let file = export(&disk, 4).unwrap().file;
    let bytes = disk.read_file(&file).unwrap().to_vec();
    let other = StateStoreId::new("elsewhere", 0, "copy").unwrap();
    let bits = u64::try_from(bytes.len()).unwrap() * 8;
    for bit in (0..bits).step_by(97) {
        disk.flip_bit(&file, bit).unwrap();
        let error = import(&disk, &file, &other).unwrap_err();
        assert!(error.is_corrupt() || matches!(error.kind(), ErrorKind::Unsupported), "bit {bit}: {error}");
        disk.flip_bit(&file, bit).unwrap();
    }
    let delta = files(&disk, ".delta").remove(0);
    assert_eq!(*import(&disk, &delta, &other).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!disk.files().iter().any(|path| path.to_string_lossy().contains("elsewhere")));
    import(&disk, &file, &other).unwrap();
}

#[test]
fn an_export_or_import_that_was_cut_off_is_there_whole_or_not_and_can_be_repeated() {
    let disk = SimDisk::new(1);
    let (_, contents) = store(&disk, 1, 4);
    let other = StateStoreId::new("elsewhere", 0, "copy").unwrap();
    let base = disk.survive(alluvium::fs::sim::Survivors::All);
    let steps = |act: &dyn Fn(&SimDisk)| {
        let before = base.operations();
        let trial = base.fork();
        act(&trial);
        trial.operations() - before.min(trial.operations())
    };
    let mut cut_off = 0;
    let both = |disk: &SimDisk| -> Result<()> {
        let file = match export(disk, 4) {
            Ok(exported) => exported.file,
            Err(error) if error.is_already_exists() => PathBuf::from("/exports/op.0.state.4.snapshot"),
            Err(error) => return Err(error),
        };
        match import(disk, &file, &other) {
            Err(error) if error.is_already_exists() => Ok(()),
            outcome => outcome.map(drop),
        }
    };
    let most = steps(&|disk| both(disk).unwrap());
    assert!(most > 15, "{most}");
    for nth in 1..=most {
        for survivors in [alluvium::fs::sim::Survivors::None, alluvium::fs::sim::Survivors::All] {
            let trial = base.fork();
            trial.crash_at(nth);
            if both(&trial).is_ok() {
                continue;
            }
            cut_off += 1;
            let image = trial.survive(survivors);
            both(&image).unwrap();
            let copy = History::open(checkpoint(&image), other.clone()).unwrap();
            assert_eq!(content(&copy.read_at(Version(4)).unwrap()), contents[4], "crash {nth}");
            assert_eq!(copy.verify(go_on).unwrap().damaged, []);
        }
    }
    assert!(cut_off > 20, "{cut_off}");
}

#[test]
fn exporting_and_importing_can_be_ended_and_leave_nothing() {
    let disk = SimDisk::new(1);
    store(&disk, 1, 6);
    let target = LocalCheckpoint::on(Arc::new(disk.clone()), "/exports").unwrap();
    let stop = |_| ControlFlow::Break(());
    let ended = history(&disk).export_to(Version(6), &target, stop).unwrap_err();
    assert_eq!(*ended.kind(), ErrorKind::Cancelled);
    assert!(!disk.files().iter().any(|path| path.starts_with("/exports")));
    let file = export(&disk, 6).unwrap().file;
    let other = StateStoreId::new("elsewhere", 0, "copy").unwrap();
    let source = Disk::open(&disk, &file).unwrap();
    let ended = History::import_from(source, &file, checkpoint(&disk), other.clone(), stop).unwrap_err();
    assert_eq!(*ended.kind(), ErrorKind::Cancelled);
    import(&disk, &file, &other).unwrap();
}

#[test]
fn what_reads_can_be_sent_to_another_thread_and_outlives_its_handle() {
    fn is_free<T: Send + 'static>() {}
    is_free::<(Scan, View, Changes, Differences, History)>();
    let disk = SimDisk::new(1);
    let (provider, contents) = store(&disk, 1, 6);
    let (view, changes) = (provider.read_at(Version(6)).unwrap(), provider.changes(Version(1)..=Version(6)).unwrap());
    let scan = view.scan(FamilyId::DEFAULT).unwrap();
    drop((view, provider));
    let expected = contents[6].keys().filter(|(family, _)| *family == 0).count();
    let told = std::thread::spawn(move || (scan.map(Result::unwrap).count(), changes.map(Result::unwrap).count()));
    let (entries, events) = told.join().unwrap();
    assert!(entries == expected && events > 6);
}
