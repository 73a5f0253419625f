//! What stands between a document and its database: the rules of the server's own databases, and what design documents
//! say about updates.

use crate::app::App;
use crate::auth::{self, User};
use crate::failure::Outcome;
use crate::handlers::databases::security_of;
use crate::replicator;
use waystation_documents::database::Caller;
use waystation_documents::shard::Edits;
use waystation_documents::views::Limits;
use waystation_documents::{Database, Document};

/// Judges `document` before `user` writes it as `edits`.
pub(crate) fn validate(
    database: &Database,
    user: &User,
    document: &Document,
    edits: Edits,
) -> Outcome<()> {
    let (user, security) = (user.context(database.name()), security_of(database));
    let caller = Caller {
        user: &user,
        security: &security,
    };
    Ok(database.validate(document, edits, caller, Limits::default())?)
}

/// Does to `document` what the server's own databases want, before `user` writes it. It may take long.
pub(crate) fn prepare(
    app: &App,
    database: &Database,
    user: &User,
    document: &mut Document,
) -> Outcome<()> {
    auth::prepare_user(app, database, user.is_admin_of(database), document)?;
    replicator::documents::prepare(database, user, document)
}
