//! Trust in the broker, and the certificate that names this client.

use crate::settings::{Error, Settings};
use rustls::ClientConfig;
use std::sync::Arc;
use waystation_tls::{add_authorities, client, named_client, system_authorities};

/// How to speak TLS with the broker; `None` if the connection has none.
pub(crate) fn config(settings: &Settings) -> Result<Option<Arc<ClientConfig>>, Error> {
    if !settings.broker()?.is_tls {
        return Ok(None);
    }
    let mut roots = system_authorities();
    if let Some(path) = &settings.ca_file {
        add_authorities(&mut roots, path)?;
    }
    let config = match (&settings.certificate_file, &settings.key_file) {
        (Some(certificate), Some(key)) => named_client(roots, certificate, key)?,
        (None, None) => client(roots),
        _ => {
            return Err(Error::Setting {
                setting: "certificate_file",
                reason: "a certificate needs its key_file, and a key its certificate_file".into(),
            });
        }
    };
    Ok(Some(Arc::new(config)))
}
