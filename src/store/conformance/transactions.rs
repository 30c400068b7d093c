//! How transactions begin, end, fail and wait.

use std::sync::Arc;
use std::thread;

use super::contract::ProviderFactory;
use super::fixture::{
    DEFAULT, Fixture, TransactionOf, all, at, begin, collect, commit_on, commit_put, content, kind_of, put, remove,
    value, view,
};
use crate::entry::FamilyId;
use crate::error::{ErrorKind, Result};
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

const NO_FAMILY: FamilyId = FamilyId(777);

/// Behaviour 12.
pub(super) fn aborting_or_dropping_leaves_files_and_data_as_they_were<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"k", b"1");
    let (runs, files) = (fixture.runs(), fixture.disk.files());
    for end in [TransactionOf::<F>::abort as fn(_), drop] {
        let mut transaction = begin(&provider, 1);
        put(&mut transaction, b"k", b"2");
        put(&mut transaction, b"new", b"2");
        transaction.create_family("made").expect("a good name");
        transaction.delete_range(DEFAULT, None, None).expect("the range is deleted");
        end(transaction);
        assert_eq!((fixture.runs(), fixture.disk.files()), (runs.clone(), files.clone()));
        let next = begin(&provider, 1);
        assert_eq!(all(&next), content([("k", "1")]));
        assert_eq!(next.family("made"), None);
    }
    assert_eq!(provider.latest().expect("the newest version"), Version(1));
}

/// R5: also when the process is replaced after whatever upkeep could have carried the aborted writes along.
pub(super) fn aborted_keys_are_absent_after_upkeep_and_a_reopening<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"kept", b"1");
    let mut transaction = begin(&provider, 1);
    (0u32..2000).for_each(|key| put(&mut transaction, &key.to_be_bytes(), &[7; 100]));
    remove(&mut transaction, b"kept");
    transaction.abort();
    (0..4).for_each(|turn| factory.maintain(&provider, turn).expect("the upkeep succeeds"));
    assert_eq!(all(&begin(&provider, 1)), content([("kept", "1")]));
    drop(provider);
    let provider = fixture.open();
    assert_eq!(all(&begin(&provider, 1)), content([("kept", "1")]));
    drop(provider);
    assert_eq!(at(&fixture.open_afresh(), 1), content([("kept", "1")]));
}

/// The behaviours of 76 and 116 in our words: no silent hang, no two writers.
pub(super) fn a_second_transaction_waits_and_then_is_told_busy<F: ProviderFactory>(factory: &F) {
    let provider = Arc::new(Fixture::new(factory).open());
    let first = begin(&*provider, 0);
    let shared = Arc::clone(&provider);
    let second = thread::spawn(move || kind_of(shared.begin(Version(0))));
    let kind = second.join().expect("the thread ends");
    assert!(matches!(kind, ErrorKind::Busy { .. }), "{kind:?}");
    assert!(matches!(kind_of(provider.begin(Version(0))), ErrorKind::Busy { .. }), "in the same thread too");
    first.abort();
    assert_eq!(commit_put(&*provider, 0, b"k", b"1"), Version(1));
    assert_eq!(commit_put(&*provider, 1, b"k", b"2"), Version(2), "a commit frees the slot");
}

/// Behaviour 77: a task that fails lets the next one in.
pub(super) fn a_thread_that_panics_gives_the_slot_back<F: ProviderFactory>(factory: &F) {
    let provider = Arc::new(Fixture::new(factory).open());
    let mut transaction = begin(&*provider, 0);
    put(&mut transaction, b"k", b"lost");
    let outcome = thread::Builder::new().name("planned panic".into()).spawn(move || {
        let _held = transaction;
        std::panic::resume_unwind(Box::new("planned")); // without a message on the console
    });
    outcome.expect("a thread").join().expect_err("it panicked");
    assert_eq!(all(&begin(&*provider, 0)), content::<&str, &str>([]));
    assert_eq!(commit_put(&*provider, 0, b"k", b"1"), Version(1));
}

type Failing<'a, T> = &'a dyn Fn(&mut T) -> Result<()>;

/// No write that its caller learnt to have failed is missing from a commit without the caller knowing.
pub(super) fn after_a_failed_operation_a_transaction_can_only_be_aborted<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"k", b"1");
    let runs = fixture.runs();
    let long = vec![0; (64 << 10) + 1];
    let failing: [Failing<'_, TransactionOf<F>>; 8] = [
        &|t| t.put(NO_FAMILY, b"k", b"v"),
        &|t| t.remove(NO_FAMILY, b"k"),
        &|t| t.delete_range(NO_FAMILY, None, None),
        &|t| t.get(NO_FAMILY, b"k").map(drop),
        &|t| t.scan(NO_FAMILY).map(drop),
        &|t| t.put(DEFAULT, &long, b"v"),
        &|t| t.get(DEFAULT, &long).map(drop),
        &|t| t.create_family("a/b").map(drop),
    ];
    for operation in failing {
        let mut transaction = begin(&provider, 1);
        put(&mut transaction, b"k", b"half");
        let kind = kind_of(operation(&mut transaction));
        assert!(matches!(kind, ErrorKind::InvalidInput | ErrorKind::LimitExceeded { .. }), "{kind:?}");
        assert_eq!(kind_of(transaction.get(DEFAULT, b"k")), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.scan(DEFAULT)), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.scan_prefix(DEFAULT, b"k")), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.put(DEFAULT, b"k", b"2")), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.remove(DEFAULT, b"k")), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.delete_range(DEFAULT, None, None)), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.create_family("good")), ErrorKind::Poisoned);
        assert_eq!(kind_of(transaction.commit()), ErrorKind::Poisoned);
    }
    assert_eq!(fixture.runs(), runs, "nothing was written");
    let mut transaction = begin(&provider, 1);
    transaction.put(NO_FAMILY, b"k", b"v").expect_err("there is no such family");
    transaction.abort();
    assert_eq!(commit_put(&provider, 1, b"k", b"2"), Version(2), "the version is free");
}

