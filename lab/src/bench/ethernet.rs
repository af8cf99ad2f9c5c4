// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP through the driver's image, with and without the device's offloads, beside RDMA on the same device; RDMA over several queue
//! pairs; and frames through QEMU's device, also by Linux's driver ([`linux`]).
//!
//! Instructions are those of the driver's image, counted in virtual time as in [`super::image`]. CPU time is that of all threads of a run in
//! real time: both hosts, their TCP stacks or consumers, both devices and the simulated kernel.

use std::{fmt, path::Path};

use anyhow::{Context as _, Result};
use device_sim::virtio_net::Features;

use super::{
    figure::{Figure, MESSAGE, Unit, fastest},
    image, linux,
    orders::{self, Orders},
    shared,
};
use crate::{
    device::DeviceName,
    measure::{self, HostCounters, Run, Transfers, Work},
    miniport::load::{self, Between},
    testbed::Options,
    workspace,
};

/// Bytes of the two runs under callgrind that are subtracted.
const LENGTHS: [u64; 2] = [8 << 20, 24 << 20];
/// Bytes of a run in real time.
const BYTES: u64 = 512 << 20;
/// Goal: segments for each notification of the device.
const PER_NOTIFICATION: f64 = 16.0;
/// Headers of a TCP segment in the MTU, without options.
const HEADERS: u16 = 40;
/// The jumbo frames whose TCP is compared with RDMA.
const JUMBO: u16 = 9000;
/// Connections that share the queue pairs.
const CONNECTIONS: u16 = 8;
/// Frames between two hosts.
const FRAMES: u64 = 50_000;
/// Queue pairs of the devices that are compared.
const PAIRS: [u16; 3] = [1, 2, 4];

/// Devices of a sender and a receiver.
const DEVICES: [(&str, [DeviceName; 2]); 4] = [
    ("simulated devices", [DeviceName::Simulated; 2]),
    ("transmitted by QEMU's device to a simulated one", [DeviceName::Qemu, DeviceName::Simulated]),
    ("received by QEMU's device from a simulated one", [DeviceName::Simulated, DeviceName::Qemu]),
    ("between two devices of QEMU", [DeviceName::Qemu; 2]),
];

/// A kind of TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tcp {
    mtu: u16,
    has_offloads: bool,
}

const KINDS: [Tcp; 4] = [
    Tcp { mtu: 1500, has_offloads: false },
    Tcp { mtu: 1500, has_offloads: true },
    Tcp { mtu: JUMBO, has_offloads: false },
    Tcp { mtu: JUMBO, has_offloads: true },
];

/// Prefix of the counted runs' names.
pub const WORK: &str = "tcp:";

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offloads = if self.has_offloads { "with" } else { "without" };
        write!(f, "TCP, MTU {}, {offloads} offloads", self.mtu)
    }
}

impl Tcp {
    fn options(self, real_time: bool) -> Options {
        let without = if self.has_offloads { Features::default() } else { Features::OFFLOADS };
        let features = Features::DEFAULT.without(without);
        Options { real_time, features, mtu: Some(self.mtu), verifier: false, ..Options::default() }
    }

    /// Segments of so many bytes.
    fn segments(self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.mtu - HEADERS)
    }

    /// The counted run of so many bytes.
    fn work(self, bytes: u64) -> String {
        format!("{WORK}{}:{}:{bytes}", self.mtu, self.has_offloads)
    }
}

/// Parses what [`Tcp::work`] returned.
fn parse(request: &str) -> Result<(Tcp, u64)> {
    let request = request.strip_prefix(WORK).context("not a request for TCP")?;
    let (mtu, rest) = request.split_once(':').context("no MTU")?;
    let (has_offloads, bytes) = rest.split_once(':').context("no number of bytes")?;
    Ok((Tcp { mtu: mtu.parse()?, has_offloads: has_offloads.parse()? }, bytes.parse()?))
}

/// Runs what [`Tcp::work`] asks for, and prints the report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str, seed: u64) -> Result<()> {
    let (kind, bytes) = parse(request)?;
    let options = Options { seed, ..kind.options(false) };
    image::print(measure::run_tcp(&workspace::image_path(), bytes, &options)?)
}

