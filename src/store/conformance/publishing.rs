//! Commits whose file cannot be published, or whose answer is lost.

use super::contract::ProviderFactory;
use super::faulty::Fault;
use super::fixture::{Content, Fixture, all, at, begin, commit_on, commit_put, content, kind_of, put};
use crate::error::ErrorKind;
use crate::store::contract::{StateStoreProvider, WriteStore};
use crate::version::Version;

fn base<F: ProviderFactory>(provider: &F::Provider) -> Content {
    commit_on(provider, 0, |transaction| {
        put(transaction, b"k", b"1");
        put(transaction, b"stays", b"1");
    });
    content([("k", "1"), ("stays", "1")])
}

/// Commits on version 1 while `fault` waits for the delta, and gives the error.
fn fail<F: ProviderFactory>(fixture: &Fixture<'_, F>, provider: &F::Provider, fault: Fault) -> ErrorKind {
    let fired = fixture.faults.fired();
    let mut transaction = begin(provider, 1);
    put(&mut transaction, b"k", b"lost");
    put(&mut transaction, b"lost", b"lost");
    fixture.faults.arm(fault, ".delta");
    let kind = kind_of(transaction.commit_with(b"lost"));
    assert_eq!(fixture.faults.fired(), fired + 1, "the fault was met");
    kind
}

/// Behaviours 15, 37 and 62: the version does not exist, the old data is there, the same version can be committed.
pub(super) fn a_commit_that_cannot_be_written_or_named_never_happened<F: ProviderFactory>(factory: &F) {
    for fault in [Fault::Create, Fault::Append, Fault::Refused] {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        let before = base::<F>(&provider);
        let runs = fixture.runs();
        for _ in 0..2 {
            let kind = fail(&fixture, &provider, fault);
            assert!(
                matches!(&kind, ErrorKind::DiskFull { path } if path.starts_with("/checkpoint")),
                "{fault:?}: {kind:?}"
            );
            assert_eq!(fixture.runs(), runs, "{fault:?}: nothing is left behind");
            assert_eq!(provider.latest().expect("the newest version"), Version(1), "{fault:?}");
            assert!(provider.read_at(Version(2)).is_err(), "{fault:?}");
            assert_eq!(all(&begin(&provider, 1)), before, "{fault:?}");
        }
        assert_eq!(commit_put(&provider, 1, b"k", b"2"), Version(2), "{fault:?}");
        let after = content([("k", "2"), ("stays", "1")]);
        assert_eq!(at(&provider, 2), after, "{fault:?}");
        assert!(provider.metadata(Version(2)).expect("its metadata").is_empty(), "{fault:?}");
        drop(provider);
        assert_eq!(all(&begin(&fixture.open(), 2)), after, "{fault:?}");
    }
}

/// After a lost answer the version is there whole or not at all; the same version can be committed again with other bytes.
pub(super) fn a_commit_whose_answer_is_lost_is_indeterminate_and_can_be_repeated<F: ProviderFactory>(factory: &F) {
    for fault in [Fault::LostBefore, Fault::LostAfter, Fault::LookFails] {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        let before = base::<F>(&provider);
        for _ in 0..2 {
            let kind = fail(&fixture, &provider, fault);
            assert_eq!(kind, ErrorKind::Indeterminate { version: Version(2) }, "{fault:?}");
            assert_eq!(all(&begin(&provider, 1)), before, "{fault:?}: the version below is as it was");
        }
        let mut transaction = begin(&provider, 1);
        put(&mut transaction, b"k", b"2");
        assert_eq!(transaction.commit_with(b"again").expect("the commit succeeds"), Version(2), "{fault:?}");
        let after = content([("k", "2"), ("stays", "1")]);
        assert_eq!(at(&provider, 2), after, "{fault:?}");
        assert_eq!(commit_put(&provider, 2, b"next", b"1"), Version(3), "{fault:?}");
        drop(provider);
        for reopen in [Fixture::open, Fixture::open_elsewhere] {
            let provider = reopen(&fixture);
            assert_eq!(at(&provider, 2), after, "{fault:?}");
            assert_eq!(provider.metadata(Version(2)).expect("its metadata"), b"again", "{fault:?}");
            assert_eq!(all(&begin(&provider, 3)).len(), 3, "{fault:?}");
        }
    }
}

