//! TLS: what the listener shows its clients, and whom replications trust.
//!
//! Certificates are read once, when the server starts. Other servers are checked against the certificates that the
//! system trusts and those of the settings; there is no way to skip the check.

use crate::server::ServerError;
use crate::settings::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn refused(path: &Path, reason: &(impl ToString + ?Sized)) -> ServerError {
    ServerError::Tls {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The certificates in a file, of which there must be one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| refused(path, &error))?;
    let found: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| refused(path, &error))?;
    if found.is_empty() {
        return Err(refused(path, "it holds no certificate"));
    }
    Ok(found)
}

impl Tls {
    /// What a listener needs to speak TLS, with these protocols in it.
    ///
    /// # Errors
    /// [`ServerError::Tls`] if a file cannot be used.
    pub fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor, ServerError> {
        acceptor(self, protocols)
    }
}

fn acceptor(tls: &Tls, protocols: &[&[u8]]) -> Result<TlsAcceptor, ServerError> {
    let chain = certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| refused(&tls.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&tls.certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| refused(&tls.certificate, &error))?;
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Whom replications trust.
pub(crate) struct Outgoing {
    /// Certificates of the settings.
    own: Vec<CertificateDer<'static>>,
    /// Made when the first replication needs it.
    connector: OnceLock<TlsConnector>,
}

impl Outgoing {
    /// Trusts the authorities in the file `trusted` beside the system's.
    pub(crate) fn new(trusted: Option<&Path>) -> Result<Self, ServerError> {
        let own = trusted.map(certificates).transpose()?.unwrap_or_default();
        let mut probe = RootCertStore::empty();
        for certificate in &own {
            let added = probe.add(certificate.clone());
            added.map_err(|error| refused(trusted.unwrap_or(Path::new("")), &error))?;
        }
        Ok(Self {
            own,
            connector: OnceLock::new(),
        })
    }

    /// Begins TLS with `host` over `stream`.
    pub(crate) async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.connector()?.connect(name, stream).await
    }

    fn connector(&self) -> io::Result<&TlsConnector> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        for error in &system.errors {
            log::warn!("certificates of the system are not trusted: {error}");
        }
        roots.add_parsable_certificates(system.certs);
        roots.add_parsable_certificates(self.own.iter().cloned());
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(self.connector.get_or_init(|| connector))
    }
}
