//! The overlay against a map, with and without room in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::spilling::Overlay;
use crate::backend::Room;
use crate::budget::{Budget, Purpose};
use crate::entry::{Change, Cursor, KeyRange, Probe};
use crate::error::ErrorKind;
use crate::fs::sim::{Operation, Persistence};
use crate::fs::{Disk, ScratchDir, SimDisk};
use crate::ranges::RangeSet;
use crate::run::{Layer, Merge};

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A place to spill to.
fn scratch(disk: &SimDisk) -> ScratchDir {
    disk.create_dir(Path::new("/spill")).unwrap();
    ScratchDir::new(Arc::new(disk.clone()), Path::new("/spill"))
}

fn roomy() -> Overlay {
    Overlay::new(Budget::new(1 << 30).lease(0, "overlay").unwrap(), Room::NONE)
}

fn purpose() -> Purpose {
    Purpose { kind: "overlay", owner: None, can_give: true }
}

/// An overlay that spills when it has as much as `budget` allows.
fn spilling(budget: &Budget, scratch: ScratchDir) -> Overlay {
    let room = Room { scratch: Some(scratch), timeout: Duration::ZERO };
    Overlay::new(budget.lease(0, purpose()).unwrap(), room)
}

fn get(overlay: &Overlay, full_key: &[u8]) -> Option<Change<Vec<u8>>> {
    let found = overlay.get(&Probe::new(full_key)).unwrap();
    found.map(|change| change.map(|value| value.to_vec()))
}

fn contents(overlay: &mut Overlay) -> Model {
    overlay.finish().unwrap();
    let mut all = Model::new();
    overlay
        .for_each(|key, change| {
            assert!(all.last_key_value().is_none_or(|(last, _)| last.as_slice() < key), "keys ascend");
            all.insert(key.to_vec(), change.into_value().map(<[u8]>::to_vec));
            Ok(())
        })
        .unwrap();
    all
}

fn scanned(layers: Vec<Layer>) -> Model {
    let mut all = Model::new();
    let mut content = Merge::new(layers);
    while content.advance().unwrap() {
        all.insert(content.key().to_vec(), content.change_bytes().into_value().map(|value| value.to_vec()));
    }
    all
}

/// Two overlays under the same writes, one of which spills now and then.
fn agrees_with_a_map(ops: Vec<(u8, u8, usize)>) -> Result<(), TestCaseError> {
    let disk = SimDisk::new(1);
    let budget = Budget::new(1 << 30);
    let mut model = Model::new();
    let mut deleted = RangeSet::default();
    let mut both = [roomy(), spilling(&budget, scratch(&disk))];
    let mut open: Vec<(Vec<Layer>, Model)> = Vec::new();
    for (op, key, size) in ops {
        let full = [0, key % 3, key];
        for overlay in &mut both {
            match op {
                0 | 1 => overlay.write(&Probe::new(&full), Change::Put(&vec![key; size])).unwrap(),
                2 => overlay.write(&Probe::new(&full), Change::Tombstone).unwrap(),
                3 => {
                    let range = KeyRange { start: full.to_vec(), end: Some(vec![0, key % 3, key.saturating_add(4)]) };
                    overlay.delete_range(range).unwrap();
                }
                4 => {
                    overlay.spill_now();
                }
                _ => {}
            }
        }
        match op {
            0 | 1 => drop(model.insert(full.to_vec(), Some(vec![key; size]))),
            2 => drop(model.insert(full.to_vec(), None)),
            3 => {
                let range = KeyRange { start: full.to_vec(), end: Some(vec![0, key % 3, key.saturating_add(4)]) };
                model.retain(|key, _| !range.contains(key));
                deleted.insert(range);
            }
            5 => open.extend(both.iter_mut().map(|overlay| (overlay.layers(&KeyRange::ALL).unwrap(), model.clone()))),
            _ => {}
        }
        let known = model.get(&full[..]).cloned().map(|value| value.map_or(Change::Tombstone, Change::Put));
        let expected = known.or_else(|| deleted.contains(&full).then_some(Change::Tombstone));
        for overlay in &both {
            prop_assert_eq!(get(overlay, &full), expected.clone());
        }
    }
    for overlay in &mut both {
        prop_assert_eq!(&contents(overlay), &model);
        prop_assert_eq!(&*overlay.ranges(), &deleted);
    }
    drop(both);
    prop_assert_eq!(disk.files().len(), 0, "no part is left");
    for (layers, then) in open {
        prop_assert_eq!(scanned(layers), then, "a scan sees what was written before it, nothing later");
    }
    Ok(())
}

