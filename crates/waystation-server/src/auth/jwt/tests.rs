//! Tokens that are trusted and tokens that are not. The keys and their tokens were made once with OpenSSL; the tokens end
//! in the year 2100.

use super::*;

const RSA_KEY: &str = concat!(
    "-----BEGIN PUBLIC KEY-----\\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAqlmdzXi6FOWhn4M2ED9U\\nNUe9cI",
    "tFF0icAtRvoeWyNBlI5+zSdqu5NhvtWwvg/lwj8EPFJjMfCGPIlK2sQSop\\nHpCDk0fIQPp32IngXc6uXOiL8xfzIlYh3PC/gEoT",
    "BEnV+tIdf5vcyXfayI8b9DKB\\n8GDP9uK2FW3PiwNKg36I5KFCmyHpKOC2xoHn0xX/r9WjywJWPpsOyjX1b0SMncc5\\n67IpE5Xw",
    "z0Jyh7kPHd7CcmYrfaA41XmJilteu02s7KH1ZIqK0ADwu4BaToCW9Oj5\\nW6BW66k2WjINtq1AhTeSOjP2iahlfEzsATUjggivny",
    "S6Bw/7p6dEOyTLY/nwo3E3\\nLQIDAQAB\\n-----END PUBLIC KEY-----\\n",
);
const EC_KEY: &str = concat!(
    "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEdII0iBO0MZqmx3RSdZheyfjKArNI\\nMCxyw8",
    "4QgXep2U780hSFo2HcltMRFErmYn0rIQsIptdQWaF03VVN1628mw==\\n-----END PUBLIC KEY-----\\n",
);
const RSA_TOKEN: &str = concat!(
    "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InIifQ.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsIl9jb3Vja",
    "GRiLnJvbGVzIjpbImRyaXZlciIsIl9hZG1pbiJdLCJpc3MiOiJjbyJ9.Jh3E3TvmF38oDFyAXJraAPMqizTnU6P9Aj5fi41G6fIl",
    "m2_02FGhQyAA_JyRO4vPZu12yOYdBmnQ9uMmTA-MRgfTYoVRyCtjYVmE-ETDxQ0DHvAAxQyBpEFrQANxZmEfbRuNktLrKkEw4ZbP",
    "fRMrMpKE1gIvVjKx-wtUmdDpi6dAUxQfud7ssqDB38-osX3ERbrtqthCvIUnVQzMXmBWqj7gKQKw3uDBozVlwZgp5Wy3AbKQ4vVo",
    "tWii5rR4XkPuhZlK23gopwsBTsNRfK2JY5_y6A56QQq3YNjbfUhq1oDVj1mP8G7ugoLfeJUEXPMPkgsk02FzYigxHdSyqdmHkA",
);
const EC_TOKEN: &str = concat!(
    "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImUifQ.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsIl9jb3Vja",
    "GRiLnJvbGVzIjpbImRyaXZlciIsIl9hZG1pbiJdLCJpc3MiOiJjbyJ9.-PWYpMLrgb9d_QO9DCk5GzbRbCBIVafCDnMA3XzKUsDD",
    "iCsF6ekvNBaTVkLTZ10v6AJUGdd6jZWm2WovHIi7UQ",
);

fn settings(text: &str) -> Jwt {
    Jwt::parse(text).expect("settings")
}

fn with_secret(required: &str) -> Jwt {
    settings(&format!(
        "[jwt_auth]\nrequired_claims = {required}\n[jwt_keys]\nhmac:_default = aGVsbG8=\n"
    ))
}

