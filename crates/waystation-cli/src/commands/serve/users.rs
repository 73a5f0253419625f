//! Users of the file: from its `[[user]]` to what the servers know of them.

use super::config::{Allowed, Config, Right, User};
use crate::failure::{Failure, USAGE};
use std::collections::HashSet;
use std::path::Path;
use waystation_access::{Secret, Users};

/// The users that the file names.
pub(super) fn users(config: &Config) -> Result<Users, Failure> {
    let mut names = HashSet::new();
    let redis_ca = config.redis.as_ref().map(|it| &it.tls_client_ca);
    let asks_for_certificates = [Some(&config.http.tls_client_ca), redis_ca]
        .into_iter()
        .flatten()
        .any(Option::is_some);
    for user in &config.user {
        if user.certificate_sha256.is_some() && !asks_for_certificates {
            let name = &user.name;
            let reason = format!(
                "the user {name:?} has a `certificate_sha256`, which needs `tls_client_ca` in [http] or [redis]"
            );
            return Err(Failure::new(USAGE, reason));
        }
        if user.name.is_empty() || user.name.contains(':') || !names.insert(&user.name) {
            let name = &user.name;
            let reason = format!("the user name {name:?} is empty, has a colon or is given twice");
            return Err(Failure::new(USAGE, reason));
        }
    }
    let users = config.user.iter().map(user);
    Ok(Users::new(users.collect::<Result<Vec<_>, _>>()?))
}

fn user(user: &User) -> Result<waystation_access::User, Failure> {
    let wrong = |reason: &str| Failure::new(USAGE, format!("the user {:?} {reason}", user.name));
    let password = one_secret(
        user,
        "password",
        user.password_file.as_deref(),
        user.password_sha256.as_deref(),
    )?;
    let token = one_secret(
        user,
        "token",
        user.token_file.as_deref(),
        user.token_sha256.as_deref(),
    )?;
    // As `openssl x509 -fingerprint` writes it, or without the colons.
    let certificate = user.certificate_sha256.as_ref();
    let certificate = certificate.map(|digits| digits.replace(':', ""));
    let certificate = one_secret(user, "certificate", None, certificate.as_deref())?;
    if password.is_none() && token.is_none() && certificate.is_none() {
        let reason = "needs `password_file`, `password_sha256`, `token_file`, `token_sha256` or `certificate_sha256`";
        return Err(wrong(reason));
    }
    Ok(waystation_access::User {
        name: user.name.clone(),
        password,
        token,
        certificate,
        rights: user.right.iter().map(right).collect(),
        is_monitor: user.monitor,
        is_admin: user.admin,
    })
}

fn right(right: &Right) -> waystation_access::Right {
    waystation_access::Right {
        prefix: right.prefix.clone(),
        read: right.allow.contains(&Allowed::Read),
        write: right.allow.contains(&Allowed::Write),
        depart: right.allow.contains(&Allowed::Depart),
    }
}

/// The secret `kind` of a user, who has it in a file or as a digest.
fn one_secret(
    user: &User,
    kind: &str,
    file: Option<&Path>,
    digest: Option<&str>,
) -> Result<Option<Secret>, Failure> {
    let wrong = |reason: String| Failure::new(USAGE, format!("the user {:?} {reason}", user.name));
    match (file, digest) {
        (None, None) => Ok(None),
        (Some(file), None) => secret(file).map(Some),
        (None, Some(digest)) => match Secret::of_digest(digest) {
            Some(secret) => Ok(Some(secret)),
            None => Err(wrong(format!(
                "has a `{kind}_sha256` that is not 64 hexadecimal digits"
            ))),
        },
        (Some(_), Some(_)) => Err(wrong(format!("has both `{kind}_file` and `{kind}_sha256`"))),
    }
}

/// The password or token in a file, without the end of its line.
pub(super) fn secret(file: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read(file).map_err(|error| Failure::file("read", file, error))?;
    let clear = text.trim_ascii_end();
    if clear.is_empty() {
        let reason = format!("{} holds no password and no token", file.display());
        return Err(Failure::new(USAGE, reason));
    }
    Ok(Secret::of(clear))
}