proptest! {
    #[test]
    fn an_overlay_agrees_with_a_map(ops in prop::collection::vec((0u8..6, 0u8..12, 0usize..40), 1..120)) {
        agrees_with_a_map(ops)?;
    }
}

#[test]
fn many_parts_become_few_and_still_agree() {
    let ops =
        (0..600u32).map(|n| (if n % 2 == 0 { 4 } else { [0, 2, 0, 3][n as usize / 2 % 4] }, (n * 7 % 12) as u8, 5));
    agrees_with_a_map(ops.collect()).unwrap();
    let disk = SimDisk::new(1);
    let mut overlay = spilling(&Budget::new(1 << 30), scratch(&disk));
    for number in 0..300u32 {
        overlay.write(&Probe::new(&[&[0, 0], &number.to_be_bytes()[..]].concat()), Change::Put(b"v")).unwrap();
        overlay.spill_now();
    }
    assert!(overlay.part_count() < 64 + 64, "{} parts", overlay.part_count());
    assert_eq!(disk.files().len(), overlay.part_count());
    assert_eq!(contents(&mut overlay).len(), 300);
}

#[test]
fn a_transaction_of_many_times_its_memory_keeps_to_it_and_reads_back() {
    let disk = SimDisk::new(1);
    let budget = Budget::new(3 << 20);
    let mut overlay = spilling(&budget, scratch(&disk));
    let key = |number: u32| [&[0, 0], &number.wrapping_mul(2_654_435_761).to_be_bytes()[..]].concat();
    for number in 0..200_000u32 {
        let value = number.to_le_bytes().repeat(25);
        overlay.write(&Probe::new(&key(number)), Change::Put(&value)).unwrap();
        assert!(budget.used() <= budget.limit());
    }
    assert!(overlay.part_count() > 5, "{} parts", overlay.part_count());
    assert_eq!(budget.shortages().refusals, 0);
    for number in (0..200_000u32).step_by(997) {
        assert_eq!(get(&overlay, &key(number)), Some(Change::Put(number.to_le_bytes().repeat(25))));
    }
    assert_eq!(scanned(overlay.layers(&KeyRange::ALL).unwrap()).len(), 200_000);
    assert_eq!(contents(&mut overlay).len(), 200_000);
    drop(overlay);
    assert_eq!((disk.files().len(), budget.used()), (0, 0));
}

#[test]
fn a_value_larger_than_the_memory_goes_straight_to_disk() {
    let disk = SimDisk::new(1);
    let budget = Budget::new(3 << 20);
    let mut overlay = spilling(&budget, scratch(&disk));
    let large = vec![7; 5 << 20];
    overlay.write(&Probe::new(&[0, 0, 1]), Change::Put(b"older")).unwrap();
    overlay.write(&Probe::new(&[0, 0, 1]), Change::Put(&large)).unwrap();
    overlay.write(&Probe::new(&[0, 0, 2]), Change::Put(b"newer")).unwrap();
    assert_eq!(get(&overlay, &[0, 0, 1]), Some(Change::Put(large.clone())));
    assert_eq!(
        contents(&mut overlay),
        Model::from([(vec![0, 0, 1], Some(large)), (vec![0, 0, 2], Some(b"newer".to_vec()))])
    );
}

#[test]
fn who_holds_the_most_spills_for_who_has_next_to_nothing() {
    let disk = SimDisk::new(1);
    let budget = Budget::new(2 << 20);
    let space = scratch(&disk);
    let mut large = spilling(&budget, space.clone());
    let value = vec![1; 1 << 10];
    (0..200u32).for_each(|number| {
        large.write(&Probe::new(&[&[0, 0], &number.to_be_bytes()[..]].concat()), Change::Put(&value)).unwrap();
    });
    assert_eq!(large.part_count(), 0);
    let _rest = budget.lease(budget.limit() - budget.used(), "others").unwrap();
    std::thread::scope(|scope| {
        let small = scope.spawn(|| {
            let room = Room { scratch: Some(space.clone()), timeout: Duration::from_mins(1) };
            let mut small = Overlay::new(budget.lease(0, purpose()).unwrap(), room);
            small.write(&Probe::new(&[0, 0, 1]), Change::Put(&value)).map(|()| small.part_count())
        });
        while budget.shortages().waiting == 0 {
            std::thread::yield_now();
        }
        large.write(&Probe::new(&[0, 0, 0]), Change::Tombstone).unwrap();
        assert_eq!(large.part_count(), 1, "it was asked, so it has spilled");
        assert_eq!(small.join().unwrap().unwrap(), 0);
    });
}

