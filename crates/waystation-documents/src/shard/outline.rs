//! The outline of a large body: where its fields stand, so that one of them is read without the rest.
//!
//! ```text
//!   {"a":1,"b":2,...  "car":{"x":3,...  },"z":9}
//!    └── run 0 ───┘          └─ run 1 ─┘  └ run 2 ┘     runs of members, each of one object
//!   object 0: the body                                  objects that are long: the body, and what it holds of them
//!   object 1: "car" of object 0
//!   prints: 2 bytes of a hash of each name, in the order of the runs
//! ```
//!
//! A name is looked for among the prints of its object's runs; where one fits, the run is read and tells whether it is the
//! name. So a field costs the outline and a kilobyte or so of the body, at the top and inside of long objects alike, and a
//! name that is not there mostly costs no body at all. An object that is not long is a value like others, in a run. A
//! value that is long is a run by itself, so that its neighbours are read without it.

use super::record::{newer_version, take_text};
use crate::json::{Json, Kind, unquote};
use waystation_format::FormatError;
use waystation_format::bloom;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

const VERSION: u8 = 1;
/// A run ends once it is so long (bytes).
const RUN_BYTES: usize = 1024;
/// Members of an object of so many bytes have runs of their own.
const OBJECT_BYTES_MIN: usize = 4096;
/// Objects within objects, the body included: each level walks over its text again.
const LEVELS_MAX: usize = 8;
/// The bytes of a print.
const PRINT_BYTES: usize = 2;

/// A piece of the body's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) offset: usize,
    pub(super) length: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    /// The place of the object that has it; the body has itself.
    parent: usize,
    name: String,
    span: Span,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    object: usize,
    span: Span,
    members: usize,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Outline {
    objects: Vec<Object>,
    runs: Vec<Run>,
    prints: Vec<u8>,
}

/// What an outline says of the way to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// The way leads to an object that has its own runs, which stands here.
    Object(Span),
    /// The member named by the step `step` stands in one of `runs`, if anywhere: the run's text, and which member it is there.
    Runs {
        step: usize,
        runs: Vec<(Span, usize)>,
    },
}

impl Outline {
    /// The outline of the object `body`.
    pub(super) fn of(body: &str) -> Self {
        let mut outline = Self::default();
        let root = Object {
            parent: 0,
            name: String::new(),
            span: Span {
                offset: 0,
                length: body.len(),
            },
        };
        outline.add_object(body, root, 1);
        outline
    }

    fn add_object(&mut self, body: &str, object: Object, level: usize) {
        let (at, span) = (self.objects.len(), object.span);
        self.objects.push(object);
        let place = |text: &str| text.as_ptr().addr() - body.as_ptr().addr();
        let mut is_open = false;
        for (name, value) in Json::new(&body[span.offset..span.offset + span.length]).members() {
            let text = value.text();
            let is_long = text.len() >= OBJECT_BYTES_MIN;
            if is_long && value.kind() == Kind::Object && level < LEVELS_MAX {
                let span = Span {
                    offset: place(text),
                    length: text.len(),
                };
                let object = Object {
                    parent: at,
                    name: unquote(name).into_owned(),
                    span,
                };
                self.add_object(body, object, level + 1);
                is_open = false;
                continue;
            }
            let (begin, end) = (place(name), place(text) + text.len());
            match self.runs.last_mut() {
                Some(run) if is_open && !is_long => {
                    run.span.length = end - run.span.offset;
                    run.members += 1;
                }
                _ => self.runs.push(Run {
                    object: at,
                    span: Span {
                        offset: begin,
                        length: end - begin,
                    },
                    members: 1,
                }),
            }
            self.prints.extend_from_slice(&print(&unquote(name)));
            let run = self.runs.last().map_or(0, |run| run.span.length);
            is_open = run < RUN_BYTES;
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_u64(&mut out, self.objects.len() as u64);
        for object in &self.objects {
            put_u64(&mut out, object.parent as u64);
            put_length_prefixed(&mut out, object.name.as_bytes());
            put_u64(&mut out, object.span.offset as u64);
            put_u64(&mut out, object.span.length as u64);
        }
        put_u64(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            put_u64(&mut out, run.object as u64);
            put_u64(&mut out, run.span.offset as u64);
            put_u64(&mut out, run.span.length as u64);
            put_u64(&mut out, run.members as u64);
        }
        out.extend_from_slice(&self.prints);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("version")? != VERSION {
            return Err(newer_version());
        }
        let mut outline = Self::default();
        for at in 0..reader.var_u64("count of objects")? {
            let parent = reader.var_u64("parent of an object")?;
            if parent >= at.max(1) {
                return Err(malformed(&reader, "an object stands before its parent"));
            }
            outline.objects.push(Object {
                parent: parent as usize,
                name: take_text(&mut reader, "name of an object")?,
                span: take_span(&mut reader)?,
            });
        }
        let mut members = 0_usize;
        for _ in 0..reader.var_u64("count of runs")? {
            let object = reader.var_u64("object of a run")? as usize;
            if object >= outline.objects.len() {
                return Err(malformed(&reader, "a run is of no object"));
            }
            let span = take_span(&mut reader)?;
            let count = reader.var_u64("members of a run")? as usize;
            members = members.saturating_add(count);
            outline.runs.push(Run {
                object,
                span,
                members: count,
            });
        }
        if members.checked_mul(PRINT_BYTES) != Some(reader.rest().len()) {
            return Err(malformed(&reader, "the prints are not one for each member"));
        }
        outline.prints = reader.rest().to_vec();
        Ok(outline)
    }

    /// The way along `steps`, of which there is one at least; `None` if the outline is of no object.
    pub(super) fn way<S: AsRef<str>>(&self, steps: &[S]) -> Option<Way> {
        if self.objects.is_empty() {
            return None;
        }
        let (mut at, mut gone) = (0, 0);
        while let Some(next) = steps
            .get(gone)
            .and_then(|name| self.child(at, name.as_ref()))
        {
            (at, gone) = (next, gone + 1);
        }
        let Some(name) = steps.get(gone) else {
            return Some(Way::Object(self.objects[at].span));
        };
        let print = print(name.as_ref());
        let (mut prints, mut runs) = (self.prints.as_slice(), Vec::new());
        for run in &self.runs {
            let of_run = prints.split_at_checked(run.members.saturating_mul(PRINT_BYTES));
            let (of_run, rest) = of_run.unwrap_or((prints, &[]));
            prints = rest;
            if run.object == at {
                let of_run = of_run.as_chunks().0.iter().enumerate();
                let fitting = of_run.filter(|(_, other)| **other == print);
                runs.extend(fitting.map(|(member, _)| (run.span, member)));
            }
        }
        Some(Way::Runs { step: gone, runs })
    }

    fn child(&self, parent: usize, name: &str) -> Option<usize> {
        let mut objects = self.objects.iter().skip(1);
        let found = objects.position(|it| it.parent == parent && it.name == name)?;
        Some(found + 1)
    }
}

fn print(name: &str) -> [u8; PRINT_BYTES] {
    let hash = bloom::hash(name.as_bytes());
    ((hash ^ hash >> 16) as u16).to_le_bytes()
}

fn take_span(reader: &mut Reader<'_>) -> Result<Span, FormatError> {
    Ok(Span {
        offset: reader.var_u64("offset of a span")? as usize,
        length: reader.var_u64("length of a span")? as usize,
    })
}

fn malformed(reader: &Reader<'_>, reason: &'static str) -> FormatError {
    FormatError::Malformed {
        offset: reader.offset() as u64,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::member_of_run;
    use proptest::prelude::*;

    /// The text at the end of `steps`, by the outline as far as it goes.
    fn find<'a>(outline: &Outline, body: &'a str, steps: &[&str]) -> Option<&'a str> {
        let text = |span: Span| &body[span.offset..span.offset + span.length];
        let (step, runs) = match outline.way(steps).expect("an object") {
            Way::Object(span) => return Some(text(span)),
            Way::Runs { step, runs } => (step, runs),
        };
        let mut members = runs.into_iter();
        let value = members.find_map(|(span, at)| member_of_run(text(span), at, steps[step]));
        let rest = steps[step + 1..].iter();
        rest.fold(value, |value, name| value?.member(name))
            .map(Json::text)
    }