/// Measures all. Returns what could not be measured, with the reason.
///
/// # Errors
/// A run fails.
pub fn measure(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<Vec<String>> {
    let mut of_tcp = None;
    for kind in KINDS {
        say(kind.to_string());
        of_segments(path, kind, Orders::ONE, figures)?;
        let run = measure::run_tcp(path, BYTES, &kind.options(true))?;
        let time = seconds_per_gib(&run);
        of_tcp = Some(time);
        figures.push(Figure::new(
            format!("{kind}, real time"),
            run.result.bytes_per_second(),
            Unit::BytesPerSecond,
        ));
        figures.push(Figure::new(format!("{kind}, CPU time of all threads"), time, Unit::SecondsPerGib));
    }
    beside_rdma(path, of_tcp.context("no TCP")?, say, figures)?;
    over_queue_pairs(path, say, figures)?;
    shared::measure(path, say, figures)?;
    ethernet_over_queue_pairs(path, say, figures)?;
    let mut omitted = Vec::new();
    let has_qemu = workspace::has_qemu();
    if !has_qemu {
        omitted.push("QEMU's device, also with Linux's driver: there is no qemu-system-x86_64".into());
    }
    for (what, devices) in DEVICES {
        if devices.contains(&DeviceName::Qemu) && !has_qemu {
            continue;
        }
        say(format!("frames, {what}"));
        let rate = frames(path, Between { devices, pairs: 1, count: FRAMES })?;
        let name = format!("frames of 1514 bytes, {what}, real time");
        figures.push(Figure::new(name, rate, Unit::PerSecond));
    }
    if has_qemu {
        omitted.extend(linux::measure(say, figures));
    }
    Ok(omitted)
}

/// Counts what segments cost, in virtual time.
///
/// # Errors
/// A run fails.
pub fn count(path: &Path, orders: Orders, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for kind in KINDS {
        say(format!("{kind}: instructions"));
        of_segments(path, kind, orders, figures)?;
    }
    Ok(())
}

/// Returns the frames per second of the fastest of several runs.
fn frames(path: &Path, between: Between) -> Result<f64> {
    fastest(|| load::rate_on(path, between))
}

/// Adds the rates of a TCP connection, and of UDP packets of several flows, over one, two and four queue pairs, on two processors.
fn ethernet_over_queue_pairs(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    let kind = Tcp { mtu: JUMBO, has_offloads: true };
    for pairs in PAIRS {
        say(format!("Ethernet, {pairs} queue pairs"));
        let options = Options { pairs, ..kind.options(true) };
        let features = if pairs == 1 { options.features } else { options.features | Features::MQ };
        let options = Options { features, ..options };
        let best = fastest(|| Ok(measure::run_tcp(path, BYTES, &options)?.result.bytes_per_second()))?;
        let name = format!("{kind}, {pairs} queue pairs on 2 processors, real time");
        figures.push(Figure::new(name, best, Unit::BytesPerSecond));
        let rate = frames(path, Between { devices: [DeviceName::Simulated; 2], pairs, count: FRAMES })?;
        let name = format!("frames of 1514 bytes, 16 flows, {pairs} queue pairs on 2 processors, real time");
        figures.push(Figure::new(name, rate, Unit::PerSecond));
    }
    Ok(())
}

/// Adds what a segment costs the driver's image and its device.
fn of_segments(path: &Path, kind: Tcp, orders: Orders, figures: &mut Vec<Figure>) -> Result<()> {
    figures.extend(orders::means(orders.instructions, |seed| instructions(kind, seed))?);
    figures.extend(orders::means(orders.events, |seed| events(path, kind, seed))?);
    Ok(())
}

/// Counts the instructions of the image per segment.
fn instructions(kind: Tcp, seed: u64) -> Result<Vec<Figure>> {
    let counts = image::instructions_between(LENGTHS.map(|bytes| kind.work(bytes)), seed)?;
    let segments = kind.segments(LENGTHS[1] - LENGTHS[0]);
    let figure = |(side, count): (&str, f64)| {
        let name = format!("{kind}, instructions of the image per segment, {side}");
        Figure::counted(name, count / segments, Unit::Instructions)
    };
    Ok(["sender", "receiver"].into_iter().zip(counts).map(figure).collect())
}

/// Counts interrupts, frames and notifications per segment.
fn events(path: &Path, kind: Tcp, seed: u64) -> Result<Vec<Figure>> {
    let options = Options { seed, ..kind.options(false) };
    let [short, long] = image::counters(LENGTHS, |bytes| measure::run_tcp(path, bytes, &options))?;
    let segments = kind.segments(LENGTHS[1] - LENGTHS[0]);
    let share =
        |of: fn(&HostCounters) -> u64, side: usize| (of(&long[side]) - of(&short[side])) as f64 / segments;
    let mut figures = Vec::new();
    for (number, side) in ["sender", "receiver"].into_iter().enumerate() {
        let name = format!("{kind}, interrupts per 1000 segments, {side}");
        let interrupts = 1000.0 * share(|host| host.interrupts, number);
        figures.push(Figure::counted(name, interrupts, Unit::PerPacket));
    }
    // The stack sends less than a segment at a time where the window ends within one.
    if !kind.has_offloads {
        let frames = share(|host| host.sent_frames, 0);
        let name = format!("{kind}, frames sent per segment, sender");
        figures.push(Figure::new(name, frames, Unit::PerPacket));
        let acknowledgments = share(|host| host.received_frames, 0);
        let name = format!("{kind}, acknowledgments received per segment, sender");
        figures.push(Figure::new(name, acknowledgments, Unit::PerPacket));
    }
    let name = format!("{kind}, segments per notification, sender");
    let figure = Figure::new(name, 1.0 / share(|host| host.notifications, 0), Unit::Times);
    figures.push(Figure { goal: Some(PER_NOTIFICATION), ..figure });
    Ok(figures)
}

/// Adds the CPU time of RDMA WRITEs on a device of the same MTU, beside that of TCP with offloads.
fn beside_rdma(path: &Path, of_tcp: f64, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say(format!("RDMA, MTU {JUMBO}"));
    let options = Options { real_time: true, mtu: Some(JUMBO), verifier: false, ..Options::default() };
    let count = BYTES / u64::from(MESSAGE);
    let transfers = Transfers { count, size: MESSAGE as usize, outstanding: 8, buffers: 8 };
    let time = seconds_per_gib(&measure::run_on(path, Work::Writes(transfers), &options)?);
    let name = format!("RDMA, 1 MiB writes, MTU {JUMBO}, CPU time of all threads");
    figures.push(Figure::new(name, time, Unit::SecondsPerGib));
    let name = format!("RDMA, bytes per CPU time, against TCP with offloads, MTU {JUMBO}");
    figures.push(Figure { goal: Some(1.0), ..Figure::new(name, of_tcp / time, Unit::Times) });
    Ok(())
}

/// Adds the rate of WRITEs of several connections at once over one, two and four queue pairs, on two processors.
fn over_queue_pairs(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for pairs in PAIRS {
        say(format!("RDMA, {pairs} queue pairs"));
        let features = if pairs == 1 { Features::DEFAULT } else { Features::DEFAULT | Features::MQ };
        let options = Options { real_time: true, pairs, features, verifier: false, ..Options::default() };
        let transfers = Transfers { count: 64, size: MESSAGE as usize, outstanding: 4, buffers: 1 };
        let run = measure::run_several(path, Work::Writes(transfers), CONNECTIONS, &options)?;
        let name = format!("RDMA, {CONNECTIONS} connections, {pairs} queue pairs on 2 processors, real time");
        figures.push(Figure::new(name, run.result.bytes_per_second(), Unit::BytesPerSecond));
    }
    Ok(())
}

fn seconds_per_gib(run: &Run) -> f64 {
    run.cpu.as_secs_f64() / (run.result.bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_under_callgrind_are_those_that_were_asked_for() {
        for kind in KINDS {
            assert_eq!(parse(&kind.work(LENGTHS[0])).unwrap(), (kind, LENGTHS[0]));
        }
        assert!(parse("tcp:1500:true").is_err());
    }

    #[test]
    fn offloads_divide_the_work_of_a_segment() {
        let Some(image) = workspace::image() else { return };
        let sent = [false, true].map(|has_offloads| {
            let kind = Tcp { mtu: 1500, has_offloads };
            let run = measure::run_tcp(&image, 1 << 20, &kind.options(false)).unwrap();
            assert_eq!(run.result.bytes, 1 << 20);
            run.hosts[0].counters.notifications
        });
        assert!(2 * sent[1] < sent[0], "{sent:?} notifications");
    }
}