#[test]
fn a_scan_without_room_to_sort_in_spills_instead_of_failing() {
    let disk = SimDisk::new(1);
    let budget = Budget::new(1 << 20);
    let mut overlay = spilling(&budget, scratch(&disk));
    let mut number = 0u32;
    while overlay.part_count() == 0 && number < 6_000 {
        number += 1;
        overlay.write(&Probe::new(&[&[0, 0], &number.to_be_bytes()[..]].concat()), Change::Put(b"v")).unwrap();
    }
    let before = overlay.part_count();
    let _rest = budget.lease(budget.limit() - budget.used(), "others").unwrap();
    let layers = overlay.layers(&KeyRange::ALL).unwrap();
    assert_eq!(overlay.part_count(), before + 1);
    assert_eq!(scanned(layers).len(), number as usize);
    assert_eq!(scanned(overlay.layers(&KeyRange::ALL).unwrap()).len(), number as usize);
    assert!(budget.used() <= budget.limit());
}

#[test]
fn a_key_written_over_and_over_does_not_grow_the_overlay() {
    let budget = Budget::new(1 << 30);
    let mut overlay = Overlay::new(budget.lease(0, "overlay").unwrap(), Room::NONE);
    for round in 0..100_000u32 {
        overlay.write(&Probe::new(&[0, 0, 7]), Change::Put(&round.to_le_bytes().repeat(25))).unwrap();
    }
    assert!(budget.used() < 8 << 20, "{} bytes", budget.used());
    assert_eq!(contents(&mut overlay).len(), 1);
}

#[test]
fn without_a_place_to_spill_to_a_full_budget_refuses_the_write_and_keeps_what_was_there() {
    let mut overlay = Overlay::new(Budget::new(600 << 10).lease(0, "overlay").unwrap(), Room::NONE);
    let value = vec![1; 1 << 10];
    let refused = (0..2_000u32).find_map(|n| {
        let full = [&[0, 0], &n.to_be_bytes()[..]].concat();
        overlay.write(&Probe::new(&full), Change::Put(&value)).err().map(|error| (n, error))
    });
    let (written, error) = refused.unwrap();
    assert!(matches!(error.kind(), ErrorKind::MemoryLimit { .. }), "{error}");
    assert_eq!(contents(&mut overlay).len(), written as usize);
}

#[test]
fn deleted_ranges_are_counted_and_refused_past_the_budget() {
    let disk = SimDisk::new(1);
    let budget = Budget::new(256 << 10);
    let mut overlay = spilling(&budget, scratch(&disk));
    let delete = |overlay: &mut Overlay, number: u32| {
        let key = |number: u32| [&[0, 0], &number.to_be_bytes()[..]].concat();
        overlay.delete_range(KeyRange { start: key(number * 4), end: Some(key(number * 4 + 2)) })
    };
    let refused = (0..100_000).find_map(|number| delete(&mut overlay, number).err());
    assert!(matches!(refused.unwrap().kind(), ErrorKind::MemoryLimit { .. }));
    assert!(budget.used() <= budget.limit());
    assert!(
        get(&overlay, &[0, 0, 0, 0, 0, 1]) == Some(Change::Tombstone) && get(&overlay, &[0, 0, 0, 0, 0, 3]).is_none()
    );
}

#[test]
fn a_full_work_directory_is_an_error_of_the_write() {
    let disk = SimDisk::new(1);
    let mut overlay = spilling(&Budget::new(1 << 20), scratch(&disk));
    disk.fail_after(0, &[Operation::Append], std::io::ErrorKind::StorageFull, Persistence::ForEver);
    let value = vec![1; 1 << 10];
    let failed = (0..4_000u32).find_map(|n| {
        let full = [&[0, 0], &n.to_be_bytes()[..]].concat();
        overlay.write(&Probe::new(&full), Change::Put(&value)).err()
    });
    assert!(matches!(failed.unwrap().kind(), ErrorKind::DiskFull { .. }));
}
