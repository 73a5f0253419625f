//! TLS: configurations of servers and clients from PEM files.
//!
//! A client checks the server's certificate always: against the authorities of the system, of a file, or of both. Files
//! are read once, when a configuration is made.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

fn refused(path: &Path, reason: &(impl ToString + ?Sized)) -> TlsError {
    TlsError {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The certificates in a file, of which there must be one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| refused(path, &error))?;
    let found = read.collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| refused(path, &error))?;
    if found.is_empty() {
        return Err(refused(path, "it holds no certificate"));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| refused(path, &error))
}

/// A server that shows the certificate, with its chain, in one file, and has its key in the other. With a file of
/// authorities, `clients`, it ends a connection whose client shows no valid certificate of one of them; without, it asks
/// clients for none.
///
/// # Errors
/// [`TlsError`] for a file that cannot be read, or where certificate and key do not belong together.
pub fn server(
    certificate: &Path,
    key_file: &Path,
    clients: Option<&Path>,
) -> Result<ServerConfig, TlsError> {
    let chain = certificates(certificate)?;
    let verifier = clients.map(client_verifier).transpose()?;
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(certificate, &error))?
        .with_client_cert_verifier(verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_single_cert(chain, key(key_file)?)
        .map_err(|error| refused(certificate, &error))
}

/// Demands a certificate of an authority in the file.
fn client_verifier(authorities: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    add_authorities(&mut roots, authorities)?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .build()
        .map_err(|error| refused(authorities, &error))
}

/// The authorities that the system trusts. The log names certificates that cannot be read.
pub fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        log::warn!("certificates of the system are not trusted: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    roots
}

/// Adds the authorities in a file, of which there must be one.
///
/// # Errors
/// [`TlsError`] for a file that cannot be read, or a certificate that cannot be trusted.
pub fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| refused(path, &error))?;
    }
    Ok(())
}

/// A client that trusts `roots` and shows no certificate.
pub fn client(roots: RootCertStore) -> ClientConfig {
    trusting(roots).with_no_client_auth()
}

/// A client that trusts `roots` and shows the certificate in one file, with its key in the other.
///
/// # Errors
/// [`TlsError`] as for [`server`].
pub fn named_client(
    roots: RootCertStore,
    certificate: &Path,
    key_file: &Path,
) -> Result<ClientConfig, TlsError> {
    trusting(roots)
        .with_client_auth_cert(certificates(certificate)?, key(key_file)?)
        .map_err(|error| refused(certificate, &error))
}

fn trusting(
    roots: RootCertStore,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the versions need")
        .with_root_certificates(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, missing) = (dir.path().join("empty.pem"), dir.path().join("missing.pem"));
        std::fs::write(&empty, "no certificate\n").unwrap();
        let mut roots = RootCertStore::empty();
        for path in [&empty, &missing] {
            let refusals = [
                add_authorities(&mut roots, path).unwrap_err(),
                server(path, path, None).unwrap_err(),
                named_client(RootCertStore::empty(), path, path).unwrap_err(),
            ];
            for refusal in refusals {
                assert_eq!(&refusal.path, path);
                assert!(!refusal.reason.is_empty());
            }
        }
        assert!(roots.is_empty());
    }
}
