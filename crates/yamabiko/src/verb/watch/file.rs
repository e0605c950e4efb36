//! Reads and analyses packets of a capture file or a pipe.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sys::signal::Interrupts;
use units::Timestamp;
use watch::Watch;
use wire::ip;
use wire::link::{LinkType, Payload};
use wire::tunnel::Innermost;

use super::CaptureEnd;
use super::sink::Sink;
use crate::args;
use crate::terminal::print_message;
use crate::verb::capture_file::{self, FileRead, Packet};

/// Opens a capture file; `-` is standard input.
pub fn open(path: &Path) -> Result<File> {
    if path == Path::new("-") {
        return Ok(File::from(std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?));
    }
    // A missing file is an error of usage (status 1), so no io::Error is passed on.
    let file = File::open(path).map_err(|error| anyhow!("opening {}: {error}", path.display()))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!("{} is a folder, not a capture", path.display());
    }
    Ok(file)
}

/// The name of a capture file in messages.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Analyses a capture file to its end, to the first defect, or to Ctrl-C.
pub fn watch(
    mut input: File,
    arguments: &args::Watch,
    interrupts: &Interrupts,
    watch: &mut Watch,
    sink: &mut Sink<'_>,
) -> CaptureEnd {
    let mut reading = Reading { arguments, watch, sink, from: None, to: Timestamp::ZERO, packets: 0, unknown: None };
    let FileRead { interrupted, mut failure, drops, reordered } =
        capture_file::read(&mut input, interrupts, |packet| reading.packet(packet));
    let Reading { from, to, packets, unknown, .. } = reading;
    if drops > 0 {
        watch.handle_capture_drops(to, drops);
    }
    if let Some(number) = unknown {
        let error = anyhow!("packets with the unsupported link layer {number} (LINKTYPE) were left out");
        match (&failure, packets) {
            (None, 0) => failure = Some(error),
            _ => print_message(format_args!("note: {error}")),
        }
    }
    CaptureEnd { from: from.unwrap_or(to), to, interrupted, failure, reordered }
}

/// Filters, analyses and counts the packets of a file.
struct Reading<'a, 'b> {
    arguments: &'a args::Watch,
    watch: &'a mut Watch,
    sink: &'a mut Sink<'b>,
    from: Option<Timestamp>,
    to: Timestamp,
    /// Packets of supported link layers.
    packets: u64,
    /// Number of an unsupported link layer, if a packet has one.
    unknown: Option<u16>,
}

impl Reading<'_, '_> {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) {
        self.watch.number_next(packet.number);
        let Some(link) = LinkType::from_number(packet.link) else {
            self.unknown = Some(packet.link);
            return self.watch.handle_unknown(packet.at, packet.link, packet.original_length);
        };
        self.packets += 1;
        self.from.get_or_insert(packet.at);
        self.to = self.to.max(packet.at);
        if matches_filter(self.arguments, link, packet) {
            self.watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            if let Some(recorder) = &mut self.sink.recorder {
                recorder.packet(link, packet.device, packet.at, packet.bytes, packet.original_length);
                recorder.wait_for_space();
            }
        } else {
            self.watch.handle_time(packet.at);
        }
        if self.packets.is_multiple_of(PACKETS_PER_COLLECTION) {
            self.sink.collect(self.watch);
        }
    }
}

/// Whether a packet has one of the given ports and one of the given hosts, at either end. The kernel's filter does the
/// same for a device.
fn matches_filter(arguments: &args::Watch, link: LinkType, packet: &Packet<'_>) -> bool {
    if arguments.ports.is_empty() && arguments.hosts.is_empty() {
        return true;
    }
    // Unlike the kernel's filter, this one looks inside tunnels.
    let (start, header) = match link.innermost(packet.bytes, packet.original_length as usize) {
        Ok(Innermost::Tcp { at, packet, .. } | Innermost::Udp { at, packet, .. }) => (at, packet),
        // A later fragment has no ports.
        Ok(Innermost::LaterFragment) => match outermost(link, packet) {
            Some(found) => found,
            None => return false,
        },
        _ => return false,
    };
    let bytes = packet.bytes.get(start..).unwrap_or(&[]);
    let ends: [std::net::IpAddr; 2] = match header.addresses {
        wire::ip::Addresses::V4(source, destination) => [source.into(), destination.into()],
        wire::ip::Addresses::V6(source, destination) => [source.into(), destination.into()],
    };
    if !arguments.hosts.is_empty() && !ends.iter().any(|end| arguments.hosts.contains(end)) {
        return false;
    }
    if arguments.ports.is_empty() || header.fragment.is_some_and(|fragment| fragment.offset > 0) {
        return true;
    }
    let port = |at: usize| bytes.get(header.transport_at + at..header.transport_at + at + 2);
    [port(0), port(2)]
        .into_iter()
        .flatten()
        .any(|port| arguments.ports.contains(&u16::from_be_bytes([port[0], port[1]])))
}

/// Offset and content of the first IP header of a frame.
fn outermost(link: LinkType, packet: &Packet<'_>) -> Option<(usize, ip::Packet)> {
    let Ok(Payload::Ip(start)) = link.payload(packet.bytes) else { return None };
    let length = (packet.original_length as usize).saturating_sub(start);
    let header = ip::Packet::parse(packet.bytes.get(start..)?, length).ok()?;
    Some((start, header))
}

/// Packets between two collections of finished records.
const PACKETS_PER_COLLECTION: u64 = 4096;
