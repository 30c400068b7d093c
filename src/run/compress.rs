//! Page compression: the only file that names LZ4 and zstd.

use std::cell::RefCell;

use super::header::PageCodec;
use crate::error::{Error, ErrorKind, Result};

/// Level 1 of zstd: on pages of 16 KiB higher levels cost several times the time for a few per cent.
const ZSTD_LEVEL: i32 = 1;

/// Compresses pages one after the other; holds its work space and one output page.
pub(super) struct Compressor {
    engine: Engine,
    out: Vec<u8>,
}

enum Engine {
    None,
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    pub(super) fn new(codec: PageCodec) -> Result<Self> {
        let engine = match codec {
            PageCodec::None => Engine::None,
            PageCodec::Lz4 => Engine::Lz4,
            PageCodec::Zstd => Engine::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(out_of_space)?),
        };
        Ok(Self { engine, out: Vec::new() })
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.engine, Engine::None)
    }

    /// `raw` compressed; `None` where that would not make it smaller.
    pub(super) fn compress(&mut self, raw: &[u8]) -> Result<Option<&[u8]>> {
        let written = match &mut self.engine {
            Engine::None => return Ok(None),
            Engine::Lz4 => {
                self.out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                lz4_flex::block::compress_into(raw, &mut self.out)
                    .map_err(|e| Error::new(ErrorKind::InvalidInput, "LZ4 refused a page").with_source(e))?
            }
            Engine::Zstd(zstd) => {
                self.out.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
                zstd.compress_to_buffer(raw, self.out.as_mut_slice()).map_err(out_of_space)?
            }
        };
        Ok(self.out.get(..written).filter(|compressed| compressed.len() < raw.len()))
    }
}

fn out_of_space(e: std::io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, "zstd refused a page").with_source(e)
}

thread_local! {
    /// A zstd context takes microseconds to make and 160 KiB to keep: one a thread, made with its first zstd page.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// `stored` decompressed to exactly `raw_bytes`, which the caller has capped; `None` where it does not give that.
pub(super) fn decompress(codec: PageCodec, stored: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut raw = vec![0; raw_bytes];
    let written = match codec {
        PageCodec::None => return None,
        PageCodec::Lz4 => lz4_flex::block::decompress_into(stored, &mut raw).ok()?,
        PageCodec::Zstd => ZSTD.with_borrow_mut(|context| {
            let context = match context {
                Some(context) => context,
                None => context.insert(zstd::bulk::Decompressor::new().ok()?),
            };
            context.decompress_to_buffer(stored, raw.as_mut_slice()).ok()
        })?,
    };
    (written == raw_bytes).then_some(raw)
}
