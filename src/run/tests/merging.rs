//! A merge of layers gives what applying them one after the other gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::support::*;
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::run::{Access, Layer, Merge, PageCodec, Run};
use crate::version::RunKind;

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn run_of(entries: &Model, ranges: &RangeSet) -> Arc<Run> {
    let entries: Entries = entries.clone().into_iter().collect();
    open(write_with(&header(RunKind::Delta, PageCodec::None), packed(), &entries, ranges, b""), Access::Mapped).unwrap()
}

fn layer(run: &Arc<Run>) -> Layer {
    Layer { cursor: Box::new(run.cursor(KeyRange::ALL)), ranges: Arc::clone(run.ranges()) }
}

/// Applies layers, oldest first; tombstones stay as `None`.
fn apply(layers: &[(Model, RangeSet)]) -> Model {
    let mut model = Model::new();
    for (entries, ranges) in layers {
        model.retain(|key, _| !ranges.contains(key));
        model.extend(entries.clone());
    }
    model
}

fn entries() -> impl Strategy<Value = Model> {
    let keys = prop_oneof![
        4 => (0u8..24).prop_map(|n| key([n])),
        1 => (0u8..4, 0usize..14).prop_map(|(n, length)| key([vec![5; length], vec![n]].concat())),
    ];
    prop::collection::btree_map(keys, prop::option::of(prop::collection::vec(any::<u8>(), 0..4)), 0..12)
}

fn ranges() -> impl Strategy<Value = RangeSet> {
    prop::collection::vec((0u8..24, 0u8..26), 0..3).prop_map(|pairs| {
        let mut set = RangeSet::default();
        for (low, high) in pairs {
            set.insert(KeyRange { start: key([low]), end: (high < 25).then(|| key([high])) });
        }
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_merge_agrees_with_a_map(
        layers in prop::collection::vec((entries(), prop_oneof![2 => Just(RangeSet::default()), 1 => ranges()]), 0..9)
    ) {
        let runs: Vec<Arc<Run>> = layers.iter().map(|(entries, ranges)| run_of(entries, ranges)).collect();
        let newest_first = || runs.iter().rev().map(layer).collect::<Vec<_>>();
        let model = apply(&layers);
        let all: Entries = model.clone().into_iter().collect();
        prop_assert_eq!(collect(&mut Merge::new(newest_first())).unwrap(), all);
        let live: Entries = model.into_iter().filter(|(_, value)| value.is_some()).collect();
        prop_assert_eq!(collect(&mut Merge::new(newest_first()).live()).unwrap(), live);
    }
}

#[test]
fn twenty_layers_with_the_same_keys_give_each_key_once() {
    let runs: Vec<Arc<Run>> = (0u8..20)
        .map(|n| run_of(&(0u8..200).map(|k| (key([k]), Some(vec![n]))).collect(), &RangeSet::default()))
        .collect();
    let merged = collect(&mut Merge::new(runs.iter().map(layer).collect())).unwrap();
    assert_eq!(merged.len(), 200);
    assert!(merged.iter().all(|(_, value)| value.as_deref() == Some(&[0])));
}

#[test]
fn a_layers_own_range_spares_its_own_entries() {
    let mut all = RangeSet::default();
    all.insert(KeyRange::ALL);
    let newer = run_of(&Model::from([(key("a"), Some(vec![1]))]), &all);
    let older = run_of(&Model::from([(key("a"), Some(vec![0])), (key("b"), Some(vec![0]))]), &RangeSet::default());
    let merged = collect(&mut Merge::new(vec![layer(&newer), layer(&older)])).unwrap();
    assert_eq!(merged, vec![(key("a"), Some(vec![1]))]);
}

#[test]
fn a_merged_value_is_still_a_view_of_its_file() {
    let run = run_of(&Model::from([(key("a"), Some(vec![1; 9]))]), &RangeSet::default());
    let mut merge = Merge::new(vec![layer(&run)]).live();
    assert!(merge.advance().unwrap());
    let mut direct = run.cursor(KeyRange::ALL);
    assert!(direct.advance().unwrap());
    let place = |change: Change<crate::bytes::Bytes>| change.into_value().unwrap().as_ptr();
    assert_eq!(place(merge.change_bytes()), place(direct.change_bytes()));
}

#[derive(Debug)]
struct FailsAt(u8, u8);

impl Cursor for FailsAt {
    fn advance(&mut self) -> Result<bool> {
        if self.0 == self.1 {
            return Err(Error::corrupt("layer", 0, "an entry", "nothing"));
        }
        self.0 += 1;
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        std::slice::from_ref(&self.0)
    }

    fn change(&self) -> Change<&[u8]> {
        Change::Put(&[])
    }
}

#[test]
fn a_merge_stays_at_the_error_of_a_layer() {
    for good in [0, 1, 3] {
        let failing = Layer { cursor: Box::new(FailsAt(0, good)), ranges: Arc::default() };
        let whole = run_of(&(0u8..9).map(|k| (key([k]), None)).collect(), &RangeSet::default());
        let mut merge = Merge::new(vec![layer(&whole), failing]);
        while merge.advance().is_ok_and(|more| more) {}
        for _ in 0..3 {
            assert!(matches!(merge.advance().unwrap_err().kind(), ErrorKind::Corrupt { .. }));
        }
    }
}
