//! The connection in either version of MQTT, as one.
//!
//! The library under this resends what was not acknowledged to us, and drops acknowledgements that wait when a connection
//! fails. It keeps events of the failed connection; those are cleared here, since the broker sends their messages again.

use crate::mapping::Subscription;
use crate::settings::{Error, Settings, Version};
use crate::tls;
use rumqttc::v5;
use rumqttc::{TlsConfiguration, Transport};
use std::sync::Arc;
use std::time::Duration;

/// Requests that wait for the connection: every packet identifier may have its acknowledgement, and some dead letters.
const REQUESTS: usize = 70_000;
/// The longest message of MQTT (bytes): what is too long for us is answered by a dead letter and not by a broken connection.
const PACKET_BYTES_MAX: usize = 268_435_455;
/// How much of a packet is not payload (bytes).
const HEAD_BYTES: usize = 64 << 10;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) is_retained: bool,
    /// What acknowledges it; `None`: nothing does.
    pub(crate) packet: Option<u16>,
}

/// What comes through a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Connected {
        resumed: bool,
    },
    Message(Message),
    /// The broker refused that many subscriptions of a request.
    Subscribed {
        refused: usize,
    },
    Nothing,
}

/// The receiving half.
pub(crate) enum Link {
    V3(Box<rumqttc::EventLoop>),
    V5(Box<v5::EventLoop>),
}

/// The sending half.
#[derive(Clone)]
pub(crate) enum Sender {
    V3(rumqttc::AsyncClient),
    V5(v5::AsyncClient),
}

/// The requests are full, or the connection is over for good.
#[derive(Debug)]
pub(crate) struct NotSent;

/// Both halves of a connection that is yet to be made.
pub(crate) fn open(settings: &Settings) -> Result<(Sender, Link), Error> {
    let broker = settings.broker()?;
    let login = settings.password()?;
    let tls = tls::config(settings)?.map(TlsConfiguration::Rustls);
    let transport = tls.map(Transport::tls_with_config);
    let keep_alive = Duration::from_secs(u64::from(settings.keep_alive_seconds));
    Ok(match settings.version {
        Version::V3 => {
            let mut options =
                rumqttc::MqttOptions::new(&settings.client_id, broker.host, broker.port);
            options
                .set_clean_session(false)
                .set_manual_acks(true)
                .set_keep_alive(keep_alive)
                .set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
            if let Some((user, password)) = login {
                options.set_credentials(user, password);
            }
            if let Some(transport) = transport {
                options.set_transport(transport);
            }
            let (client, events) = rumqttc::AsyncClient::new(options, REQUESTS);
            (Sender::V3(client), Link::V3(Box::new(events)))
        }
        Version::V5 => {
            let mut options = v5::MqttOptions::new(&settings.client_id, broker.host, broker.port);
            let packet_bytes = settings.payload_bytes_max + HEAD_BYTES;
            options
                .set_clean_start(false)
                .set_manual_acks(true)
                .set_keep_alive(keep_alive)
                .set_session_expiry_interval(Some(settings.session_seconds))
                .set_receive_maximum(Some(settings.receive_max))
                .set_max_packet_size(Some(packet_bytes as u32));
            if let Some((user, password)) = login {
                options.set_credentials(user, password);
            }
            if let Some(transport) = transport {
                options.set_transport(transport);
            }
            let (client, events) = v5::AsyncClient::new(options, REQUESTS);
            (Sender::V5(client), Link::V5(Box::new(events)))
        }
    })
}

