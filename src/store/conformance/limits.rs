//! Sizes from nothing up to the limits, and just beyond them.

use super::contract::ProviderFactory;
use super::fixture::{DEFAULT, Fixture, all, at, begin, collect, commit_on, commit_put, kind_of, put, value, view};
use crate::entry::{MAX_KEY_BYTES, MAX_METADATA_BYTES, MAX_VALUE_BYTES};
use crate::error::{ErrorKind, Result};
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

const KEY_SIZES: [usize; 5] = [0, 1, 300, MAX_KEY_BYTES - 1, MAX_KEY_BYTES];
const VALUE_SIZES: [usize; 6] = [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 16 << 20];

/// Bytes that do not repeat within a page and do not compress to nothing.
fn bytes(size: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [.., high] = state.to_le_bytes();
        high
    };
    (0..size).map(|_| next()).collect()
}

/// X9.
pub(super) fn keys_and_values_of_every_size_come_back<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0u8..)
        .zip(KEY_SIZES)
        .flat_map(|(seed, key)| {
            // The largest value once is enough.
            let largest = if seed == 2 { 6 } else { 5 };
            VALUE_SIZES.into_iter().take(largest).map(move |value| (key, value, seed))
        })
        .map(|(key, value, seed)| (bytes(key, seed), bytes(value, seed)))
        .collect();
    let check = |store: &dyn ReadStore, key: &[u8], expected: &[u8]| {
        let found = store.get(DEFAULT, key).expect("the get succeeds").expect("it is there");
        assert!(found == *expected, "key of {}, value of {} bytes", key.len(), expected.len());
        let mut scan = store.scan_prefix(DEFAULT, key).expect("the scan begins");
        let first = scan.next().expect("it is there").expect("the scan goes on");
        assert!(
            first.key == *key && first.value == *expected,
            "key of {}, value of {} bytes",
            key.len(),
            expected.len()
        );
    };
    for (version, (key, expected)) in (0u64..).zip(&pairs) {
        let mut transaction = begin(&provider, version);
        put(&mut transaction, key, expected);
        check(&transaction, key, expected);
        transaction.commit().expect("the commit succeeds");
        check(&view(&provider, version + 1), key, expected);
    }
    let newest = pairs.len() as u64;
    provider.snapshot().expect("the snapshot succeeds");
    drop(provider);
    for reopen in [Fixture::open, Fixture::open_elsewhere] {
        let provider = reopen(&fixture);
        for (version, (key, expected)) in (1u64..).zip(&pairs) {
            check(&view(&provider, version), key, expected);
        }
        let transaction = begin(&provider, newest);
        assert_eq!(all(&transaction).len(), KEY_SIZES.len());
        let last_of_each = pairs.chunk_by(|a, b| a.0 == b.0).filter_map(<[_]>::last);
        last_of_each.for_each(|(key, expected)| check(&transaction, key, expected));
    }
}

type Operation<'a, T> = &'a dyn Fn(&mut T) -> Result<()>;

/// X9: a clear error before anything is written; the limit itself is allowed.
pub(super) fn what_is_over_a_limit_is_refused_before_anything_is_written<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_put(&provider, 0, b"k", b"1");
    let before = fixture.disk.files();
    let long_key = vec![1; MAX_KEY_BYTES + 1];
    let over = |limit: usize| ErrorKind::LimitExceeded { limit: limit as u64, found: limit as u64 + 1 };
    let operations: [Operation<'_, super::fixture::TransactionOf<F>>; 6] = [
        &|t| t.put(DEFAULT, &long_key, b"v"),
        &|t| t.remove(DEFAULT, &long_key),
        &|t| t.get(DEFAULT, &long_key).map(drop),
        &|t| t.multi_get(DEFAULT, &[b"k", &long_key]).map(drop),
        &|t| t.delete_range(DEFAULT, Some(&long_key), None),
        &|t| t.delete_range(DEFAULT, None, Some(&long_key)),
    ];
    for operation in operations {
        let mut transaction = begin(&provider, 1);
        assert_eq!(kind_of(operation(&mut transaction)), over(MAX_KEY_BYTES));
    }
    let long_value = vec![1; MAX_VALUE_BYTES + 1];
    assert_eq!(kind_of(begin(&provider, 1).put(DEFAULT, b"k", &long_value)), over(MAX_VALUE_BYTES));
    drop(long_value);
    let metadata = vec![1; MAX_METADATA_BYTES + 1];
    let mut transaction = begin(&provider, 1);
    put(&mut transaction, b"k", b"2");
    assert_eq!(kind_of(transaction.commit_with(&metadata)), over(MAX_METADATA_BYTES));
    assert_eq!(fixture.disk.files(), before, "nothing was written");
    assert_eq!(value(&begin(&provider, 1), b"k"), Some(b"1".to_vec()));
    assert_eq!(kind_of(view(&provider, 1).get(DEFAULT, &long_key)), over(MAX_KEY_BYTES));
    let longest = metadata.get(..MAX_METADATA_BYTES).expect("it is one longer");
    assert_eq!(begin(&provider, 1).commit_with(longest).expect("the limit is allowed"), Version(2));
    assert!(provider.metadata(Version(2)).expect("its metadata") == *longest);
}

/// The longest value that is allowed makes the whole way, or finds a budget that is smaller and changes nothing.
pub(super) fn the_longest_value_is_stored_or_refused_for_lack_of_memory<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let files = fixture.disk.files();
    let longest = vec![0x5a; MAX_VALUE_BYTES];
    let mut transaction = begin(&provider, 0);
    if let Err(error) = transaction.put(DEFAULT, b"k", &longest) {
        assert!(matches!(error.kind(), ErrorKind::MemoryLimit { .. }), "{error}");
        assert_eq!(fixture.disk.files(), files, "nothing was written");
        return;
    }
    transaction.commit().expect("the commit succeeds");
    drop(provider);
    let provider = fixture.open_afresh();
    let found = view(&provider, 1).get(DEFAULT, b"k").expect("the get succeeds").expect("it is there");
    assert!(found == *longest.as_slice());
}

/// One commit of many keys, and one of many versions of one key: the file has each key once.
pub(super) fn a_key_written_many_times_appears_once<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    commit_on(&provider, 0, |transaction| {
        for round in 0u32..20 {
            (0u32..1000).for_each(|key| put(transaction, &key.to_be_bytes(), &round.to_be_bytes()));
        }
    });
    let infos = provider.versions().expect("the versions");
    assert_eq!(infos.first().expect("one version").changes, Some(1000));
    assert!(infos.iter().all(|info| info.file_bytes.is_some_and(|bytes| bytes < 64 << 10)), "{infos:?}");
    assert!(at(&provider, 1).values().all(|value| value.as_slice() == 19u32.to_be_bytes()));
    let found = collect(view(&provider, 1).scan_range(DEFAULT, Some(&10u32.to_be_bytes()), Some(&12u32.to_be_bytes())));
    assert_eq!(found.len(), 2);
}
