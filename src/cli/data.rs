//! `get`, `scan`, `changes`, `diff`: what stores hold and what happened to it. All of them stream.

use std::path::PathBuf;

use super::args::{ChangesArgs, DiffArgs, Get, Scan};
use super::console::Console;
use super::failure::{Exit, Failure, Outcome};
use super::json::Json;
use super::place::{self, tell_passed_over};
use crate::store::{ChangeEvent, Changed, Difference, Entry, History, ReadStore, View};
use crate::version::Version;

/// The family that every store has.
const DEFAULT_FAMILY: &str = "default";

/// `alluvium get`
pub(super) fn get(args: &Get, console: &mut Console<'_>) -> Outcome<Exit> {
    let key = args.spelling.keys.read(&args.key).map_err(Failure::Usage)?;
    let history = place::history(&args.place)?;
    let view = history.read_at(place::version(&history, args.at)?)?;
    tell_passed_over(view.passed_over().iter().map(PathBuf::as_path), &args.place, console)?;
    let name = args.family.as_deref().unwrap_or(DEFAULT_FAMILY);
    let family = place::family(view.families(), name)?;
    let Some(value) = view.get(family, &key)? else {
        return Err(no_key(args, &history, &view, &key, name));
    };
    let value = args.spelling.values.show(&value);
    if args.place.json {
        console.json(&Json::object([
            ("version", view.version().0.into()),
            ("family", name.into()),
            ("key", args.spelling.keys.show(&key).into()),
            ("value", value.into()),
        ]))?;
    } else {
        console.line(value)?;
    }
    Ok(Exit::Done)
}

fn no_key(args: &Get, history: &History, view: &View, key: &[u8], family: &str) -> Failure {
    if view.version() == Version::EMPTY && args.at.is_none() {
        return Failure::NotFound(place::no_version(history));
    }
    let (version, key) = (view.version(), args.spelling.keys.show(key));
    let text = format!("version {version} has no key {key} in the family {family}");
    // Whoever has named a family knows that there are several.
    if args.family.is_none() && view.families().names().len() > 1 {
        let names = place::family_names(view.families());
        return Failure::NotFound(format!("{text}; name another one with --family: there are {names}"));
    }
    Failure::NotFound(text)
}

