//! Functions of design documents that choose changes.
//!
//! A feed may wait for hours, so it keeps the definition alone: each page has its own sandbox, from its first document on.

use crate::error::{Error, Result};
use crate::views::{DesignDocument, DesignFunctions, Limits};
use std::sync::Arc;

/// What is called for each document.
#[derive(Debug, Clone)]
enum Called {
    /// A filter, with the request that it sees: JSON.
    Filter(String),
    /// The map function of a view; documents for which it emits pass.
    View,
}

/// A function of a design document that chooses changes.
#[derive(Debug, Clone)]
pub struct FilterFunction {
    design: Arc<DesignDocument>,
    name: String,
    called: Called,
    limits: Limits,
    /// Whether it is called for each leaf.
    pub(super) all_leaves: bool,
}

impl FilterFunction {
    /// The filter `name` of `design`, for the request `request` (JSON).
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) `not_found`.
    pub fn of_filter(
        design: DesignDocument,
        name: &str,
        request: String,
        limits: Limits,
    ) -> Result<Self> {
        design.filter(name)?;
        Ok(Self {
            design: Arc::new(design),
            name: name.to_owned(),
            called: Called::Filter(request),
            limits,
            all_leaves: false,
        })
    }

    /// The view `name` of `design`.
    ///
    /// # Errors
    /// [`Error::Query`](crate::Error::Query) `not_found`.
    pub fn of_view(design: DesignDocument, name: &str, limits: Limits) -> Result<Self> {
        // The words of a member that is missing, which CouchDB has for views as filters.
        if design.view(name).is_err() {
            let key = if design.has_views() { name } else { "views" };
            return Err(Error::query(
                "not_found",
                format!("missing json key: {key}"),
            ));
        }
        Ok(Self {
            design: Arc::new(design),
            name: name.to_owned(),
            called: Called::View,
            limits,
            all_leaves: false,
        })
    }

    /// Whether the document `text` (JSON) passes. `sandbox` is that of the page.
    pub(super) fn passes(&self, sandbox: &mut Option<DesignFunctions>, text: &str) -> Result<bool> {
        let functions = match sandbox {
            Some(functions) => functions,
            none => none.insert(DesignFunctions::new(&self.design, self.limits)?),
        };
        let passes = match &self.called {
            Called::Filter(request) => functions.filter(&self.name, &[text], request)?,
            Called::View => functions.filter_by_view(&self.name, &[text])?,
        };
        Ok(passes.first() == Some(&true))
    }
}
