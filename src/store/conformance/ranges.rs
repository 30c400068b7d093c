//! Deleting ranges of keys.

use super::contract::ProviderFactory;
use super::fixture::{Content, DEFAULT, Fixture, all, at, begin, collect, commit_on, put, remove, value, view};
use crate::entry::FamilyId;
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};

type Bound<'a> = Option<&'a [u8]>;

fn delete(transaction: &mut impl WriteStore, family: FamilyId, start: Bound<'_>, end: Bound<'_>) {
    transaction.delete_range(family, start, end).expect("the range is deleted");
}

fn delete_from(content: &mut Content, start: Bound<'_>, end: Bound<'_>) {
    content.retain(|key, _| start.is_some_and(|s| key.as_slice() < s) || end.is_some_and(|e| e <= key.as_slice()));
}

fn letters() -> Content {
    (b'a'..=b'z').map(|key| (vec![key], vec![key, b'1'])).collect()
}

fn commit_letters<P: StateStoreProvider>(provider: &P) -> Content {
    commit_on(provider, 0, |transaction| letters().iter().for_each(|(key, value)| put(transaction, key, value)));
    letters()
}

/// The start is deleted, the end is not; open ends reach to the family's border.
pub(super) fn a_deleted_range_includes_its_start_and_excludes_its_end<F: ProviderFactory>(factory: &F) {
    let ranges: [(Bound<'_>, Bound<'_>); 9] = [
        (Some(b"d"), Some(b"g")),
        (None, Some(b"d")),
        (Some(b"x"), None),
        (None, None),
        (Some(b"d"), Some(b"d")),
        (Some(b"g"), Some(b"d")),
        (Some(b""), Some(b"a\0")),
        (Some(b"c\0"), Some(b"d\0")),
        (Some(b"\xff"), None),
    ];
    for (start, end) in ranges {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        let mut model = commit_letters(&provider);
        let mut transaction = begin(&provider, 1);
        delete(&mut transaction, DEFAULT, start, end);
        delete_from(&mut model, start, end);
        assert_eq!(all(&transaction), model, "{start:?} to {end:?}");
        letters().keys().for_each(|key| assert_eq!(value(&transaction, key), model.get(key).cloned(), "{key:?}"));
        transaction.commit().expect("the commit succeeds");
        assert_eq!(at(&provider, 2), model, "{start:?} to {end:?}");
        assert_eq!(at(&provider, 1), letters(), "the version below stays");
        drop(provider);
        let provider = fixture.open_afresh();
        assert_eq!(all(&begin(&provider, 2)), model, "{start:?} to {end:?}");
        letters().keys().for_each(|key| assert_eq!(value(&view(&provider, 2), key), model.get(key).cloned()));
    }
}

/// Own writes before the deletion go, own writes after it stay, in gets and in every scan.
pub(super) fn puts_after_a_range_was_deleted_stay<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let mut model = commit_letters(&provider);
    let mut transaction = begin(&provider, 1);
    put(&mut transaction, b"e", b"before");
    put(&mut transaction, b"ee", b"before");
    assert_eq!(all(&transaction).len(), 27, "a scan in between sorts what is there");
    delete(&mut transaction, DEFAULT, Some(b"d"), Some(b"g"));
    delete_from(&mut model, Some(b"d"), Some(b"g"));
    assert_eq!(all(&transaction), model);
    put(&mut transaction, b"e", b"after");
    model.insert(b"e".to_vec(), b"after".to_vec());
    assert_eq!(all(&transaction), model);
    remove(&mut transaction, b"e");
    put(&mut transaction, b"f", b"after");
    model.remove(&b"e"[..]);
    model.insert(b"f".to_vec(), b"after".to_vec());
    assert_eq!(all(&transaction), model);
    assert_eq!(value(&transaction, b"e"), None);
    assert_eq!(value(&transaction, b"ee"), None);
    let mut expected = model.clone();
    expected.retain(|key, _| key.starts_with(b"f"));
    assert_eq!(collect(transaction.scan_prefix(DEFAULT, b"f")), expected);
    assert_eq!(collect(transaction.scan_range(DEFAULT, Some(b"f"), Some(b"g"))), expected);
    delete(&mut transaction, DEFAULT, Some(b"c"), Some(b"f"));
    delete_from(&mut model, Some(b"c"), Some(b"f"));
    transaction.commit().expect("the commit succeeds");
    for turn in 0..3 {
        factory.maintain(&provider, turn).expect("the upkeep succeeds");
        assert_eq!(at(&provider, 2), model);
        assert_eq!(all(&begin(&provider, 2)), model);
    }
    drop(provider);
    assert_eq!(all(&begin(&fixture.open_afresh(), 2)), model);
}

