//! The hex example in the format's text is a run, and the one that the writer makes.

use std::ops::ControlFlow;

use super::support::*;
use crate::bytes::Bytes;
use crate::entry::{Change, FamilyId, KeyRange, Probe, full_key};
use crate::ranges::RangeSet;
use crate::run::{Access, PageCodec};
use crate::version::RunKind;

const TEXT: &str = include_str!("../../../docs/formats/run.md");

/// The bytes of the block after the words "worked example": hex on the left, what it means behind two spaces.
fn bytes_of_the_text() -> Vec<u8> {
    let block = TEXT.split("## Worked example").nth(1).unwrap().split("```").nth(1).unwrap();
    let hex: String = block
        .lines()
        .skip(1)
        .flat_map(|line| line.split("  ").next().unwrap().chars())
        .filter(|c| !c.is_whitespace())
        .collect();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn written() -> Vec<u8> {
    let entries =
        vec![(key("apple"), Some(b"red".to_vec())), (key("pear"), None), (full_key(FamilyId(1), b"t"), Some(vec![]))];
    let mut ranges = RangeSet::default();
    ranges.insert(KeyRange::prefix(FamilyId(0), b"b"));
    write_with(&header(RunKind::Delta, PageCodec::None), packed(), &entries, &ranges, b"at=42")
}

#[test]
fn the_worked_example_is_a_run() {
    let run = open(bytes_of_the_text(), Access::Mapped).unwrap();
    run.verify(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(run.header(), &header(RunKind::Delta, PageCodec::None));
    assert_eq!(run.metadata(), b"at=42");
    let get = |full: &[u8]| run.get(&Probe::new(full)).unwrap();
    assert_eq!(get(&key("apple")), Some(Change::Put(Bytes::copy_from(b"red"))));
    assert_eq!(get(&key("pear")), Some(Change::Tombstone));
    assert_eq!(get(&full_key(FamilyId(1), b"t")), Some(Change::Put(Bytes::default())));
    assert_eq!(get(&key("banana")), None);
    assert!(run.covers(&key("banana")) && !run.covers(&key("cherry")));
}

#[test]
fn the_writer_makes_the_worked_example() {
    assert_eq!(written(), bytes_of_the_text());
}