/// Whoever opens next finds it whole or not at all, and goes on from there.
pub(super) fn an_indeterminate_commit_is_found_whole_or_not_at_all<F: ProviderFactory>(factory: &F) {
    for (fault, is_there) in [(Fault::LostBefore, false), (Fault::LostAfter, true), (Fault::LookFails, true)] {
        for reopens in [false, true] {
            let fixture = Fixture::new(factory);
            let mut provider = fixture.open();
            let before = base::<F>(&provider);
            fail(&fixture, &provider, fault);
            if reopens {
                drop(provider);
                provider = fixture.open();
            }
            let newest = provider.latest().expect("the newest version");
            assert_eq!(newest, Version(1 + u64::from(is_there)), "{fault:?}");
            let expected = if is_there { content([("k", "lost"), ("lost", "lost"), ("stays", "1")]) } else { before };
            assert_eq!(at(&provider, newest.0), expected, "{fault:?}");
            assert_eq!(all(&begin(&provider, newest.0)), expected, "{fault:?}");
            assert_eq!(commit_put(&provider, newest.0, b"next", b"1"), newest.next(), "{fault:?}");
        }
    }
}

/// A failure is nobody else's: another store of the same checkpoint commits on.
pub(super) fn a_failed_commit_leaves_other_stores_alone<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let (provider, other) = (fixture.open(), fixture.open_partition(1));
    base::<F>(&provider);
    commit_put(&other, 0, b"other", b"1");
    for fault in [Fault::Refused, Fault::LostAfter] {
        fail(&fixture, &provider, fault);
        let version = other.latest().expect("the newest version").0;
        assert_eq!(commit_put(&other, version, b"other", &version.to_be_bytes()), Version(version + 1));
    }
    assert_eq!(other.latest().expect("the newest version"), Version(3));
}

/// Opening, too, can fail at its one write; nothing is lost, and it can be repeated.
pub(super) fn an_open_that_cannot_claim_the_store_can_be_repeated<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let before = base::<F>(&fixture.open());
    for fault in [Fault::Create, Fault::Append, Fault::Refused, Fault::LostBefore, Fault::LostAfter] {
        let fired = fixture.faults.fired();
        fixture.faults.arm(fault, "forks");
        let outcome = factory.open(fixture.checkpoint(), super::fixture::id_of(0));
        outcome.map(drop).expect_err("the store could not be claimed");
        assert_eq!(fixture.faults.fired(), fired + 1, "the fault was met");
        let provider = fixture.open();
        assert_eq!(all(&begin(&provider, 1)), before, "{fault:?}");
    }
    assert_eq!(commit_put(&fixture.open(), 1, b"k", b"2"), Version(2));
}

/// Beginning on an older version claims the store anew. Where that fails, nobody has taken over: any version can be begun on again.
pub(super) fn a_begin_that_cannot_claim_the_store_can_be_repeated<F: ProviderFactory>(factory: &F) {
    for fault in [Fault::Create, Fault::Append, Fault::Refused, Fault::LostBefore, Fault::LostAfter, Fault::LookFails] {
        for next in [1, 2] {
            let fixture = Fixture::new(factory);
            let provider = fixture.open();
            base::<F>(&provider);
            commit_put(&provider, 1, b"k", b"2");
            let fired = fixture.faults.fired();
            fixture.faults.arm(fault, "forks");
            let kind = kind_of(provider.begin(Version(1)));
            assert!(!matches!(kind, ErrorKind::Fenced { .. }), "{fault:?}: {kind:?}");
            assert_eq!(fixture.faults.fired(), fired + 1, "the fault was met");
            assert_eq!(provider.latest().expect("the newest version"), Version(2), "{fault:?}");
            assert_eq!(commit_put(&provider, next, b"next", b"1"), Version(next + 1), "{fault:?}");
            let k = if next == 1 { "1" } else { "2" };
            assert_eq!(at(&provider, next + 1), content([("k", k), ("next", "1"), ("stays", "1")]), "{fault:?}");
        }
    }
}
