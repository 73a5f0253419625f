//! Settings in, meanings out.

use super::*;

fn mapping(toml: &str) -> Result<Mapping, String> {
    let settings: Settings = toml::from_str(toml).map_err(|error| error.to_string())?;
    Mapping::new(&settings).map_err(|error| error.to_string())
}

fn content<'a>(topic: &'a str, payload: &'a str) -> Content<'a> {
    Content {
        topic,
        payload: payload.as_bytes(),
        is_retained: false,
        arrival: 7,
    }
}

fn one(sensor: &str, time: i64, value: Value) -> Meaning {
    Meaning::Readings(vec![Reading {
        device: "car17".into(),
        sensor: sensor.into(),
        time,
        value,
    }])
}

#[test]
fn raw_payloads_have_the_time_of_their_arrival() -> Result<(), String> {
    let mapping = mapping("[[readings]]\ntopic = 's/{device}/{sensor}'\npayload = 'raw'")?;
    let meant = mapping.read(content("s/car17/speed", "50"));
    assert_eq!(meant, Ok(one("speed", 7, Value::Integer(50))));
    let kept = Content {
        is_retained: true,
        ..content("s/car17/speed", "50")
    };
    assert_eq!(mapping.read(kept), Ok(Meaning::Nothing));
    Ok(())
}