    /// Objects within objects, some of them long, with the names `a` to `d`, of which one needs an escape.
    fn objects() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            (0..2000_usize).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
            (0..3000_usize).prop_map(|length| format!("[{}7]", "1,".repeat(length))),
            any::<i32>().prop_map(|number| number.to_string()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(|values| {
                let names = ["a", "b", "c\\\"", "d"].iter();
                let members = names.zip(values);
                let members = members.map(|(name, value)| format!("\"{name}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            })
        })
        .prop_filter("an object", |text| text.starts_with('{'))
    }

    proptest! {
        #[test]
        fn an_outline_finds_what_a_walk_finds(body in objects(), steps in prop::collection::vec(prop::sample::select(vec!["a", "b", "c\"", "d", "e"]), 1..5)) {
            let outline = Outline::of(&body);
            let walked = steps.iter().try_fold(Json::new(&body), |value, name| value.member(name));
            prop_assert_eq!(find(&outline, &body, &steps), walked.map(Json::text));
            prop_assert_eq!(Outline::decode(&outline.encode()), Ok(outline));
        }
    }

    #[test]
    fn a_field_of_a_long_object_costs_a_run_and_a_missing_one_nothing() {
        let members = |count: usize| -> String {
            let members = (0..count).map(|at| format!("\"f{at:04}\":\"{at:024}\","));
            members.collect::<Vec<_>>().concat()
        };
        let body = format!(
            "{{{}\"car\":{{{}\"number\":7}},\"text\":\"{}\",\"number\":8}}",
            members(1000),
            members(1000),
            "x".repeat(50_000)
        );
        let outline = Outline::of(&body);
        assert_eq!(find(&outline, &body, &["car", "number"]), Some("7"));
        assert_eq!(find(&outline, &body, &["number"]), Some("8"));
        let Some(Way::Runs { runs, .. }) = outline.way(&["car", "f0500"]) else {
            panic!("a run");
        };
        let bytes: usize = runs.iter().map(|(span, _)| span.length).sum();
        assert!((1..4 * RUN_BYTES).contains(&bytes), "{bytes}");
        let missing = (0..100).filter(|at| {
            let way = outline.way(&["car".to_owned(), format!("missing{at}")]);
            matches!(way, Some(Way::Runs { runs, .. }) if runs.is_empty())
        });
        assert!(missing.count() > 90);
        let bytes = outline.encode().len();
        assert!(bytes < body.len() / 20, "{bytes} of {}", body.len());
    }

    #[test]
    fn a_cut_outline_is_noticed() {
        let body = format!("{{\"a\":{{\"b\":\"{}\"}},\"c\":1}}", "x".repeat(5000));
        let bytes = Outline::of(&body).encode();
        for cut in 0..bytes.len() {
            assert!(Outline::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        let newer = [&[VERSION + 1], &bytes[1..]].concat();
        assert_eq!(Outline::decode(&newer), Err(newer_version()));
    }
}
