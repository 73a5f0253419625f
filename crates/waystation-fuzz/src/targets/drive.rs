//! What host and drive say to each other about a shard.

use waystation::Durability;
use waystation_documents::shard::{KeySpan, Reply, Request, Told, Turns};
use waystation_documents::wire::{Wire, decode, encode};
use waystation_documents::{Document, Edits, Error};

/// Bytes that are read are written as they can be read again.
fn again<T: Wire>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        let written = encode(&value);
        let read = decode::<T>(&written).map(|value| encode(&value));
        assert_eq!(read.as_deref(), Ok(&written[..]));
    }
}

/// A request, and what a drive answers; the first byte chooses.
pub(super) fn message(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, rest)) => again::<Request>(rest),
        Some((_, rest)) => again::<Told>(rest),
        None => {}
    }
}

pub(super) fn message_seeds() -> Vec<Vec<u8>> {
    let text =
        br#"{"_id":"a","_rev":"1-b","n":[1,{"m":2.50}],"_attachments":{"x":{"data":"aGVsbG8="}}}"#;
    let span = KeySpan {
        after: Some(b"d".to_vec()),
        end: None,
    };
    let requests = [
        Request::Info,
        Request::Update {
            documents: Document::parse(text).into_iter().collect(),
            edits: Edits::Replicated,
            durability: Durability::PowerLoss,
        },
        Request::Fill {
            span: span.clone(),
            entries: vec![(b"e".to_vec(), b"value".to_vec())],
        },
        Request::Digest { span },
        Request::SetTurn { number: 1 << 40 },
    ];
    let told = |reply| Told {
        latest: 300,
        turns: Turns { begun: 8, done: 7 },
        reply,
    };
    let answers = [
        told(Ok(Reply::Bytes {
            bytes: vec![0, 1, 2],
        })),
        told(Ok(Reply::Points {
            ids: vec!["a".to_owned(), "b".to_owned()],
        })),
        told(Err(Error::MissingStub {
            id: "a".to_owned(),
            name: "b".to_owned(),
        })),
    ];
    let requests = requests.iter().map(|it| [vec![0], encode(it)].concat());
    let answers = answers.iter().map(|it| [vec![1], encode(it)].concat());
    requests.chain(answers).collect()
}