#[test]
fn json_names_value_time_device_and_sensor() -> Result<(), String> {
    let mapping = mapping(
        "[[readings]]\ntopic = 'a'\ndevice = '$.id'\nsensor = '$.what'\nvalue = '$.data.v'\ntime = '$.t'\ntime_unit = 's'",
    )?;
    let read = |payload: &str| mapping.read(content("a", payload));
    for (time, micros) in [("2", 2_000_000), ("1.5", 1_500_000), ("\"3\"", 3_000_000)] {
        let payload = format!(r#"{{"id":"car17","what":"speed","t":{time},"data":{{"v":0.5}}}}"#);
        assert_eq!(read(&payload), Ok(one("speed", micros, Value::Float(0.5))));
    }
    let dated = r#"{"id":"car17","what":"speed","t":"1970-01-01T00:00:01Z","data":{"v":true}}"#;
    assert_eq!(read(dated), Ok(one("speed", 1_000_000, Value::Flag(true))));
    let kind = |payload: &str| read(payload).err().map(|poison| poison.kind);
    let cases = [
        ("{", "payload"),
        (r#"{"what":"speed","t":1,"data":{"v":1}}"#, "name"),
        (r#"{"id":"c","t":1,"data":{"v":1}}"#, "name"),
        (r#"{"id":"c","what":"s","data":{"v":1}}"#, "time"),
        (r#"{"id":"c","what":"s","t":"soon","data":{"v":1}}"#, "time"),
        (r#"{"id":"c","what":"s","t":9e300,"data":{"v":1}}"#, "time"),
        (r#"{"id":"c","what":"s","t":1,"data":{}}"#, "value"),
        (r#"{"id":"c","what":"s","t":1,"data":{"v":null}}"#, "value"),
    ];
    for (payload, expected) in cases {
        assert_eq!(kind(payload), Some(expected), "{payload}");
    }
    Ok(())
}

#[test]
fn each_member_is_a_sensor_but_for_the_time() -> Result<(), String> {
    let mapping = mapping(
        "[[readings]]\ntopic = 'zigbee/{device}'\nvalue = '$.*'\ntime = '$.ts'\ntime_unit = 'ns'",
    )?;
    let payload = r#"{"ts":1000,"temperature":21.5,"open":false,"gone":null}"#;
    let Ok(Meaning::Readings(readings)) = mapping.read(content("zigbee/car17", payload)) else {
        return Err("no readings".into());
    };
    let mut found: Vec<_> = readings
        .iter()
        .map(|it| (it.sensor.as_str(), it.time))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("open", 1), ("temperature", 1)]);
    let poison = mapping.read(content("zigbee/car17", r#"{"ts":1}"#));
    assert_eq!(poison, Ok(Meaning::Readings(Vec::new())));
    assert_eq!(
        mapping
            .read(content("zigbee/car17", "5"))
            .err()
            .map(|it| it.kind),
        Some("time")
    );
    Ok(())
}

#[test]
fn devices_arrive_and_depart_by_topic_and_payload() -> Result<(), String> {
    let mapping = mapping(
        "[[arrive]]\ntopic = 'd/{device}/status'\npayload = 'online'\n\
         [[depart]]\ntopic = 'd/{device}/status'\npayload = 'offline'\n[[depart]]\ntopic = 'gone/{device}'",
    )?;
    let read = |topic: &str, payload: &str| mapping.read(content(topic, payload));
    assert_eq!(
        read("d/car17/status", "online"),
        Ok(Meaning::Arrive("car17".into()))
    );
    assert_eq!(
        read("d/car17/status", "offline"),
        Ok(Meaning::Depart("car17".into()))
    );
    assert_eq!(read("d/car17/status", "idle"), Ok(Meaning::Nothing));
    assert_eq!(read("gone/car17", ""), Ok(Meaning::Depart("car17".into())));
    assert_eq!(read("gone/", "").err().map(|it| it.kind), Some("name"));
    assert_eq!(read("other", "").err().map(|it| it.kind), Some("topic"));
    let kept = Content {
        is_retained: true,
        ..content("gone/car17", "")
    };
    assert_eq!(
        mapping.read(kept),
        Ok(Meaning::Nothing),
        "a kept departure may be an old one"
    );
    let filters: Vec<&str> = mapping
        .subscriptions
        .iter()
        .map(|it| it.filter.as_str())
        .collect();
    assert_eq!(filters, ["d/+/status", "gone/+"], "each once");
    Ok(())
}

#[test]
fn what_is_wrong_with_settings_is_said() {
    let cases = [
        ("", "there is no topic"),
        ("[[readings]]\ntopic = 's/{sensor}'", "device is named by"),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\ndevice = '$.id'",
            "one of them",
        ),
        ("[[readings]]\ntopic = '{device}'", "sensor is named by"),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\nqos = 2",
            "qos is 0 or 1",
        ),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\nshare = 'a/b'",
            "share names a group",
        ),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\npayload = 'raw'\ntime = '$.t'",
            "payload is raw",
        ),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\ntime = '$.*'",
            "place for value alone",
        ),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\nvalue = 'x'",
            "is no path",
        ),
        (
            "[[readings]]\ntopic = '{device}/{sensor}'\ntime_unit = 'h'",
            "unknown variant",
        ),
        ("[[depart]]\ntopic = 'gone'", "has no {device}"),
        (
            "dead_letter = 'a/b'\n[[readings]]\ntopic = '{device}/{sensor}'",
            "would come back",
        ),
        (
            "dead_letter = 'a/#'\n[[readings]]\ntopic = '{device}/{sensor}'",
            "is a pattern",
        ),
        ("topics = 5", "unknown field"),
    ];
    for (toml, expected) in cases {
        let error = mapping(toml).err().unwrap_or_default();
        assert!(error.contains(expected), "{toml}\n{error}");
    }
}

#[test]
fn a_payload_that_is_too_large_is_poison() -> Result<(), String> {
    let mapping = mapping(
        "payload_bytes_max = 3\n[[readings]]\ntopic = 's/{device}/{sensor}'\npayload = 'raw'",
    )?;
    assert!(mapping.read(content("s/car17/speed", "123")).is_ok());
    let poison = mapping.read(content("s/car17/speed", "1234")).err();
    assert_eq!(poison.map(|it| it.kind), Some("too_large"));
    Ok(())
}

#[test]
fn readings_of_one_message_are_bounded() -> Result<(), String> {
    let mapping = mapping("[[readings]]\ntopic = 'all/{device}'\nvalue = '$.*'")?;
    let payload = |members: usize| {
        let members: Vec<String> = (0..members).map(|it| format!("\"{it}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let topic = format!("all/{}", "d".repeat(DEVICE_BYTES_MAX));
    let few = payload(1000);
    assert!(mapping.read(content(&topic, &few)).is_ok());
    let many = payload(READINGS_BYTES_MAX / DEVICE_BYTES_MAX);
    let refused = mapping.read(content(&topic, &many)).unwrap_err();
    assert_eq!(refused.kind, "too_large");
    Ok(())
}

#[test]
fn a_device_name_that_is_too_long_is_poison_before_it_is_copied() -> Result<(), String> {
    let mapping = mapping("[[readings]]\ntopic = 's/{device}'\nvalue = '$.*'")?;
    let longest = "d".repeat(DEVICE_BYTES_MAX);
    assert!(
        mapping
            .read(content(&format!("s/{longest}"), r#"{"a":1,"b":2}"#))
            .is_ok()
    );
    let poison = mapping.read(content(&format!("s/{longest}d"), r#"{"a":1,"b":2}"#));
    assert_eq!(poison.err().map(|it| it.kind), Some("name"));
    Ok(())
}

#[test]
fn a_setting_out_of_its_range_is_named() -> Result<(), String> {
    let cases = [
        ("keep_alive_seconds = 4", "mqtt.keep_alive_seconds: "),
        ("receive_max = 0", "mqtt.receive_max: "),
        ("payload_bytes_max = 20_000_000", "mqtt.waiting_bytes_max: "),
        ("client_id = ''", "mqtt.client_id: "),
    ];
    for (wrong, expected) in cases {
        let toml = format!("{wrong}\n[[readings]]\ntopic = 's/{{device}}/{{sensor}}'");
        let settings: Settings = toml::from_str(&toml).map_err(|error| error.to_string())?;
        let error = settings.check().err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with(expected), "{wrong}: {error}");
    }
    Ok(())
}