/// A view has nothing to lose: a wrong call to it is only that.
pub(super) fn a_failed_read_leaves_a_view_as_it_was<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_put(&provider, 0, b"k", b"1");
    let view = view(&provider, 1);
    assert_eq!(kind_of(view.get(NO_FAMILY, b"k")), ErrorKind::InvalidInput);
    assert_eq!(kind_of(view.multi_get(NO_FAMILY, &[b"k"])), ErrorKind::InvalidInput);
    assert_eq!(kind_of(view.scan(NO_FAMILY)), ErrorKind::InvalidInput);
    assert_eq!(kind_of(view.scan_prefix(NO_FAMILY, b"k")), ErrorKind::InvalidInput);
    assert_eq!(value(&view, b"k"), Some(b"1".to_vec()));
}

/// Behaviour 14.
pub(super) fn readers_beside_a_writer_neither_see_nor_undo_its_commit<F: ProviderFactory>(factory: &F) {
    let provider = Arc::new(Fixture::new(factory).open());
    commit_on(&*provider, 0, |transaction| (0u8..100).for_each(|key| put(transaction, &[key], b"1")));
    let reader = view(&*provider, 1);
    let shared = Arc::clone(&provider);
    let reading = thread::spawn(move || {
        for _ in 0..20 {
            assert_eq!(at(&*shared, 1).len(), 100);
            assert!(all(&reader).values().all(|value| value == b"1"), "the view stays at version 1");
        }
        drop(reader); // after the writer may have committed
    });
    for version in 1..10 {
        commit_on(&*provider, version, |transaction| {
            (0u8..100).for_each(|key| put(transaction, &[key], &version.to_be_bytes()));
            put(transaction, format!("more {version}").as_bytes(), b"");
        });
        factory.maintain(&*provider, version).expect("the upkeep succeeds");
    }
    reading.join().expect("the readers are content");
    assert_eq!(provider.latest().expect("the newest version"), Version(10));
    assert_eq!(at(&*provider, 10).len(), 109);
}

/// `Send + 'static`, used: each handle is made on one thread and used up on another.
pub(super) fn handles_can_be_sent_to_other_threads<F: ProviderFactory>(factory: &F) {
    fn is_free<T: Send + 'static>(value: T) -> T {
        value
    }
    let provider = is_free(Fixture::new(factory).open());
    let mut transaction = is_free(begin(&provider, 0));
    let transaction = thread::spawn(move || {
        put(&mut transaction, b"k", b"1");
        transaction
    });
    let transaction = transaction.join().expect("the thread ends");
    let scan = is_free(transaction.scan(DEFAULT).expect("the scan begins"));
    assert_eq!(thread::spawn(move || scan.count()).join().expect("the thread ends"), 1);
    let committed = thread::spawn(move || transaction.commit()).join().expect("the thread ends");
    assert_eq!(committed.expect("the commit succeeds"), Version(1));
    let view = is_free(view(&provider, 1));
    let read = thread::spawn(move || all(&view)).join().expect("the thread ends");
    assert_eq!(read, content([("k", "1")]));
    let provider = Arc::new(provider);
    let shared = Arc::clone(&provider);
    thread::spawn(move || commit_put(&*shared, 1, b"k", b"2")).join().expect("the thread ends");
    assert_eq!(provider.latest().expect("the newest version"), Version(2));
}

/// M15, KAFKA-4223.
pub(super) fn scans_views_and_transactions_outlive_what_made_them<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| (0u8..100).for_each(|key| put(transaction, &[key], &[key; 100])));
    provider.snapshot().expect("the snapshot succeeds");
    commit_on(&provider, 1, |transaction| (0u8..100).step_by(2).for_each(|key| remove(transaction, &[key])));
    let mut transaction = begin(&provider, 2);
    put(&mut transaction, b"own", b"1");
    let of_transaction = transaction.scan(DEFAULT).expect("the scan begins");
    let view = view(&provider, 2);
    let of_view = view.scan(DEFAULT).expect("the scan begins");
    let first_value = view.get(DEFAULT, &[1]).expect("the get succeeds").expect("it is there");
    transaction.abort();
    let transaction = begin(&provider, 2);
    drop(provider);
    assert_eq!(collect(Ok(of_transaction)).len(), 51);
    assert_eq!(all(&view).len(), 50, "a view needs no provider");
    drop(view);
    assert_eq!(collect(Ok(of_view)).len(), 50);
    assert_eq!(first_value, [1; 100]);
    assert_eq!(all(&transaction).len(), 50, "a transaction needs no provider");
    assert_eq!(transaction.commit().expect("the commit succeeds"), Version(3));
    assert_eq!(fixture.open().latest().expect("the newest version"), Version(3));
}
