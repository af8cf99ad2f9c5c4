// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel TCP over a pair of virtual Ethernet interfaces, to compare its CPU time with the engine's.
//!
//! Sender and receiver are threads in network namespaces of their own. The CPU time is what the kernel charges to the two threads,
//! system calls included; the receiving side of the pair runs mostly in the sender's. Time of `ksoftirqd` is not included.
#![allow(unsafe_code, reason = "changes the network namespace of a thread")]

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::figure::{Figure, MESSAGE, Unit};
use crate::{cpu_time, process};

/// IP MTU of a link whose frames have 4096 bytes of RDMA payload.
const MTU: u32 = 4096 + 96;

const INTERFACES: [&str; 2] = ["vrdma0", "vrdma1"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const PORT: u16 = 5001;

/// How long a side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Largest frame that the sender hands to its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segmentation {
    /// One of the MTU's length, as on the wire.
    PerFrame,
    /// 64 KiB, which a NIC would divide, and this pair does not.
    Offloaded,
}

/// Measures TCP for `time` of the sender's CPU time, both ways to segment. Returns the reason if it cannot be measured here.
pub fn measure(time: Duration, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Option<String> {
    for (segmentation, name) in [
        (Segmentation::PerFrame, "kernel TCP, veth pair of MTU 4192"),
        (Segmentation::Offloaded, "kernel TCP, the same with segmentation offload"),
    ] {
        say(format!("{name}, CPU time"));
        match seconds_per_gib(time, segmentation) {
            Ok(seconds) => figures.push(Figure::new(name, seconds, Unit::SecondsPerGib)),
            Err(error) => return Some(format!("kernel TCP is not measured: {error:#}")),
        }
    }
    None
}

/// Returns the CPU time of both sides per GiB, in seconds.
fn seconds_per_gib(time: Duration, segmentation: Segmentation) -> Result<f64> {
    // In this order: what one side waits for ends with the other.
    let (name, named) = channel();
    let (link, linked) = channel();
    let (listen, listening) = channel();
    let sink = thread::spawn(move || receive(&name, &linked, &listen));
    let source = thread::spawn(move || send(time, segmentation, &named, link, &listening));
    let ends = (
        source.join().expect("the sender does not panic"),
        sink.join().expect("the receiver does not panic"),
    );
    let ((bytes, sending), receiving) = match ends {
        (Ok(sent), Ok(received)) => (sent, received),
        // One error is the consequence of the other.
        (Err(error), Err(other)) => bail!("{error:#}; {other:#}"),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    Ok((sending + receiving).as_secs_f64() / (bytes as f64 / f64::from(1 << 30)))
}

/// Gives the calling thread a network namespace of its own.
fn leave_network() -> Result<()> {
    // SAFETY: has no effect on memory.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result != 0 {
        return Err(io::Error::last_os_error()).context("no network namespace can be created");
    }
    Ok(())
}

/// Runs `ip`, in the network namespace of the calling thread.
fn ip(arguments: &str) -> Result<()> {
    process::output(Command::new("ip").args(arguments.split(' '))).map(drop)
}

fn bring_up(side: usize) -> Result<()> {
    let interface = INTERFACES[side];
    ip(&format!("address add {}/24 dev {interface}", ADDRESSES[side]))?;
    ip(&format!("link set {interface} up"))
}

/// Sends for `time`. Returns the number of bytes, and the CPU time of this thread for them.
fn send(
    time: Duration,
    segmentation: Segmentation,
    receiver: &Receiver<i32>,
    link: Sender<()>,
    listening: &Receiver<()>,
) -> Result<(u64, Duration)> {
    leave_network()?;
    let peer = receiver.recv().context("there is no receiver")?;
    let [own, other] = INTERFACES;
    ip(&format!("link add {own} mtu {MTU} type veth peer name {other} mtu {MTU} netns {peer}"))?;
    if segmentation == Segmentation::PerFrame {
        ip(&format!("link set {own} gso_max_segs 1"))?;
    }
    bring_up(0)?;
    drop(link);
    listening.recv().context("the receiver does not listen")?;
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((ADDRESSES[1], PORT)), TIMEOUT)?;
    let data = vec![0x5A; MESSAGE as usize];
    let (start, mut bytes) = (cpu_time::now(), 0);
    while cpu_time::since(start) < time {
        stream.write_all(&data)?;
        bytes += data.len() as u64;
    }
    Ok((bytes, cpu_time::since(start)))
}

/// Receives until the sender closes. Returns the CPU time of this thread for that.
fn receive(name: &Sender<i32>, linked: &Receiver<()>, listen: &Sender<()>) -> Result<Duration> {
    leave_network()?;
    // SAFETY: the call has no arguments and cannot fail.
    name.send(unsafe { libc::gettid() }).context("there is no sender")?;
    // The sender drops its end of the channel, whether the link exists or not.
    let _ = linked.recv();
    bring_up(1)?;
    let listener = TcpListener::bind((ADDRESSES[1], PORT))?;
    listen.send(()).context("there is no sender")?;
    let mut stream = accept(&listener)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut data = vec![0; MESSAGE as usize];
    let start = cpu_time::now();
    while stream.read(&mut data)? != 0 {}
    Ok(cpu_time::since(start))
}

/// Accepts a connection within [`TIMEOUT`].
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error).context("no connection"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes where no namespaces can be made: then there is a reason, which the bench prints.
    #[test]
    fn tcp_costs_cpu_time_or_there_is_a_reason_why_not() {
        let mut figures = Vec::new();
        match measure(Duration::from_millis(20), &|_| {}, &mut figures) {
            None => assert!(figures.len() == 2 && figures.iter().all(|figure| figure.value > 0.0)),
            Some(reason) => assert!(reason.contains("not measured: "), "{reason}"),
        }
    }
}
