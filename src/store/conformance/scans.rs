//! Scans: what they cover, in which order, and at which moment.

use super::contract::ProviderFactory;
use super::fixture::{
    Content, DEFAULT, Fixture, TransactionOf, all, begin, collect, commit_on, content, keys, put, remove, value, view,
};
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::store::scan::Scan;

/// Keys that make prefixes awkward: at the end of the key space, inside each other, at the borders of a family.
const AWKWARD: [&[u8]; 18] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"f",
    b"f\xff",
    b"f\xff\xff",
    b"g",
    b"g\0",
    b"g1",
    b"g\xff",
    b"g\xff\xff\x01",
    b"h",
    b"\xfe\xff",
    b"\xff",
    b"\xff\xfe",
    b"\xff\xff",
    b"\xff\xff\xff\x01",
];

/// The state that [`AWKWARD`] is in several layers of: old ones, newer ones, removed ones, in two families.
fn fill<P: StateStoreProvider>(provider: &P) -> Content {
    let mut model = Content::new();
    for (version, round) in (0u64..).zip([1u8, 2, 3]) {
        commit_on(provider, version, |transaction| {
            let other = transaction.create_family("other").expect("a good name");
            let of_round = (0u8..).zip(AWKWARD).filter(|(number, _)| number % 3 <= round);
            for (number, key) in of_round {
                if round == 3 && number % 5 == 0 {
                    remove(transaction, key);
                    model.remove(key);
                } else {
                    put(transaction, key, &[round, number]);
                    model.insert(key.to_vec(), vec![round, number]);
                }
                transaction.put(other, key, b"other").expect("the put succeeds");
            }
        });
        if round == 1 {
            provider.snapshot().expect("the snapshot succeeds");
        }
    }
    model
}

fn check_prefixes(store: &(impl ReadStore + ?Sized), model: &Content) {
    let prefixes = AWKWARD.into_iter().chain([&b"i"[..], b"g\xff\xff\xff", b"\xff\xff\xff\xff"]);
    for prefix in prefixes {
        let mut expected = model.clone();
        expected.retain(|key, _| key.starts_with(prefix));
        assert_eq!(collect(store.scan_prefix(DEFAULT, prefix)), expected, "prefix {}", prefix.escape_ascii());
    }
}

/// Behaviours 7 and A3: nothing of the neighbours, for `ff ff` prefixes too, in memory, on disk and after a reopening.
pub(super) fn a_prefix_scan_gives_exactly_the_keys_with_the_prefix<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let model = fill(&provider);
    check_prefixes(&begin(&provider, 3), &model);
    check_prefixes(&view(&provider, 3), &model);
    drop(provider);
    let provider = fixture.open();
    check_prefixes(&begin(&provider, 3), &model);
    provider.snapshot().expect("the snapshot succeeds");
    drop(provider);
    let provider = fixture.open_afresh();
    check_prefixes(&begin(&provider, 3), &model);
    check_prefixes(&view(&provider, 3), &model);
}

/// Behaviour 8.
pub(super) fn a_prefix_scan_shows_own_puts_after_a_reload_and_forgets_them_with_an_abort<F: ProviderFactory>(
    factory: &F,
) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let model = fill(&provider);
    drop(provider);
    let provider = fixture.open_afresh();
    let mut transaction = begin(&provider, 3);
    let mut changed = model.clone();
    for key in [&b"g"[..], b"g\xff\xfe", b"\xff\xff\0"] {
        put(&mut transaction, key, b"own");
        changed.insert(key.to_vec(), b"own".to_vec());
        check_prefixes(&transaction, &changed);
    }
    for key in [&b"g1"[..], b"\xff\xff\xff\x01", b"g"] {
        remove(&mut transaction, key);
        changed.remove(key);
        check_prefixes(&transaction, &changed);
    }
    transaction.abort();
    check_prefixes(&begin(&provider, 3), &model);
}

/// Behaviour 108, for keys as bytes: the start is in, the end is not, open ends stop at the family's border.
pub(super) fn a_range_scan_includes_its_start_and_excludes_its_end<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let model = fill(&provider);
    let bounds: Vec<Option<&[u8]>> = AWKWARD.into_iter().chain([&b"i"[..]]).map(Some).chain([None]).collect();
    let check = |store: &dyn ReadStore| {
        for (start, end) in bounds.iter().flat_map(|start| bounds.iter().map(move |end| (*start, *end))) {
            let mut expected = model.clone();
            expected
                .retain(|key, _| start.is_none_or(|s| s <= key.as_slice()) && end.is_none_or(|e| key.as_slice() < e));
            assert_eq!(collect(store.scan_range(DEFAULT, start, end)), expected, "{start:?} to {end:?}");
        }
    };
    check(&begin(&provider, 3));
    drop(provider);
    let provider = fixture.open_afresh();
    check(&begin(&provider, 3));
    check(&view(&provider, 3));
}

/// Behaviour 10.
pub(super) fn putting_while_scanning_works<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_on(&provider, 0, |transaction| (0u8..100).for_each(|key| put(transaction, &[key], &[key])));
    let mut transaction = begin(&provider, 1);
    (100u8..200).for_each(|key| put(&mut transaction, &[key], &[key]));
    let even = transaction.scan(DEFAULT).expect("the scan begins").map(|entry| entry.expect("the scan goes on"));
    let mut seen = 0;
    for entry in even.filter(|entry| entry.value.first().is_some_and(|value| value % 2 == 0)) {
        put(&mut transaction, &entry.key, &[1]);
        put(&mut transaction, &[entry.key.as_slice(), b"new"].concat(), &[2]);
        seen += 1;
    }
    assert_eq!(seen, 100, "what is put meanwhile does not show");
    let after = all(&transaction);
    assert_eq!(after.len(), 300);
    assert_eq!(after.values().filter(|value| value.as_slice() == [1]).count(), 101, "a hundred even keys, and key 1");
}

