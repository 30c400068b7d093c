//! [`BackendOptions`]: what a user may choose about the backend.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// The least memory that a backend works with.
pub const MIN_MEMORY_LIMIT_BYTES: usize = 8 << 20;

/// How entries are compressed in the backend's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BackendCompression {
    /// Not at all: the fastest reads, the most disk. Measured: a read that misses the cache is about 1 µs faster than with
    /// LZ4, of 7, and the index is small and disposable.
    #[default]
    None,
    /// LZ4: fast, and blocks that do not shrink by an eighth stay as they are.
    Lz4,
}

/// Options of a [`Backend`](super::Backend).
///
/// ```
/// use alluvium::backend::BackendOptions;
/// let options = BackendOptions::default().memory_limit(64 << 20).max_open_files(128);
/// assert_eq!(options.memory_limit_bytes(), 64 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendOptions {
    memory_limit_bytes: usize,
    max_open_files: u16,
    compression: BackendCompression,
    memory_timeout: Duration,
}

impl Default for BackendOptions {
    /// 256 MiB of memory, 256 open files, no compression, 10 seconds of waiting for memory.
    fn default() -> Self {
        Self {
            memory_limit_bytes: 256 << 20,
            max_open_files: 256,
            compression: BackendCompression::default(),
            memory_timeout: Duration::from_secs(10),
        }
    }
}

impl BackendOptions {
    /// Sets the memory of all stores of the process together, in bytes; at least 8 MiB.
    ///
    /// Five eighths of it go to the block cache, index and filter blocks included; up to a quarter of the limit may be
    /// memtables, and these are charged to the cache. The other three eighths are for what lies above: transactions,
    /// filters, buffers of merges and restores. A transaction that outgrows them spills to the work directory.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = bytes;
        self
    }

    /// Sets how many table files may be open at a time, at least 16.
    #[must_use]
    pub fn max_open_files(mut self, files: u16) -> Self {
        self.max_open_files = files;
        self
    }

    /// Sets how files are compressed.
    #[must_use]
    pub fn compression(mut self, compression: BackendCompression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets how long a write may wait for memory that others hold, before it fails with `MemoryLimit`; 10 seconds unless
    /// set. Whoever has enough to be worth spilling spills instead of waiting.
    #[must_use]
    pub fn memory_timeout(mut self, timeout: Duration) -> Self {
        self.memory_timeout = timeout;
        self
    }

    /// The memory limit in bytes.
    #[must_use]
    pub fn memory_limit_bytes(&self) -> usize {
        self.memory_limit_bytes
    }

    /// How long a write may wait for memory.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.memory_timeout
    }

    /// Checks the choices against each other.
    ///
    /// # Errors
    /// `InvalidInput` or `LimitExceeded`; the text says which choice is wrong.
    pub(crate) fn validate(&self) -> Result<()> {
        const MOST_BYTES: usize = 1 << 42;
        if self.memory_limit_bytes < MIN_MEMORY_LIMIT_BYTES {
            return Err(Error::invalid(format!(
                "a memory limit of {} bytes is below the least that works, {MIN_MEMORY_LIMIT_BYTES}",
                self.memory_limit_bytes
            )));
        }
        if self.memory_limit_bytes > MOST_BYTES {
            let kind = ErrorKind::LimitExceeded { limit: MOST_BYTES as u64, found: self.memory_limit_bytes as u64 };
            return Err(Error::new(kind, "the memory limit"));
        }
        if self.max_open_files < 16 {
            return Err(Error::invalid(format!("{} open files are fewer than 16", self.max_open_files)));
        }
        Ok(())
    }

    /// The bytes of the limit that the block cache and the memtables share.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.memory_limit_bytes / 8 * 5
    }
}

#[cfg(feature = "rocksdb")]
impl BackendOptions {
    /// The bytes of the cache's share that memtables may take.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memory_limit_bytes / 4
    }

    /// Table files that may be open at a time.
    pub(crate) fn open_files(&self) -> u16 {
        self.max_open_files
    }

    /// How files are compressed.
    pub(crate) fn chosen_compression(&self) -> BackendCompression {
        self.compression
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_work_are_refused() {
        assert!(BackendOptions::default().validate().is_ok());
        assert!(BackendOptions::default().memory_limit(MIN_MEMORY_LIMIT_BYTES).validate().is_ok());
        for bad in [0, MIN_MEMORY_LIMIT_BYTES - 1, usize::MAX] {
            assert!(BackendOptions::default().memory_limit(bad).validate().is_err(), "{bad}");
        }
        assert!(BackendOptions::default().max_open_files(15).validate().is_err());
    }
}