/// A token whose HMAC is right under the secret of `with_secret`.
fn token(head: &str, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(head), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"hello");
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn right_signatures_of_every_kind_name_their_caller() -> Outcome<()> {
    let jwt = settings(&format!("[jwt_keys]\nrsa:r = {RSA_KEY}\nec:e = {EC_KEY}\n"));
    for token in [RSA_TOKEN, EC_TOKEN] {
        let user = jwt.identify(token)?;
        assert_eq!(user.name.as_deref(), Some("ann"));
        assert_eq!(user.roles, ["driver", "_admin"]);
        let last = if token.ends_with('A') { "Q" } else { "A" };
        // The last letter of a signature holds bits that decide; the first one surely does.
        let (signed, signature) = token.rsplit_once('.').expect("a signature");
        let other = format!("{signed}.{last}{}", &signature[1..]);
        let refused = jwt.identify(&other).expect_err("another signature");
        assert_eq!(refused.reason, "Bad signature in authentication token");
    }
    let user = with_secret("exp").identify(&token(
        r#"{"alg":"HS256"}"#,
        r#"{"sub":"bob","exp":4102444800,"_couchdb.roles":"a, b"}"#,
    ))?;
    assert_eq!(user.roles, ["a", "b"]);
    Ok(())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn tokens_that_are_not_right_are_refused() {
    let jwt = with_secret("exp, nbf, {iss, \"co\"}, typ");
    let head = r#"{"alg":"HS256","typ":"JWT"}"#;
    let right = r#"{"sub":"ann","exp":4102444800,"nbf":1,"iss":"co"}"#;
    assert!(jwt.identify(&token(head, right)).is_ok());
    let cases = [
        (
            head,
            r#"{"sub":"ann","nbf":1,"iss":"co"}"#,
            400,
            "Missing exp claim",
        ),
        (
            head,
            r#"{"sub":"ann","exp":1,"nbf":1,"iss":"co"}"#,
            401,
            "exp not in future",
        ),
        (
            head,
            r#"{"sub":"ann","exp":"x","nbf":1,"iss":"co"}"#,
            400,
            "Invalid exp claim",
        ),
        (
            head,
            r#"{"sub":"ann","exp":4102444800,"nbf":4102444800,"iss":"co"}"#,
            401,
            "nbf not in past",
        ),
        (
            head,
            r#"{"sub":"ann","exp":4102444800,"nbf":1,"iss":"other"}"#,
            400,
            "Invalid iss claim",
        ),
        (
            head,
            r#"{"exp":4102444800,"nbf":1,"iss":"co"}"#,
            401,
            "Token missing sub claim.",
        ),
        (
            r#"{"alg":"HS256"}"#,
            right,
            400,
            "Missing typ header parameter",
        ),
        (
            r#"{"typ":"JWT"}"#,
            right,
            400,
            "Missing alg header parameter",
        ),
        (
            r#"{"alg":"none","typ":"JWT"}"#,
            right,
            400,
            "Invalid alg header parameter",
        ),
        (
            r#"{"alg":"HS512","typ":"JWT"}"#,
            right,
            400,
            "Bad HMAC in authentication token",
        ),
        (
            r#"{"alg":"HS256","typ":"JWT","kid":"x"}"#,
            right,
            400,
            "Unknown kid",
        ),
        (r#"{"alg":"RS256","typ":"JWT"}"#, right, 400, "Unknown kid"),
    ];
    for (head, claims, status, reason) in cases {
        let refused = jwt.identify(&token(head, claims)).expect_err(reason);
        assert_eq!(
            (refused.status.as_u16(), refused.reason.as_str()),
            (status, reason)
        );
    }
    for text in ["", "a.b", "a.b.c.d", "!.!.!", "e30.e30.!"] {
        assert_eq!(
            jwt.identify(text).expect_err(text).status.as_u16(),
            400,
            "{text}"
        );
    }
}

#[test]
fn roles_stand_where_the_settings_say() -> Outcome<()> {
    let jwt = settings(
        "[jwt_auth]\nroles_claim_path = my.nested._couchdb\\.roles\n[jwt_keys]\nhmac:_default = aGVsbG8=\n",
    );
    let claims = r#"{"sub":"ann","exp":4102444800,"my":{"nested":{"_couchdb.roles":["x"]}}}"#;
    let user = jwt.identify(&token(r#"{"alg":"HS256"}"#, claims))?;
    assert_eq!(user.roles, ["x"]);
    Ok(())
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let cases = [
        ("", "there is no key"),
        ("[jwt_keys]\nhmac:x = !", "line 2: the secret is no base64"),
        (
            "[jwt_keys]\nhmac = aGVsbG8=",
            "line 2: a key is named KIND:KID",
        ),
        ("[jwt_keys]\nrsa:x = y", "line 2: the key is no PEM"),
        (
            "[jwt_auth]\nrequired_claims = foo",
            "line 2: foo is no claim",
        ),
        ("[jwt_auth]\nother = 1", "line 2: other is no setting"),
        ("[jwt_auth]\nx", "line 2 is no NAME = VALUE"),
    ];
    for (text, reason) in cases {
        let refused = Jwt::parse(text).expect_err(text);
        assert!(refused.starts_with(reason), "{refused}");
    }
}
