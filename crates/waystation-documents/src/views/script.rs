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
mod tests {
    use super::*;

    fn sandbox() -> Sandbox {
        let limits = Limits {
            memory_bytes: 8 << 20,
            time: Duration::from_millis(200),
            ..Limits::default()
        };
        let root = r#"{"views":{"lib":{"one":"exports.one = 1;","two":"exports.two = require('./one').one + 1;",
            "bad":"exports.x = ;","round":"exports.a = 1; exports.b = require('views/lib/round').a;"}}}"#;
        Sandbox::new(limits, root).expect("a sandbox")
    }

    fn mapped(sandbox: &mut Sandbox, source: &str, document: &str) -> Result<String, ScriptError> {
        let function = sandbox.define(source)?;
        sandbox.call("map", &[document, &Defined::list(&[function])])
    }

    #[test]
    fn functions_emit_what_they_are_given() -> Result<(), ScriptError> {
        let mut sandbox = sandbox();
        let cases = [
            ("function(doc) { emit(doc.a, doc); }", r#"[[1,{"a":1}]]"#),
            (
                "doc => { emit(); emit([doc.a], NaN); };",
                "[[null,null],[[1],null]]",
            ),
            (
                "function named(doc) { emit(isArray([]), sum([1, 2])); } // end",
                "[[true,3]]",
            ),
            (
                "function(doc) { doc.a = 2; emit(doc.a, toJSON(doc)); }",
                r#"[[1,"{\"a\":1}"]]"#,
            ),
            (
                "function(doc) { emit('\\ud800', {'\\ud800': 1}); }",
                "[[\"\u{fffd}\",{\"\u{fffd}\":1}]]",
            ),
            (
                "function(doc) { emit(require('views/lib/two').two, 0); }",
                "[[2,0]]",
            ),
            (
                "function(doc) { emit(require('views/lib/round').b, 0); }",
                "[[1,0]]",
            ),
            ("function(doc) { emit(1, 1); throw new Error('no'); }", "[]"),
            ("function(doc) { emit(doc.b.c, 1); }", "[]"),
            ("function(doc) { (function f() { f(); })(); }", "[]"),
        ];
        for (source, expected) in cases {
            assert_eq!(
                mapped(&mut sandbox, source, r#"{"a":1}"#)?,
                expected,
                "{source}"
            );
        }
        Ok(())
    }

    #[test]
    fn there_is_nothing_but_the_language() -> Result<(), ScriptError> {
        let mut sandbox = sandbox();
        let source = "function(doc) { emit([typeof std, typeof os, typeof process, typeof fetch, typeof print, \
                      typeof scriptArgs, typeof setTimeout, typeof XMLHttpRequest], 0); }";
        let none = ["\"undefined\""; 8].join(",");
        assert_eq!(
            mapped(&mut sandbox, source, "{}")?,
            format!("[[[{none}],0]]")
        );
        Ok(())
    }

    #[test]
    fn what_is_no_function_is_a_compilation_error() {
        let mut sandbox = sandbox();
        for source in [
            "function(doc) {",
            "1",
            "",
            "nothing",
            "function(doc) { \u{0} }",
        ] {
            let error = sandbox.define(source).expect_err(source);
            assert_eq!(error.word(), "compilation_error", "{source}: {error}");
        }
        let cases = [
            ("views/lib/bad", "compilation_error"),
            ("views/lib/none", "invalid_require_path"),
            ("views/lib", "invalid_require_path"),
            ("../x", "invalid_require_path"),
        ];
        for (path, word) in cases {
            let source = format!("function(doc) {{ require('{path}'); }}");
            let error = mapped(&mut sandbox, &source, "{}").expect_err(path);
            assert_eq!(error.word(), word, "{path}: {error}");
        }
    }

    #[test]
    fn loops_for_ever_are_stopped_and_the_sandbox_goes_on() -> Result<(), ScriptError> {
        let mut sandbox = sandbox();
        let endless = [
            "function(doc) { for (;;) {} }",
            "function(doc) { try { for (;;) {} } catch (e) {} finally { for (;;) {} } }",
            "function(doc) { for (;;) { try { null.x } catch (e) {} } }",
            "function(doc) { /^(a+)+$/.test('a'.repeat(40) + 'b'); }",
            "function(doc) { emit({toJSON: function() { for (;;) {} }}, 0); }",
        ];
        for source in endless {
            let error = mapped(&mut sandbox, source, "{}").expect_err(source);
            assert_eq!(
                error,
                ScriptError::Time(Duration::from_millis(200)),
                "{source}"
            );
        }
        assert_eq!(
            mapped(&mut sandbox, "function(doc) { emit(1, 2); }", "{}")?,
            "[[1,2]]"
        );
        Ok(())
    }

    #[test]
    fn built_in_functions_do_not_go_on_for_hours() -> Result<(), ScriptError> {
        let mut sandbox = sandbox();
        let long = [
            "new Array(4294967295).join('')",
            "new Array(4294967295).sort()",
            "[1].concat(new Array(4294967295))",
            "[[new Array(4294967295)]].flat(2)",
            "[1].flatMap(function() { return new Array(4294967295); })",
            "String(new Array(4294967295))",
            "Array.prototype.fill.call({length: 9e15}, 1)",
            "Array.prototype.slice.call({get length() { return 9e15; }})",
            "Array.prototype.reverse.call(Object.create({length: 9e15}))",
            "Array.prototype.shift.call({length: {valueOf: function() { return 9e15; }}})",
            "'a'.repeat(2000000).indexOf('a'.repeat(1000000) + 'b')",
            "'a'.repeat(2000000).split({toString: function() { return 'a'.repeat(1000000) + 'b'; }})",
        ];
        for source in long {
            let source = format!("function(doc) {{ emit(1, 1); {source}; }}");
            assert_eq!(mapped(&mut sandbox, &source, "{}")?, "[]", "{source}");
        }
        let usual = "function(doc) { (function() { emit([
            Array.prototype.slice.call(arguments, 1), [3, 1, 2].sort(), [1].concat([2], 3).join(), [[1], [[2]]].flat(),
            [1, 2].flatMap(function(it) { return [it, it]; }), Array.prototype.join.call('ab', '-'),
            Array.prototype.join.call(new Uint8Array(2)), 'a,b'.split(','), 'a1b2'.split(/[0-9]/), 'aXa'.replace('a', 'b'),
            'aa'.replace(/a/g, 'b'), 'abc'.indexOf('c'), 'abc'.includes('d'), 'x' + [1, 2], [5, 6].splice(0, 1)
        ], 0); })(1, 2, 3); }";
        let expected = r#"[[[[2,3],[1,2,3],"1,2,3",[1,[2]],[1,1,2,2],"a-b","0,0",["a","b"],["a","b",""],"bXa","bb",2,false,"x1,2",[5]],0]]"#;
        assert_eq!(mapped(&mut sandbox, usual, "{}")?, expected);
        Ok(())
    }

    #[test]
    fn eating_memory_is_stopped() {
        let hungry = [
            "function(doc) { var a = []; for (;;) { a.push([a.length]); } }",
            "function(doc) { var s = 'x'; for (;;) { s += s; s.indexOf('y'); } }",
            "function(doc) { for (;;) { emit(1, 2); } }",
            "function(doc) { new Uint8Array(1 << 30); }",
        ];
        for source in hungry {
            let limits = Limits {
                memory_bytes: 8 << 20,
                ..Limits::default()
            };
            let mut sandbox = Sandbox::new(limits, "{}").expect("a sandbox");
            let error = mapped(&mut sandbox, source, "{}").expect_err(source);
            assert_eq!(error, ScriptError::Memory(8 << 20), "{source}");
        }
    }

    /// Memory ends at every step that a sandbox takes: while it is made, compiles, maps and answers.
    #[test]
    fn memory_may_end_anywhere() {
        let source = "function(doc) { var seen = new Map(), self = {}; self.self = self;
            for (var name in doc) { seen.set(name, [name, self, function() { return seen; }]); }
            var texts = Array.from(seen.keys()).map(function(it) { return it.replace(/[a-c]/g, 'x') + it; });
            class Car { constructor(n) { this.n = n; } get twice() { return [this.n, this.n]; } }
            function* cars() { yield* texts.map(function(it) { return new Car(it); }); }
            try { for (var car of cars()) emit(car.twice, JSON.parse(JSON.stringify({car, at: new Date(0)}))); }
            catch (error) { emit(String(error), require('views/lib/one')); } }";
        let document = format!(
            "{{{}}}",
            ["a", "b", "c", "d"]
                .map(|it| format!(r#""{it}":[1,"{it}"]"#))
                .join(",")
        );
        let mut mapped_with = Vec::new();
        for kibibytes in 16..1200 {
            let limits = Limits {
                memory_bytes: kibibytes << 10,
                ..Limits::default()
            };
            let sandbox = Sandbox::new(limits, r#"{"views":{"lib":{"one":"exports.one = 1;"}}}"#);
            let line = sandbox.and_then(|mut sandbox| mapped(&mut sandbox, source, &document));
            mapped_with.push(line.is_ok_and(|line| line.contains("1970")));
        }
        assert_eq!(mapped_with.first(), Some(&false));
        assert_eq!(mapped_with.last(), Some(&true));
    }

    #[test]
    fn documents_as_deep_as_they_may_be_are_mapped() -> Result<(), ScriptError> {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let document = format!(r#"{{"deep":{deep}}}"#);
        let line = mapped(
            &mut sandbox(),
            "function(doc) { emit(doc.deep, 1); }",
            &document,
        )?;
        assert_eq!(line, format!("[[{deep},1]]"));
        Ok(())
    }

    #[test]
    fn fatal_errors_are_not_passed_over() {
        let cases = [
            ("throw 'fatal_error'", "map_runtime_error"),
            ("throw ['fatal', 'not_found', 'x']", "not_found"),
            ("throw ['error', 'mine', 'x']", "unnamed_error"),
        ];
        for (source, word) in cases {
            let source = format!("function(doc) {{ {source}; }}");
            let error = mapped(&mut sandbox(), &source, "{}").expect_err(&source);
            assert_eq!(error.word(), word, "{error}");
        }
    }
}
