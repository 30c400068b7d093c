//! Bugs put in on purpose, so that the crash tests can show that they would find them.

/// Which one. Only the conformance feature lets a log be opened with any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// Says durable without a sync.
    AcknowledgeBeforeSync,
    /// Tries a failed sync once more, and believes it.
    RetryFailedSync,
    /// Leaves the name of a new segment to chance.
    SkipDirectorySync,
    /// Believes payloads without a look at their checksums.
    SkipPayloadChecksum,
    /// Cuts damage to acknowledged records off as if it were a torn tail.
    CutAcknowledged,
    /// Deletes segments without announcing it.
    CleanWithoutHorizon,
}
