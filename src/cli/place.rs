//! From the words on the command line to a checkpoint, a store, a version, a family.

use std::path::Path;
use std::sync::Arc;

use super::args::Place;
use super::failure::{Failure, Outcome};
use crate::checkpoint::{Checkpoint, LocalCheckpoint};
use crate::entry::{Families, FamilyId, Name, StateStoreId};
use crate::store::History;
use crate::version::Version;

/// So many stores are named in a message.
const NAMED: usize = 10;

/// The checkpoint at `path`, for reading.
pub(super) fn checkpoint(path: &Path) -> Outcome<Arc<dyn Checkpoint>> {
    Ok(LocalCheckpoint::existing(path)?.into())
}

/// The stores that are meant: the one that was named, or all.
pub(super) fn stores(place: &Place) -> Outcome<(Arc<dyn Checkpoint>, Vec<StateStoreId>)> {
    let checkpoint = checkpoint(&place.checkpoint)?;
    let stores = match &place.store {
        Some(text) => vec![store_id(text)?],
        None => History::stores(&*checkpoint)?,
    };
    Ok((checkpoint, stores))
}

/// As [`stores`], where each of them has to be there.
pub(super) fn existing_stores(place: &Place) -> Outcome<(Arc<dyn Checkpoint>, Vec<StateStoreId>)> {
    let (checkpoint, stores) = stores(place)?;
    if stores.is_empty() {
        let shown = place.checkpoint.display();
        return Err(Failure::NotFound(format!("{shown} holds no store: there is nothing below {shown}/state")));
    }
    for id in &stores {
        History::open(Arc::clone(&checkpoint), id.clone())?;
    }
    Ok((checkpoint, stores))
}

/// The store that is meant: the one that was named, or the only one there is.
pub(super) fn history(place: &Place) -> Outcome<History> {
    let (checkpoint, stores) = stores(place)?;
    let shown = place.checkpoint.display();
    match stores.as_slice() {
        [only] => match History::open(Arc::clone(&checkpoint), only.clone()) {
            Err(error) if error.is_not_found() => {
                let there = named(&History::stores(&*checkpoint)?);
                Err(Failure::NotFound(format!("{shown} has no store {only}; {there}")))
            }
            opened => Ok(opened?),
        },
        [] => Err(Failure::NotFound(format!("{shown} holds no store: there is nothing below {shown}/state"))),
        several => Err(Failure::Usage(format!("which store? Name it with --store; {}", named(several)))),
    }
}

/// Reads the name of a store.
pub(super) fn store_id(text: &str) -> Outcome<StateStoreId> {
    Ok(text.parse::<StateStoreId>()?)
}

fn named(stores: &[StateStoreId]) -> String {
    let names: Vec<String> = stores.iter().take(NAMED).map(ToString::to_string).collect();
    let more = stores.len().saturating_sub(names.len());
    match (names.is_empty(), more) {
        (true, _) => "it holds none".into(),
        (false, 0) => format!("it holds {}", names.join(", ")),
        (false, _) => format!("it holds {} and {more} more", names.join(", ")),
    }
}

/// The version that is meant: the one with the number, or the newest.
pub(super) fn version(history: &History, at: Option<u64>) -> Outcome<Version> {
    Ok(match at {
        Some(number) => Version(number),
        None => history.latest()?,
    })
}

/// The family called `name`.
pub(super) fn family(families: &Families, name: &str) -> Outcome<FamilyId> {
    families.find(name).ok_or_else(|| {
        let names: Vec<&str> = families.names().iter().map(Name::as_str).collect(); // at most 1024
        Failure::NotFound(format!("there is no family {name:?}; the families are {}", names.join(", ")))
    })
}

/// The families that are meant: the one that was named, or all.
pub(super) fn families(families: &Families, name: Option<&str>) -> Outcome<Vec<FamilyId>> {
    match name {
        Some(name) => Ok(vec![family(families, name)?]),
        None => Ok(families.iter().map(|(family, _)| family).collect()), // at most 1024
    }
}

/// The name of a family.
pub(super) fn family_name(families: &Families, family: FamilyId) -> &str {
    families.name(family).map_or("?", |name| name.as_str())
}
