//! What a backend holds and waits for, through the `metrics` facade.

use std::sync::Arc;

use metrics::{Label, SharedString, counter, gauge};

use super::handle::Backend;
use crate::budget::MemoryHolder;

const MEMORY: &str = "alluvium_memory_bytes";

impl Backend {
    /// Sets the metrics below to what they are now. It is done after every piece of background work; whoever wants them to
    /// be as fresh as each scrape calls it then. It costs a few microseconds.
    ///
    /// | metric | kind | what |
    /// |---|---|---|
    /// | `alluvium_memory_bytes{kind,store}` | gauge | what one kind of holder has; `store` is empty for what all share |
    /// | `alluvium_memory_held_bytes` | gauge | their sum |
    /// | `alluvium_memory_limit_bytes` | gauge | the limit |
    /// | `alluvium_memory_waiting` | gauge | threads that wait for memory |
    /// | `alluvium_memory_waits_total` | counter | waits so far |
    /// | `alluvium_memory_refusals_total` | counter | requests that ended in `MemoryLimit` |
    /// | `alluvium_spills_total` | counter | sorted parts that transactions have written for lack of memory |
    /// | `alluvium_forced_flushes_total` | counter | flushes of the index for lack of memory |
    #[allow(clippy::cast_precision_loss, reason = "gauges are floats; bytes below 2^53 are exact")]
    pub fn publish_metrics(&self) {
        let memory = self.memory();
        self.clear_gone(&memory.holders);
        for holder in &memory.holders {
            gauge!(MEMORY, labels(holder)).set(holder.bytes as f64);
        }
        gauge!("alluvium_memory_held_bytes").set(memory.held_bytes as f64);
        gauge!("alluvium_memory_limit_bytes").set(memory.limit_bytes as f64);
        gauge!("alluvium_memory_waiting").set(memory.shortages.waiting as f64);
        counter!("alluvium_memory_waits_total").absolute(memory.shortages.waits);
        counter!("alluvium_memory_refusals_total").absolute(memory.shortages.refusals);
        counter!("alluvium_spills_total").absolute(memory.shortages.spills);
        counter!("alluvium_forced_flushes_total").absolute(memory.index.forced_flushes);
    }

    /// A gauge keeps its last value, so whoever holds nothing any more is set to 0 once.
    fn clear_gone(&self, now: &[MemoryHolder]) {
        let now: Vec<_> = now.iter().map(|holder| (holder.kind, holder.store.clone())).collect(); // a few a store
        let gone = {
            let mut published = self.published();
            let gone: Vec<_> = published.iter().filter(|row| !now.contains(row)).cloned().collect(); // as few
            *published = now;
            gone
        };
        for (kind, store) in gone {
            gauge!(MEMORY, labels(&MemoryHolder { kind, store, bytes: 0 })).set(0.0);
        }
    }
}

fn labels(holder: &MemoryHolder) -> Vec<Label> {
    let store = holder.store.as_ref().map_or(SharedString::const_str(""), |store| Arc::clone(store).into());
    vec![Label::from_static_parts("kind", holder.kind), Label::new("store", store)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, Unit};

    use super::*;
    use crate::budget::Purpose;

    /// Remembers the last value of everything.
    #[derive(Debug, Default, Clone)]
    struct Values(Arc<Mutex<BTreeMap<String, f64>>>);

    struct One(String, Values);

    impl GaugeFn for One {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.1.0.lock().unwrap().insert(self.0.clone(), value);
        }
    }

    impl CounterFn for One {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            GaugeFn::set(self, f64::from(u32::try_from(value).unwrap()));
        }
    }

    impl Values {
        fn one(&self, key: &Key) -> Arc<One> {
            let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
            Arc::new(One([&[key.name().to_owned()], &labels[..]].concat().join(" "), self.clone()))
        }

        fn get(&self, name: &str) -> Option<f64> {
            self.0.lock().unwrap().get(name).copied()
        }
    }

    impl Recorder for Values {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.one(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.one(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn metrics_say_who_holds_what_and_forget_who_holds_nothing() {
        let values = Values::default();
        metrics::with_local_recorder(&values, || {
            let backend = Backend::in_memory().unwrap();
            let purpose = Purpose { kind: "transaction", owner: Some(Arc::from("op/0/a")), can_give: true };
            let lease = backend.budget().lease(1000, purpose).unwrap();
            assert!(backend.budget().lease(u64::MAX / 2, "restore").is_err());
            backend.publish_metrics();
            assert_eq!(values.get("alluvium_memory_bytes transaction op/0/a"), Some(1000.0));
            assert_eq!(values.get("alluvium_memory_refusals_total"), Some(1.0));
            let sum = values.get("alluvium_memory_held_bytes").unwrap();
            assert_eq!(values.get("alluvium_memory_limit_bytes"), Some(f64::from(256 << 20)));
            drop(lease);
            backend.publish_metrics();
            assert_eq!(values.get("alluvium_memory_bytes transaction op/0/a"), Some(0.0));
            assert_eq!(values.get("alluvium_memory_held_bytes"), Some(sum - 1000.0));
        });
    }
}
