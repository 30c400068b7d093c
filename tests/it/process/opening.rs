//! What opening reads, as the kernel counts it: headers and footers and small deltas, not the state.

use std::fs;
use std::path::Path;

use alluvium::prelude::*;
use alluvium::{Backend, LocalCheckpoint, RocksDbProvider};

use super::child::{Event, Running};
use super::games::remove_tree;
use super::model::{FAMILIES, store_id};
use super::writer::{Ending, Job, store_options};

/// A store with a snapshot of so many keys, and a few small deltas above it.
fn fill(checkpoint: &Path, keys: u64) {
    let backend = Backend::in_memory().unwrap();
    let opened = LocalCheckpoint::open(checkpoint).unwrap();
    let provider = RocksDbProvider::open(&backend, opened, store_id(), store_options()).unwrap();
    for batch in [0..keys, 0..10, 490..510, 5..15] {
        let mut transaction = provider.begin(provider.latest().unwrap()).unwrap();
        let family = transaction.create_family(FAMILIES[0]).unwrap();
        for number in batch {
            let value = format!("the value of {number}, which is about as long as values are, one hundred bytes or so");
            transaction.put(family, format!("key {number:04}").as_bytes(), value.as_bytes()).unwrap();
        }
        if transaction.commit().unwrap().0 == 1 {
            provider.snapshot().unwrap();
        }
    }
}

fn largest_file(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.metadata().unwrap() {
        found if found.is_dir() => largest_file(&entry.path()),
        found => found.len(),
    });
    sizes.max().unwrap_or(0)
}

#[test]
fn opening_without_a_work_directory_reads_as_much_for_200_000_keys_as_for_10_000() {
    let read = [10_000, 200_000].map(|keys| {
        let all = tempfile::tempdir().unwrap();
        let (checkpoint, work) = (all.path().join("checkpoint"), all.path().join("work"));
        fill(&checkpoint, keys);
        // The writer opens and closes it once, then its directory is lost, then it opens again and counts.
        let job = Job { checkpoint, work: Some(work.clone()), run: 1, plan: String::new(), ending: Ending::Exit };
        let ended = Running::start(&job).end();
        assert!(ended.status.success(), "{ended:#?}");
        remove_tree(&work);
        let job = Job { work: Some(all.path().join("fresh")), ending: Ending::Measure, ..job };
        let ended = Running::start(&job).end();
        let read = ended.events.iter().find_map(|event| match event {
            Event::Read(opened, got) => Some((*opened, *got)),
            _ => None,
        });
        let (opened, got) = read.unwrap_or_else(|| panic!("{ended:#?}"));
        let file = largest_file(&job.checkpoint);
        println!("{keys} keys in {file} bytes: {opened} bytes read to open RocksDB and the store, {got} for a get");
        assert!(opened > 0 && got > 0);
        (opened, file)
    });
    let [(few, _), (many, file)] = read;
    assert!(many <= few + few / 4, "{few} bytes for 10,000 keys, {many} for 200,000");
    assert!(many * 20 < file, "{many} bytes of a file of {file}");
}
