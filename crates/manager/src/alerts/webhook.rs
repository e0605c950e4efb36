//! Delivers events to a webhook: POST of JSON, one after another, until each is accepted.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde_json::{Value, json};
use web::post::{Outcome, Post};

use super::events::{Event, EventKind, read};

/// An event as sent. It has the fields of Alertmanager's webhook (`version` 4, `status`, `alerts`), `text` for chat
/// programs, and the whole [`Event`] under `event`.
pub fn message(event: &Event) -> Value {
    let resolved = event.event == EventKind::Resolved;
    let status = if resolved { "resolved" } else { "firing" };
    let mut labels = json!({ "alertname": event.alert, "metric": event.metric.name() });
    let named = [("agent", &event.agent), ("group", &event.group), ("program", &event.program), ("peer", &event.peer)];
    for (kind, name) in named {
        if let Some(name) = name {
            labels[kind] = json!(name);
        }
    }
    let mut annotations = json!({ "summary": event.text, "threshold": event.threshold });
    if let Some(value) = &event.value_text {
        annotations["value"] = json!(value);
    }
    let alert = json!({
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": rfc3339(event.since_s),
        "endsAt": if resolved { rfc3339(event.at_s) } else { "0001-01-01T00:00:00Z".to_owned() },
        "generatorURL": "",
        "fingerprint": fingerprint(event),
    });
    json!({
        "version": "4",
        "receiver": "yamabiko",
        "status": status,
        "groupKey": event.alert,
        "groupLabels": { "alertname": event.alert },
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "truncatedAlerts": 0,
        "alerts": [alert],
        "id": event.id,
        // Chat programs interpret <..> and & as markup.
        "text": event.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
        "event": event,
    })
}

/// The fingerprint in Alertmanager's format: equal for all events of one rule and subject.
fn fingerprint(event: &Event) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{}\0{}", event.alert, event.subject).as_bytes());
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rfc3339(at_s: u64) -> String {
    let timestamp = i64::try_from(at_s).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    timestamp.unwrap_or_default().to_string()
}

/// The next event to deliver, and its number of attempts.
pub fn next(index: &Connection) -> rusqlite::Result<Option<(Event, u32)>> {
    let Some(event) = read(index, "told = 0 AND id > ?1 ORDER BY id", 0, 1)?.pop() else { return Ok(None) };
    let tries =
        index.query_row("SELECT tries FROM alert_log WHERE id = ?1", [event.number], |row| row.get(0)).optional()?;
    Ok(Some((event, tries.unwrap_or(0))))
}

/// Result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver accepted it.
    Accepted,
    /// The delivery failed, and is retried after this time. With the reason.
    Retry(Duration, String),
    /// The delivery failed for the last time. With the reason.
    Abandoned(String),
}

/// Sends an event once. `tries` is the number of earlier attempts, `age_s` its age.
pub fn deliver(post: &Post, event: &Event, tries: u32, age_s: u64) -> Delivery {
    let body = message(event).to_string();
    let outcome = post.once(body.as_bytes(), &[("content-type", "application/json")], IS_RETRYABLE);
    evaluate(outcome, tries, age_s)
}

fn evaluate(outcome: Outcome, tries: u32, age_s: u64) -> Delivery {
    let pause = PAUSE_MIN.saturating_mul(1 << tries.min(16)).min(PAUSE_MAX);
    match outcome {
        Outcome::Accepted(_) => Delivery::Accepted,
        Outcome::Retryable(why, _) if age_s > AGE_MAX_S => Delivery::Abandoned(why),
        Outcome::Retryable(why, retry_after) => Delivery::Retry(retry_after.unwrap_or(pause).min(RETRY_AFTER_MAX), why),
        Outcome::Refused(why, _) if tries + 1 >= REFUSALS_MAX => Delivery::Abandoned(why),
        Outcome::Refused(why, _) => Delivery::Retry(pause, why),
    }
}

