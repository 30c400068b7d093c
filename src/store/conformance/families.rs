//! Column families: made, found, kept apart, forgotten with their transaction.

use super::contract::ProviderFactory;
use super::fixture::{
    Content, DEFAULT, Fixture, all, begin, collect, commit_on, commit_put, content, kind_of, put, view,
};
use crate::entry::{FamilyId, MAX_FAMILIES};
use crate::error::ErrorKind;
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

fn family(transaction: &mut impl WriteStore, name: &str) -> FamilyId {
    transaction.create_family(name).expect("a good name")
}

fn of(store: &(impl ReadStore + ?Sized), name: &str) -> Content {
    collect(store.scan(store.family(name).expect("the family is there")))
}

/// Behaviour 105: the same key in two families is two keys; all families commit together.
pub(super) fn families_keep_the_same_key_apart<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| {
        let (left, right) = (family(transaction, "left"), family(transaction, "right"));
        assert!(left != right && left != DEFAULT && right != DEFAULT);
        put(transaction, b"k", b"default");
        transaction.put(left, b"k", b"left").expect("the put succeeds");
        transaction.put(right, b"k", b"right").expect("the put succeeds");
        transaction.put(right, b"\xff\xff", b"last").expect("the put succeeds");
        transaction.put(left, b"", b"first").expect("the put succeeds");
        assert_eq!(of(transaction, "left"), content([("", "first"), ("k", "left")]));
    });
    commit_on(&provider, 1, |transaction| {
        let left = transaction.family("left").expect("the family is there");
        transaction.remove(left, b"k").expect("the removal succeeds");
    });
    drop(provider);
    for reopen in [Fixture::open, Fixture::open_elsewhere] {
        let provider = reopen(&fixture);
        for store in [&begin(&provider, 2) as &dyn ReadStore, &view(&provider, 2)] {
            let in_family = |name| collect(store.scan(store.family(name).expect("the family is there")));
            assert_eq!(in_family("default"), content([("k", "default")]));
            assert_eq!(in_family("left"), content([("", "first")]));
            assert_eq!(in_family("right"), content([(&b"k"[..], "right"), (b"\xff\xff", "last")]));
        }
    }
}

/// A family is found again under the same number by whoever asks, whenever it was made.
pub(super) fn families_persist_with_the_commit_that_made_them<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| assert_eq!(family(transaction, "a"), family(transaction, "a")));
    commit_on(&provider, 1, |transaction| {
        let made = family(transaction, "b");
        transaction.put(made, b"k", b"1").expect("the put succeeds");
    });
    provider.snapshot().expect("the snapshot succeeds");
    let numbers = |store: &dyn ReadStore| ["default", "a", "b"].map(|name| store.family(name));
    let before = numbers(&view(&provider, 2));
    assert!(before.iter().all(Option::is_some));
    assert_eq!(view(&provider, 1).family("b"), None, "a version knows its own families");
    drop(provider);
    let provider = fixture.open_afresh();
    let mut transaction = begin(&provider, 2);
    assert_eq!(numbers(&transaction), before);
    assert_eq!(Some(family(&mut transaction, "b")), transaction.family("b"));
    assert_eq!(of(&transaction, "b"), content([("k", "1")]));
}

/// Behaviour 105: gone with an abort and with a rollback below the version that made it.
pub(super) fn a_family_is_unknown_where_it_was_not_committed<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let mut transaction = begin(&provider, 0);
    let aborted = family(&mut transaction, "aborted");
    transaction.put(aborted, b"k", b"1").expect("the put succeeds");
    transaction.abort();
    let transaction = begin(&provider, 0);
    assert_eq!(transaction.family("aborted"), None);
    assert_eq!(kind_of(transaction.get(aborted, b"k")), ErrorKind::InvalidInput);
    drop(transaction);
    commit_on(&provider, 0, |transaction| {
        let made = family(transaction, "made");
        transaction.put(made, b"old", b"1").expect("the put succeeds");
    });
    let back = begin(&provider, 0);
    assert_eq!(back.family("made"), None);
    drop(back);
    assert_eq!(view(&provider, 0).family("made"), None);
    // Another family gets its number after the rollback, and nothing of the old one shows in it.
    commit_on(&provider, 0, |transaction| assert!(of_new(transaction).is_empty()));
    assert!(of(&view(&provider, 1), "another").is_empty());
    assert_eq!(view(&provider, 1).family("made"), None);
    drop(provider);
    let provider = fixture.open();
    assert!(of(&begin(&provider, 1), "another").is_empty());
}

fn of_new(transaction: &mut impl WriteStore) -> Content {
    let another = family(transaction, "another");
    collect(transaction.scan(another))
}

/// Behaviour 104.
pub(super) fn an_unknown_family_is_a_wrong_call_for_every_operation<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_on(&provider, 0, |transaction| _ = family(transaction, "known"));
    let unknown = FamilyId(2);
    assert_eq!(kind_of(begin(&provider, 1).put(unknown, b"k", b"v")), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).remove(unknown, b"k")), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).delete_range(unknown, None, None)), ErrorKind::InvalidInput);
    for store in [&begin(&provider, 1) as &dyn ReadStore, &view(&provider, 1)] {
        assert_eq!(store.family("unknown"), None);
        assert_eq!(kind_of(store.get(unknown, b"k")), ErrorKind::InvalidInput);
    }
    assert_eq!(kind_of(begin(&provider, 1).contains(unknown, b"k")), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).multi_get(unknown, &[b"k"])), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).scan(unknown)), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).scan_prefix(unknown, b"k")), ErrorKind::InvalidInput);
    assert_eq!(kind_of(begin(&provider, 1).scan_range(unknown, None, None)), ErrorKind::InvalidInput);
}

/// Behaviour 103.
pub(super) fn bad_family_names_are_refused<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"k", b"1");
    let runs = fixture.runs();
    let long = "x".repeat(129);
    for name in ["", " ", ".", "..", " padded ", "a/b", "a\\b", "a\0b", "a\nb", "\u{fc}", ".hidden", "$timers", &long] {
        let kind = kind_of(begin(&provider, 1).create_family(name));
        let expected = matches!(kind, ErrorKind::InvalidInput | ErrorKind::LimitExceeded { .. });
        assert!(expected, "{name:?}: {kind:?}");
    }
    assert_eq!(fixture.runs(), runs, "nothing was written");
    let mut transaction = begin(&provider, 1);
    assert_eq!(family(&mut transaction, "default"), DEFAULT, "the family that is always there is found");
    for name in ["a", "left-keyToNumValues", "x_1.y", &"x".repeat(128)] {
        family(&mut transaction, name);
    }
}

/// The limit is checked before anything is written, and what was made before it works.
pub(super) fn the_number_of_families_is_limited<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| {
        for number in 1..MAX_FAMILIES {
            let made = family(transaction, &format!("family-{number}"));
            transaction.put(made, b"k", &number.to_be_bytes()).expect("the put succeeds");
        }
    });
    let limit = MAX_FAMILIES as u64;
    let one_more = kind_of(begin(&provider, 1).create_family("one-more"));
    assert_eq!(one_more, ErrorKind::LimitExceeded { limit, found: limit + 1 });
    drop(provider);
    let provider = fixture.open_afresh();
    assert_eq!(provider.latest().expect("the newest version"), Version(1));
    let view = view(&provider, 1);
    for number in 1..MAX_FAMILIES {
        assert_eq!(of(&view, &format!("family-{number}")), content([(b"k", number.to_be_bytes())]));
    }
    assert!(all(&view).is_empty());
}
