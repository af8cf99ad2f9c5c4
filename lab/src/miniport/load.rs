// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from one host to the other, to be measured: how often the driver notified its device, and was interrupted.

use std::{
    collections::VecDeque,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use device_sim::virtio_net::Features;
use ndis_sim::{Miniport, RssParameters};
use ndk_abi::ndis::{
    NDIS_HASH_IPV4, NDIS_HASH_TCP_IPV4, NDIS_HASH_UDP_IPV4, NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::{Tolerances, image::emulate::irql_accesses, nt::time::sleep};
use serde::{Deserialize, Serialize};

use super::two_hosts::{Image, Setup, TwoHosts};
use crate::{
    cpu_time,
    device::DeviceName,
    machine::Machine,
    testbed::{Options, Testbed},
};

/// Length of the frames, an Ethernet frame of MTU 1500.
pub const LENGTH: usize = 1514;

/// Frames sent and not yet seen by the receiver's thread, where two threads send: fewer than the driver has NBLs for one queue pair, so that none
/// is lost.
const IN_FLIGHT: u64 = 192;
/// How long a thread waits for the other's frames, in nanoseconds.
const PAUSE: u64 = 20_000;
/// The pauses after which frames that have not arrived are lost.
const PAUSES: u32 = 10_000;
/// Flows of the frames that queue pairs share.
const FLOWS: u16 = 16;
/// The hashes and the key of receive side scaling.
const HASHES: u32 = NDIS_HASH_IPV4 | NDIS_HASH_TCP_IPV4 | NDIS_HASH_UDP_IPV4;
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Which way the frames go, seen from the measured driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Transmit,
    Receive,
}

/// Load: `count` frames, in chains of `chain`, at most `outstanding` sends at a time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub direction: Direction,
    pub count: u64,
    pub chain: usize,
    pub outstanding: usize,
}

/// Counters of the measured driver's side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Addresses of the driver's image.
    pub image: Range<u64>,
    pub frames: u64,
    pub notifications: u64,
    pub interrupts: u64,
    /// Accesses of all images to `cr8`, which the simulated kernel executes.
    pub irql_accesses: u64,
}

/// Frames between two hosts with the same driver.
#[derive(Clone, Copy, Debug)]
pub struct Between {
    /// The devices of sender and receiver.
    pub devices: [DeviceName; 2],
    /// Queue pairs of both.
    pub pairs: u16,
    pub count: u64,
}

/// Runs a load in virtual time, with the verifier off, and with all faults tolerated that can be: `image` is measured, `peer` is at the other end.
///
/// # Errors
/// A driver does not start, or a frame is lost.
pub fn run(image: &Path, peer: &Path, load: Load) -> Result<Counted> {
    measured(image, peer, load, false).map(|(counted, _)| counted)
}

/// Cost of one frame, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub time: f64,
    /// CPU time of all threads: of both hosts, both devices and the simulated kernel.
    pub cpu: f64,
}

/// Returns what a frame takes in real time.
///
/// # Errors
/// As [`run`].
pub fn in_real_time(image: &Path, peer: &Path, load: Load) -> Result<Took> {
    let (counted, [time, cpu]) = measured(image, peer, load, true)?;
    let [time, cpu] = [time, cpu].map(|took| took.as_secs_f64() / counted.frames as f64);
    Ok(Took { time, cpu })
}

