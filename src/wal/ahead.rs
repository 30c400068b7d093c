//! Threads that read segments ahead, each a segment at a time; what they read is delivered in the segments' order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::chunk::Chunk;
use super::plan::Plan;
use super::segment::Shelf;
use crate::error::{Error, Result};

/// Chunks that wait for the reader, per thread. With the one being filled, that is the memory of a thread.
const WAITING_CHUNKS: usize = 2;

/// A chunk; `None` where the segment was given up.
type Delivery = Result<Option<Chunk>>;

/// The threads, and what they have read. Dropping it ends and joins them.
#[derive(Debug)]
pub(super) struct Ahead {
    lanes: VecDeque<Receiver<Delivery>>,
    now: Option<Receiver<Delivery>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// A segment that some thread will read. The earliest that is unfinished is always some thread's, so nobody waits in vain.
type Lane = Mutex<Option<(Plan, SyncSender<Delivery>)>>;

impl Ahead {
    pub(super) fn start(shelf: &Arc<Shelf>, plans: &[Plan], threads: usize) -> Result<Self> {
        let mut receivers = VecDeque::with_capacity(plans.len());
        let mut lanes: Vec<Lane> = Vec::with_capacity(plans.len());
        for plan in plans {
            let (sender, receiver) = sync_channel(WAITING_CHUNKS);
            receivers.push_back(receiver);
            lanes.push(Mutex::new(Some((plan.clone(), sender))));
        }
        let (lanes, next) = (Arc::new(lanes), Arc::new(AtomicUsize::new(0)));
        let mut ahead = Self { lanes: receivers, now: None, threads: Vec::new(), stop: Arc::default() };
        for _ in 0..threads.min(plans.len()) {
            let (on, lanes, next) = (Arc::clone(shelf), Arc::clone(&lanes), Arc::clone(&next));
            let stop = Arc::clone(&ahead.stop);
            let thread = std::thread::Builder::new().name("wal-read".into()).spawn(move || {
                while let Some(lane) = lanes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let taken = lane.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let Some((plan, sender)) = taken else { return };
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    read(&on, &plan, &sender);
                }
            });
            ahead.threads.push(thread.map_err(|error| Error::io(&shelf.dir, "start a thread", error))?);
        }
        Ok(ahead)
    }

    /// Goes to the next segment.
    pub(super) fn begin(&mut self) {
        self.now = self.lanes.pop_front();
    }

    /// The next chunk of the segment.
    pub(super) fn next(&mut self) -> Option<Delivery> {
        self.now.as_ref().and_then(|lane| lane.recv().ok())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Whoever waits to deliver learns that nobody takes it any more.
        self.now = None;
        self.lanes.clear();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that read the log has panicked");
            }
        }
    }
}

/// Reads a segment to its end, or until nobody wants the rest of it.
fn read(shelf: &Shelf, plan: &Plan, sender: &SyncSender<Delivery>) {
    let mut reader = match plan.open(shelf) {
        Ok(Some(reader)) => reader,
        nothing => {
            drop(sender.send(nothing.map(|_| None)));
            return;
        }
    };
    loop {
        let mut chunk = Chunk::default();
        let read = reader.next(&mut chunk);
        let ends = read.is_err() || chunk.stop.is_some();
        if sender.send(read.map(|()| Some(chunk))).is_err() || ends {
            return;
        }
    }
}
