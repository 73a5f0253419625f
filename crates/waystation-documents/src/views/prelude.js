// What a design document's functions see, and what the database calls.
//
// Functions get documents as JSON text and answer as text, so that no value crosses the border but strings. All that
// the database relies on is taken here, before any function of a design document runs; what a function does to the
// globals afterwards harms only its own design document.
(function (global) {
  "use strict";
  const {parse, stringify} = JSON;
  const {freeze, keys, defineProperty} = Object;
  const evaluate = global.eval;
  const functions = [];
  let root = {};
  let emitted = [];
  let logged = [];
  let logged_length = 0;

  const LOGGED_LENGTH_MAX = 65536;

  // Built-in functions look at no clock. Those that could go on for hours over a list that takes no memory, or over
  // every place of one text in another, refuse to.
  const LENGTH_MAX = 1 << 24;
  const COMPARISONS_MAX = 2 ** 33;

  function check_length(list) {
    if (list === null || typeof list !== "object" || ArrayBuffer.isView(list)) {
      return;
    }
    const length = Object.getOwnPropertyDescriptor(list, "length");
    if (length === undefined ? "length" in list : typeof length.value !== "number") {
      throw new TypeError("the length of a list must be a number of its own");
    }
    if (length !== undefined && length.value > LENGTH_MAX) {
      throw new RangeError("a list is longer than " + LENGTH_MAX);
    }
  }

  function check_lists(list, given) {
    check_length(list);
    given.forEach(check_length);
  }

  function check_nested(list, given) {
    check_length(list);
    const depth = given.length === 0 ? 1 : Number(given[0]);
    if (Array.isArray(list) && depth > 0) {
      list.forEach((element) => check_nested(element, [depth - 1]));
    }
  }

  function check_texts(text, given) {
    if (given[0] !== null && typeof given[0] === "object" && !(given[0] instanceof RegExp)) {
      given[0] = String(given[0]);
    }
    if (typeof given[0] === "string" && String(text).length * given[0].length > COMPARISONS_MAX) {
      throw new RangeError("texts are too long to look for one in the other");
    }
  }

  function bound(prototype, names, check) {
    for (const name of names) {
      const native = prototype[name];
      const bounded = {
        [name](...given) {
          check(this, given);
          return Reflect.apply(native, this, given);
        },
      };
      defineProperty(prototype, name, {value: bounded[name], writable: true, configurable: true});
    }
  }

  const through_lists = ["copyWithin", "fill", "join", "reverse", "shift", "slice", "sort", "splice", "toLocaleString", "unshift"];
  bound(Array.prototype, through_lists, check_length);
  bound(Array.prototype, ["concat"], check_lists);
  bound(Array.prototype, ["flat"], check_nested);
  bound(String.prototype, ["includes", "indexOf", "lastIndexOf", "replace", "replaceAll", "split"], check_texts);
  Array.prototype.flatMap = function (work, self) {
    return this.map(work, self).flat();
  };
  // A proxy could show a check another length than a function that follows.
  delete global.Proxy;

  function fail(word, reason) {
    throw ["error", word, reason];
  }

  // The engine throws `null` where it has no memory left for an error.
  function is_fatal(error) {
    return error === null || error instanceof InternalError && error.message === "out of memory";
  }

  function described(error) {
    try {
      if (error instanceof Error) {
        return error.name + ": " + error.message;
      }
      const text = stringify(error);
      return text === undefined ? String(error) : text;
    } catch (_) {
      return "something that has no text";
    }
  }

  // JSON without halves of surrogate pairs, which have no UTF-8.
  function text_of(value) {
    const text = stringify(value);
    if (text === undefined) {
      return "null";
    }
    if (!/\\ud[89a-f]/.test(text)) {
      return text;
    }
    const whole = function (_name, value) {
      if (typeof value === "string") {
        return value.toWellFormed();
      }
      if (value === null || typeof value !== "object" || Array.isArray(value)) {
        return value;
      }
      const copy = {};
      for (const name of keys(value)) {
        copy[name.toWellFormed()] = value[name];
      }
      return copy;
    };
    return stringify(value, whole);
  }

  function deep_freeze(value) {
    if (value !== null && typeof value === "object") {
      for (const name of keys(value)) {
        deep_freeze(value[name]);
      }
      freeze(value);
    }
    return value;
  }

  function log(message) {
    const text = typeof message === "string" ? message : String(stringify(message));
    if (logged_length + text.length <= LOGGED_LENGTH_MAX) {
      logged_length += text.length;
      logged.push(text);
    }
  }

  // The module at `path`, seen from `from`: an object with its place in the design document.
  function resolve(path, from) {
    const steps = path.split("/");
    const is_relative = steps[0] === "." || steps[0] === "..";
    const place = is_relative ? from.slice(0, -1) : [];
    for (const step of steps) {
      if (step === "..") {
        if (place.length === 0) {
          fail("invalid_require_path", "Object has no parent " + stringify(path));
        }
        place.pop();
      } else if (step !== ".") {
        place.push(step);
      }
    }
    let found = root;
    for (const name of place) {
      if (found === null || typeof found !== "object" || !Object.hasOwn(found, name)) {
        fail("invalid_require_path", 'Object has no property "' + name + '". ' + stringify(path));
      }
      found = found[name];
    }
    if (typeof found !== "string") {
      fail("invalid_require_path", "Must require a JavaScript string, not: " + typeof found);
    }
    return {place, source: found};
  }

  const modules = new Map();

  function require_from(from) {
    return function (path) {
      const {place, source} = resolve(String(path), from);
      const id = place.join("/");
      const known = modules.get(id);
      if (known !== undefined) {
        return known.exports;
      }
      const module = {id, exports: {}};
      modules.set(id, module);
      try {
        const body = evaluate("(function (module, exports, require) { " + source + "\n})");
        body.call(global, module, module.exports, require_from(place));
      } catch (error) {
        modules.delete(id);
        if (Array.isArray(error) || is_fatal(error)) {
          throw error;
        }
        fail("compilation_error", "Module require('" + path + "') raised error " + described(error));
      }
      return module.exports;
    };
  }

  const shown = {
    emit(key, value) {
      emitted.push([key, value]);
    },
    sum(values) {
      let total = 0;
      for (const at in values) {
        total += values[at];
      }
      return total;
    },
    toJSON: (value) => stringify(value),
    isArray: (value) => Array.isArray(value),
    log,
    require: require_from([]),
  };
  for (const name of keys(shown)) {
    defineProperty(global, name, {value: shown[name], writable: true, configurable: true});
  }

  // Whether an error of a function passes over a document only.
  function pass_over(error, document) {
    if (is_fatal(error)) {
      throw error;
    }
    if (error === "fatal_error") {
      fail("map_runtime_error", "function raised 'fatal_error'");
    }
    if (Array.isArray(error) && (error[0] === "fatal" || error[0] === "error")) {
      throw error;
    }
    const where = document === null ? "" : " with doc._id " + document._id;
    log("function raised exception (" + described(error) + ")" + where);
  }

  const host = {
    // Sets what `require` looks into.
    set_root(json) {
      root = parse(json);
      return "";
    },

    // Compiles a function; answers its number.
    define(source) {
      let defined;
      try {
        defined = evaluate("(" + source.replace(/[;\s]+$/, "") + "\n)");
      } catch (error) {
        if (is_fatal(error) || Array.isArray(error)) {
          throw error;
        }
        fail("compilation_error", described(error) + " (" + source + ")");
      }
      if (typeof defined !== "function") {
        fail("compilation_error", "Expression does not eval to a function. (" + source + ")");
      }
      return String(functions.push(defined) - 1);
    },

    // A line for each function in `numbers`: an array of the pairs that it emits for the document.
    map(json, numbers) {
      const document = deep_freeze(parse(json));
      const lines = [];
      for (const number of parse(numbers)) {
        emitted = [];
        try {
          functions[number].call(global, document);
          lines.push(text_of(emitted));
        } catch (error) {
          pass_over(error, document);
          lines.push("[]");
        }
      }
      emitted = [];
      return lines.join("\n");
    },

    reduce(number, pairs, values, again) {
      try {
        return text_of(functions[number].call(global, parse(pairs), parse(values), again === "true"));
      } catch (error) {
        pass_over(error, null);
        return "null";
      }
    },

    // The answer of `validate_doc_update`: nothing, or what it threw.
    validate(number, document, before, user, security) {
      try {
        functions[number].call(global, parse(document), parse(before), parse(user), parse(security));
        return "";
      } catch (error) {
        if (error instanceof Error || Array.isArray(error)) {
          throw error;
        }
        return text_of(error);
      }
    },

    // An array of booleans: whether the filter lets each document pass.
    filter(number, documents, request) {
      const passes = [];
      const query = parse(request);
      for (const document of parse(documents)) {
        passes.push(Boolean(functions[number].call(global, deep_freeze(document), query)));
      }
      return stringify(passes);
    },

    // An array of booleans: whether the map function emits anything for each document.
    filter_by_map(number, documents) {
      const passes = [];
      for (const document of parse(documents)) {
        emitted = [];
        functions[number].call(global, deep_freeze(document));
        passes.push(emitted.length > 0);
      }
      emitted = [];
      return stringify(passes);
    },

    // What was logged since the last call: an array of texts.
    take_log() {
      const text = text_of(logged);
      logged = [];
      logged_length = 0;
      return text;
    },
  };
  defineProperty(global, "__waystation", {value: freeze(host)});
})(globalThis);