/// Runs a load. Also returns the real time that it took, and the CPU time.
fn measured(image: &Path, peer: &Path, load: Load, real_time: bool) -> Result<(Counted, [Duration; 2])> {
    let driver = |path: &Path, service: &str| Image {
        path: path.to_owned(),
        service: service.into(),
        tolerate: Tolerances::ALL,
    };
    let (image, peer) = (driver(image, "measured"), driver(peer, "peer"));
    let setup = Setup::new(real_time);
    let mut hosts = TwoHosts::new([&image, &peer], &setup)?;
    let started = hosts.start();
    with_violations(started, &hosts)?;
    let [near, far] = [0, 1].map(|side| hosts.sides[side].miniport());
    let (near, far) = (near?, far?);
    for miniport in [&near, &far] {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())?;
    }
    let before = hosts.sides[0].nic.counters();
    let accesses = irql_accesses();
    let (from, to) = match load.direction {
        Direction::Transmit => (near, far),
        Direction::Receive => (far, near),
    };
    let [source, target] = [&from, &to].map(|miniport| miniport.adapter().nic.mac());
    let bytes = (14..LENGTH).map(|at| at as u8);
    let frame = target.into_iter().chain(source).chain([0x88, 0xb5]).chain(bytes).collect();
    let (start, cpu) = (Instant::now(), cpu_time::of_process());
    with_violations(transfer(&from, &to, load, &[vec![frame]], u64::MAX), &hosts)?;
    let took = [start.elapsed(), cpu_time::of_process().saturating_sub(cpu)];
    let after = hosts.sides[0].nic.counters();
    let image = hosts.sides[0].driver.image();
    let base = image.base() as u64;
    let counted = Counted {
        image: base..base + image.size() as u64,
        frames: after.sent_frames + after.received_frames - before.sent_frames - before.received_frames,
        notifications: after.notifications - before.notifications,
        interrupts: after.interrupts - before.interrupts,
        irql_accesses: irql_accesses() - accesses,
    };
    hosts.stop()?;
    Ok((counted, took))
}

/// Adds the violations of the hosts to an error.
fn with_violations<T>(result: Result<T>, hosts: &TwoHosts) -> Result<T> {
    result.map_err(|error| anyhow!("{error:#}\n{}", hosts.violations().join("\n")))
}

/// Returns how many frames a second arrive that are sent from one host to another, both with the driver `image`, in real time. They are UDP
/// packets of several flows, which two threads send. With several queue pairs the receiver has receive side scaling.
///
/// # Errors
/// The driver or a device does not start, or a frame is lost.
pub fn rate_on(image: &Path, between: Between) -> Result<f64> {
    let [device, peer] = between.devices.map(DeviceName::kind);
    let features = if between.pairs == 1 { Features::DEFAULT } else { Features::DEFAULT | Features::MQ };
    let options = Options {
        real_time: true,
        verifier: false,
        device,
        peer_device: Some(peer),
        pairs: between.pairs,
        features,
        ..Options::default()
    };
    let mut bed = Testbed::new(image, &options)?;
    bed.start()?;
    let [alpha, beta] = bed.machines().map(|machine| machine.miniport().cloned());
    let (from, to) = alpha.zip(beta).context("an adapter has not started")?;
    for miniport in [&from, &to] {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())?;
    }
    if between.pairs > 1 {
        let table: Vec<u8> = (0..options.processors as u8).collect();
        let rss = RssParameters { types: HASHES, key: KEY, table, default_processor: 0 };
        to.scaling()
            .set(Some(&rss))
            .map_err(|refused| anyhow!("receive side scaling is refused: {refused:?}"))?;
    }
    let load = Load { direction: Direction::Transmit, count: between.count, chain: 16, outstanding: 64 };
    let [source, target] = [&from, &to].map(|miniport| miniport.adapter().nic.mac());
    let of_threads: Vec<Vec<Vec<u8>>> = (0..2)
        .map(|thread| (0..FLOWS / 2).map(|flow| udp(target, source, 2 * flow + thread)).collect())
        .collect();
    let start = Instant::now();
    let done = transfer(&from, &to, load, &of_threads, IN_FLIGHT);
    let counters = bed.machines().map(Machine::counters).map(|mut counters| {
        counters.retain(|_, value| *value != 0);
        counters
    });
    done.with_context(|| format!("counters of sender and receiver: {counters:?}"))?;
    let took = start.elapsed();
    bed.stop()?;
    Ok(between.count as f64 / took.as_secs_f64())
}

