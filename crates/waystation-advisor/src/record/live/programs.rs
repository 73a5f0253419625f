//! The programs that are run: a database, a web server with its client, a graph computation.
//!
//! Each is sized so that it waits for storage most of its time, for a fast or for a slow disk.

use std::path::Path;

use crate::error::{Error, Result};

/// A program, as two shell texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Tools that have to be installed.
    pub(super) needs: &'static [&'static str],
    /// Prepares its files; not measured.
    pub(super) prepare: String,
    /// What is measured.
    pub(super) run: String,
    pub(super) memory_mib: u64,
}

/// How much the programs do.
struct Amount {
    transactions: u32,
    objects: u32,
    edges: u32,
    passes: u32,
    graph_memory_mib: u64,
}

/// On a device that answers within 0.1 ms.
const MUCH: Amount = Amount {
    transactions: 1_000,
    objects: 1_000,
    edges: 8_000_000,
    passes: 4,
    graph_memory_mib: 22,
};
/// On a disk.
const LITTLE: Amount = Amount {
    transactions: 120,
    objects: 600,
    edges: 5_000_000,
    passes: 2,
    graph_memory_mib: 14,
};

/// The programs, for a slow disk or for a fast one.
pub(super) fn programs(disk_is_slow: bool) -> Result<[Program; 3]> {
    let amount = if disk_is_slow { LITTLE } else { MUCH };
    let own = std::env::current_exe()
        .map_err(|source| Error::io("find", Path::new("this program"), source))?;
    Ok([database(&amount), web(&amount), graph(&amount, &own)])
}

/// `SQLite` rewrites random rows, four to a transaction, with a rollback journal and everything synced.
fn database(amount: &Amount) -> Program {
    let rows = 20_000;
    let prepare = format!(
        "sqlite3 app.db 'PRAGMA journal_mode=DELETE; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}) \
         INSERT INTO t SELECT i, randomblob(1000) FROM n;' >/dev/null && \
         awk 'BEGIN {{ srand(7); for (n = 0; n < {}; n++) {{ print \"BEGIN;\"; for (k = 0; k < 4; k++) \
         print \"UPDATE t SET v=randomblob(1000) WHERE id=\" int(rand() * {rows}) + 1 \";\"; print \"COMMIT;\" }} }}' \
         >work.sql",
        amount.transactions
    );
    Program {
        name: "database (SQLite)",
        needs: &["sqlite3", "awk"],
        prepare,
        run: "sqlite3 app.db <work.sql".to_owned(),
        memory_mib: 24,
    }
}

/// nginx serves files that wget stores beside them.
fn web(amount: &Amount) -> Program {
    let prepare = format!(
        "mkdir -p www && i=0; while [ $i -lt {} ]; do head -c $((4096 + i % 40 * 1000)) /dev/urandom >www/$i; \
         echo http://127.0.0.1:18080/$i; i=$((i+1)); done >urls && printf 'daemon off; pid nginx.pid; \
         error_log error.log; events {{}} http {{ access_log access.log; server {{ listen 127.0.0.1:18080; \
         root www; }} }}' >nginx.conf",
        amount.objects
    );
    let run = "nginx -p \"$PWD/\" -c nginx.conf & server=$!; until [ -s nginx.pid ]; do sleep 0.02; done; \
               wget --quiet --no-proxy --input-file=urls --directory-prefix=mirror; got=$?; sync -f .; \
               kill -QUIT $server; wait $server; exit $got"
        .to_owned();
    Program {
        name: "web (nginx and wget)",
        needs: &["nginx", "wget"],
        prepare,
        run,
        memory_mib: 24,
    }
}

/// This program's own graph computation, with less memory than it needs.
fn graph(amount: &Amount, own: &Path) -> Program {
    let own = own.display();
    Program {
        name: "graph (PageRank that swaps)",
        needs: &[],
        prepare: format!("\"{own}\" place graph graph.csr --make {}", amount.edges),
        run: format!("\"{own}\" place graph graph.csr --passes {}", amount.passes),
        memory_mib: amount.graph_memory_mib,
    }
}

/// The first tool of a program that is not there.
pub(super) fn missing(program: &Program) -> Option<&'static str> {
    let path = std::env::var("PATH").unwrap_or_default();
    let installed = |tool: &str| {
        path.split(':')
            .chain(crate::SYSTEM_PATH.split(':'))
            .any(|directory| Path::new(directory).join(tool).exists())
    };
    program.needs.iter().copied().find(|tool| !installed(tool))
}
