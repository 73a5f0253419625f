//! Sessions: a cookie that names a user and a time, signed with the server's secret and the user's salt. So a new
//! password ends all sessions, and the server keeps none.

use super::password::{are_equal, sign};
use super::{User, users};
use crate::app::App;
use crate::clock;
use crate::failure::Outcome;
use crate::uuids::hex;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A cookie of a session of `name` that begins now.
pub(super) fn open(app: &App, name: &str) -> Outcome<String> {
    let salt = users::find(app, name)?
        .map(|user| user.salt)
        .unwrap_or_default();
    Ok(cookie(app, name, &salt, clock::seconds()))
}

fn cookie(app: &App, name: &str, salt: &str, begin: u64) -> String {
    let begin = format!("{begin:X}");
    let signature = hex(&sign(&app.authority.secret, &[name, &begin, salt]));
    let value = URL_SAFE_NO_PAD.encode(format!("{name}:{begin}:{signature}"));
    let seconds = app.config.now().session_seconds;
    format!("AuthSession={value}; Version=1; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax")
}

/// The user whose session `cookie` is; `None` if it is over or was never.
pub(super) fn resume(app: &App, cookie: &str) -> Outcome<Option<User>> {
    let text = URL_SAFE_NO_PAD.decode(cookie.trim_end_matches('=')).ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let parts = text.as_deref().and_then(|text| {
        let (rest, signature) = text.rsplit_once(':')?;
        let (name, begin) = rest.rsplit_once(':')?;
        Some((name, begin, signature))
    });
    let Some((name, begin, signature)) = parts else {
        return Ok(None);
    };
    let Some(known) = users::find(app, name)? else {
        return Ok(None);
    };
    let expected = hex(&sign(&app.authority.secret, &[name, begin, &known.salt]));
    let age =
        u64::from_str_radix(begin, 16).map_or(u64::MAX, |it| clock::seconds().saturating_sub(it));
    let seconds = app.config.now().session_seconds;
    if !are_equal(expected.as_bytes(), signature.as_bytes()) || age >= seconds {
        return Ok(None);
    }
    let is_old = age > seconds / 10;
    Ok(Some(User {
        cookie: is_old.then(|| self::cookie(app, name, &known.salt, clock::seconds())),
        name: Some(name.to_owned()),
        roles: known.roles,
        by: Some("cookie"),
    }))
}
