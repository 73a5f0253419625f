//! TLS: what the listener shows its clients, and whom replications trust.
//!
//! Certificates are read once, when the server starts. Other servers are checked against the certificates that the
//! system trusts and those of the settings; there is no way to skip the check.

use crate::server::ServerError;
use crate::settings::Tls;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

impl Tls {
    /// What a listener needs to speak TLS, with these protocols in it.
    ///
    /// # Errors
    /// [`ServerError::Tls`] if a file cannot be used.
    pub fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor, ServerError> {
        let mut config =
            waystation_tls::server(&self.certificate, &self.key, self.clients.as_deref())?;
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Whom replications trust.
pub(crate) struct Outgoing {
    /// Authorities of the settings.
    own: RootCertStore,
    /// Made when the first replication needs it.
    connector: OnceLock<TlsConnector>,
}

impl Outgoing {
    /// Trusts the authorities in the file `trusted` beside the system's.
    pub(crate) fn new(trusted: Option<&Path>) -> Result<Self, ServerError> {
        let mut own = RootCertStore::empty();
        if let Some(path) = trusted {
            waystation_tls::add_authorities(&mut own, path)?;
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
        self.connector().connect(name, stream).await
    }

    fn connector(&self) -> &TlsConnector {
        self.connector.get_or_init(|| {
            let mut roots = waystation_tls::system_authorities();
            roots.extend(self.own.roots.iter().cloned());
            TlsConnector::from(Arc::new(waystation_tls::client(roots)))
        })
    }
}