/// Returns a frame with a UDP packet of a flow, without a UDP checksum.
#[must_use]
pub fn udp(target: [u8; 6], source: [u8; 6], flow: u16) -> Vec<u8> {
    let length = (LENGTH - 14) as u16;
    let mut header = [0; 20];
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[8..10].copy_from_slice(&[64, 17]);
    header[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let words = header.chunks_exact(2).map(|hosts| u32::from(u16::from_be_bytes([hosts[0], hosts[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame: Vec<u8> = target.into_iter().chain(source).chain([0x08, 0x00]).chain(header).collect();
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend(9_u16.to_be_bytes());
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0; 2]);
    frame.extend((frame.len()..LENGTH).map(|at| at as u8));
    frame
}

/// Sends frames on threads of the sender's host, one for each list of different frames, and counts what arrives on one of the receiver's.
/// At most `in_flight` frames are sent before the receiver has seen them, and a chain of each thread.
fn transfer(
    from: &Miniport,
    to: &Miniport,
    load: Load,
    of_threads: &[Vec<Vec<u8>>],
    in_flight: u64,
) -> Result<()> {
    let arrived = Arc::new(AtomicU64::new(0));
    let receiver = {
        let (to, arrived) = (to.clone(), Arc::clone(&arrived));
        to.host().clone().spawn("receiver", move || {
            let mut idle = 0;
            while arrived.load(Relaxed) < load.count && idle < PAUSES {
                let count = to.received().len() as u64;
                arrived.fetch_add(count, Relaxed);
                idle = if count == 0 { idle + 1 } else { 0 };
                sleep(PAUSE);
            }
        })
    };
    let threads = of_threads.len() as u64;
    let sent = Arc::new(AtomicU64::new(0));
    let mut senders = Vec::new();
    for (number, frames) in of_threads.iter().enumerate() {
        let share = load.count / threads + u64::from((number as u64) < load.count % threads);
        let (from, frames) = (from.clone(), frames.clone());
        let (arrived, sent) = (Arc::clone(&arrived), Arc::clone(&sent));
        let may_send = move |count: u64| {
            let may = sent.load(Relaxed).saturating_sub(arrived.load(Relaxed)) < in_flight;
            sent.fetch_add(if may { count } else { 0 }, Relaxed);
            may
        };
        senders
            .push(from.host().clone().spawn("sender", move || send(&from, load, share, &frames, may_send)));
    }
    for sender in senders {
        sender.join()??;
    }
    receiver.join()?;
    let arrived = arrived.load(Relaxed);
    ensure!(arrived == load.count, "{arrived} of {} frames arrived", load.count);
    Ok(())
}

/// Sends `count` frames, each chain of another of the frames in turn, when `may_send` says so.
fn send(
    from: &Miniport,
    load: Load,
    count: u64,
    frames: &[Vec<u8>],
    may_send: impl Fn(u64) -> bool,
) -> Result<()> {
    let (mut sent, mut waiting, mut frames) = (0, VecDeque::new(), frames.iter().cycle());
    let mut idle = 0;
    while sent < count || !waiting.is_empty() {
        let in_chain = load.chain.min((count - sent) as usize);
        let room = waiting.len() + load.chain <= load.outstanding;
        if in_chain > 0 && room && may_send(in_chain as u64) {
            let frame = frames.next().context("no frame")?;
            waiting.extend(from.send_chain(&vec![frame.clone(); in_chain], 0));
            sent += in_chain as u64;
            idle = 0;
        } else if let Some(id) = waiting.pop_front() {
            let status = from.send_status(id, Duration::from_secs(5));
            ensure!(status == Some(NDIS_STATUS_SUCCESS), "a send ended with {status:x?}");
        } else {
            idle += 1;
            ensure!(idle < PAUSES, "frames do not arrive");
            sleep(PAUSE);
        }
    }
    Ok(())
}
