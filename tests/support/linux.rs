// SPDX-License-Identifier: MIT OR Apache-2.0

//! Linux as the peer of hosts on QEMU's devices: a network namespace with tap interfaces, and TCP and UDP of its kernel.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    process::Command,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    bed::{miniport, started_with},
    tcp::{MACS, stream},
};
use lab::{
    device::{DeviceKind, QemuBackend, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use ndis_sim::{
    Keyword,
    tcp_stack::{OffloadCounters, TcpStack},
};
use qemu_device::{
    TapNetwork,
    tap::{BRIDGE, IP},
};

/// The interfaces of the hosts' devices.
pub const TAPS: [&str; 2] = ["tap0", "tap1"];

/// The addresses of Linux, in the subnets of the hosts.
pub const IPV4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);

const PORT: u16 = 445;
const SILENCE: Duration = Duration::from_secs(30);

/// Two hosts whose devices have these properties and so many queue pairs, on a network with Linux. `None` if QEMU, the image or the
/// privileges are missing.
pub fn started(pairs: u16, processors: u32, properties: &[&str]) -> Option<(Testbed, Arc<TapNetwork>)> {
    started_with_keywords(pairs, processors, properties, &[])
}

/// [`started`] with these keywords in the registry.
pub fn started_with_keywords(
    pairs: u16,
    processors: u32,
    properties: &[&str],
    keywords: &[(&'static str, &str)],
) -> Option<(Testbed, Arc<TapNetwork>)> {
    if !has_qemu() {
        return None;
    }
    let network = lab::tap_network()?;
    for (address, prefix) in [(IPV4.into(), 24), (IPV6.into(), 64)] {
        network.add_address(address, prefix).expect("an address");
    }
    for host in [crate::tcp::ipv4()[0], crate::tcp::ipv6()[0]] {
        accept_large_packets(&network, host);
    }
    let mut properties: Vec<_> = properties.iter().map(|&property| property.to_owned()).collect();
    if pairs > 1 {
        properties.push("mq=on".to_owned());
    }
    let backend = QemuBackend::Tap { network: network.clone(), pairs };
    let device = DeviceKind::Qemu(QemuVariant { backend, properties, ..QemuVariant::default() });
    let keywords = keywords.iter().map(|&(name, value)| (name, Keyword::Text(value.into()))).collect();
    let options =
        Options { device, real_time: true, path_mtu: 1024, processors, keywords, ..Options::default() };
    Some((started_with(&options)?, network))
}

/// Has Linux announce a maximum segment size (MSS) to a host beyond the MTU: the host's stack then makes large packets, which its adapter
/// divides into segments for the MTU.
fn accept_large_packets(network: &TapNetwork, host: IpAddr) {
    let mut command = Command::new(IP);
    command.args(["route", "add", &host.to_string(), "dev", BRIDGE, "advmss", "60000"]);
    let output = network.run(|| command.output()).unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Errors that Linux's TCP has counted: segments received with errors, those of them with a wrong checksum.
pub fn tcp_errors(network: &TapNetwork) -> [u64; 2] {
    let text = network.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let mut words = || lines.next().unwrap().split_whitespace();
    let (names, numbers) = (words(), words());
    let all: Vec<_> = names.zip(numbers).collect();
    ["InErrs", "InCsumErrors"].map(|name| {
        let (_, number) = all.iter().find(|(other, _)| *other == name).expect("a counter of TCP");
        number.parse().expect("a number")
    })
}

/// A TCP connection of the first host to Linux, which sends back what it receives.
pub struct Exchange<'a> {
    bed: &'a Testbed,
    pub stack: TcpStack,
    len: usize,
    sent: usize,
    arrived: usize,
    linux: JoinHandle<io::Result<()>>,
}

impl<'a> Exchange<'a> {
    /// Connects to Linux over IPv4 or IPv6, to exchange `len` bytes.
    pub fn new(bed: &'a Testbed, network: &TapNetwork, is_ipv6: bool, len: usize) -> Self {
        let [own, linux]: [IpAddr; 2] =
            if is_ipv6 { [crate::tcp::ipv6()[0], IPV6.into()] } else { [crate::tcp::ipv4()[0], IPV4.into()] };
        let listener = network.run(|| TcpListener::bind(SocketAddr::new(linux, PORT))).unwrap().unwrap();
        let echoing = thread::spawn(move || echo(&listener, len));
        let prefix = if is_ipv6 { 64 } else { 24 };
        let mut stack = TcpStack::new(&miniport(bed.machines()[0]), MACS[0], (own, prefix)).unwrap();
        stack.connect(linux, PORT);
        Self { bed, stack, len, sent: 0, arrived: 0, linux: echoing }
    }

    /// Goes on for `time`, with at most so many bytes.
    pub fn run_for(&mut self, time: Duration, bytes: usize) {
        let (end, target) = (self.bed.now() + time, self.sent + bytes);
        while self.bed.now() < end {
            self.step(target);
        }
    }

    /// Goes on until `bytes` more have been sent and received. Returns what this adds to the counters.
    pub fn advance(&mut self, bytes: usize) -> OffloadCounters {
        let before = self.stack.counters();
        let target = self.sent + bytes;
        self.until(target, |exchange| exchange.arrived >= target);
        difference(self.stack.counters(), before)
    }

    /// Exchanges the rest. Returns the counters.
    pub fn finish(mut self) -> OffloadCounters {
        let len = self.len;
        self.until(len, |exchange| exchange.arrived == len && exchange.linux.is_finished());
        self.linux.join().unwrap().expect("Linux's connection lasts");
        self.stack.counters()
    }

    fn until(&mut self, target: usize, is_done: impl Fn(&Self) -> bool) {
        let mut deadline = self.bed.now() + SILENCE;
        while !is_done(self) {
            let violations = self.bed.violations();
            let (sent, arrived) = (self.sent, self.arrived);
            let counters = self.stack.counters();
            assert!(
                self.bed.now() < deadline,
                "sent {sent}, arrived {arrived} of {target}: {counters:?}, {violations:?}"
            );
            if self.step(target) {
                deadline = self.bed.now() + SILENCE;
            }
        }
    }

    /// Polls the stack, and returns whether bytes have moved.
    fn step(&mut self, target: usize) -> bool {
        self.stack.poll(self.bed.now());
        let mut sent = 0;
        if self.stack.is_connected() {
            let len = target.min(self.len).saturating_sub(self.sent).min(1 << 17);
            sent = self.stack.send(&stream(self.sent, len));
        }
        let bytes = self.stack.receive();
        assert!(bytes == stream(self.arrived, bytes.len()), "the bytes arrive in order");
        self.sent += sent;
        self.arrived += bytes.len();
        let moved = sent + bytes.len() > 0;
        if !moved {
            self.stack.wait(self.bed.now(), Duration::from_millis(1));
        }
        moved
    }
}

/// Linux's end: sends back `len` bytes.
fn echo(listener: &TcpListener, len: usize) -> io::Result<()> {
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))?;
    let (mut block, mut echoed) = (vec![0; 1 << 17], 0);
    while echoed < len {
        let count = socket.read(&mut block)?;
        socket.write_all(&block[..count])?;
        echoed += count;
    }
    Ok(())
}

fn difference(after: OffloadCounters, before: OffloadCounters) -> OffloadCounters {
    OffloadCounters {
        sent: after.sent - before.sent,
        checksums: after.checksums - before.checksums,
        large_sends: after.large_sends - before.large_sends,
        received: after.received - before.received,
        verified: after.verified - before.verified,
        coalesced: after.coalesced - before.coalesced,
        invalid: after.invalid - before.invalid,
    }
}
