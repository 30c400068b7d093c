//! Behaviour 86: random histories against a map per version.

use std::collections::BTreeMap;

use super::contract::ProviderFactory;
use super::fixture::{Content, Dice, Fixture, begin, collect, view};
use crate::entry::FamilyId;
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

const SEEDS: u64 = 8;
const STEPS: u64 = 100;
const FAMILIES: [&str; 3] = ["default", "left", "right"];

/// One version as it must be.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    families: BTreeMap<String, Content>,
    metadata: Vec<u8>,
}

/// Commits, aborts, rollbacks, reopenings, upkeep, and a second instance that fills gaps; every version is compared.
pub(super) fn random_histories_agree_with_a_map_per_version<F: ProviderFactory>(factory: &F) {
    for seed in 0..SEEDS {
        // Printed before anything can fail; test runners show it only then.
        let _named = NamedSeed(seed);
        History::new(factory, seed).run();
    }
}

/// Tells the seed when a check panics under it.
struct NamedSeed(u64);

impl Drop for NamedSeed {
    #[expect(clippy::print_stderr, reason = "a random test names its seed when it fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history of seed {} failed", self.0);
        }
    }
}

struct History<'f, F: ProviderFactory> {
    fixture: Fixture<'f, F>,
    elsewhere: F,
    provider: Option<F::Provider>,
    /// `versions[v]` is version v; 0 is empty.
    versions: Vec<State>,
    dice: Dice,
    step: u64,
}

impl<'f, F: ProviderFactory> History<'f, F> {
    fn new(factory: &'f F, seed: u64) -> Self {
        let fixture = Fixture::new(factory);
        let provider = Some(fixture.open());
        let empty = State { families: BTreeMap::from([("default".into(), Content::new())]), ..State::default() };
        let elsewhere = factory.elsewhere();
        Self { fixture, elsewhere, provider, versions: vec![empty], dice: Dice::new(seed), step: 0 }
    }

    fn run(mut self) {
        for step in 0..STEPS {
            self.step = step;
            match self.dice.below(20) {
                0..8 => self.commit_on(self.newest()),
                8 | 9 => self.abort(),
                10 | 11 => self.roll_back(),
                12 => drop(self.provider().snapshot().expect("the snapshot succeeds")),
                13 | 14 => self.maintain(),
                15 => self.reopen(),
                16 => self.forget(),
                17 => self.fill_gaps_elsewhere(),
                18 => self.fill_gaps_beside(),
                _ => self.check_some_version(),
            }
            self.check_newest();
        }
        self.reopen();
        (0..=self.newest()).for_each(|version| self.check_view(version));
        let found: Vec<u64> = self.provider().versions().expect("the versions").iter().map(|i| i.version.0).collect();
        assert!(found.into_iter().eq(1..=self.newest()));
    }

    fn provider(&self) -> &F::Provider {
        self.provider.as_ref().expect("a provider is open")
    }

    fn newest(&self) -> u64 {
        self.versions.len() as u64 - 1
    }

    fn state(&self, version: u64) -> &State {
        usize::try_from(version).ok().and_then(|version| self.versions.get(version)).expect("a version of the model")
    }

    fn commit_on(&mut self, version: u64) {
        let mut state = self.state(version).clone();
        let mut transaction = begin(self.provider.as_ref().expect("a provider is open"), version);
        write_some(&mut transaction, &mut state, &mut self.dice);
        state.metadata = self.step.to_be_bytes().to_vec();
        let made = transaction.commit_with(&state.metadata).expect("the commit succeeds");
        assert_eq!(made, Version(version + 1), "step {}", self.step);
        self.versions.truncate(usize::try_from(version + 1).expect("small"));
        self.versions.push(state);
    }

    fn abort(&mut self) {
        let version = self.dice.below(self.newest() + 1);
        let mut state = self.state(version).clone();
        let mut transaction = begin(self.provider.as_ref().expect("a provider is open"), version);
        write_some(&mut transaction, &mut state, &mut self.dice);
        transaction.abort();
    }

    fn roll_back(&mut self) {
        let back = self.dice.below(4).min(self.newest());
        self.commit_on(self.newest() - back);
    }

    fn maintain(&mut self) {
        let turn = self.dice.below(8);
        self.fixture.factory.maintain(self.provider(), turn).expect("the upkeep succeeds");
    }

    fn reopen(&mut self) {
        self.provider = None;
        self.provider = Some(self.fixture.open());
    }

    fn forget(&mut self) {
        self.provider = None;
        self.provider = Some(self.fixture.open_afresh());
    }

