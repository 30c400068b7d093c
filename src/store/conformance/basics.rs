//! One store, one writer: what is put is read.

use super::contract::ProviderFactory;
use super::fixture::{DEFAULT, Fixture, all, at, begin, commit_on, commit_put, content, put, remove, value, view};
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

/// Behaviour 1.
pub(super) fn an_empty_store_is_version_0_and_holds_nothing<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    assert_eq!(provider.latest().expect("the newest version"), Version(0));
    assert_eq!(provider.versions().expect("the versions"), []);
    assert!(provider.metadata(Version(0)).expect("version 0 has metadata").is_empty());
    let transaction = begin(&provider, 0);
    for store in [&view(&provider, 0) as &dyn ReadStore, &transaction] {
        assert_eq!(store.version(), Version(0));
        assert_eq!(store.get(DEFAULT, b"k").expect("the get succeeds"), None);
        assert!(!store.contains(DEFAULT, b"k").expect("the look succeeds"));
        assert_eq!(store.scan(DEFAULT).expect("the scan begins").count(), 0);
        assert_eq!(store.scan_prefix(DEFAULT, b"k").expect("the scan begins").count(), 0);
        assert_eq!(store.family("default"), Some(DEFAULT));
    }
}

/// Behaviour 2. Another *provider* would take the store over, so the others are readers, and a provider afterwards.
pub(super) fn a_put_is_seen_at_once_by_its_transaction_and_by_others_after_the_commit<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let before = view(&provider, 0);
    let mut transaction = begin(&provider, 0);
    put(&mut transaction, b"k", b"1");
    assert_eq!(value(&transaction, b"k"), Some(b"1".to_vec()));
    assert!(transaction.contains(DEFAULT, b"k").expect("the look succeeds"));
    assert_eq!(all(&transaction), content([("k", "1")]));
    assert_eq!(provider.latest().expect("the newest version"), Version(0));
    assert!(at(&provider, 0).is_empty(), "version 0 stays empty");
    assert!(provider.read_at(Version(1)).is_err(), "version 1 is not there yet");
    assert_eq!(transaction.commit().expect("the commit succeeds"), Version(1));
    assert!(all(&before).is_empty(), "a view from before shows version 0");
    assert_eq!(at(&provider, 1), content([("k", "1")]));
    assert_eq!(at(&fixture.open_elsewhere(), 1), content([("k", "1")]));
}

/// Behaviour 3.
pub(super) fn puts_overwrites_and_removals_make_the_next_version<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    let mut transaction = begin(&provider, 0);
    put(&mut transaction, b"a", b"1");
    put(&mut transaction, b"b", b"2");
    put(&mut transaction, b"a", b"3");
    remove(&mut transaction, b"b");
    remove(&mut transaction, b"never there");
    put(&mut transaction, b"c", b"4");
    remove(&mut transaction, b"c");
    put(&mut transaction, b"c", b"5");
    assert_eq!(all(&transaction), content([("a", "3"), ("c", "5")]));
    assert_eq!(transaction.commit().expect("the commit succeeds"), Version(1));
    let made = commit_on(&provider, 1, |transaction| {
        remove(transaction, b"a");
        put(transaction, b"c", b"6");
    });
    assert_eq!((made, provider.latest().expect("the newest version")), (Version(2), Version(2)));
    assert_eq!(at(&provider, 1), content([("a", "3"), ("c", "5")]));
    assert_eq!(at(&provider, 2), content([("c", "6")]));
}

/// Behaviour 4. A transaction ends with its commit; what it made is scanned by version.
pub(super) fn what_was_committed_can_be_scanned_at_once<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    let entries: Vec<_> = (0u32..500).map(|i| (i.to_be_bytes(), i.to_le_bytes())).collect();
    let version = commit_on(&provider, 0, |transaction| {
        entries.iter().rev().for_each(|(key, value)| put(transaction, key, value));
    });
    let made = provider.read_at(version).expect("it is there");
    assert_eq!(all(&made), content(entries.clone()));
    assert_eq!(all(&begin(&provider, 1)), content(entries));
}

