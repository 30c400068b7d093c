//! Which log a configuration names: ours, or a user's own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::batched::BatchedLog;
use super::contract::WriteAheadLog;
use super::log::FileLog;
use super::options::LogOptions;
use crate::error::{Error, Result};

/// The class of a [`FileLog`].
const FILE: &str = "file";

/// Whose log it is. Each has settings of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogRole {
    /// A receiver's: takes in the input's blocks. Never batched.
    Receiver,
    /// The job's own: takes in small events from many threads. Batched, unless the settings say otherwise.
    Job,
}

impl LogRole {
    /// Spark's word and ours, as keys begin with them.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Receiver => ["receiver", "receiver"],
            Self::Job => ["driver", "job"],
        }
    }
}

/// Makes logs of one class.
pub trait LogFactory: Send + Sync {
    /// Opens the log in the folder `dir`.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    fn open(&self, dir: &Path, settings: &LogSettings) -> Result<Arc<dyn WriteAheadLog>>;
}

impl<F> LogFactory for F
where
    F: Fn(&Path, &LogSettings) -> Result<Arc<dyn WriteAheadLog>> + Send + Sync,
{
    fn open(&self, dir: &Path, settings: &LogSettings) -> Result<Arc<dyn WriteAheadLog>> {
        self(dir, settings)
    }
}

/// What a configuration says about one log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The name of the factory; `file` is ours.
    pub class: String,
    /// For our own log; a user's takes what it understands.
    pub options: LogOptions,
    /// Whether the job's log is batched.
    pub batching: bool,
    /// How long a write to a batched log waits. 5 s.
    pub batching_timeout: Duration,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            class: FILE.to_owned(),
            options: LogOptions::default(),
            batching: true,
            batching_timeout: Duration::from_secs(5),
        }
    }
}

impl LogSettings {
    /// Reads the settings of a role from keys and values.
    ///
    /// Ours are `log.<setting>` for both roles and `receiver.log.<setting>` or `job.log.<setting>` for one, which win; Spark's are
    /// `spark.streaming.receiver.writeAheadLog.<setting>` and `spark.streaming.driver.writeAheadLog.<setting>`. The settings are `class`,
    /// `rollingIntervalSecs`, `segmentBytes`, `maxFailures`, `closeFileAfterWrite`, `allowBatching` and `batchingTimeout` (ms). Keys of
    /// others are left alone.
    ///
    /// # Errors
    /// `InvalidInput` for a value that cannot be read.
    pub fn from_pairs<'a>(role: LogRole, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let [field, ours] = role.words();
        let prefixes = ["log.".to_owned(), format!("{ours}.log."), format!("spark.streaming.{field}.writeAheadLog.")];
        let mut found: Vec<(usize, &str, &str, &str)> = Vec::new();
        for (key, value) in pairs {
            let own =
                prefixes.iter().enumerate().find_map(|(rank, prefix)| Some((rank, key.strip_prefix(prefix.as_str())?)));
            if let Some((rank, setting)) = own {
                found.push((rank, key, setting, value));
            }
        }
        found.sort_by_key(|(rank, ..)| *rank);
        let mut settings = Self::default();
        for (_, key, setting, value) in found {
            settings.set(setting, value).map_err(|error| error.context(format!("{key} = {value:?}")))?;
        }
        Ok(settings)
    }

    fn set(&mut self, setting: &str, value: &str) -> Result<()> {
        let options = &mut self.options;
        match setting {
            // Whether a log is kept at all is for its owner to say; the word is known.
            "enable" => drop(parse::<bool>(value)?),
            "class" => value.clone_into(&mut self.class),
            "rollingIntervalSecs" => options.rolling_interval = Duration::from_secs(parse(value)?),
            "segmentBytes" => options.segment_bytes = parse(value)?,
            "maxFailures" => options.max_failures = parse(value)?,
            "closeFileAfterWrite" => options.close_after_write = parse(value)?,
            "allowBatching" => self.batching = parse(value)?,
            "batchingTimeout" => self.batching_timeout = Duration::from_millis(parse(value)?),
            _ => return Err(Error::invalid("the log has no such setting")),
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr>(value: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    value.trim().parse().map_err(|error| Error::invalid("cannot be read").with_source(error))
}

/// The classes of logs by name.
#[derive(Clone)]
pub struct LogRegistry {
    factories: BTreeMap<String, Arc<dyn LogFactory>>,
}

impl LogRegistry {
    /// With our own class, `file`.
    #[must_use]
    pub fn new() -> Self {
        let file = |dir: &Path, settings: &LogSettings| {
            let log: Arc<dyn WriteAheadLog> = Arc::new(FileLog::open(dir, settings.options.clone())?);
            Ok(log)
        };
        let mut registry = Self { factories: BTreeMap::new() };
        registry.factories.insert(FILE.to_owned(), Arc::new(file));
        registry
    }

    /// Adds a class; one of that name is replaced.
    pub fn register(&mut self, class: impl Into<String>, factory: impl LogFactory + 'static) {
        self.factories.insert(class.into(), Arc::new(factory));
    }

    /// Opens the log of `role` in the folder `dir`. The job's log is batched in front, also a user's own, if the settings say so.
    ///
    /// # Errors
    /// `InvalidInput` where no factory has the class's name; whatever the factory reports.
    pub fn open(&self, role: LogRole, dir: &Path, settings: &LogSettings) -> Result<Arc<dyn WriteAheadLog>> {
        let Some(factory) = self.factories.get(&settings.class) else {
            let known: Vec<&str> = self.factories.keys().map(String::as_str).collect();
            return Err(Error::invalid(format!("no log class {:?}; there are: {}", settings.class, known.join(", "))));
        };
        let log = factory.open(dir, settings)?;
        if role == LogRole::Job && settings.batching {
            return Ok(Arc::new(BatchedLog::new(log, settings.batching_timeout)));
        }
        Ok(log)
    }
}

impl Default for LogRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LogRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}