    /// Another machine takes over for some commits; then the local state lags behind, or is on an abandoned branch.
    fn fill_gaps_elsewhere(&mut self) {
        self.provider = None;
        let opened = self.elsewhere.open(self.fixture.checkpoint(), super::fixture::id_of(0));
        self.provider = Some(opened.expect("the store opens elsewhere"));
        self.fill_gaps();
        self.reopen();
    }

    /// A second instance takes over in the same process, while the first is still open.
    fn fill_gaps_beside(&mut self) {
        let older = self.provider.take();
        self.provider = Some(self.fixture.open());
        self.fill_gaps();
        drop(older);
    }

    fn fill_gaps(&mut self) {
        for _ in 0..=self.dice.below(3) {
            if self.dice.below(3) == 0 { self.roll_back() } else { self.commit_on(self.newest()) }
        }
    }

    fn check_newest(&self) {
        let provider = self.provider();
        assert_eq!(provider.latest().expect("the newest version"), Version(self.newest()), "step {}", self.step);
        let transaction = begin(provider, self.newest());
        self.check(&transaction, self.newest());
    }

    fn check_some_version(&mut self) {
        let version = self.dice.below(self.newest() + 1);
        self.check_view(version);
        self.check(&begin(self.provider(), version), version);
    }

    fn check_view(&self, version: u64) {
        self.check(&view(self.provider(), version), version);
        let metadata = self.provider().metadata(Version(version)).expect("its metadata");
        assert_eq!(metadata, self.state(version).metadata.as_slice(), "step {} version {version}", self.step);
    }

    fn check(&self, store: &(impl ReadStore + ?Sized), version: u64) {
        let state = self.state(version);
        for name in FAMILIES {
            let context = format!("step {} version {version} family {name}", self.step);
            let Some(expected) = state.families.get(name) else {
                assert_eq!(store.family(name), None, "{context}");
                continue;
            };
            let family = store.family(name).expect(&context);
            assert_eq!(collect(store.scan(family)), *expected, "{context}");
            for key in all_keys() {
                let found = store.get(family, &key).expect("the get succeeds").map(|value| value.to_vec());
                assert_eq!(found.as_ref(), expected.get(&key), "{context} key {}", key.escape_ascii());
            }
        }
    }
}

/// Few keys, so that they meet: short ones, their extensions, and some at the end of the key space.
fn key_of(number: u64) -> Vec<u8> {
    let letter = *b"\0ag\xff".get(usize::try_from(number % 4).expect("small")).expect("one of four");
    let tail: &[u8] = match number / 4 % 5 {
        0 => b"",
        1 => b"1",
        2 => b"\xff",
        3 => b"\xff\xff",
        _ => b"longer than what fits into a key's head",
    };
    [&[letter], tail].concat()
}

fn all_keys() -> impl Iterator<Item = Vec<u8>> {
    (0..20).map(key_of)
}

/// Changes a transaction and its model alike, and reads in between.
fn write_some(transaction: &mut impl WriteStore, state: &mut State, dice: &mut Dice) {
    for _ in 0..dice.below(12) {
        let name = *FAMILIES.get(usize::try_from(dice.below(3)).expect("small")).expect("one of three");
        let family: FamilyId = transaction.create_family(name).expect("a good name");
        let content = state.families.entry(name.to_owned()).or_default();
        let key = key_of(dice.below(20));
        match dice.below(10) {
            0..5 => {
                let value = vec![dice.below(256).to_le_bytes()[0]; usize::try_from(dice.below(2000)).expect("small")];
                transaction.put(family, &key, &value).expect("the put succeeds");
                content.insert(key, value);
            }
            5 | 6 => {
                transaction.remove(family, &key).expect("the removal succeeds");
                content.remove(&key);
            }
            7 => {
                let bounds = [dice.below(2) == 0, dice.below(2) == 0];
                let other = key_of(dice.below(20));
                let [start, end] = [(bounds[0], &key), (bounds[1], &other)].map(|(is_set, key)| is_set.then_some(key));
                let range = (start.map(Vec::as_slice), end.map(Vec::as_slice));
                transaction.delete_range(family, range.0, range.1).expect("the range is deleted");
                content.retain(|key, _| start.is_some_and(|s| key < s) || end.is_some_and(|e| e <= key));
            }
            8 => {
                let mut expected = content.clone();
                expected.retain(|found, _| found.starts_with(&key));
                assert_eq!(collect(transaction.scan_prefix(family, &key)), expected);
            }
            _ => assert_eq!(collect(transaction.scan(family)), *content),
        }
    }
}