impl Link {
    /// What comes next. After an error the next call connects anew.
    pub(crate) async fn next(&mut self) -> Result<Happened, String> {
        match self {
            Self::V3(events) => match events.poll().await {
                Ok(event) => Ok(happened_v3(event)),
                Err(error) => Err(error.to_string()),
            },
            Self::V5(events) => match events.poll().await {
                Ok(event) => Ok(happened_v5(event)),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Forgets what the failed connection left: messages that the broker sends again, and acknowledgements of them.
    pub(crate) fn forget(&mut self) {
        match self {
            Self::V3(events) => {
                events.clean();
                events.state.events.clear();
            }
            Self::V5(events) => {
                events.clean();
                events.state.events.clear();
            }
        }
    }
}

fn happened_v3(event: rumqttc::Event) -> Happened {
    use rumqttc::{Packet, QoS, SubscribeReasonCode};
    let rumqttc::Event::Incoming(packet) = event else {
        return Happened::Nothing;
    };
    match packet {
        Packet::ConnAck(answer) => Happened::Connected {
            resumed: answer.session_present,
        },
        Packet::Publish(message) => Happened::Message(Message {
            packet: (message.qos != QoS::AtMostOnce).then_some(message.pkid),
            topic: message.topic,
            payload: message.payload.to_vec(),
            is_retained: message.retain,
        }),
        Packet::SubAck(answer) => {
            let codes = answer.return_codes.iter();
            let refused = codes.filter(|code| **code == SubscribeReasonCode::Failure);
            Happened::Subscribed {
                refused: refused.count(),
            }
        }
        _ => Happened::Nothing,
    }
}

fn happened_v5(event: v5::Event) -> Happened {
    use v5::mqttbytes::QoS;
    use v5::mqttbytes::v5::{Packet, SubscribeReasonCode};
    let v5::Event::Incoming(packet) = event else {
        return Happened::Nothing;
    };
    match packet {
        Packet::ConnAck(answer) => Happened::Connected {
            resumed: answer.session_present,
        },
        Packet::Publish(message) => Happened::Message(Message {
            packet: (message.qos != QoS::AtMostOnce).then_some(message.pkid),
            topic: String::from_utf8_lossy(&message.topic).into_owned(),
            payload: message.payload.to_vec(),
            is_retained: message.retain,
        }),
        Packet::SubAck(answer) => {
            let codes = answer.return_codes.iter();
            let refused = codes.filter(|code| !matches!(code, SubscribeReasonCode::Success(_)));
            Happened::Subscribed {
                refused: refused.count(),
            }
        }
        _ => Happened::Nothing,
    }
}

impl Sender {
    /// Subscribes to all of `subscriptions`.
    pub(crate) fn subscribe(&self, subscriptions: &[Subscription]) -> Result<(), NotSent> {
        match self {
            Self::V3(client) => {
                let filters = subscriptions.iter().map(|it| {
                    let qos = match it.qos {
                        0 => rumqttc::QoS::AtMostOnce,
                        _ => rumqttc::QoS::AtLeastOnce,
                    };
                    rumqttc::SubscribeFilter::new(it.filter.clone(), qos)
                });
                client.try_subscribe_many(filters).map_err(|_| NotSent)
            }
            Self::V5(client) => {
                let filters = subscriptions.iter().map(|it| {
                    let qos = match it.qos {
                        0 => v5::mqttbytes::QoS::AtMostOnce,
                        _ => v5::mqttbytes::QoS::AtLeastOnce,
                    };
                    v5::mqttbytes::v5::Filter::new(it.filter.clone(), qos)
                });
                client.try_subscribe_many(filters).map_err(|_| NotSent)
            }
        }
    }

    /// Acknowledges the message with this packet identifier.
    pub(crate) fn acknowledge(&self, packet: u16) -> Result<(), NotSent> {
        match self {
            Self::V3(client) => {
                let qos = rumqttc::QoS::AtLeastOnce;
                let mut message = rumqttc::Publish::new("", qos, Vec::new());
                message.pkid = packet;
                client.try_ack(&message).map_err(|_| NotSent)
            }
            Self::V5(client) => {
                let qos = v5::mqttbytes::QoS::AtLeastOnce;
                let mut message = v5::mqttbytes::v5::Publish::new("", qos, Vec::new(), None);
                message.pkid = packet;
                client.try_ack(&message).map_err(|_| NotSent)
            }
        }
    }

    /// Sends a message with quality of service 1.
    pub(crate) fn publish(&self, topic: &str, payload: Vec<u8>) -> Result<(), NotSent> {
        match self {
            Self::V3(client) => client
                .try_publish(topic, rumqttc::QoS::AtLeastOnce, false, payload)
                .map_err(|_| NotSent),
            Self::V5(client) => client
                .try_publish(topic, v5::mqttbytes::QoS::AtLeastOnce, false, payload)
                .map_err(|_| NotSent),
        }
    }

    /// Says goodbye once everything before is sent.
    pub(crate) fn disconnect(&self) -> Result<(), NotSent> {
        match self {
            Self::V3(client) => client.try_disconnect().map_err(|_| NotSent),
            Self::V5(client) => client.try_disconnect().map_err(|_| NotSent),
        }
    }
}

/// The sending half, and the number of the connection that it speaks for.
///
/// Every failure counts up, under the lock that acknowledgements take; so an acknowledgement is queued for the connection
/// of its message, or not at all.
pub(crate) struct Outgoing {
    sender: Sender,
    connection: std::sync::Mutex<u64>,
}

impl Outgoing {
    pub(crate) fn new(sender: Sender) -> Arc<Self> {
        Arc::new(Self {
            sender,
            connection: std::sync::Mutex::new(0),
        })
    }

    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The number of the connection.
    pub(crate) fn connection(&self) -> u64 {
        *self.lock()
    }

    /// A connection has failed: what it left in `link` goes, and the next one has another number.
    pub(crate) fn failed(&self, link: &mut Link) {
        let mut connection = self.lock();
        *connection += 1;
        link.forget();
    }

    /// Does `send` if `connection` still is the one.
    pub(crate) fn on(
        &self,
        connection: u64,
        send: impl FnOnce(&Sender) -> Result<(), NotSent>,
    ) -> Result<(), NotSent> {
        let now = self.lock();
        if *now == connection {
            return send(&self.sender);
        }
        Err(NotSent)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        let locked = self.connection.lock();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
