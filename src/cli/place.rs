//! From the words on the command line to a checkpoint, a store, a version, a family.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::args::Place;
use super::console::Console;
use super::failure::{Failure, Outcome};
use super::spelling::quoted;
use crate::checkpoint::{Checkpoint, LocalCheckpoint};
use crate::entry::{Families, FamilyId, Name, StateStoreId};
use crate::error::Error;
use crate::fs::{Disk, FileKind, RealDisk};
use crate::store::History;
use crate::version::Version;

/// So many stores are named in a message.
const NAMED: usize = 10;

/// The checkpoint at `path`, for reading.
pub(super) fn checkpoint(path: &Path) -> Outcome<Arc<dyn Checkpoint>> {
    LocalCheckpoint::existing(path).map(Into::into).map_err(|error| no_directory(path, "checkpoint", error))
}

/// What is to be said where the directory of a `thing` cannot be opened: whatever else has the path is no such thing.
pub(super) fn no_directory(path: &Path, thing: &str, error: Error) -> Failure {
    let shown = path.display();
    // Without trailing separators, which would make the system follow a symbolic link.
    let there = absolute(path).map(|path| path.components().collect::<PathBuf>());
    let stat = there.ok().and_then(|path| RealDisk::new().stat(&path).ok().flatten());
    Failure::NotFound(match stat.map(|stat| stat.kind) {
        None if error.is_not_found() => format!("there is no {thing} {shown}: nothing is there"),
        Some(FileKind::Link) => match path.canonicalize() {
            Ok(real) => format!("{shown} is a symbolic link, and none is followed here: name {} itself", quoted(real)),
            Err(_) => format!("there is no {thing} {shown}: it is a symbolic link that leads to nothing"),
        },
        Some(FileKind::File | FileKind::Other) => format!("there is no {thing} {shown}: it is a file, not a directory"),
        _ => return error.into(),
    })
}

/// Checks that a directory can be written into, or made, at `path`, before anything is.
pub(super) fn check_target(path: &Path) -> Outcome<()> {
    let shown = path.display();
    let whole: PathBuf =
        absolute(path).map_err(|error| Error::io(path, "find the directory", error))?.components().collect();
    let disk = RealDisk::new();
    match disk.stat(&whole)?.map(|stat| stat.kind) {
        Some(FileKind::Directory) => Ok(()),
        Some(FileKind::Link) => Err(Failure::Taken(match path.canonicalize() {
            Ok(real) => format!("{shown} is a symbolic link, and none is followed here: name {} itself", quoted(real)),
            Err(_) => format!("{shown} is a symbolic link that leads to nothing"),
        })),
        Some(_) => Err(Failure::Taken(format!("{shown} is a file, not a directory"))),
        None => match whole.parent().filter(|parent| !parent.is_dir()) {
            Some(parent) => {
                Err(Failure::NotFound(format!("there is no directory {} to make {shown} in", parent.display())))
            }
            None => Ok(()),
        },
    }
}

/// That a checkpoint holds nothing.
pub(super) fn no_store(place: &Place) -> Failure {
    let shown = place.checkpoint.display();
    Failure::NotFound(format!("{shown} holds no store: there is nothing below {shown}/state"))
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
        return Err(no_store(place));
    }
    // Where all are meant, a listing showed them; one that cannot be opened does not keep the others from their turn.
    for id in stores.iter().filter(|_| place.store.is_some()) {
        open(&checkpoint, place, id)?;
    }
    Ok((checkpoint, stores))
}

/// The store that is meant: the one that was named, or the only one there is.
pub(super) fn history(place: &Place) -> Outcome<History> {
    let (checkpoint, stores) = stores(place)?;
    match stores.as_slice() {
        [only] => open(&checkpoint, place, only),
        [] => Err(no_store(place)),
        several => Err(Failure::Usage(format!("which store? Name it with --store; {}", named(several)))),
    }
}

/// The history of the store called `id`; says which stores there are where that is none of them.
pub(super) fn open(checkpoint: &Arc<dyn Checkpoint>, place: &Place, id: &StateStoreId) -> Outcome<History> {
    match History::open(Arc::clone(checkpoint), id.clone()) {
        Err(error) if error.is_not_found() => {
            let there = named(&History::stores(&**checkpoint)?);
            Err(Failure::NotFound(format!("{} has no store {id}; {there}", place.checkpoint.display())))
        }
        opened => Ok(opened?),
    }
}

/// Says which damaged files an answer got around.
pub(super) fn tell_passed_over<'f>(
    files: impl IntoIterator<Item = &'f Path>,
    place: &Place,
    console: &mut Console<'_>,
) -> Outcome<()> {
    for file in files {
        // What a clean-up took between the listing and the look at it is no damage.
        if RealDisk::new().stat(file)?.is_some() {
            let file = file.display();
            let words = place.words();
            console.note(&format!(
                "note: {file} is damaged and was passed over; other files hold the same; `alluvium repair {words}` makes it anew"
            ))?;
        }
    }
    Ok(())
}

/// Says what mends damage, where it was the answer and not an error.
pub(super) fn tell_of_repair(place: &Place, console: &mut Console<'_>) -> Outcome<()> {
    console.note(&format!("hint: `alluvium repair {}` mends what can be mended", place.words()))
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

/// The text for a store that nothing was committed to.
pub(super) fn no_version(history: &History) -> String {
    format!("the store {} has no version yet", history.id())
}

/// The family called `name`.
pub(super) fn family(families: &Families, name: &str) -> Outcome<FamilyId> {
    families.find(name).ok_or_else(|| {
        Failure::NotFound(format!("there is no family {name:?}; the families are {}", family_names(families)))
    })
}

/// The names of all families, for people.
pub(super) fn family_names(families: &Families) -> String {
    families.names().iter().map(Name::as_str).collect::<Vec<&str>>().join(", ") // at most 1024
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
