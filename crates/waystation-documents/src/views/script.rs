//! The sandbox: functions of a design document, run by `QuickJS` within limits.
//!
//! A sandbox has its own heap, and nothing in it but the language and what `prelude.js` puts there: no files, no
//! network, no modules but the design document's. Values cross the border as JSON text only. Each call has its time,
//! and each sandbox its memory and stack; a function that exceeds one of them ends with a typed error, and costs its
//! own design document only.
//!
//! The time of a call is looked at between steps of the script, and inside of regular expressions. A single call of
//! another built-in function is not interrupted: the memory bounds its work, and the prelude refuses lists and texts
//! with which it would not.

use super::memory::{Meter, MeteredAllocator};
use rquickjs::function::Rest;
use rquickjs::{CaughtError, Context, Ctx, Function, Object, Runtime, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use waystation::storage::{OsStorage, Storage};

const PRELUDE: &str = include_str!("prelude.js");
/// The object of the prelude that the database calls.
const HOST: &str = "__waystation";

/// How much a design document's functions may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of a sandbox (bytes); an empty one takes half a mebibyte.
    pub memory_bytes: usize,
    /// Stack of a call (bytes). The thread that calls must have as much, and 256 KiB more.
    pub stack_bytes: usize,
    /// Time of one call: one document that is mapped, one reduction, one validation, one list of documents filtered.
    pub time: Duration,
}

impl Default for Limits {
    /// 64 MiB, 512 KiB and five seconds: CouchDB's limits of memory and time.
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            time: Duration::from_secs(5),
        }
    }
}

/// What a script did wrong, or was stopped for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A function, or a module that it requires, is not JavaScript or no function.
    #[error("{0}")]
    Compilation(String),
    /// It ran for longer than it may.
    #[error(
        "a function of the design document ran for more than {} ms and was stopped; make it do less for each document",
        .0.as_millis()
    )]
    Time(Duration),
    /// It took more memory than it may.
    #[error(
        "a function of the design document took more than {0} bytes of memory and was stopped; make it keep less"
    )]
    Memory(usize),
    /// It threw something that its caller does not pass over.
    #[error("{reason}")]
    Thrown {
        /// The word that the function gave the error, or the name of the exception.
        word: String,
        /// What it said.
        reason: String,
    },
}

impl ScriptError {
    /// The protocol's word for this error.
    pub fn word(&self) -> &'static str {
        // Words of exceptions that CouchDB sends; of others it says that they have no name.
        const WORDS: [&str; 9] = [
            "map_runtime_error",
            "invalid_require_path",
            "not_found",
            "TypeError",
            "ReferenceError",
            "RangeError",
            "SyntaxError",
            "EvalError",
            "InternalError",
        ];
        match self {
            Self::Compilation(_) => "compilation_error",
            Self::Time(_) => "timeout",
            Self::Memory(_) => "os_process_error",
            Self::Thrown { word, .. } => {
                let known = WORDS.iter().find(|known| *known == word);
                known.copied().unwrap_or("unnamed_error")
            }
        }
    }
}

/// The time of the call that is running, and the memory of the sandbox.
struct Watch {
    meter: Arc<Meter>,
    clock: Arc<OsStorage>,
    /// When it is over, on that clock (nanoseconds).
    deadline: AtomicU64,
    is_over: AtomicBool,
}

impl Watch {
    fn begin(&self, time: Duration) {
        let deadline = self.clock.now().saturating_add(time).as_nanos();
        let deadline = u64::try_from(deadline).unwrap_or(u64::MAX);
        self.deadline.store(deadline, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
        self.meter.begin();
    }

    /// Whether the script has to stop.
    fn look(&self) -> bool {
        if self.meter.is_over() {
            return true;
        }
        let is_over = self.clock.now().as_nanos() >= self.deadline.load(Ordering::Relaxed).into();
        self.is_over.fetch_or(is_over, Ordering::Relaxed) || is_over
    }
}

/// A function that a sandbox has compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Defined(String);

impl Defined {
    /// The numbers of several functions, for a call that runs all of them.
    pub(crate) fn list(functions: &[Self]) -> String {
        let numbers: Vec<&str> = functions.iter().map(|it| it.0.as_str()).collect();
        format!("[{}]", numbers.join(","))
    }

