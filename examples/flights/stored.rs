//! The job's tables in a state store: three column families, one transaction a batch, the input position in its metadata.

use alluvium::{Bytes, FamilyId, ReadStore, StateStoreProvider, Version, WriteStore};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::cost::Cost;
use crate::input::Flight;
use crate::job::{self, State, Table, decode, encode};
use crate::oracle::Tables;

/// What a commit says about the input. It is stored in the same file as the state, so the two can't disagree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// How many rows, in event order, the state has taken in.
    pub(crate) rows: u64,
    /// What it took to get here.
    pub(crate) cost: Cost,
}

/// The newest version and how far its input went.
pub(crate) fn newest(provider: &impl StateStoreProvider) -> Result<(Version, Position), Failure> {
    let version = provider.latest()?;
    if version == Version::EMPTY {
        return Ok((version, Position::default()));
    }
    Ok((version, decode(&provider.metadata(version)?)?))
}

/// One batch: a transaction on top of a version.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    transaction: T,
    families: Families,
}

#[derive(Debug, Clone, Copy)]
struct Families {
    aircraft: FamilyId,
    route: FamilyId,
    carrier: FamilyId,
}

impl Families {
    fn of(self, table: Table) -> FamilyId {
        match table {
            Table::Aircraft => self.aircraft,
            Table::Route => self.route,
            Table::Carrier => self.carrier,
        }
    }
}

impl<T: WriteStore> Batch<T> {
    pub(crate) fn begin(provider: &impl StateStoreProvider<Transaction = T>, on: Version) -> Result<Self, Failure> {
        let mut transaction = provider.begin(on)?;
        let families = Families {
            aircraft: transaction.create_family(Table::Aircraft.name())?,
            route: transaction.create_family(Table::Route.name())?,
            carrier: transaction.create_family(Table::Carrier.name())?,
        };
        Ok(Self { transaction, families })
    }

    pub(crate) fn apply(&mut self, flight: &Flight) -> Result<(), Failure> {
        job::apply(flight, self)
    }

    pub(crate) fn commit(self, position: &Position) -> Result<Version, Failure> {
        Ok(self.transaction.commit_with(&encode(position)?)?)
    }
}

impl<T: WriteStore> State for Batch<T> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<impl AsRef<[u8]>>, Failure> {
        let value: Option<Bytes> = self.transaction.get(self.families.of(table), key)?;
        Ok(value)
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Ok(self.transaction.put(self.families.of(table), key, value)?)
    }
}

/// All tables of a version, whole. They are small here (some ten thousand entries); a larger state would be scanned.
pub(crate) fn tables(provider: &impl StateStoreProvider, version: Version) -> Result<Tables, Failure> {
    let view = provider.read_at(version)?;
    let mut tables = Tables::default();
    for table in Table::ALL {
        // A family that no flight has reached yet isn't there.
        let Some(family) = view.family(table.name()) else { continue };
        for entry in view.scan(family)? {
            let entry = entry?;
            tables.insert(table, &entry.key, &entry.value)?;
        }
    }
    Ok(tables)
}
