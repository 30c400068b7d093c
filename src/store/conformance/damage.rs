//! Files that are not what was written.

use std::path::Path;

use super::contract::ProviderFactory;
use super::fixture::{Content, DEFAULT, Fixture, at, commit_on, commit_put, put};
use crate::error::{Error, ErrorKind};
use crate::store::contract::{ReadStore, StateStoreProvider};
use crate::version::Version;

/// Some hundred pages, all different.
fn large() -> Content {
    (0u32..3000).map(|key| (key.to_be_bytes().to_vec(), key.to_le_bytes().repeat(25))).collect()
}

fn assert_names(error: &Error, damaged: &Path) {
    let names_it = matches!(error.kind(), ErrorKind::Corrupt { file, .. } if file == damaged);
    assert!(names_it && error.to_string().contains(&*damaged.to_string_lossy()), "{error:?}");
}

/// X11: an error, which names the file and stays; what is read until then is right, and nothing is skipped.
pub(super) fn a_damaged_page_is_told_and_never_skipped<F: ProviderFactory>(factory: &F) {
    for snapshot in [false, true] {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        commit_on(&provider, 0, |transaction| large().iter().for_each(|(key, value)| put(transaction, key, value)));
        if snapshot {
            provider.snapshot().expect("the snapshot succeeds");
            let delta = fixture.runs().into_keys().find(|path| path.extension().is_some_and(|e| e == "delta"));
            // So that there is no way around the snapshot.
            fixture.disk.truncate(delta.expect("there is a delta"), 0).expect("it is there");
        }
        drop(provider);
        let (damaged, bytes) =
            fixture.runs().into_iter().find(|(_, bytes)| !bytes.is_empty()).expect("one run is left");
        fixture.disk.flip_bit(&damaged, bytes.len() as u64 * 4).expect("it is long enough");
        factory.forget();
        let view = match factory.open(fixture.checkpoint(), super::fixture::id_of(0)) {
            Err(error) => {
                assert_names(&error, &damaged); // whoever reads all of it to open meets it here
                continue;
            }
            Ok(provider) => provider.read_at(Version(1)).expect("the footer is whole"),
        };
        check_scan(&view, &damaged);
        let mut failed = 0;
        for (key, value) in large() {
            match view.get(DEFAULT, &key) {
                Ok(found) => assert_eq!(found.map(|found| found.to_vec()), Some(value)),
                Err(error) => {
                    assert_names(&error, &damaged);
                    failed += 1;
                }
            }
        }
        assert!((1..100).contains(&failed), "{failed} keys of one page");
    }
}

fn check_scan(view: &impl ReadStore, damaged: &Path) {
    let model = large();
    let mut expected = model.iter();
    let mut scan = view.scan(DEFAULT).expect("the scan begins");
    let error = loop {
        match scan.next().expect("the damage comes before the end") {
            Ok(entry) => {
                let next = expected.next().map(|(key, value)| (key.as_slice(), value.as_slice()));
                assert_eq!(Some((entry.key.as_slice(), entry.value.as_slice())), next);
            }
            Err(error) => break error,
        }
    };
    assert_names(&error, damaged);
    for _ in 0..3 {
        let again = scan.next().expect("a failed scan does not end").expect_err("a failed scan stays failed");
        assert_names(&again, damaged);
    }
}

/// A run that is gone or cut is told by name, and put back it is as if nothing had been.
pub(super) fn a_missing_or_cut_run_is_told_by_name<F: ProviderFactory>(factory: &F) {
    for is_missing in [false, true] {
        let fixture = Fixture::new(factory);
        let provider = fixture.open();
        (0..3).for_each(|version| _ = commit_put(&provider, version, &version.to_be_bytes(), b"1"));
        let (second, bytes) = fixture.runs().into_iter().nth(1).expect("there are three");
        drop(provider);
        if is_missing {
            let checkpoint = fixture.checkpoint();
            let below = second.strip_prefix("/checkpoint").expect("it lies in the checkpoint").to_string_lossy();
            checkpoint.delete(&below).expect("it is there");
        } else {
            fixture.disk.truncate(&second, 100).expect("it is there");
        }
        factory.forget();
        let error =
            factory.open(fixture.checkpoint(), super::fixture::id_of(0)).map(drop).expect_err("version 3 is gone");
        let is_told = matches!(error.kind(), ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. });
        assert!(is_told, "{error:?}");
        if is_missing {
            assert!(error.to_string().contains("delta"), "{error} says what is missing");
        } else {
            assert_names(&error, &second);
        }
        // Put back, it opens as if nothing had been.
        fixture.disk.write_file(&second, &bytes).expect("a simulated disk has room");
        assert_eq!(at(&fixture.open(), 3).len(), 3);
    }
}