/// A deletion in one family, with open ends too, is none in its neighbours.
pub(super) fn a_deleted_range_ends_at_the_border_of_its_family<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let borders: [&[u8]; 4] = [b"", b"\0", b"m", b"\xff\xff\xff"];
    let mut families = vec![DEFAULT];
    commit_on(&provider, 0, |transaction| {
        families.extend(["one", "two", "three"].map(|name| transaction.create_family(name).expect("a good name")));
        for family in &families {
            borders.iter().for_each(|key| transaction.put(*family, key, b"1").expect("the put succeeds"));
        }
    });
    let counts =
        |store: &dyn ReadStore| -> Vec<usize> { families.iter().map(|f| collect(store.scan(*f)).len()).collect() };
    let [_, one, two, _] = *families.as_slice() else { panic!("four families were made") };
    let mut transaction = begin(&provider, 1);
    delete(&mut transaction, one, None, None);
    assert_eq!(counts(&transaction), [4, 0, 4, 4]);
    delete(&mut transaction, two, Some(b"m"), None);
    assert_eq!(counts(&transaction), [4, 0, 2, 4]);
    delete(&mut transaction, DEFAULT, None, Some(b"m"));
    assert_eq!(counts(&transaction), [2, 0, 2, 4]);
    transaction.commit().expect("the commit succeeds");
    assert_eq!(counts(&view(&provider, 2)), [2, 0, 2, 4]);
    drop(provider);
    let provider = fixture.open();
    assert_eq!(counts(&begin(&provider, 2)), [2, 0, 2, 4]);
    provider.snapshot().expect("the snapshot succeeds");
    drop(provider);
    assert_eq!(counts(&begin(&fixture.open_afresh(), 2)), [2, 0, 2, 4]);
}

/// X10: what was cleared stays cleared, through reopenings, upkeep, and puts that come back into the range.
pub(super) fn a_deleted_range_stays_deleted<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let mut provider = fixture.open();
    let mut model = commit_letters(&provider);
    let mut versions = vec![model.clone()];
    for version in 1u64..12 {
        let (start, end) =
            (b'a' + u8::try_from(version).expect("small"), b'a' + u8::try_from(version).expect("small") + 4);
        commit_on(&provider, version, |transaction| {
            delete(transaction, DEFAULT, Some(&[start]), Some(&[end]));
            delete_from(&mut model, Some(&[start]), Some(&[end]));
            let back = [end - 1];
            put(transaction, &back, &version.to_be_bytes());
            model.insert(back.to_vec(), version.to_be_bytes().to_vec());
        });
        versions.push(model.clone());
        match version % 4 {
            0 => drop(provider.snapshot().expect("the snapshot succeeds")),
            1 => factory.maintain(&provider, version).expect("the upkeep succeeds"),
            2 => {
                drop(provider);
                provider = if version == 6 { fixture.open_afresh() } else { fixture.open() };
            }
            _ => {}
        }
        assert_eq!(all(&begin(&provider, version + 1)), model, "version {version}");
    }
    drop(provider);
    let provider = fixture.open_afresh();
    for (version, model) in (1..).zip(&versions) {
        assert_eq!(at(&provider, version), *model, "version {version}");
        assert_eq!(all(&begin(&provider, version)), *model, "version {version}");
    }
}

/// Many ranges in one transaction, overlapping, touching, nested: as if each had been made key by key.
pub(super) fn many_ranges_in_one_transaction_agree_with_single_removals<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let mut model = commit_letters(&provider);
    let mut transaction = begin(&provider, 1);
    let steps: [(&[u8], &[u8], &[u8]); 6] = [
        (b"c", b"e", b"d"),
        (b"e", b"g", b"c"),
        (b"d", b"f", b"n"),
        (b"b", b"j", b"e"),
        (b"m", b"o", b"i"),
        (b"n", b"n\0", b"n"),
    ];
    for (start, end, back) in steps {
        delete(&mut transaction, DEFAULT, Some(start), Some(end));
        delete_from(&mut model, Some(start), Some(end));
        assert_eq!(all(&transaction), model);
        put(&mut transaction, back, b"back");
        model.insert(back.to_vec(), b"back".to_vec());
        assert_eq!(all(&transaction), model);
    }
    transaction.commit().expect("the commit succeeds");
    drop(provider);
    let provider = fixture.open_afresh();
    assert_eq!(at(&provider, 2), model);
    letters().keys().for_each(|key| assert_eq!(value(&begin(&provider, 2), key), model.get(key).cloned()));
}
