//! The contract: what a provider shows is one of the states that the model allows, whole.

use std::fmt::Display;

use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::{ErrorKind, RocksDbProvider, Version, VersionInfo};

use super::disk::is_temporary;
use super::model::{Content, FAMILIES, KEYS, Line};

/// What was found, where it is not what the contract allows.
pub(super) type Verdict<T> = Result<T, String>;

pub(super) trait Told<T> {
    /// An error where none is allowed.
    fn told(self, doing: impl Display) -> Verdict<T>;
}

impl<T> Told<T> for alluvium::Result<T> {
    fn told(self, doing: impl Display) -> Verdict<T> {
        self.map_err(|error| format!("{doing}: {error}"))
    }
}

/// Everything that can be read by version, without a transaction.
pub(super) fn observe(provider: &RocksDbProvider) -> Verdict<Line> {
    let latest = provider.latest().told("latest()")?;
    let infos = provider.versions().told("versions()")?;
    let listed: Vec<Version> = infos.iter().map(|info| info.version).collect();
    let first = listed.first().copied().unwrap_or(Version(1));
    let expected: Vec<Version> = (first.0..=latest.0).map(Version).collect();
    if listed != expected {
        return Err(format!("latest() is {latest} but versions() shows {listed:?}"));
    }
    let observed = |version: Version| {
        let is_gone = version > Version(0) && version < first;
        if is_gone { observe_gone(provider, version) } else { observe_version(provider, version, &infos) }
    };
    (0..=latest.0).map(|version| observed(Version(version))).collect()
}

fn observe_gone(provider: &RocksDbProvider, version: Version) -> Verdict<Content> {
    match provider.read_at(version) {
        Err(error) if matches!(error.kind(), ErrorKind::VersionNotFound { .. }) => {
            Ok(Content { is_given_up: true, ..Content::default() })
        }
        Err(error) => Err(format!("version {version}, which is not listed: {error}")),
        Ok(_) => Err(format!("version {version} is not listed and can be read")),
    }
}

fn observe_version(provider: &RocksDbProvider, version: Version, infos: &[VersionInfo]) -> Verdict<Content> {
    let metadata = provider.metadata(version).told(format!("metadata({version})"))?.to_vec();
    let info = infos.iter().find(|info| info.version == version);
    if info.is_some_and(|info| info.metadata_bytes != metadata.len() as u64) {
        return Err(format!("versions() shows other metadata for {version} than metadata() gives"));
    }
    let view = provider.read_at(version).told(format!("read_at({version})"))?;
    if view.version() != version {
        return Err(format!("read_at({version}) reads version {}", view.version()));
    }
    Ok(Content { metadata, ..read_twice(&view).map_err(|what| format!("reading version {version}: {what}"))? })
}

/// The content of a handle by its scans.
pub(super) fn read(handle: &impl ReadStore) -> alluvium::Result<Content> {
    let mut content = Content::default();
    for name in FAMILIES {
        let Some(family) = handle.family(name) else { continue };
        let entries = handle.scan(family)?.map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())));
        content.families.insert(name, entries.collect::<alluvium::Result<_>>()?);
        for key in KEYS {
            handle.get(family, key)?;
        }
    }
    Ok(content)
}

/// The content of a handle; scans and gets must agree on it, and scans must ascend.
fn read_twice(handle: &impl ReadStore) -> Verdict<Content> {
    let content = read(handle).told("scan or get")?;
    for (name, map) in &content.families {
        let family = handle.family(name).ok_or("a family is gone")?;
        let keys: Vec<Vec<u8>> = handle.scan(family).told("scan")?.flatten().map(|entry| entry.key.to_vec()).collect();
        if !keys.is_sorted_by(|one, next| one < next) || keys.len() != map.len() {
            return Err(format!("a scan is out of order: {keys:?}"));
        }
        for key in KEYS.iter().chain(&[b"never".as_slice()]) {
            let value = handle.get(family, key).told("get")?;
            let scanned = map.get(*key);
            if value.as_deref() != scanned.map(Vec::as_slice) {
                let key = key.escape_ascii();
                return Err(format!("{name}/{key}: get gives {value:?}, scan {scanned:?}"));
            }
        }
    }
    Ok(content)
}

/// Checks everything a provider shows against the lines that are allowed; says which of them it is.
pub(super) fn check(provider: &RocksDbProvider, allowed: &[Line]) -> Verdict<usize> {
    let line = observe(provider)?;
    let found = matching(&line, allowed)?;
    // The same again through what a writer reads: tail, index, base.
    let head = Version(line.len() as u64 - 1);
    let transaction = provider.begin(head).told(format!("begin({head})"))?;
    let content = read_twice(&transaction).map_err(|what| format!("reading a transaction on {head}: {what}"))?;
    if content.families != line[line.len() - 1].families {
        return Err(format!("a transaction on {head} reads {content:?}, a view {:?}", line.last()));
    }
    Ok(found)
}

/// Whether a version looks as the model has it. What was let go of may be gone, or still be there.
fn shows(model: &Content, seen: &Content) -> bool {
    let is_same = (&model.families, &model.metadata) == (&seen.families, &seen.metadata);
    if seen.is_given_up { model.is_given_up } else { is_same }
}

/// Which of the allowed lines this is.
pub(super) fn matching(line: &Line, allowed: &[Line]) -> Verdict<usize> {
    allowed
        .iter()
        .position(|allowed| allowed.len() == line.len() && allowed.iter().zip(line).all(|(one, seen)| shows(one, seen)))
        .ok_or_else(|| format!("the store holds {line:#?}\nwhich is none of what is allowed: {allowed:#?}"))
}

/// Checks that no temporary file is left.
pub(super) fn check_swept(disk: &SimDisk) -> Verdict<()> {
    match disk.files().iter().find(|path| is_temporary(path)) {
        Some(path) => Err(format!("{} was not swept", path.display())),
        None => Ok(()),
    }
}
