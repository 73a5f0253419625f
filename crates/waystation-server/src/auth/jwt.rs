//! JSON Web Tokens: callers whom another service has named, and vouches for by a signature.
//!
//! The settings are those of CouchDB, in a file of the same form:
//!
//! ```text
//!   [jwt_auth]
//!   required_claims = exp, {iss, "company"}        exp alone, unless this says otherwise
//!   roles_claim_path = my.nested._couchdb\.roles   _couchdb.roles, unless this says otherwise
//!   [jwt_keys]
//!   hmac:_default = aGVsbG8=                       KIND:KID = KEY; _default for tokens without a kid
//!   rsa:foo = -----BEGIN PUBLIC KEY-----\n...\n-----END PUBLIC KEY-----\n
//! ```
//!
//! A token is trusted for what its claims say only after its signature was found right, by a key of the kind that its
//! algorithm names: so an RSA key is never taken as the secret of an HMAC. Claims that are not required are not checked.

use super::User;
use crate::clock;
use crate::failure::{Failure, Outcome};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::{hmac, signature};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashMap;
use waystation_documents::json::{Json, Kind, canonical};

/// The name of the key for tokens that name none.
const DEFAULT_KEY: &str = "_default";
/// The claim that lists roles.
const ROLES: &str = "_couchdb.roles";

/// What keys are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    Hmac,
    Rsa,
    Ec,
}

/// A claim that a token must have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Required {
    /// A part of the head.
    Type,
    KeyName,
    /// A time that has come.
    IssuedAt,
    NotBefore,
    /// A time that is still to come.
    Expires,
    /// Issued by this one.
    Issuer(String),
}

/// Which tokens are trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct Jwt {
    required: Vec<Required>,
    /// Names of members, one within the other.
    roles: Vec<String>,
    /// Secrets as they are; public keys as ring takes them.
    keys: HashMap<(Family, String), Vec<u8>>,
}

impl std::fmt::Debug for Jwt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Jwt");
        shown
            .field("required", &self.required)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

