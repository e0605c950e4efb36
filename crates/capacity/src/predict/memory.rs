//! Memory of the server, memory of the kernel, and descriptors per connection.

use std::time::Duration;

use schema::{PerConnection, Verdict};
use units::RequestRate;

use super::demands::{LoadResult, Measuring, RequestClass};
use experiment::ExperimentError;
use experiment::verdict;

/// Idle open connections of the two loads.
const CONNECTIONS: [u32; 2] = [500, 2000];
/// Request rate meanwhile, low enough that nothing else grows.
const RATE: f64 = 50.0;

/// Two loads with different numbers of open connections; `None` if one could not be made, with a note.
///
/// # Errors
/// The testbed could not make a run.
pub fn measure(measuring: &mut Measuring<'_>, class: &RequestClass) -> Result<Option<PerConnection>, ExperimentError> {
    let mut loads = Vec::new();
    for connections in CONNECTIONS {
        let mut load = class.load.clone();
        load.close = false;
        load.rate = RequestRate::from_per_second(RATE);
        load.open_connections = Some(connections);
        load.connections = None;
        load.warmup = Duration::ZERO;
        let plan = measuring.plan_of(load);
        let what = format!("{connections} open connections");
        match measuring.measure(&class.name, "connections", &plan, Duration::from_secs(1), &what) {
            Ok(Some(one)) => loads.push((f64::from(connections), one)),
            Ok(None) => return Ok(None),
            Err(error) => {
                measuring.notes.push(format!("memory per connection was not measured: {error}"));
                return Ok(None);
            }
        }
    }
    if let Some((_, bad)) = loads.iter().find(|(_, one)| verdict::named(&one.part.verdict) == Verdict::Invalid) {
        measuring.notes.push(format!(
            "memory per connection is unknown: a load with open connections was invalid ({})",
            bad.part.failed.join(", ")
        ));
        measuring.leave_out(loads.iter().map(|(_, one)| one));
        return Ok(None);
    }
    let whole =
        loads.iter().all(|(_, one)| !one.part.failed.iter().any(|check| check == "open_connections_established"));
    if !whole {
        measuring.leave_out(loads.iter().map(|(_, one)| one));
        measuring
            .notes
            .push("memory per connection is unknown: the server kept fewer connections open than were opened".into());
        return Ok(None);
    }
    Ok(of(&loads))
}

/// The slope between two loads.
fn of(loads: &[(f64, LoadResult)]) -> Option<PerConnection> {
    let [(few, with_few), (many, with_many)] = loads else { return None };
    let slope = |less: f64, more: f64| (more - less) / (many - few);
    let server_bytes = slope(with_few.rss_bytes as f64, with_many.rss_bytes as f64).max(0.0);
    let descriptors = with_few.descriptors.zip(with_many.descriptors);
    Some(PerConnection {
        server_bytes,
        // Both ends of each connection are on this machine.
        kernel_bytes: with_many.kernel_bytes_each.map(|both| both / 2.0),
        descriptors: descriptors.map(|(less, more)| slope(less as f64, more as f64)),
        base_bytes: (with_few.rss_bytes as f64 - few * server_bytes).max(0.0),
    })
}

/// Number of connections that fit into `bytes` of memory in addition to the server itself.
pub fn connections(per: &PerConnection, bytes: f64) -> Option<f64> {
    let each = per.server_bytes + per.kernel_bytes.unwrap_or(0.0);
    (each > 0.0).then(|| ((bytes - per.base_bytes) / each).max(0.0))
}

#[cfg(test)]
mod tests {
    use schema::MeasuredLoad;

    use super::*;

    fn load(connections: f64, rss_bytes: u64, descriptors: Option<u64>) -> (f64, LoadResult) {
        let result = LoadResult {
            number: 0,
            part: MeasuredLoad::default(),
            traffic: None,
            completed: 0,
            request_bytes: 0.0,
            rss_bytes,
            descriptors,
            kernel_bytes_each: Some(8000.0),
            connection_s: 0.0,
            connect_s: 0.0,
            loop_busy: 0.0,
            longer_pause_s: 0.0,
        };
        (connections, result)
    }

    #[test]
    fn memory_per_connection_is_the_slope_between_two_loads() {
        let two = [load(500.0, 5_500_000, Some(520)), load(2000.0, 7_000_000, Some(2020))];
        let per = of(&two).unwrap();
        assert_eq!((per.server_bytes, per.kernel_bytes, per.descriptors), (1000.0, Some(4000.0), Some(1.0)));
        assert_eq!(per.base_bytes, 5_000_000.0);
        // 64 MB less 5 MB, at 5 kB each.
        assert_eq!(connections(&per, 64e6), Some(59e6 / 5000.0));
        assert_eq!(connections(&PerConnection::default(), 64e6), None);
        assert!(of(&two[..1]).is_none());
    }
}
