//! Certificates.

use std::path::{Path, PathBuf};

/// The certificates with which the server's TLS is tested.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../waystation-server/tests/tls")
        .join(name)
}
