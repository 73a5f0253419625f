//! Rebalancing: shards move until every node has its share.
//!
//! A plan is made from weights and from where the copies lie ([`super::layout`]). To carry it out means to write into the
//! book that a copy comes on one node and another leaves; [mending](super::mend) does the rest, at its pace, whatever
//! happens meanwhile.

use super::book::{ShardCopy, Standing};
use super::layout::{self, Plan};
use super::member::Member;
use super::{Catalogue, Database, catalogue};
use crate::error::Result;
use std::sync::Arc;

/// A copy that moves, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMove {
    /// The name of the database.
    pub database: String,
    /// The name of the shard's range.
    pub range: String,
    /// The node that it leaves.
    pub source: String,
    /// The node to which it goes.
    pub target: String,
}

/// What a node has of the copies of shards, and what it is to have by its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShare {
    /// The name of the node.
    pub node: String,
    /// Copies that it is to have.
    pub planned: usize,
    /// Copies that it has: those that leave do not count, those that come do.
    pub real: usize,
}

/// What is to be rebalanced.
#[derive(Debug, Clone, Default)]
pub struct RebalanceRequest {
    /// The names of the databases; `None`: all.
    pub databases: Option<Vec<String>>,
    /// Weights of nodes; `None`: by the speed of their scans.
    pub weights: Option<Vec<(String, f64)>>,
    /// Say what would move, and move nothing.
    pub is_dry: bool,
}

impl Catalogue {
    /// Plans which copies move, and has them moved unless that is a dry run. Weights that were measured move copies only
    /// if the slowest node becomes a tenth faster.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if a node is not known; [`Error::NoDatabase`], [`Error::Engine`], [`Error::Node`].
    pub fn rebalance(&self, request: &RebalanceRequest) -> Result<Vec<ShardMove>> {
        let states = self.node_states();
        if let Some(weights) = &request.weights {
            catalogue::check_nodes(weights, &states)?;
        }
        let names = match &request.databases {
            Some(names) => names.clone(),
            None => self.names(),
        };
        let mut moved = Vec::new();
        for name in names {
            let database = self.get(&name)?;
            if name.starts_with('_') || states.is_empty() {
                continue;
            }
            let weights = layout::weights_of(request.weights.as_deref(), &states);
            let _changing = self.change();
            let plan = database.plan(&weights, request.weights.is_some())?;
            for planned in &plan.moves {
                moved.push(ShardMove {
                    database: name.clone(),
                    range: database.shard_key(planned.shard).range,
                    source: planned.source.clone(),
                    target: planned.target.clone(),
                });
                if !request.is_dry {
                    database.begin_move(planned)?;
                }
            }
        }
        Ok(moved)
    }

    /// What each node has of `database`, or of all, and what it is to have by the speed of its scans.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn node_shares(&self, database: Option<&Database>) -> Result<Vec<NodeShare>> {
        let states = self.node_states();
        let weights = layout::weights_of(None, &states);
        let mut shares: Vec<NodeShare> = Vec::new();
        let mut add = |plan: Plan| {
            for (node, planned, real) in plan.shares {
                match shares.iter_mut().find(|share| share.node == node) {
                    Some(share) => {
                        share.planned += planned;
                        share.real += real;
                    }
                    None => shares.push(NodeShare {
                        node,
                        planned,
                        real,
                    }),
                }
            }
        };
        match database {
            Some(database) => add(database.plan(&weights, false)?),
            None => {
                for name in self.names().iter().filter(|name| !name.starts_with('_')) {
                    if let Ok(database) = self.get_quietly(name) {
                        add(database.plan(&weights, false)?);
                    }
                }
            }
        }
        Ok(shares)
    }
}

impl Database {
    /// How its copies would move by `weights`.
    fn plan(&self, weights: &[(String, f64)], is_forced: bool) -> Result<Plan> {
        let stays = |copy: &ShardCopy| copy.standing != Standing::Leaving;
        let nodes = |number: usize| -> Result<Vec<String>> {
            let copies = self.copies(number)?.into_iter().filter(stays);
            Ok(copies.map(|copy| copy.node).collect())
        };
        let copies: Result<Vec<Vec<String>>> = (0..self.shard_count).map(nodes).collect();
        Ok(layout::plan(&copies?, weights, is_forced))
    }

    /// Notes that a copy is to move.
    fn begin_move(self: &Arc<Self>, planned: &layout::PlannedMove) -> Result<()> {
        let (replicas, _reading) = self.replicas(planned.shard)?;
        let members = replicas.members();
        if let Some(target) = members.iter().find(|it| it.node == planned.target) {
            // It was about to leave.
            return match target.standing() {
                Standing::Leaving => replicas.turn_back(&planned.source, &planned.target),
                _ => Ok(()),
            };
        }
        let copy = ShardCopy {
            node: planned.target.clone(),
            standing: Standing::Stale,
        };
        let replica = self.open_replica(planned.shard, &planned.target)?;
        let meter = self.meter(&planned.target);
        replicas.begin_move(&planned.source, Member::new(copy, replica, meter))
    }
}