/// Behaviour 11.
pub(super) fn removing_while_scanning_works<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_on(&provider, 0, |transaction| (0u8..100).for_each(|key| put(transaction, &[key], &[key])));
    let mut transaction = begin(&provider, 1);
    (50u8..150).for_each(|key| put(&mut transaction, &[key], &[key, 1]));
    let mut seen = 0;
    for entry in transaction.scan(DEFAULT).expect("the scan begins") {
        remove(&mut transaction, &entry.expect("the scan goes on").key);
        seen += 1;
    }
    assert_eq!(seen, 150);
    assert_eq!(all(&transaction).len(), 0);
    transaction.commit().expect("the commit succeeds");
    assert_eq!(all(&view(&provider, 2)).len(), 0);
}

type OfTransaction<'a, T> = &'a dyn Fn(&T) -> Scan;
type Change<'a, T> = &'a dyn Fn(&mut T);

/// Behaviour 16: one rule for all kinds of scan and of change: a scan shows the moment of its creation.
pub(super) fn every_scan_shows_the_moment_it_was_made<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let key = |number: u8| [b'k', number];
    commit_on(&provider, 0, |transaction| (0u8..50).for_each(|i| put(transaction, &key(i), b"1")));
    provider.snapshot().expect("the snapshot succeeds");
    commit_on(&provider, 1, |transaction| (25u8..75).for_each(|i| put(transaction, &key(i), b"2")));
    let kinds: [OfTransaction<'_, TransactionOf<F>>; 3] = [
        &|t| t.scan(DEFAULT).expect("the scan begins"),
        &|t| t.scan_prefix(DEFAULT, b"k").expect("the scan begins"),
        &|t| t.scan_range(DEFAULT, Some(b"k"), Some(b"l")).expect("the scan begins"),
    ];
    let changes: [Change<'_, TransactionOf<F>>; 5] = [
        &|t| put(t, &key(30), b"changed"),
        &|t| put(t, &key(200), b"new"),
        &|t| remove(t, &key(40)),
        &|t| t.delete_range(DEFAULT, Some(&key(10)), Some(&key(70))).expect("the range is deleted"),
        &|t| (0u8..=255).for_each(|i| put(t, &key(i), b"all")),
    ];
    drop(provider);
    for reopen in [Fixture::open, Fixture::open_afresh] {
        let provider = reopen(&fixture);
        for kind in kinds {
            let mut transaction = begin(&provider, 2);
            (60u8..100).for_each(|i| put(&mut transaction, &key(i), b"own"));
            let mut open = Vec::new();
            for change in changes {
                let then = all(&transaction);
                let mut begun = kind(&transaction);
                let first = begun.next().map(|entry| entry.expect("the scan goes on"));
                open.push((kind(&transaction), begun, first, then));
                change(&mut transaction);
            }
            for (untouched, begun, first, then) in open {
                assert_eq!(collect(Ok(untouched)), then);
                let first = first.map(|entry| (entry.key.to_vec(), entry.value.to_vec()));
                let mut rest = collect(Ok(begun));
                rest.extend(first);
                assert_eq!(rest, then);
            }
            assert_eq!(all(&transaction).len(), 256);
        }
    }
}

/// A scan is independent of commits, upkeep and rollbacks that come after it (G1 for scans).
pub(super) fn a_scan_goes_on_through_commits_upkeep_and_rollbacks<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_on(&provider, 0, |transaction| (0u8..200).for_each(|key| put(transaction, &[key], b"1")));
    let transaction = begin(&provider, 1);
    let view = view(&provider, 1);
    let mut scans = [transaction.scan(DEFAULT).expect("the scan begins"), view.scan(DEFAULT).expect("the scan begins")];
    transaction.abort();
    let mut seen = 0;
    for version in 1..40 {
        for scan in &mut scans {
            assert_eq!(scan.next().expect("there is more").expect("the scan goes on").value, b"1");
        }
        seen += 1;
        let base = if version % 10 == 0 { 1 } else { provider.latest().expect("the newest version").0 };
        commit_on(&provider, base, |transaction| {
            transaction.delete_range(DEFAULT, None, Some(&[150])).expect("the range is deleted");
            (0u8..200).for_each(|key| put(transaction, &[key], b"changed"));
        });
        factory.maintain(&provider, version).expect("the upkeep succeeds");
    }
    for scan in scans {
        assert_eq!(collect(Ok(scan)).len(), 200 - seen);
    }
    assert_eq!(value(&view, &[7]), Some(b"1".to_vec()));
}

/// Keys come in ascending order of bytes, whichever layer each comes from.
pub(super) fn scans_ascend_by_the_bytes_of_the_keys<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    let model = fill(&provider);
    let scanned = all(&begin(&provider, 3)); // `collect` checks the order
    assert_eq!(scanned, model);
    assert_eq!(keys(&content([("b", ""), ("a", ""), ("aa", "")])), [&b"a"[..], b"aa", b"b"]);
}
