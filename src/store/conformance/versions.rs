//! Loading, reading and superseding versions.

use super::contract::ProviderFactory;
use super::fixture::{Fixture, all, at, begin, commit_on, commit_put, content, kind_of, put, remove, value, view};
use crate::error::ErrorKind;
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

fn not_found(requested: u64, oldest: u64, newest: u64) -> ErrorKind {
    ErrorKind::VersionNotFound { requested: Version(requested), oldest: Version(oldest), newest: Version(newest) }
}

fn readable<P: StateStoreProvider>(provider: &P) -> Vec<u64> {
    provider.versions().expect("the versions").iter().map(|info| info.version.0).collect()
}

/// Behaviours 5, 13 and 17: the error says what can be read, as often as one asks, and harms no later load.
pub(super) fn a_version_that_is_not_there_is_refused_with_what_can_be_read<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    assert_eq!(kind_of(provider.begin(Version(1))), not_found(1, 0, 0));
    assert_eq!(kind_of(provider.read_at(Version(7))), not_found(7, 0, 0));
    assert_eq!(kind_of(provider.metadata(Version(1))), not_found(1, 0, 0));
    for version in 0..3 {
        commit_put(&provider, version, b"k", &[7]);
    }
    let before = fixture.disk.files();
    for requested in [4, 5, u64::MAX, 4] {
        assert_eq!(kind_of(provider.begin(Version(requested))), not_found(requested, 1, 3));
        assert_eq!(kind_of(provider.read_at(Version(requested))), not_found(requested, 1, 3));
        assert_eq!(kind_of(provider.metadata(Version(requested))), not_found(requested, 1, 3));
    }
    assert_eq!(fixture.disk.files(), before, "asking changes nothing");
    assert_eq!(at(&provider, 3), content([("k", [7])]));
    assert_eq!(commit_put(&provider, 3, b"k", b"1"), Version(4));
    drop(provider);
    let provider = fixture.open_afresh();
    assert_eq!(kind_of(provider.begin(Version(5))), not_found(5, 1, 4));
    assert_eq!(commit_put(&provider, 4, b"k", b"2"), Version(5));
}

/// Behaviour 6.
pub(super) fn a_new_provider_builds_on_what_it_finds_and_old_versions_stay<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    commit_on(&fixture.open(), 0, |transaction| {
        put(transaction, b"a", b"1");
        put(transaction, b"b", b"1");
    });
    let provider = fixture.open_elsewhere();
    let mut transaction = begin(&provider, 1);
    assert_eq!(all(&transaction), content([("a", "1"), ("b", "1")]));
    put(&mut transaction, b"b", b"2");
    put(&mut transaction, b"c", b"2");
    assert_eq!(transaction.commit().expect("the commit succeeds"), Version(2));
    drop(provider);
    let provider = fixture.open();
    assert_eq!(at(&provider, 1), content([("a", "1"), ("b", "1")]));
    assert_eq!(at(&provider, 2), content([("a", "1"), ("b", "2"), ("c", "2")]));
    assert_eq!(readable(&provider), [1, 2]);
}

/// Behaviour 17.
pub(super) fn an_older_version_loads_again_after_newer_commits<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let mut provider = fixture.open();
    for version in 0..10 {
        commit_put(&provider, version, &[b'k', u8::try_from(version).expect("small")], b"x");
    }
    for round in 0..3 {
        for version in [3, 9, 0, 1, 10] {
            assert_eq!(all(&begin(&provider, version)).len() as u64, version, "round {round}");
            assert_eq!(provider.latest().expect("the newest version"), Version(10), "aborting supersedes nothing");
        }
        drop(provider);
        provider = if round == 0 { fixture.open() } else { fixture.open_afresh() };
    }
    assert!(readable(&provider).into_iter().eq(1..=10));
}

/// Behaviour 61, with and without upkeep in between.
pub(super) fn going_back_hides_what_was_above<F: ProviderFactory>(factory: &F) {
    for upkeep in [false, true] {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        let keep_up = |turn| {
            if upkeep {
                provider.snapshot().expect("the snapshot succeeds");
                factory.maintain(&provider, turn).expect("the upkeep succeeds");
            }
        };
        commit_put(&provider, 0, b"a", b"1");
        keep_up(0);
        commit_on(&provider, 1, |transaction| {
            put(transaction, b"a", b"2");
            put(transaction, b"b", b"2");
        });
        keep_up(1);
        let back = begin(&provider, 1);
        assert_eq!(all(&back), content([("a", "1")]));
        back.abort();
        assert_eq!(all(&begin(&provider, 0)), content::<&str, &str>([]));
        assert_eq!(all(&begin(&provider, 2)), content([("a", "2"), ("b", "2")]));
        commit_on(&provider, 1, |transaction| put(transaction, b"c", b"3"));
        keep_up(2);
        assert_eq!(at(&provider, 2), content([("a", "1"), ("c", "3")]));
    }
}

