//! CRC-32 (IEEE 802.3, as in gzip), the checksum of every durable byte. It finds accidents, not attacks.

/// The CRC-32 of `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
