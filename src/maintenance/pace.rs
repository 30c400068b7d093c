//! [`Pacer`]: keeps background writing at so many bytes a second.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::store::Observer;

/// Nobody who wants it to end waits for longer than this.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Holds up whoever reports more bytes than the pace allows.
pub(super) struct Pacer<'o> {
    pace: Option<NonZeroU64>,
    clock: &'o dyn Clock,
    begun: Duration,
    observer: Observer<'o>,
    /// Whether others suffer from the wait.
    is_hurried: &'o (dyn Fn() -> bool + Sync),
}

impl<'o> Pacer<'o> {
    /// Without a pace nothing waits.
    pub(super) fn new(pace: Option<NonZeroU64>, clock: &'o dyn Clock, observer: Observer<'o>) -> Self {
        Self { pace, clock, begun: clock.elapsed(), observer, is_hurried: &|| false }
    }

    /// Does not wait while this says that others suffer from it.
    pub(super) fn unless(self, is_hurried: &'o (dyn Fn() -> bool + Sync)) -> Self {
        Self { is_hurried, ..self }
    }

    /// Waits until `written` bytes are what the pace allows, and asks the observer whether to go on.
    pub(super) fn observe(&self, written: u64) -> ControlFlow<()> {
        loop {
            (self.observer)(written)?;
            let ahead = self.ahead(written);
            if ahead.is_zero() || (self.is_hurried)() {
                return ControlFlow::Continue(());
            }
            wait(ahead.min(LONGEST_WAIT));
        }
    }

    /// For how long there has been too much.
    fn ahead(&self, written: u64) -> Duration {
        let Some(pace) = self.pace else { return Duration::ZERO };
        let allowed_ms = written.saturating_mul(1000) / pace;
        Duration::from_millis(allowed_ms).saturating_sub(self.clock.elapsed().saturating_sub(self.begun))
    }
}

fn wait(time: Duration) {
    let nobody = Mutex::new(());
    let guard = nobody.lock().unwrap_or_else(PoisonError::into_inner);
    drop(Condvar::new().wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Every look at it takes ten milliseconds.
    #[derive(Debug, Default)]
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn wall_ms(&self) -> u64 {
            0
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(10, Ordering::Relaxed))
        }
    }

    #[test]
    fn a_pace_holds_up_until_its_time_has_come() {
        let clock = Ticking::default();
        let asked = AtomicU64::new(0);
        let observer = |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let pacer = Pacer::new(NonZeroU64::new(1000), &clock, &observer);
        assert!(pacer.observe(100).is_continue());
        // 100 bytes are 100 ms, each look takes 10.
        assert_eq!(asked.load(Ordering::Relaxed), 10);
        assert!(Pacer::new(None, &clock, &observer).observe(u64::MAX).is_continue());
        assert_eq!(asked.load(Ordering::Relaxed), 11);
    }

    #[test]
    fn nobody_waits_while_others_suffer() {
        let clock = Ticking::default();
        let left = AtomicU64::new(3);
        let is_hurried = || left.fetch_sub(1, Ordering::Relaxed) == 1;
        let pacer = Pacer::new(NonZeroU64::new(1), &clock, &|_| ControlFlow::Continue(())).unless(&is_hurried);
        assert!(pacer.observe(1 << 40).is_continue());
        assert_eq!(left.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn whoever_waits_can_be_stopped() {
        let clock = Ticking::default();
        let asked = AtomicU64::new(0);
        let observer = |_| {
            if asked.fetch_add(1, Ordering::Relaxed) < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        assert!(Pacer::new(NonZeroU64::new(1), &clock, &observer).observe(1 << 40).is_break());
    }
}
