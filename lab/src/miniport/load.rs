// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from one host to the other, to be measured: how often the driver notified its device, and was interrupted.

use std::{
    collections::VecDeque,
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use ndis_sim::Miniport;
use ndk_abi::ndis::{NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};
use nt_sim::{Tolerances, image::emulate::irql_accesses, nt::time::sleep};
use serde::{Deserialize, Serialize};

use super::pair::{Image, Pair, Setup};
use crate::{
    cpu_time,
    device::DeviceKind,
    testbed::{Options, Testbed},
};

/// Length of the frames, an Ethernet frame of MTU 1500.
const LENGTH: usize = 1514;

/// Which way the frames go, seen from the measured driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Transmit,
    Receive,
}

/// What is sent: `count` frames, in chains of `chain`, at most `outstanding` sends at a time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub direction: Direction,
    pub count: u64,
    pub chain: usize,
    pub outstanding: usize,
}

/// What the measured driver's side counted.
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

/// Runs a load in virtual time, with the verifier off: `image` is measured, `peer` is at the other end.
///
/// # Errors
/// A driver does not start, or a frame is lost.
pub fn run(image: &Path, peer: &Path, load: Load) -> Result<Counted> {
    measured(image, peer, load, false).map(|(counted, _)| counted)
}

/// What a frame took in real time, in seconds.
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
        tolerate: Tolerances::NONE,
    };
    let (image, peer) = (driver(image, "measured"), driver(peer, "peer"));
    let setup = Setup { seed: 1, real_time, verifier: false, capture: None, keywords: Vec::new() };
    let mut pair = Pair::new([&image, &peer], &setup)?;
    pair.start()?;
    let [near, far] = [0, 1].map(|side| pair.sides[side].miniport());
    let (near, far) = (near?, far?);
    for miniport in [&near, &far] {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())?;
    }
    let before = pair.sides[0].nic.counters();
    let accesses = irql_accesses();
    let (from, to) = match load.direction {
        Direction::Transmit => (near, far),
        Direction::Receive => (far, near),
    };
    let (start, cpu) = (Instant::now(), cpu_time::of_process());
    if let Err(error) = transfer(from, &to, load) {
        bail!("{error:#}\n{}", pair.violations().join("\n"));
    }
    let took = [start.elapsed(), cpu_time::of_process().saturating_sub(cpu)];
    let after = pair.sides[0].nic.counters();
    let image = pair.sides[0].driver.image();
    let base = image.base() as u64;
    let counted = Counted {
        image: base..base + image.size() as u64,
        frames: after.sent_frames + after.received_frames - before.sent_frames - before.received_frames,
        notifications: after.notifications - before.notifications,
        interrupts: after.interrupts - before.interrupts,
        irql_accesses: irql_accesses() - accesses,
    };
    pair.stop()?;
    Ok((counted, took))
}

/// Returns how many frames a second arrive of `count` that are sent from one host to another, both with the driver `image` on devices
/// of this kind, in real time.
///
/// # Errors
/// The driver or a device does not start, or a frame is lost.
pub fn rate_on(image: &Path, device: DeviceKind, count: u64) -> Result<f64> {
    let options = Options { real_time: true, verifier: false, device, ..Options::default() };
    let mut bed = Testbed::new(image, &options)?;
    bed.start()?;
    let [alpha, beta] = bed.machines().map(|machine| machine.miniport().cloned());
    let (from, to) = alpha.zip(beta).context("an adapter has not started")?;
    for miniport in [&from, &to] {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())?;
    }
    let start = Instant::now();
    transfer(from, &to, Load { direction: Direction::Transmit, count, chain: 16, outstanding: 64 })?;
    let took = start.elapsed();
    bed.stop()?;
    Ok(count as f64 / took.as_secs_f64())
}

/// Sends the frames on a thread of the sender's host, and counts what arrives on one of the receiver's.
fn transfer(from: Miniport, to: &Miniport, load: Load) -> Result<()> {
    let receiver = {
        let to = to.clone();
        to.host().clone().spawn("receiver", move || {
            let (mut arrived, mut idle) = (0, 0);
            while arrived < load.count && idle < 10_000 {
                let count = to.received().len() as u64;
                arrived += count;
                idle = if count == 0 { idle + 1 } else { 0 };
                sleep(20_000);
            }
            arrived
        })
    };
    let [source, target] = [&from, to].map(|miniport| miniport.adapter().nic.mac());
    let frame: Vec<u8> =
        target.into_iter().chain(source).chain([0x88, 0xb5]).chain((14..LENGTH).map(|at| at as u8)).collect();
    let sender = from.host().clone().spawn("sender", move || -> Result<()> {
        let (mut sent, mut waiting) = (0, VecDeque::new());
        while sent < load.count || !waiting.is_empty() {
            let room = waiting.len() + load.chain <= load.outstanding;
            if sent < load.count && room {
                let count = load.chain.min((load.count - sent) as usize);
                waiting.extend(from.send_chain(&vec![frame.clone(); count], 0));
                sent += count as u64;
            } else if let Some(id) = waiting.pop_front() {
                let status = from.send_status(id, Duration::from_secs(5));
                ensure!(status == Some(NDIS_STATUS_SUCCESS), "a send ended with {status:x?}");
            }
        }
        Ok(())
    });
    sender.join()??;
    let arrived = receiver.join()?;
    ensure!(arrived == load.count, "{arrived} of {} frames arrived", load.count);
    Ok(())
}