impl Jwt {
    /// Reads settings in the form above; other sections are passed over.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut jwt = Self {
            required: vec![Required::Expires],
            roles: vec![ROLES.to_owned()],
            keys: HashMap::new(),
        };
        let mut section = "";
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(';') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                section = name;
                continue;
            }
            let (name, value) =
                setting(line).ok_or_else(|| format!("line {number} is no NAME = VALUE"))?;
            let taken = match section {
                "jwt_auth" => jwt.take_setting(name, value),
                "jwt_keys" => jwt.take_key(name, value),
                _ => Ok(()),
            };
            taken.map_err(|reason| format!("line {number}: {reason}"))?;
        }
        if jwt.keys.is_empty() {
            return Err("there is no key in a section [jwt_keys]".to_owned());
        }
        Ok(jwt)
    }

    fn take_setting(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "required_claims" => self.required = required(value)?,
            "roles_claim_name" => self.roles = vec![value.to_owned()],
            "roles_claim_path" => self.roles = path(value),
            _ => return Err(format!("{name} is no setting of jwt_auth")),
        }
        Ok(())
    }

    fn take_key(&mut self, name: &str, value: &str) -> Result<(), String> {
        let (family, id) = name
            .split_once(':')
            .ok_or("a key is named KIND:KID, as in hmac:_default")?;
        let (family, key) = match family {
            "hmac" => {
                let key = STANDARD.decode(value);
                (Family::Hmac, key.map_err(|_| "the secret is no base64")?)
            }
            "rsa" => (Family::Rsa, public_key(value)?),
            "ec" => (Family::Ec, public_key(value)?),
            _ => return Err(format!("{family} is none of hmac, rsa, ec")),
        };
        self.keys.insert((family, id.to_owned()), key);
        Ok(())
    }

    /// The caller whom `token` names.
    pub(super) fn identify(&self, token: &str) -> Outcome<User> {
        let malformed = || Failure::bad_request("Malformed authentication token");
        let mut parts = token.split('.');
        let (Some(head), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let signed = &token[..head.len() + 1 + claims.len()];
        let (head, claims) = (object(head)?, object(claims)?);
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        let (head, claims) = (Json::new(&head), Json::new(&claims));
        let text = |name: &str| head.member(name).and_then(Json::string);
        let missing = || Failure::bad_request("Missing alg header parameter");
        let algorithm = text("alg").ok_or_else(missing)?;
        for required in &self.required {
            check(required, head, claims)?;
        }
        let key_id = text("kid").unwrap_or(DEFAULT_KEY.into());
        self.verify(&algorithm, &key_id, signed.as_bytes(), &signature)?;
        let name = claims.member("sub").and_then(Json::string);
        let name = name.ok_or_else(|| Failure::unauthorized("Token missing sub claim."))?;
        Ok(User {
            name: Some(name.into_owned()),
            roles: self.roles_of(claims)?,
            by: Some("jwt"),
            cookie: None,
        })
    }

    fn verify(&self, algorithm: &str, id: &str, signed: &[u8], given: &[u8]) -> Outcome<()> {
        let key = |family: Family| {
            let key = self.keys.get(&(family, id.to_owned()));
            key.ok_or_else(|| Failure::bad_request("Unknown kid"))
        };
        let public = |family, algorithm: &'static dyn signature::VerificationAlgorithm| {
            let key = signature::UnparsedPublicKey::new(algorithm, key(family)?);
            let wrong = |_| Failure::bad_request("Bad signature in authentication token");
            key.verify(signed, given).map_err(wrong)
        };
        let secret = |algorithm| {
            let key = hmac::Key::new(algorithm, key(Family::Hmac)?);
            let wrong = |_| Failure::bad_request("Bad HMAC in authentication token");
            hmac::verify(&key, signed, given).map_err(wrong)
        };
        match algorithm {
            "HS256" => secret(hmac::HMAC_SHA256),
            "HS384" => secret(hmac::HMAC_SHA384),
            "HS512" => secret(hmac::HMAC_SHA512),
            "RS256" => public(Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA256),
            "RS384" => public(Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA384),
            "RS512" => public(Family::Rsa, &signature::RSA_PKCS1_2048_8192_SHA512),
            "ES256" => public(Family::Ec, &signature::ECDSA_P256_SHA256_FIXED),
            "ES384" => public(Family::Ec, &signature::ECDSA_P384_SHA384_FIXED),
            _ => Err(Failure::bad_request("Invalid alg header parameter")),
        }
    }

    /// The roles that the claims list: an array, or names with commas between.
    fn roles_of(&self, claims: Json<'_>) -> Outcome<Vec<String>> {
        let mut names = self.roles.iter();
        let found = names.try_fold(claims, |json, name| json.member(name));
        let Some(roles) = found else {
            return Ok(Vec::new());
        };
        if let Some(text) = roles.string() {
            let names = text.split(',').map(str::trim).filter(|it| !it.is_empty());
            return Ok(names.map(ToOwned::to_owned).collect());
        }
        let malformed = || Failure::bad_request("Malformed token");
        if roles.kind() != Kind::Array {
            return Err(malformed());
        }
        let name = |role: Json<'_>| role.string().map(Into::into).ok_or_else(malformed);
        roles.elements().map(name).collect()
    }
}

/// Name and value of a line. Names may hold `=` if spaces stand around the one that separates.
fn setting(line: &str) -> Option<(&str, &str)> {
    let parts = line.split_once(" = ").or_else(|| line.split_once('='));
    parts.map(|(name, value)| (name.trim(), value.trim()))
}

/// A list of claims: names, and tuples in braces.
fn required(text: &str) -> Result<Vec<Required>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (claim, behind) = if let Some(tuple) = rest.strip_prefix('{') {
            let end = tuple.find('}').ok_or("a brace is not closed")?;
            let (name, value) = tuple[..end].split_once(',').ok_or("a tuple has no value")?;
            if name.trim() != "iss" {
                return Err(format!("{} takes no value", name.trim()));
            }
            let value = value.trim().trim_matches('"').to_owned();
            (Some(Required::Issuer(value)), &tuple[end + 1..])
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (named(rest[..end].trim())?, &rest[end..])
        };
        all.extend(claim);
        rest = behind.trim_start().trim_start_matches(',').trim_start();
    }
    Ok(all)
}