/// A commit on top of an older version supersedes all above it: they are gone from every answer.
pub(super) fn a_commit_on_an_older_version_supersedes_what_is_above<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    for version in 0..6 {
        let mut transaction = begin(&provider, version);
        put(&mut transaction, b"k", &[u8::try_from(version).expect("small")]);
        transaction.commit_with(b"first").expect("the commit succeeds");
    }
    let old_view = view(&provider, 5);
    let mut transaction = begin(&provider, 2);
    put(&mut transaction, b"new", b"1");
    assert_eq!(transaction.commit_with(b"second").expect("the commit succeeds"), Version(3));
    let check = |provider: &F::Provider| {
        assert_eq!(provider.latest().expect("the newest version"), Version(3));
        assert_eq!(readable(provider), [1, 2, 3]);
        assert_eq!(kind_of(provider.read_at(Version(4))), not_found(4, 1, 3));
        assert_eq!(kind_of(provider.begin(Version(6))), not_found(6, 1, 3));
        assert_eq!(provider.metadata(Version(3)).expect("its metadata"), b"second");
        assert_eq!(at(provider, 3), content([(&b"k"[..], &[1][..]), (b"new", b"1")]));
    };
    check(&provider);
    assert_eq!(value(&old_view, b"k"), Some(vec![4]), "who reads the old version reads on");
    drop(provider);
    check(&fixture.open());
    let provider = fixture.open_afresh();
    check(&provider);
    assert_eq!(commit_put(&provider, 3, b"k", b"2"), Version(4));
    assert_eq!(value(&view(&provider, 4), b"new"), Some(b"1".to_vec()));
}

/// All the way back: on top of version 0 the state is empty again.
pub(super) fn a_commit_on_version_0_starts_afresh<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    for version in 0..3 {
        commit_put(&provider, version, &[u8::try_from(version).expect("small")], b"old");
    }
    provider.snapshot().expect("the snapshot succeeds");
    assert_eq!(commit_put(&provider, 0, b"k", b"new"), Version(1));
    assert_eq!(at(&provider, 1), content([("k", "new")]));
    drop(provider);
    let provider = fixture.open_afresh();
    assert_eq!(readable(&provider), [1]);
    assert_eq!(at(&provider, 1), content([("k", "new")]));
}

/// G5: roll back, write the version again with other bytes; the new ones are read, whatever held the old ones.
pub(super) fn a_version_written_again_is_never_taken_for_the_old_one<F: ProviderFactory>(factory: &F) {
    for snapshot in [false, true] {
        let fixture = Fixture::new(factory);
        let mut provider = fixture.open();
        commit_put(&provider, 0, b"k", b"base");
        for attempt in 0u8..4 {
            let made = commit_on(&provider, 1, |transaction| {
                put(transaction, b"k", &[attempt]);
                put(transaction, &[attempt], b"only of this attempt");
            });
            if snapshot {
                provider.snapshot().expect("the snapshot succeeds");
            }
            assert_eq!(made, Version(2));
            let of_attempt = content([(&b"k"[..], &[attempt][..]), (&[attempt], b"only of this attempt")]);
            assert_eq!(at(&provider, 2), of_attempt);
            drop(provider);
            provider = if attempt % 2 == 0 { fixture.open() } else { fixture.open_elsewhere() };
            assert_eq!(at(&provider, 2), of_attempt);
            assert_eq!(all(&begin(&provider, 2)), of_attempt);
        }
    }
}

/// Behaviour 84: what one instance wrote, went back and wrote again, another one loads at any version.
pub(super) fn another_instance_loads_any_version_also_those_written_again<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let elsewhere = factory.elsewhere();
    for round in 0u64..5 {
        let writer = fixture.open();
        let base = round * 2;
        for version in base..base + 4 {
            commit_on(&writer, version, |t| put(t, &version.to_be_bytes(), &round.to_be_bytes()));
            if version % 3 == round % 3 {
                writer.snapshot().expect("the snapshot succeeds");
            }
        }
        drop(writer);
        let reader = elsewhere.open(fixture.checkpoint(), super::fixture::id_of(0)).expect("the store opens elsewhere");
        // Version v+1 holds key v as the last round that went back below it wrote it.
        let expected =
            |version: u64| content((0..version).map(|v| (v.to_be_bytes(), (v / 2).min(round).to_be_bytes())));
        for version in (1..=base + 4).rev().chain([base + 4, 1, base + 2]) {
            assert_eq!(at(&reader, version), expected(version), "round {round} version {version}");
            assert_eq!(all(&begin(&reader, version)), expected(version), "round {round} version {version}");
        }
    }
}

