//! What design documents say about updates.

use crate::auth::User;
use crate::failure::Outcome;
use crate::handlers::databases::security_of;
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