/// A claim that is required by its name alone; `None` if every token must have it anyway.
fn named(name: &str) -> Result<Option<Required>, String> {
    Ok(Some(match name {
        "exp" => Required::Expires,
        "nbf" => Required::NotBefore,
        "iat" => Required::IssuedAt,
        "typ" => Required::Type,
        "kid" => Required::KeyName,
        "alg" | "sub" | "sig" => return Ok(None),
        other => return Err(format!("{other} is no claim that can be required")),
    }))
}

/// Names with dots between; a dot behind a backslash belongs to its name.
fn path(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let name = names.last_mut().expect("there is a name");
        match letter {
            '\\' if letters.peek() == Some(&'.') => name.extend(letters.next()),
            '.' => names.push(String::new()),
            other => name.push(other),
        }
    }
    names
}

/// The key in a PEM text whose lines may end with `\\n`, as ring takes it: the content of the bit string.
fn public_key(text: &str) -> Result<Vec<u8>, String> {
    let pem = text.replace("\\n", "\n");
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes());
    let der = der.map_err(|error| format!("the key is no PEM of a public key: {error}"))?;
    // SEQUENCE { SEQUENCE algorithm, BIT STRING key }
    let unknown = || "the key is no public key as X.509 has it".to_owned();
    let (tag, body, _) = element(&der).ok_or_else(unknown)?;
    let (_, _, rest) = element(body).filter(|_| tag == 0x30).ok_or_else(unknown)?;
    let (tag, bits, _) = element(rest).ok_or_else(unknown)?;
    match bits.split_first() {
        Some((0, key)) if tag == 0x03 => Ok(key.to_vec()),
        _ => Err(unknown()),
    }
}

/// The first element of DER: its tag, its content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let count = usize::from(first & 0x7f);
    let (length, rest) = if first < 0x80 {
        (count, rest)
    } else if count <= 4 && count <= rest.len() {
        let (digits, rest) = rest.split_at(count);
        let length = digits.iter().fold(0, |all, it| all << 8 | usize::from(*it));
        (length, rest)
    } else {
        return None;
    };
    (length <= rest.len()).then(|| (tag, &rest[..length], &rest[length..]))
}

fn object(part: &str) -> Outcome<String> {
    let malformed = || Failure::bad_request("Malformed authentication token");
    let bytes = URL_SAFE_NO_PAD.decode(part.trim_end_matches('='));
    let text = canonical(&bytes.map_err(|_| malformed())?).map_err(|_| malformed())?;
    if Json::new(&text).kind() != Kind::Object {
        return Err(Failure::bad_request("Not an object"));
    }
    Ok(text)
}

fn check(required: &Required, head: Json<'_>, claims: Json<'_>) -> Outcome<()> {
    let claim = |name: &'static str| {
        let missing = || Failure::bad_request(format!("Missing {name} claim"));
        claims.member(name).ok_or_else(missing)
    };
    let time = |name: &'static str| {
        let invalid = || Failure::bad_request(format!("Invalid {name} claim"));
        let value = claim(name)?;
        let number = value.text().parse::<f64>();
        number.map_err(|_| invalid())
    };
    let now = clock::seconds() as f64;
    match required {
        Required::Type => match head.member("typ").and_then(Json::string).as_deref() {
            Some("JWT") => Ok(()),
            Some(_) => Err(Failure::bad_request("Invalid typ header parameter")),
            None => Err(Failure::bad_request("Missing typ header parameter")),
        },
        Required::KeyName if head.member("kid").is_none() => {
            Err(Failure::bad_request("Missing kid claim"))
        }
        Required::KeyName => Ok(()),
        Required::IssuedAt if claim("iat")?.is_integer() => Ok(()),
        Required::IssuedAt => Err(Failure::bad_request("Invalid iat claim")),
        Required::NotBefore if time("nbf")? < now => Ok(()),
        Required::NotBefore => Err(Failure::unauthorized("nbf not in past")),
        Required::Expires if time("exp")? > now => Ok(()),
        Required::Expires => Err(Failure::unauthorized("exp not in future")),
        Required::Issuer(issuer) => match claim("iss")?.string() {
            Some(given) if given == issuer.as_str() => Ok(()),
            _ => Err(Failure::bad_request("Invalid iss claim")),
        },
    }
}

#[cfg(test)]
mod tests;
