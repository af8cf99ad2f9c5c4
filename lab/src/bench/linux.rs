// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames through QEMU's device by Linux's own driver: that of a guest, whose processor QEMU emulates.
//!
//! The device, its netdev and the length of the frames are those of [`load::rate_on`]. The other end is a socket of this process:
//! it counts what the guest's kernel generates (pktgen), and sends as fast as the device accepts frames.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use linux_guest::{Guest, Image, Network, Options};

use super::figure::{Figure, Unit, fastest};
use crate::{
    interop::addresses::{GUEST_MAC, GUEST_V4, GUEST_V6, HOST_MAC},
    miniport::load,
    workspace,
};

/// Frames of a run.
const FRAMES: u64 = 50_000;
/// Frames for which the guest's driver notifies the device once: as many as [`load::rate_on`] sends in a chain.
const BURST: u64 = 16;
/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a socket is read before the receiver asks whether the run is over.
const PAUSE: Duration = Duration::from_millis(50);
/// Errors of a read that is to be repeated.
const PAUSES: [ErrorKind; 2] = [ErrorKind::WouldBlock, ErrorKind::Interrupted];

/// Adds frames per second each way. Returns the reason if they could not be measured.
pub fn measure(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Option<String> {
    say("frames, Linux's driver in a guest".into());
    match rates() {
        Ok(rates) => {
            for (way, rate) in ["transmitted", "received"].into_iter().zip(rates) {
                let name = format!(
                    "frames of {} bytes, {way} by Linux's driver in a guest (TCG), real time",
                    load::LENGTH
                );
                figures.push(Figure::new(name, rate, Unit::PerSecond));
            }
            None
        }
        Err(error) => {
            Some(format!("frames transmitted and received by Linux's driver in a guest: {error:#}"))
        }
    }
}

/// Boots a guest. Returns how many frames a second it transmits and receives.
fn rates() -> Result<[f64; 2]> {
    workspace::provide(&["guest"])?;
    // The path of a socket is limited to 107 bytes: not below the target directory.
    let directory = tempfile::tempdir()?;
    let options = Options {
        directory: directory.path().to_owned(),
        mtu: 1500,
        addresses: (GUEST_V4, GUEST_V6),
        network: Network::Datagrams,
    };
    let outside = UnixDatagram::bind(options.host_socket())?;
    let mut guest = Guest::boot(&Image::of_workspace(workspace::root()), &options)?;
    prepare(&mut guest)?;
    let transmitted = fastest(|| transmitted(&mut guest, &outside))?;
    let received = fastest(|| received(&mut guest, &options.guest_socket()))?;
    Ok([transmitted, received])
}

/// Loads pktgen, and has it send [`FRAMES`] UDP packets when it starts. It hands the driver the same buffer again and again, so that
/// the driver is measured and no stack.
fn prepare(guest: &mut Guest) -> Result<()> {
    let target = HOST_MAC.map(|byte| format!("{byte:02x}")).join(":");
    let settings = [
        format!("pkt_size {}", load::LENGTH),
        format!("count {FRAMES}"),
        format!("burst {BURST}"),
        format!("clone_skb {FRAMES}"),
        "delay 0".into(),
        format!("dst_mac {target}"),
        "dst 192.168.77.1".into(),
    ];
    let load = "while read -r module; do insmod $module; done </etc/modules-bench".into();
    let add = "echo 'add_device eth0' >/proc/net/pktgen/kpktgend_0".into();
    let set = settings.map(|setting| format!("echo '{setting}' >/proc/net/pktgen/eth0"));
    let commands = ["set -e".into(), load, add].into_iter().chain(set).collect::<Vec<String>>().join("\n");
    guest.run(&commands, LIMIT)?.ok().context("pktgen is not ready")?;
    Ok(())
}

/// Returns how many frames a second arrive outside that the guest transmits.
fn transmitted(guest: &mut Guest, outside: &UnixDatagram) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rate = scope.spawn(|| rate_of_arrivals(outside, FRAMES, &is_over));
        let ran = guest.run("echo start >/proc/net/pktgen/pgctrl", LIMIT);
        is_over.store(true, SeqCst);
        let rate = rate.join().map_err(|_| anyhow!("the receiver has panicked"))?;
        ran?.ok().context("pktgen does not run")?;
        rate
    })
}

/// Returns how many frames a second arrive, `count` or more, by the time between the first and the last. Frames of another length do
/// not count: those of the guest's own IP stack. Reads until `is_over` and the socket is empty: pktgen waits for the end of its last
/// frames, and sends some more than it was asked for if the device's ring was full.
fn rate_of_arrivals(socket: &UnixDatagram, count: u64, is_over: &AtomicBool) -> Result<f64> {
    socket.set_read_timeout(Some(PAUSE))?;
    let mut buffer = [0; 2048];
    let mut arrived = 0;
    let mut times = None;
    loop {
        match socket.recv(&mut buffer) {
            Ok(load::LENGTH) => {
                arrived += 1;
                let now = Instant::now();
                times.get_or_insert((now, now)).1 = now;
            }
            Err(error) if !PAUSES.contains(&error.kind()) => return Err(error.into()),
            Err(_) if is_over.load(SeqCst) => break,
            Ok(_) | Err(_) => {}
        }
    }
    let (first, last) = times.context("no frame arrived")?;
    ensure!(arrived >= count, "{arrived} of {count} frames arrived");
    Ok((arrived - 1) as f64 / (last - first).as_secs_f64())
}

/// Returns how many frames a second the guest's driver receives. The time ends when the socket has room for the last frame. What is
/// in the socket then (10 frames, unless the system is set otherwise) and in the ring (256) is received later; with it the rate would
/// be up to 0.5 % less.
fn received(guest: &mut Guest, socket: &Path) -> Result<f64> {
    let outside = UnixDatagram::unbound()?;
    outside.connect(socket)?;
    outside.set_write_timeout(Some(LIMIT))?;
    let frame = load::udp(GUEST_MAC, HOST_MAC, 0);
    let before = count(guest)?;
    let start = Instant::now();
    for _ in 0..FRAMES {
        outside.send(&frame).context("the guest's device takes no frames")?;
    }
    let took = start.elapsed();
    while count(guest)? < before + FRAMES {
        ensure!(start.elapsed() < took + LIMIT, "frames to the guest are lost");
    }
    Ok(FRAMES as f64 / took.as_secs_f64())
}

/// Returns how many frames the guest's driver has received.
fn count(guest: &mut Guest) -> Result<u64> {
    let output = guest.run("cat /sys/class/net/eth0/statistics/rx_packets", LIMIT)?.ok()?;
    output.text.trim().parse().with_context(|| format!("no number: {output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_of_the_measured_length_count() {
        let (near, far) = UnixDatagram::pair().unwrap();
        for length in [60, load::LENGTH, 90, load::LENGTH] {
            far.send(&vec![0; length]).unwrap();
        }
        let is_over = AtomicBool::new(true);
        assert!(rate_of_arrivals(&near, 2, &is_over).unwrap() > 0.0);
        far.send(&[0; load::LENGTH]).unwrap();
        far.send(&[0; 60]).unwrap();
        let error = rate_of_arrivals(&near, 2, &is_over).unwrap_err();
        assert!(error.to_string().contains("1 of 2 frames"), "{error:#}");
    }
}
