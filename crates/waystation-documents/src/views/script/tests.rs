//! What scripts can do, and what they cannot: reach out, go on, or take the process with them.

use super::*;

fn sandbox() -> Sandbox {
    let limits = Limits {
        memory_bytes: 8 << 20,
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
    let time = Duration::from_millis(700);
    let limits = Limits {
        time,
        ..Limits::default()
    };
    let mut sandbox = Sandbox::new(limits, "{}")?;
    let endless = [
        "function(doc) { for (;;) {} }",
        "function(doc) { try { for (;;) {} } catch (e) {} finally { for (;;) {} } }",
        "function(doc) { for (;;) { try { null.x } catch (e) {} } }",
        "function(doc) { /^(a+)+$/.test('a'.repeat(40) + 'b'); }",
        "function(doc) { emit({toJSON: function() { for (;;) {} }}, 0); }",
    ];
    for source in endless {
        let error = mapped(&mut sandbox, source, "{}").expect_err(source);
        assert_eq!(error, ScriptError::Time(time), "{source}");
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

/// Recursion of the interpreter itself ends with an error of the script, too.
#[test]
fn deep_texts_and_values_do_not_overflow_the_stack() -> Result<(), ScriptError> {
    let mut sandbox = Sandbox::new(Limits::default(), "{}")?;
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{a:", "}"),
        ("!", ""),
        ("`${", "}`"),
    ] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let error = sandbox
            .define(&format!("function(doc) {{ return {deep}; }}"))
            .expect_err(open);
        assert_eq!(error.word(), "compilation_error", "{open}");
    }
    let deep = [
        "JSON.parse('['.repeat(100000))",
        "new RegExp('('.repeat(100000) + ')'.repeat(100000))",
        "var list = []; for (var i = 0; i < 100000; i++) list = [list]; emit(list, 1)",
        "var list = []; for (var i = 0; i < 100000; i++) list = {list}; emit(1, list)",
        "/(?:a|b)*$/.exec('ab'.repeat(1000000) + 'c'); throw 1",
        "var it = function() {}; for (var i = 0; i < 100000; i++) it = it.bind(null); it()",
    ];
    for source in deep {
        let source = format!("function(doc) {{ {source}; }}");
        match mapped(&mut sandbox, &source, "{}") {
            Ok(line) => assert_eq!(line, "[]", "{source}"),
            Err(error) => assert_eq!(error, ScriptError::Memory(64 << 20), "{source}"),
        }
    }
    let rope = "function(doc) { var s = ''; for (var i = 0; i < 20000; i++) s = i % 2 ? s + 'a' : 'b' + s; emit(s.length); }";
    assert_eq!(mapped(&mut sandbox, rope, "{}")?, "[[20000,null]]");
    Ok(())
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
