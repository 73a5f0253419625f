//! What the catalogue keeps of a database, as JSON.

use crate::error::{Error, Result};
use crate::json::{Json, canonical, quote};

/// Shards that a database may have.
pub(super) const SHARDS_MAX: usize = 64;

/// What the catalogue keeps of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// 32 hexadecimal digits; its directory has this name.
    pub(super) uuid: String,
    /// How many shards it has.
    pub(super) shards: usize,
    /// The node of each shard, where the book does not name its copies; none: all are in this process.
    pub(super) nodes: Vec<String>,
    /// Whether documents are placed by their partitions.
    pub(super) is_partitioned: bool,
    /// Who may do what, as canonical JSON; empty: the default.
    pub(super) security: String,
}

pub(super) fn encode(definition: &Definition) -> Vec<u8> {
    let security = match definition.security.as_str() {
        "" => "null",
        security => security,
    };
    let (uuid, shards) = (quote(&definition.uuid), definition.shards);
    let nodes = match definition.nodes.as_slice() {
        [] => String::new(),
        nodes => {
            let names = crate::array(nodes.iter().map(|name| quote(name)));
            format!(r#","nodes":{names}"#)
        }
    };
    let partitioned = if definition.is_partitioned {
        r#","partitioned":true"#
    } else {
        ""
    };
    format!(r#"{{"uuid":{uuid},"shards":{shards},"security":{security}{nodes}{partitioned}}}"#)
        .into_bytes()
}

pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Definition> {
    let damaged = |reason: &str| Error::damaged(format!("database {name}"), reason);
    let text = canonical(bytes).map_err(|error| damaged(&error.to_string()))?;
    let json = Json::new(&text);
    let uuid = json.member("uuid").and_then(Json::string);
    let shards = json.member("shards").and_then(Json::integer);
    let shards = shards.and_then(|it| usize::try_from(it).ok());
    let shards = shards
        .filter(|it| (1..=SHARDS_MAX).contains(it))
        .ok_or_else(|| damaged("it has no shards"))?;
    let security = json.member("security").map_or("null", Json::text);
    let nodes = json.member("nodes").into_iter();
    let nodes: Vec<String> = nodes
        .flat_map(Json::elements)
        .filter_map(|node| Some(node.string()?.into_owned()))
        .collect();
    if !nodes.is_empty() && nodes.len() != shards {
        return Err(damaged("it has not as many nodes as shards"));
    }
    Ok(Definition {
        uuid: uuid.ok_or_else(|| damaged("it has no uuid"))?.into_owned(),
        shards,
        nodes,
        is_partitioned: json.member("partitioned").and_then(Json::boolean) == Some(true),
        security: if security == "null" { "" } else { security }.to_owned(),
    })
}