/// Stores the result of a delivery.
pub fn store_result(change: &Transaction<'_>, number: i64, delivery: &Delivery) -> rusqlite::Result<()> {
    let state = match delivery {
        Delivery::Accepted => 1,
        Delivery::Retry(..) => 0,
        Delivery::Abandoned(_) => 3,
    };
    change.execute("UPDATE alert_log SET told = ?2, tries = tries + 1 WHERE id = ?1", params![number, state])?;
    Ok(())
}

/// Abandons the oldest events beyond [`WAITING_MAX`]; returns their number.
pub fn bound(change: &Transaction<'_>) -> rusqlite::Result<usize> {
    change.execute(
        "UPDATE alert_log SET told = 3 WHERE told = 0 AND id <= (SELECT id FROM alert_log WHERE told = 0 ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [WAITING_MAX],
    )
}

/// Status codes after which the same message may succeed.
const IS_RETRYABLE: fn(u16) -> bool = |status| matches!(status, 408 | 425 | 429) || status >= 500;
/// Pause between two attempts: the first, doubled each time up to the maximum; and the longest accepted
/// `Retry-After`.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Maximum age of an event: a receiver that returns after a day gets only current events.
const AGE_MAX_S: u64 = 86_400;
/// Refusals after which an event is abandoned, since others wait behind it.
const REFUSALS_MAX: u32 = 5;
/// Maximum number of waiting events.
const WAITING_MAX: i64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::tests::event;

    #[test]
    fn a_webhook_message_has_the_alertmanager_format() {
        let mut event = event("slow");
        event.agent = Some("shop-7".to_owned());
        event.text = "slow: <!channel> & more".to_owned();
        event.since_s = 1_795_392_000;
        let sent = message(&event);
        assert_eq!(
            (&sent["version"], &sent["status"], &sent["alerts"][0]["status"]),
            (&json!("4"), &json!("firing"), &json!("firing"))
        );
        assert_eq!(
            sent["alerts"][0]["labels"],
            json!({ "alertname": "slow", "metric": "response_p99", "agent": "shop-7" })
        );
        assert_eq!(sent["alerts"][0]["startsAt"], "2026-11-23T00:00:00Z");
        assert_eq!(sent["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
        assert_eq!(sent["text"], "slow: &lt;!channel&gt; &amp; more");
        assert_eq!(serde_json::from_value::<Event>(sent["event"].clone()).unwrap(), event);
        let over = message(&Event { event: EventKind::Resolved, at_s: 1_795_392_060, ..event });
        assert_eq!(
            (&over["status"], &over["alerts"][0]["endsAt"]),
            (&json!("resolved"), &json!("2026-11-23T00:01:00Z"))
        );
        assert_eq!(over["alerts"][0]["fingerprint"], sent["alerts"][0]["fingerprint"]);
    }

    #[test]
    fn a_webhook_event_waits_is_accepted_or_abandoned() {
        let later = |retry_after| Outcome::Retryable("away".into(), retry_after);
        let s = Duration::from_secs;
        assert_eq!(evaluate(Outcome::Accepted(Vec::new()), 7, 0), Delivery::Accepted);
        assert_eq!(evaluate(later(None), 0, 0), Delivery::Retry(s(1), "away".into()));
        assert_eq!(evaluate(later(None), 3, 0), Delivery::Retry(s(8), "away".into()));
        assert_eq!(evaluate(later(None), 4_000_000_000, 86_400), Delivery::Retry(s(300), "away".into()));
        assert_eq!(evaluate(later(Some(s(10_000))), 0, 0), Delivery::Retry(s(3600), "away".into()));
        assert_eq!(evaluate(later(None), 0, 86_401), Delivery::Abandoned("away".into()));
        assert_eq!(evaluate(Outcome::Refused("no".into(), Some(400)), 0, 0), Delivery::Retry(s(1), "no".into()));
        assert_eq!(evaluate(Outcome::Refused("no".into(), Some(400)), 4, 0), Delivery::Abandoned("no".into()));
    }
}
