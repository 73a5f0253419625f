//! Trust in the broker, and the certificate that names this client.

use crate::settings::{Error, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

fn refused(path: &Path, reason: &(impl ToString + ?Sized)) -> Error {
    Error::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The certificates in a file, of which there must be one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| refused(path, &error))?;
    let found = read.collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| refused(path, &error))?;
    if found.is_empty() {
        return Err(refused(path, "it holds no certificate"));
    }
    Ok(found)
}

/// How to speak TLS with the broker; `None` if the connection has none.
pub(crate) fn config(settings: &Settings) -> Result<Option<Arc<ClientConfig>>, Error> {
    if !settings.broker()?.is_tls {
        return Ok(None);
    }
    let wrong = |reason: String| Error::Setting {
        setting: "broker",
        reason,
    };
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        log::warn!("certificates of the system are not trusted: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = &settings.ca_file {
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            added.map_err(|error| refused(path, &error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&settings.certificate_file, &settings.key_file) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, &error))?;
            let built = builder.with_client_auth_cert(chain, secret);
            built.map_err(|error| refused(certificate, &error))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => {
            return Err(Error::Setting {
                setting: "certificate_file",
                reason: "a certificate needs its key_file, and a key its certificate_file".into(),
            });
        }
    };
    Ok(Some(Arc::new(config)))
}
