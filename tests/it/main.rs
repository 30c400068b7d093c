//! One integration binary, so that RocksDB links once.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod beside_others;
#[cfg(test)]
mod care;
#[cfg(feature = "cli")]
#[cfg(test)]
mod cli;
#[cfg(feature = "cli")]
#[cfg(test)]
mod cli_damage;
#[cfg(feature = "cli")]
#[cfg(test)]
mod cli_refusals;
#[cfg(test)]
mod conformance;
#[cfg(test)]
#[path = "../crash/mod.rs"]
mod crash;
#[cfg(test)]
mod field;
#[cfg(test)]
mod field_cases_upkeep;
#[cfg(test)]
mod history;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod memory;
#[cfg(all(test, feature = "rocksdb"))]
mod process;
#[cfg(test)]
mod self_repair;
#[cfg(test)]
mod smoke;
#[cfg(test)]
mod two_processes;
#[cfg(test)]
mod upkeep;
#[cfg(test)]
mod upkeep_beside_writers;
#[cfg(test)]
mod wal;