/// `alluvium scan`
pub(super) fn scan(args: &Scan, console: &mut Console<'_>) -> Outcome<Exit> {
    let keys = args.spelling.keys;
    let read = |key: &Option<String>| key.as_deref().map(|key| keys.read(key).map_err(Failure::Usage)).transpose();
    let (prefix, start, end) = (read(&args.prefix)?, read(&args.start)?, read(&args.end)?);
    let history = place::history(&args.place)?;
    let view = history.read_at(place::version(&history, args.at)?)?;
    tell_passed_over(view.passed_over().iter().map(PathBuf::as_path), &args.place, console)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    for family in place::families(view.families(), args.family.as_deref())? {
        let name = place::family_name(view.families(), family);
        let scan = match &prefix {
            Some(prefix) => view.scan_prefix(family, prefix)?,
            None => view.scan_range(family, start.as_deref(), end.as_deref())?,
        };
        for entry in scan {
            if left == 0 {
                return Ok(Exit::Done);
            }
            left -= 1;
            let Entry { key, value } = entry?;
            let (key, value) = (keys.show(&key), args.spelling.values.show(&value));
            if args.place.json {
                let members = [("family", name.into()), ("key", key.into()), ("value", value.into())];
                console.json(&Json::object(members))?;
            } else {
                console.line(format_args!("{name}\t{key}\t{value}"))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// `alluvium changes`
pub(super) fn changes(args: &ChangesArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    let history = place::history(&args.place)?;
    let newest = history.latest()?;
    let mut to = args.to.map_or(newest, Version);
    let from = args.from.map_or(to, Version);
    if to == newest && from == newest.next() {
        return Ok(Exit::Done); // whoever asks for what is new since then has seen all there is
    }
    if args.to.is_none() {
        to = to.max(from); // that it is not there is what is wrong with it
    }
    if from > to {
        return Err(Failure::Usage(format!("version {from} is above version {to}: --from is the older one")));
    }
    let mut changes = history.changes(from..=to)?;
    if args.old {
        changes = changes.with_old_values()?;
    }
    let families = changes.families().clone();
    let only = args.family.as_deref().map(|name| place::family(&families, name)).transpose()?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut told = 0;
    while let Some(event) = changes.next() {
        // One more commit may have shown one more file.
        tell_passed_over(changes.passed_over().skip(told), &args.place, console)?;
        told = changes.passed_over().count();
        let event = event?;
        if only.is_some_and(|only| only != event.family) {
            continue;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        let family = place::family_name(&families, event.family).to_owned();
        if args.place.json {
            change_in_json(args, &event, &family, console)
        } else {
            change_as_text(args, &event, &family, console)
        }?;
    }
    Ok(Exit::Done)
}

fn change_as_text(args: &ChangesArgs, event: &ChangeEvent, family: &str, console: &mut Console<'_>) -> Outcome<()> {
    let (keys, values) = (args.spelling.keys, args.spelling.values);
    let version = event.version;
    let old = |old: &Option<crate::bytes::Bytes>| match old {
        Some(old) => format!("\twas {}", values.show(old)),
        None if args.old => "\tnew".into(),
        None => String::new(),
    };
    match &event.change {
        Changed::Upsert { key, value, old: before } => console.line(format_args!(
            "{version}\tput\t{family}\t{}\t{}{}",
            keys.show(key),
            values.show(value),
            old(before)
        )),
        Changed::Delete { key, old: before } => {
            let before = before.as_ref().map_or(String::new(), |before| format!("\twas {}", values.show(before)));
            console.line(format_args!("{version}\tdelete\t{family}\t{}{before}", keys.show(key)))
        }
        Changed::DeleteRange { start, end } => {
            let end = end.as_ref().map_or(String::new(), |end| keys.show(end));
            console.line(format_args!("{version}\tdelete-range\t{family}\t{}\t{end}", keys.show(start)))
        }
    }
}

fn change_in_json(args: &ChangesArgs, event: &ChangeEvent, family: &str, console: &mut Console<'_>) -> Outcome<()> {
    let (keys, values) = (args.spelling.keys, args.spelling.values);
    let mut members = vec![("version", event.version.0.into()), ("epoch", event.epoch.0.into())];
    let key = |key: &[u8]| Json::from(keys.show(key));
    let old = |old: &Option<crate::bytes::Bytes>| Json::from(old.as_ref().map(|old| values.show(old)));
    let (change, what) = match &event.change {
        Changed::Upsert { key: k, value, old: before } => {
            ("put", vec![("key", key(k)), ("value", values.show(value).into()), ("old", old(before))])
        }
        Changed::Delete { key: k, old: before } => ("delete", vec![("key", key(k)), ("old", old(before))]),
        Changed::DeleteRange { start, end } => {
            let end = Json::from(end.as_ref().map(|end| keys.show(end)));
            ("delete-range", vec![("start", key(start)), ("end", end)])
        }
    };
    members.extend([("change", change.into()), ("family", family.into())]);
    // What was not asked for is left out; `null` says that there was nothing before.
    members.extend(what.into_iter().filter(|(name, _)| args.old || *name != "old"));
    console.json(&Json::Object(members))
}

/// `alluvium diff`
pub(super) fn diff(args: &DiffArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    let history = place::history(&args.place)?;
    let differences = history.difference(Version(args.from), Version(args.to))?;
    tell_passed_over(differences.passed_over().iter().map(PathBuf::as_path), &args.place, console)?;
    let families = differences.families().clone();
    let only = args.family.as_deref().map(|name| place::family(&families, name)).transpose()?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    for difference in differences {
        let Difference { family, key, old, new, .. } = difference?;
        if only.is_some_and(|only| only != family) {
            continue;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        let name = place::family_name(&families, family);
        let key = args.spelling.keys.show(&key);
        let shown = |value: Option<crate::bytes::Bytes>| value.map(|value| args.spelling.values.show(&value));
        let (old, new) = (shown(old), shown(new));
        if args.place.json {
            let members = [("family", name.into()), ("key", key.into()), ("old", old.into()), ("new", new.into())];
            console.json(&Json::object(members))?;
            continue;
        }
        match (old, new) {
            (Some(old), Some(new)) => console.line(format_args!("~\t{name}\t{key}\t{old}\t{new}")),
            (Some(old), None) => console.line(format_args!("-\t{name}\t{key}\t{old}")),
            (None, new) => console.line(format_args!("+\t{name}\t{key}\t{}", new.unwrap_or_default())),
        }?;
    }
    Ok(Exit::Done)
}
