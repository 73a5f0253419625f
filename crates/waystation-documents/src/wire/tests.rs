//! What travels arrives as it was, and bytes that are something else are refused.

use super::*;
use crate::attachment::{Attachment, Given};
use crate::json::Json;
use crate::mango::{Aggregate, Groups, KeyRange, Projection, Selector};
use crate::shard::{
    Edits, FindPart, FindQuery, FindStep, Reply, Request, ScanOptions, ScanStats, WantedChanges,
};
use crate::views::{DesignDocument, Limits, ScriptError, ViewQuery};
use crate::{Absence, Document, Error, NodeFault, Revision};
use proptest::prelude::*;
use std::sync::Arc;
use waystation::Durability;

fn revision(text: &str) -> Revision {
    text.parse().expect("a revision")
}

fn document() -> Document {
    let mut document =
        Document::parse(br#"{"_id":"a","_rev":"1-x","n":[1,2.50]}"#).expect("a document");
    document.history = vec![revision("2-y"), revision("1-x")];
    document.attachments = vec![
        Attachment {
            name: "a.txt".to_owned(),
            content_type: "text/plain".to_owned(),
            revpos: Some(2),
            content: Given::Bytes(vec![0, 255]),
        },
        Attachment {
            name: "b".to_owned(),
            content_type: "x/y".to_owned(),
            revpos: None,
            content: Given::Stub,
        },
    ];
    document
}

fn step() -> FindStep {
    let (selector, fields) = (r#"{"a":{"$gt":1}}"#, r#"["_id","b"]"#);
    FindStep {
        query: Arc::new(FindQuery {
            selector: Selector::parse(Json::new(selector)).expect("a selector"),
            selector_text: selector.to_owned(),
            fields: Projection::parse(Json::new(fields)).expect("fields"),
            fields_text: fields.to_owned(),
            conflicts: true,
            index: Some("i".to_owned()),
            ranges: Some(vec![KeyRange {
                begin: vec![4],
                end: vec![5],
                is_point: false,
            }]),
            descending: true,
            aggregate: Some(
                Aggregate::parse(Json::new(r#"{"count":true}"#)).expect("an aggregate"),
            ),
        }),
        scan: ScanOptions {
            to: Some("z".to_owned()),
            ..ScanOptions::default()
        },
        after: Some(vec![1, 2]),
        found_max: 25,
        bytes_max: 1 << 20,
        examined_max: 256,
    }
}

/// Requests of many kinds.
fn requests() -> Vec<Request> {
    let body = r#"{"views":{"v":{"map":"function (d) { emit(d.a) }"}}}"#;
    let design = DesignDocument::parse("_design/d", body).expect("a design document");
    vec![
        Request::Info,
        Request::Update {
            documents: vec![document()],
            edits: Edits::Replicated,
            durability: Durability::PowerLoss,
        },
        Request::OpenRevision {
            id: "ü".to_owned(),
            revision: revision("3-0123456789abcdef0123456789abcdef"),
        },
        Request::List {
            options: ScanOptions {
                from: Some("a".to_owned()),
                is_behind: true,
                ..ScanOptions::default()
            },
            rows: 64,
            bytes: 1000,
            with_documents: true,
        },
        Request::Changes {
            from: 7,
            descending: false,
            rows: 1,
            bytes: 1,
            wanted: WantedChanges::Matching {
                selector: "{}".to_owned(),
                with_documents: false,
            },
        },
        Request::Find { step: step() },
        Request::BuildViews {
            steps: 16,
            design,
            limits: Limits::default(),
        },
        Request::CleanUpViews { kept: Vec::new() },
        Request::Sync,
    ]
}

#[test]
fn requests_are_read_back_and_cuts_are_noticed() -> Result<(), FormatError> {
    for request in requests() {
        let bytes = encode(&request);
        let read: Request = decode(&bytes)?;
        assert_eq!(encode(&read), bytes);
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        for cut in 0..bytes.len() {
            assert!(
                decode::<Request>(&bytes[..cut]).is_err(),
                "{request:?} {cut}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode::<Request>(&longer).is_err(), "{request:?}");
    }
    Ok(())
}

#[test]
fn replies_and_queries_of_views_are_read_back() -> Result<(), FormatError> {
    let part = FindPart {
        found: vec![(b"k".to_vec(), "{}".to_owned())],
        reached: Some(b"k".to_vec()),
        groups: Groups::default(),
        is_end: true,
        stats: ScanStats {
            examined: 3,
            bodies: 2,
            bytes: 1,
        },
    };
    let read = decode(&encode(&Reply::Found { part: part.clone() }))?;
    assert!(matches!(read, Reply::Found { part: read } if read == part));
    let mut query = ViewQuery::default();
    for (name, value) in [("startkey", "[1]"), ("limit", "3"), ("group_level", "1")] {
        query.set(name, value).expect("a parameter");
    }
    assert_eq!(decode::<ViewQuery>(&encode(&query))?, query);
    Ok(())
}

#[test]
fn errors_keep_their_words_and_sentences() -> Result<(), FormatError> {
    let errors = [
        Error::Conflict,
        Error::NotFound(Absence::Deleted),
        Error::BadRequest("no".into()),
        Error::query("invalid_index", "no index"),
        Error::Script(ScriptError::Memory(5)),
        Error::damaged("a head", "cut"),
        Error::Node {
            fault: NodeFault::Full,
            reason: "full".to_owned(),
        },
        Error::File {
            operation: "list",
            path: "/x".into(),
            reason: "no".to_owned(),
        },
    ];
    for error in errors {
        let read: Error = decode(&encode(&error))?;
        assert_eq!(read.word(), error.word());
        assert_eq!(read.to_string(), error.to_string());
    }
    let strange = decode::<Error>(&encode(&Error::query("no_such_word", "x")))?;
    assert_eq!(strange.to_string(), "no_such_word: x");
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<Request>(&bytes);
        let _ = decode::<Reply>(&bytes);
        let _ = decode::<Error>(&bytes);
    }

    #[test]
    fn turned_bits_never_panic(at in 0..1000usize, bit in 0..8u8) {
        for request in requests() {
            let mut bytes = encode(&request);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let _ = decode::<Request>(&bytes);
        }
    }
}
