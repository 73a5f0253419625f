//! `drive`: the agent of a drive, until a signal stops it.

use super::serve::print_warnings;
use super::{Context, require_path, worker};
use crate::args::Drive;
use crate::failure::{CANNOT_OPEN, Failure, USAGE};
use std::path::Path;
use waystation_nodes::{Agent, AgentError, AgentSettings, Identity, Token};

/// The token in `file`.
pub(super) fn token(file: &Path) -> Result<Token, Failure> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::file("read", file, error))?;
    Token::new(&text).map_err(|error| failure(&error))
}

/// The certificate in these files, if they are named.
pub(super) fn identity(
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<Identity>, Failure> {
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(None);
    };
    let identity = Identity::read(certificate, key);
    identity.map(Some).map_err(|error| failure(&error))
}

pub(super) fn drive(context: &mut Context, args: &Drive) -> Result<(), Failure> {
    require_path(&args.dir)?;
    print_warnings();
    let mut settings = AgentSettings::new(&args.dir, args.listen, token(&args.token_file)?);
    settings.tls = identity(args.tls_cert.as_deref(), args.tls_key.as_deref())?;
    settings.options.offload = worker::offload(&args.worker)?;
    let agent = Agent::bind(&settings).map_err(|error| failure(&error))?;
    let stopper = agent.stopper();
    ctrlc::set_handler(move || stopper.stop())
        .map_err(|error| Failure::new(CANNOT_OPEN, format!("signals cannot be heard: {error}")))?;
    let address = agent.address();
    context
        .output
        .line(format!("Waystation's drive listens at {address}"))?;
    context.output.flush()?;
    agent.run();
    Ok(())
}

pub(super) fn failure(error: &AgentError) -> Failure {
    let code = match error {
        AgentError::Token(_)
        | AgentError::Tls { .. }
        | AgentError::NoToken(_)
        | AgentError::NoDirectory => USAGE,
        _ => CANNOT_OPEN,
    };
    Failure::new(code, error.to_string())
}