    pub(crate) fn number(&self) -> &str {
        &self.0
    }
}

/// Runs the functions of one design document.
pub(crate) struct Sandbox {
    context: Context,
    watch: Arc<Watch>,
    limits: Limits,
}

impl Sandbox {
    /// A sandbox whose `require` finds what stands in the JSON object `root`.
    pub(crate) fn new(limits: Limits, root: &str) -> Result<Self, ScriptError> {
        let memory = |_| ScriptError::Memory(limits.memory_bytes);
        let meter = Meter::new();
        let allocator = MeteredAllocator(Arc::clone(&meter));
        let runtime = Runtime::new_with_alloc(allocator).map_err(memory)?;
        runtime.set_max_stack_size(limits.stack_bytes);
        let watch = Arc::new(Watch {
            meter: Arc::clone(&meter),
            clock: OsStorage::new(),
            deadline: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
        });
        let looked = Arc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || looked.look())));
        let context = Context::full(&runtime).map_err(memory)?;
        let mut sandbox = Self {
            context,
            watch,
            limits,
        };
        sandbox.within(|ctx| {
            ctx.eval::<(), _>(PRELUDE)
                .map_err(|error| (ctx.clone(), error))
        })?;
        meter.set_limit(limits.memory_bytes);
        sandbox.call("set_root", &[root])?;
        Ok(sandbox)
    }

    /// Compiles the function `source`.
    pub(crate) fn define(&mut self, source: &str) -> Result<Defined, ScriptError> {
        self.call("define", &[source]).map(Defined)
    }

    /// Calls a function of the prelude, all of whose arguments, and the answer, are texts.
    pub(crate) fn call(
        &mut self,
        function: &str,
        arguments: &[&str],
    ) -> Result<String, ScriptError> {
        self.within(|ctx| {
            let call = || -> rquickjs::Result<String> {
                let host: Object<'_> = ctx.globals().get(HOST)?;
                let function: Function<'_> = host.get(function)?;
                function.call((Rest(arguments.to_vec()),))
            };
            call().map_err(|error| (ctx.clone(), error))
        })
    }

    /// Writes what the functions have logged since the last time to the host's log.
    pub(crate) fn pass_on_log(&mut self, design: &str) {
        let Ok(logged) = self.call("take_log", &[]) else {
            return;
        };
        for message in crate::json::Json::new(&logged).elements() {
            log::info!("{design}: {}", message.string().unwrap_or_default());
        }
    }

    /// Runs `work` on the watch, and says what went wrong.
    fn within<T>(
        &mut self,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> Result<T, (Ctx<'js>, rquickjs::Error)>,
    ) -> Result<T, ScriptError> {
        if self.watch.meter.is_over() {
            self.context.runtime().run_gc();
        }
        self.watch.begin(self.limits.time);
        let (watch, limits) = (&self.watch, self.limits);
        self.context.with(|ctx| {
            let done = work(&ctx);
            let caught = done.map_err(|(ctx, error)| CaughtError::from_error(&ctx, error));
            if watch.meter.is_over() {
                return Err(ScriptError::Memory(limits.memory_bytes));
            }
            caught.map_err(|caught| {
                if watch.is_over.load(Ordering::Relaxed) {
                    return ScriptError::Time(limits.time);
                }
                explain(&caught, limits)
            })
        })
    }
}

/// What `caught` means.
fn explain(caught: &CaughtError<'_>, limits: Limits) -> ScriptError {
    let thrown = |word: String, reason: String| match word.as_str() {
        "compilation_error" => ScriptError::Compilation(reason),
        _ => ScriptError::Thrown { word, reason },
    };
    match caught {
        CaughtError::Exception(exception) => {
            let name = exception.as_object().get::<_, String>("name");
            let message = exception.message().unwrap_or_default();
            if message == "out of memory" {
                return ScriptError::Memory(limits.memory_bytes);
            }
            thrown(name.unwrap_or_default(), message)
        }
        CaughtError::Value(value) => match parts_of(value) {
            Some((word, reason)) => thrown(word, reason),
            // The engine throws `null` where it has no memory left for an exception.
            None if value.is_null() => ScriptError::Memory(limits.memory_bytes),
            None => thrown(String::new(), "the function threw no error".to_owned()),
        },
        CaughtError::Error(rquickjs::Error::Allocation) => ScriptError::Memory(limits.memory_bytes),
        CaughtError::Error(error) => thrown(String::new(), error.to_string()),
    }
}

/// The word and the reason of an error in CouchDB's form: `["error", word, reason]`.
fn parts_of(value: &Value<'_>) -> Option<(String, String)> {
    let parts = value.as_array()?;
    Some((parts.get(1).ok()?, parts.get(2).ok()?))
}

#[cfg(test)]
mod tests;