/// Behaviour 85.
pub(super) fn loading_one_version_again_and_again_with_snapshots_in_between_keeps_it_whole<F: ProviderFactory>(
    factory: &F,
) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let base = content((0u8..50).map(|key| ([key], [key; 20])));
    commit_on(&provider, 0, |transaction| base.iter().for_each(|(key, value)| put(transaction, key, value)));
    for round in 0u8..10 {
        let mut transaction = begin(&provider, 1);
        assert_eq!(all(&transaction), base, "round {round}");
        put(&mut transaction, &[round], b"changed");
        remove(&mut transaction, &[49 - round]);
        transaction.commit().expect("the commit succeeds");
        commit_put(&provider, 2, b"another", &[round]);
        if round % 2 == 0 {
            provider.snapshot().expect("the snapshot succeeds");
        }
        factory.maintain(&provider, u64::from(round)).expect("the upkeep succeeds");
        assert_eq!(at(&provider, 1), base, "round {round}");
    }
    drop(provider);
    assert_eq!(at(&fixture.open_afresh(), 1), base);
}

/// State and position can't disagree: the metadata is that of the version, and lies in the same file.
pub(super) fn each_version_gives_back_its_own_metadata<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    let of_version = |version: u64| vec![0xa5; usize::try_from(version * 1000).expect("small")];
    for version in 0..5 {
        let mut transaction = begin(&provider, version);
        put(&mut transaction, b"k", &version.to_be_bytes());
        transaction.commit_with(&of_version(version + 1)).expect("the commit succeeds");
    }
    provider.snapshot().expect("the snapshot succeeds");
    commit_put(&provider, 5, b"k", b"without");
    let check = |provider: &F::Provider| {
        for version in 0..=5 {
            assert_eq!(provider.metadata(Version(version)).expect("its metadata"), of_version(version).as_slice());
        }
        assert!(provider.metadata(Version(6)).expect("its metadata").is_empty());
        let infos = provider.versions().expect("the versions");
        let lengths: Vec<_> = infos.iter().map(|info| info.metadata_bytes).collect();
        assert_eq!(lengths, [1000, 2000, 3000, 4000, 5000, 0]);
        assert!(
            infos.iter().all(|info| info.changes == Some(1) && info.file_bytes > Some(info.metadata_bytes)),
            "{infos:?}"
        );
    };
    check(&provider);
    drop(provider);
    check(&fixture.open());
    check(&fixture.open_elsewhere());
}

/// G1: a reader of an old version reads on, whatever is committed, superseded or rewritten meanwhile.
pub(super) fn a_view_stays_as_it_is<F: ProviderFactory>(factory: &F) {
    let provider = Fixture::new(factory).open();
    commit_on(&provider, 0, |transaction| (0u8..50).for_each(|key| put(transaction, &[key], b"1")));
    let view = view(&provider, 1);
    let before = all(&view);
    for version in 1..8 {
        commit_on(&provider, version, |transaction| {
            transaction.delete_range(super::fixture::DEFAULT, None, None).expect("the range is deleted");
            put(transaction, &[1], &version.to_be_bytes());
        });
        factory.maintain(&provider, version).expect("the upkeep succeeds");
        provider.snapshot().expect("the snapshot succeeds");
        assert_eq!(all(&view), before);
        assert_eq!(value(&view, &[1]), Some(b"1".to_vec()));
        assert_eq!(view.version(), Version(1));
    }
    commit_put(&provider, 0, b"k", b"superseded all");
    assert_eq!(all(&view), before);
}

/// G7: nothing in the files says where they lie.
pub(super) fn a_checkpoint_that_was_moved_opens_at_its_new_place<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    for version in 0..4 {
        commit_put(&provider, version, &version.to_be_bytes(), b"x");
        if version == 1 {
            provider.snapshot().expect("the snapshot succeeds");
        }
    }
    drop(provider);
    let (disk, checkpoint) = fixture.moved_to("/elsewhere/deep");
    let elsewhere = factory.elsewhere();
    for opener in [factory, &elsewhere] {
        let provider = opener.open(checkpoint.clone(), super::fixture::id_of(0)).expect("the moved store opens");
        let newest = provider.latest().expect("the newest version").0;
        assert_eq!(at(&provider, 4).len(), 4);
        assert_eq!(all(&begin(&provider, newest)).len() as u64, newest);
        commit_put(&provider, newest, &newest.to_be_bytes(), b"x");
    }
    assert!(disk.files().iter().all(|file| file.starts_with("/elsewhere/deep")));
    assert_eq!(fixture.open().latest().expect("the newest version"), Version(4), "the old place is as it was");
}
