//! A store on a simulated disk, and short words for what every behaviour does with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::contract::ProviderFactory;
use super::faulty::FaultyCheckpoint;
use crate::checkpoint::{Checkpoint, LocalCheckpoint};
use crate::entry::{FamilyId, StateStoreId};
use crate::error::{ErrorKind, Result};
use crate::fs::SimDisk;
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::store::scan::Scan;
use crate::version::{IdSource, Version};

/// The family of most behaviours.
pub(super) const DEFAULT: FamilyId = FamilyId::DEFAULT;
const ROOT: &str = "/checkpoint";

/// Everything in a family.
pub(super) type Content = BTreeMap<Vec<u8>, Vec<u8>>;
pub(super) type TransactionOf<F> = <<F as ProviderFactory>::Provider as StateStoreProvider>::Transaction;

/// An empty store and its disk.
pub(super) struct Fixture<'f, F> {
    pub(super) factory: &'f F,
    pub(super) disk: SimDisk,
    pub(super) faults: FaultyCheckpoint,
    /// Other machines, kept as long as what they opened.
    others: Mutex<Vec<F>>,
}

impl<'f, F: ProviderFactory> Fixture<'f, F> {
    pub(super) fn new(factory: &'f F) -> Self {
        let disk = SimDisk::new(1);
        let local =
            LocalCheckpoint::on(Arc::new(disk.clone()), ROOT).expect("a simulated disk has room for a directory");
        let faults = FaultyCheckpoint::over(local.into());
        Self { factory, disk, faults, others: Mutex::default() }
    }

    pub(super) fn checkpoint(&self) -> Arc<dyn Checkpoint> {
        Arc::new(self.faults.clone())
    }

    /// Opens the store, over the local state that is there.
    pub(super) fn open(&self) -> F::Provider {
        self.open_partition(0)
    }

    pub(super) fn open_partition(&self, partition: u32) -> F::Provider {
        self.factory.open(self.checkpoint(), id_of(partition)).expect("the store opens")
    }

    /// Opens the store on another machine.
    pub(super) fn open_elsewhere(&self) -> F::Provider {
        let other = self.factory.elsewhere();
        let provider = other.open(self.checkpoint(), id_of(0)).expect("the store opens elsewhere");
        self.others.lock().expect("no thread panics").push(other);
        provider
    }

    /// Opens the store after its local state was lost.
    pub(super) fn open_afresh(&self) -> F::Provider {
        self.factory.forget();
        self.open()
    }

    /// The store's files, forks left out, with their bytes.
    pub(super) fn runs(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let in_forks = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with("forks"));
        let files = self.disk.files().into_iter().filter(|path| !in_forks(path));
        files.map(|path| (path.clone(), self.disk.read_file(&path).expect("it is listed").to_vec())).collect()
    }

    /// A disk that holds the same checkpoint at another place, and the checkpoint on it.
    pub(super) fn moved_to(&self, root: &str) -> (SimDisk, Arc<dyn Checkpoint>) {
        let disk = SimDisk::new(2);
        for file in self.disk.files() {
            let below = file.strip_prefix(ROOT).expect("nothing lies outside the checkpoint");
            let bytes = self.disk.read_file(&file).expect("it is listed");
            disk.write_file(Path::new(root).join(below), &bytes).expect("a simulated disk has room");
        }
        let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), root).expect("the root is there");
        (disk, checkpoint.into())
    }
}

pub(super) fn id_of(partition: u32) -> StateStoreId {
    StateStoreId::new("conformance", partition, "state").expect("a good name")
}

/// Commits what `write` writes on top of `version`.
pub(super) fn commit_on<P: StateStoreProvider>(
    provider: &P,
    version: u64,
    write: impl FnOnce(&mut P::Transaction),
) -> Version {
    let mut transaction = begin(provider, version);
    write(&mut transaction);
    transaction.commit().expect("the commit succeeds")
}

/// Commits one put into the default family.
pub(super) fn commit_put<P: StateStoreProvider>(provider: &P, version: u64, key: &[u8], value: &[u8]) -> Version {
    commit_on(provider, version, |transaction| put(transaction, key, value))
}

pub(super) fn begin<P: StateStoreProvider>(provider: &P, version: u64) -> P::Transaction {
    provider.begin(Version(version)).expect("the transaction begins")
}

pub(super) fn view<P: StateStoreProvider>(provider: &P, version: u64) -> P::View {
    provider.read_at(Version(version)).expect("the version can be read")
}

pub(super) fn put(transaction: &mut impl WriteStore, key: &[u8], value: &[u8]) {
    transaction.put(DEFAULT, key, value).expect("the put succeeds");
}

pub(super) fn remove(transaction: &mut impl WriteStore, key: &[u8]) {
    transaction.remove(DEFAULT, key).expect("the removal succeeds");
}

/// The value of a key in the default family.
pub(super) fn value(store: &(impl ReadStore + ?Sized), key: &[u8]) -> Option<Vec<u8>> {
    store.get(DEFAULT, key).expect("the get succeeds").map(|value| value.to_vec())
}

/// What a scan gives, checked for its order.
pub(super) fn collect(scan: Result<Scan>) -> Content {
    let mut content = Content::new();
    for entry in scan.expect("the scan begins") {
        let entry = entry.expect("the scan goes on");
        let is_next = content.last_key_value().is_none_or(|(last, _)| last.as_slice() < entry.key.as_slice());
        assert!(is_next, "{:?} comes after {:?}", entry.key, content.last_key_value());
        content.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    content
}

/// Everything in the default family.
pub(super) fn all(store: &(impl ReadStore + ?Sized)) -> Content {
    collect(store.scan(DEFAULT))
}

/// Everything in the default family of a version.
pub(super) fn at<P: StateStoreProvider>(provider: &P, version: u64) -> Content {
    all(&view(provider, version))
}

pub(super) fn content<K: AsRef<[u8]>, V: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, V)>) -> Content {
    entries.into_iter().map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec())).collect()
}

pub(super) fn keys(content: &Content) -> Vec<&[u8]> {
    content.keys().map(Vec::as_slice).collect()
}

/// The kind of the error that `outcome` must be.
#[track_caller]
pub(super) fn kind_of<T>(outcome: Result<T>) -> ErrorKind {
    match outcome {
        Ok(_) => panic!("this had to fail"),
        Err(error) => error.kind().clone(),
    }
}

#[track_caller]
pub(super) fn assert_fenced<T>(outcome: Result<T>) {
    let kind = kind_of(outcome);
    assert!(matches!(kind, ErrorKind::Fenced { .. }), "{kind:?}");
}

/// Random numbers that follow from a seed.
pub(super) struct Dice(IdSource);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(IdSource::seeded(seed))
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let [_, _, _, _, _, _, _, _, upper @ ..] = self.0.run_id().0;
        u64::from_le_bytes(upper) % bound.max(1)
    }
}
