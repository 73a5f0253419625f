//! How a request fails: a status, the protocol's word and a sentence.

use hyper::StatusCode;
use std::borrow::Cow;
use waystation_documents::Error;

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) word: Cow<'static, str>,
    pub(crate) reason: String,
    /// A header that belongs to the answer.
    pub(crate) header: Option<(&'static str, String)>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, word: &'static str, reason: impl Into<String>) -> Self {
        Self {
            status,
            word: Cow::Borrowed(word),
            reason: reason.into(),
            header: None,
        }
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    pub(crate) fn query(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "query_parse_error", reason)
    }

    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub(crate) fn unauthorized(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", reason)
    }

    pub(crate) fn forbidden(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", reason)
    }

    pub(crate) fn too_large() -> Self {
        let reason = "the request entity is too large";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", reason)
    }

    pub(crate) fn not_implemented() -> Self {
        let reason = "this feature is not yet implemented";
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
    }

    /// The path is known, and not with this method.
    pub(crate) fn method(allowed: &'static str) -> Self {
        Self {
            header: Some(("Allow", allowed.to_owned())),
            ..Self::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("Only {allowed} allowed"),
            )
        }
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "internal_server_error", reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let word = error.word();
        let status = match (word, &error) {
            ("conflict", _) => StatusCode::CONFLICT,
            ("not_found", _) => StatusCode::NOT_FOUND,
            ("forbidden", _) => StatusCode::FORBIDDEN,
            ("unauthorized", _) => StatusCode::UNAUTHORIZED,
            ("unknown_error", _) | (_, Error::Script(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            ("missing_stub" | "file_exists" | "nodedown", _) => StatusCode::PRECONDITION_FAILED,
            ("document_too_large", _) => StatusCode::PAYLOAD_TOO_LARGE,
            ("insufficient_storage", _) => StatusCode::INSUFFICIENT_STORAGE,
            ("required index service unavailable", _) => StatusCode::SERVICE_UNAVAILABLE,
            (
                _,
                Error::Engine(_) | Error::Damaged { .. } | Error::File { .. } | Error::Node { .. },
            ) => {
                log::error!("a request failed: {error}");
                StatusCode::INTERNAL_SERVER_ERROR
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, word, error.to_string())
    }
}

/// What a request comes to.
pub(crate) type Outcome<T> = Result<T, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_protocols_statuses() {
        let cases = [
            (Error::Conflict, 409, "conflict"),
            (Error::NoDatabase, 404, "not_found"),
            (Error::DatabaseExists, 412, "file_exists"),
            (Error::IllegalId("x".into()), 400, "illegal_docid"),
            (Error::DocumentValidation("x".into()), 400, "doc_validation"),
        ];
        for (error, status, word) in cases {
            let failure = Failure::from(error);
            assert_eq!((failure.status.as_u16(), &*failure.word), (status, word));
        }
    }
}
