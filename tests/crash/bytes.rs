//! What opening reads: headers and footers, not the state.

use alluvium::backend::IndexImage;
use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::{Access, Residency, StoreOptions};

use super::model::{Machine, Process};

/// A store with a snapshot of that many keys and two small deltas above it, its index lost.
fn machine_with(keys: u32) -> Machine {
    let mut process = Process::on(&Machine::new(), &StoreOptions::default());
    process.open().unwrap();
    let commit = |process: &Process, range: std::ops::Range<u32>| {
        let mut batch = process.provider().begin(process.provider().latest().unwrap()).unwrap();
        let family = batch.create_family("left").unwrap();
        for number in range {
            batch.put(family, &number.to_be_bytes(), format!("the value of {number}").as_bytes()).unwrap();
        }
        batch.commit().unwrap();
    };
    commit(&process, 0..keys);
    process.provider().snapshot().unwrap();
    commit(&process, 0..10);
    commit(&process, 5..15);
    Machine { index: IndexImage::default(), ..process.machine() }
}

fn largest_file(disk: &SimDisk) -> u64 {
    disk.files().iter().map(|path| disk.read_file(path).unwrap().len() as u64).max().unwrap()
}

#[test]
fn opening_without_an_index_reads_as_much_for_many_keys_as_for_few() {
    let positioned = StoreOptions::default().access(Access::Positioned);
    let read = [1_000, 20_000].map(|keys| {
        let machine = machine_with(keys);
        let mut process = Process::on(&machine, &positioned);
        process.open().unwrap();
        let (opened, mapped) = process.recorder.bytes_read();
        assert_eq!(mapped, 0);
        let head = process.provider().latest().unwrap();
        let batch = process.provider().begin(head).unwrap();
        let value = batch.get(batch.family("left").unwrap(), &500u32.to_be_bytes()).unwrap();
        assert_eq!(value.unwrap(), b"the value of 500");
        let one_get = process.recorder.bytes_read().0 - opened;
        println!("{keys} keys in {} bytes: {opened} to open, {one_get} for a get", largest_file(&machine.disk));
        assert!(opened > 0 && one_get > 0, "the counter counts");
        (opened, largest_file(&machine.disk))
    });
    let [(few, _), (many, file)] = read;
    assert!(many <= few + 64, "{few} bytes for 1,000 keys, {many} for 20,000");
    assert!(many * 20 < file, "{many} bytes of a file of {file}");
}

/// The whole state in the index, as it was before the last two commits and a snapshot: what a kill leaves, since nothing logs it.
#[test]
fn r12_a_resident_store_that_was_killed_reads_what_its_index_lacks_and_not_the_state() {
    let resident = StoreOptions::default().residency(Residency::Resident);
    let mut process = Process::on(&Machine::new(), &resident);
    process.open().unwrap();
    let commit = |process: &Process, range: std::ops::Range<u32>| {
        let mut batch = process.provider().begin(process.provider().latest().unwrap()).unwrap();
        let family = batch.create_family("left").unwrap();
        for number in range {
            batch.put(family, &number.to_be_bytes(), format!("the value of {number}").as_bytes()).unwrap();
        }
        batch.commit().unwrap();
    };
    commit(&process, 0..20_000);
    process.provider().settle().unwrap();
    let killed = process.index.image();
    commit(&process, 0..10);
    commit(&process, 20_000..20_010);
    process.provider().snapshot().unwrap();
    let machine = process.machine();
    let read = [killed, IndexImage::default()].map(|index| {
        let machine = Machine { index, ..machine.fork() };
        let mut process = Process::on(&machine, &resident.clone().access(Access::Positioned));
        process.open().unwrap();
        let (opened, _) = process.recorder.bytes_read();
        let batch = process.provider().begin(process.provider().latest().unwrap()).unwrap();
        assert_eq!(batch.scan(batch.family("left").unwrap()).unwrap().count(), 20_010);
        opened
    });
    let [killed, lost] = read;
    println!("{killed} bytes read after a kill, {lost} without an index, of {}", largest_file(&machine.disk));
    assert!(
        lost >= largest_file(&machine.disk) / 2 && killed * 20 < lost,
        "{killed} after a kill, {lost} without an index"
    );
}