/// Behaviour 9: there is no counter to go wrong; a scan counts.
pub(super) fn the_number_of_keys_follows_puts_commits_reloads_and_removals<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let mut transaction = begin(&provider, 0);
    put(&mut transaction, b"a", b"1");
    put(&mut transaction, b"b", b"1");
    put(&mut transaction, b"a", b"2");
    assert_eq!(all(&transaction).len(), 2);
    transaction.commit().expect("the commit succeeds");
    assert_eq!(at(&provider, 1).len(), 2);
    drop(provider);
    let provider = fixture.open_afresh();
    let mut transaction = begin(&provider, 1);
    assert_eq!(all(&transaction).len(), 2);
    remove(&mut transaction, b"a");
    remove(&mut transaction, b"a");
    assert_eq!(all(&transaction).len(), 1);
    transaction.commit().expect("the commit succeeds");
    drop(provider);
    assert_eq!(at(&fixture.open_afresh(), 2).len(), 1);
}

/// Values in the order of the keys, present or not; own writes, tombstones and older layers alike.
pub(super) fn a_multi_get_agrees_with_single_gets<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| (0u8..40).for_each(|key| put(transaction, &[key], &[key, 1])));
    provider.snapshot().expect("the snapshot succeeds");
    commit_on(&provider, 1, |transaction| {
        (0u8..40).step_by(3).for_each(|key| put(transaction, &[key], &[key, 2]));
        (0u8..40).step_by(7).for_each(|key| remove(transaction, &[key]));
    });
    let mut transaction = begin(&provider, 2);
    (0u8..40).step_by(5).for_each(|key| put(&mut transaction, &[key], &[key, 3]));
    (0u8..40).step_by(11).for_each(|key| remove(&mut transaction, &[key]));
    transaction.delete_range(DEFAULT, Some(&[30]), Some(&[33])).expect("the range is deleted");
    let wanted: Vec<[u8; 1]> = (0u8..45).rev().chain([3, 3, 99, 0]).map(|key| [key]).collect();
    let wanted: Vec<&[u8]> = wanted.iter().map(<[u8; 1]>::as_slice).collect();
    for store in [&transaction as &dyn ReadStore, &view(&provider, 1), &view(&provider, 2)] {
        let together = store.multi_get(DEFAULT, &wanted).expect("the gets succeed");
        let singly: Vec<_> = wanted.iter().map(|key| store.get(DEFAULT, key).expect("the get succeeds")).collect();
        assert_eq!(together, singly);
        assert_eq!(store.multi_get(DEFAULT, &[]).expect("nothing is easily got"), []);
    }
    let model = |key: u8| match key {
        30..33 | 40.. => None,
        key if key % 11 == 0 => None,
        key if key % 5 == 0 => Some(vec![key, 3]),
        key if key % 7 == 0 => None,
        key if key % 3 == 0 => Some(vec![key, 2]),
        key => Some(vec![key, 1]),
    };
    (0u8..45).for_each(|key| assert_eq!(value(&transaction, &[key]), model(key), "{key}"));
}

/// Behaviour 20: a value is bytes or absent, and the empty value is not absent.
pub(super) fn an_empty_value_is_a_value<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let mut transaction = begin(&provider, 0);
    put(&mut transaction, b"k", b"");
    assert_eq!(value(&transaction, b"k"), Some(Vec::new()));
    transaction.commit().expect("the commit succeeds");
    drop(provider);
    for reopen in [Fixture::open, Fixture::open_afresh] {
        let provider = reopen(&fixture);
        assert_eq!(at(&provider, 1), content([("k", "")]));
        assert_eq!(value(&view(&provider, 1), b"k"), Some(Vec::new()));
        assert_eq!(value(&view(&provider, 1), b""), None);
    }
}

/// An empty commit is a version too, and costs one small file.
pub(super) fn an_empty_commit_makes_a_version<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"k", b"1");
    let files = fixture.runs().len();
    assert_eq!(commit_on(&provider, 1, |_| ()), Version(2));
    assert_eq!(fixture.runs().len(), files + 1);
    drop(provider);
    assert_eq!(at(&fixture.open_afresh(), 2), content([("k", "1")]));
}
