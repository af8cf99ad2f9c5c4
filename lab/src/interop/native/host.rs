// SPDX-License-Identifier: MIT OR Apache-2.0

//! The host of the engine: one thread polls it, over the link to the guest, and has one connection with the guest's probe.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use device_sim::link::{Endpoint, Port};
use ndk_consumer::protocols::probe::PORT;
use nt_sim::Sim;
use parking_lot::{Condvar, Mutex};
use roce::{
    Completion, CompletionStatus, ConnEvent, ConnId, DropReason, ListenSpec, RecvRequest, SendData,
    SendFlags, SendOperation, SendRequest, Transmit, Verdict,
};
use roce_testkit::{Memory, Options, Side};
use roce_wire::{MacAddr, Path, PathMtu};

use crate::interop::addresses::{Family, GUEST_MAC, HOST_MAC, guest_address};

/// Time limit of each step of the guest.
const GUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time between two polls of the engine.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time that the engine is polled after a connection has ended, so that disconnect messages are answered.
const DISCONNECT_TIME: Duration = Duration::from_millis(500);

/// Time in which posts are sent and acknowledged.
const DRAIN_TIME: Duration = Duration::from_millis(50);

/// Bytes of each receive buffer, and of the memory that the guest may write.
pub(super) const RECEIVE: usize = 4096;
pub(super) const WINDOW: usize = 8192;
/// Number of posted receives.
const RECEIVES: u64 = 4;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);

/// Immediate data of the guest's probe.
pub(super) const IMMEDIATE: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

/// Wakes the thread that polls the engine.
#[derive(Default)]
struct Wakeup {
    signaled: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    fn wait(&self, limit: Duration) {
        let mut signaled = self.signaled.lock();
        if !*signaled {
            self.changed.wait_for(&mut signaled, limit);
        }
        *signaled = false;
    }
}

impl Endpoint for Wakeup {
    fn wake_at(&self, _time: u64) {
        *self.signaled.lock() = true;
        self.changed.notify_one();
    }

    fn writable(&self) {
        self.wake_at(0);
    }

    fn is_alive(&self) -> bool {
        true
    }
}

/// The engine, its link, and the connection's memory.
pub(super) struct Host<'a> {
    sim: &'a Sim,
    pub(super) side: Side,
    port: Port,
    wakeup: Arc<Wakeup>,
    pub(super) mtu: PathMtu,
    pub(super) receives: Memory,
    pub(super) window: Memory,
    /// Unread completions, oldest first.
    completions: Vec<Completion>,
}

impl<'a> Host<'a> {
    pub(super) fn new(sim: &'a Sim, port: Port, mtu: u32) -> Result<Self> {
        let mut side = Side::new(1, &Options { ip: |_| IpAddr::V4(ADDRESS), ..Options::default() });
        side.mac = MacAddr(HOST_MAC);
        let wakeup = Arc::new(Wakeup::default());
        let weak: Weak<Wakeup> = Arc::downgrade(&wakeup);
        port.attach(weak);
        let listen = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 1, context: 0 };
        side.engine.connections().listen(&listen).expect("an engine without listeners has room for one");
        let (receives, window) = (side.sink(RECEIVE * RECEIVES as usize), side.shared(WINDOW));
        let mtu = PathMtu::ALL.into_iter().find(|each| each.bytes() == mtu as usize);
        let mtu = mtu.context("no such path MTU")?;
        Ok(Self { sim, side, port, wakeup, mtu, receives, window, completions: Vec::new() })
    }

    /// Returns the path to the guest.
    pub(super) fn path(&self) -> Path {
        Path::new(self.side.mac, MacAddr(GUEST_MAC), ADDRESS.into(), guest_address(Family::V4))
    }

    pub(super) fn disconnect(&mut self, id: ConnId) -> Result<()> {
        // What was posted last leaves before the request to disconnect, which is of another queue pair.
        self.poll_for(DRAIN_TIME)?;
        // Fails if a violation has ended the connection already.
        let _ = self.side.engine.connections().disconnect(self.now(), id);
        self.poll_for(DISCONNECT_TIME)
    }

    pub(super) fn post_receives(&self) -> Result<()> {
        (0..RECEIVES).try_for_each(|number| self.post_receive(number))
    }

    pub(super) fn post_receive(&self, number: u64) -> Result<()> {
        let sge = self.receives.sge(number as usize * RECEIVE, RECEIVE);
        let request = RecvRequest { context: number, sges: &[sge] };
        self.side.engine.post_recv(&self.side.qp, &request).ok().context("cannot post a receive")
    }

    /// Sends a message over the connection.
    pub(super) fn send(&self, message: &[u8]) -> Result<()> {
        let data = SendData::Inline(&[message]);
        let request =
            SendRequest { context: 0, operation: SendOperation::Send, flags: SendFlags::SILENT, data };
        self.side.engine.post_send(&self.side.qp, &request).ok().context("cannot send a message")
    }

    /// Receives a message of the probe over the connection.
    pub(super) fn receive_message(&mut self) -> Result<Vec<u8>> {
        let received = self.receive()?;
        ensure!(received.status == CompletionStatus::Success, "a message: {:?}", received.status);
        let place = received.context as usize * RECEIVE;
        let message = self.receives.read()[place..][..received.bytes as usize].to_vec();
        self.post_receive(received.context)?;
        Ok(message)
    }

    pub(super) fn receive(&mut self) -> Result<Completion> {
        self.until("message", |host| {
            let at = host.completions.iter().position(|completion| completion.kind.is_receive())?;
            Some(host.completions.remove(at))
        })
    }

    pub(super) fn has_event(&self, is: impl Fn(&ConnEvent) -> bool) -> Option<()> {
        self.side.conn_events.iter().any(|(_, _, event)| is(event)).then_some(())
    }

    pub(super) fn now(&self) -> roce::Instant {
        roce::Instant::from_nanos(self.sim.now())
    }

    /// Polls the engine until `look` returns a value. `what` names it in the error.
    pub(super) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        let limit = Instant::now() + GUEST_TIMEOUT;
        loop {
            self.poll()?;
            if let Some(found) = look(self) {
                // Sends the frames that are pending.
                self.poll()?;
                return Ok(found);
            }
            if Instant::now() > limit {
                bail!("timeout: no {what}; last event: {:?}", self.side.conn_events.last());
            }
            self.wakeup.wait(POLL_INTERVAL);
        }
    }

    /// Polls the engine for a time, so that it answers the guest.
    pub(super) fn poll_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.poll()?;
            self.wakeup.wait(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn poll(&mut self) -> Result<()> {
        while let Some(frame) = self.port.receive(self.sim.now()) {
            if let Some(answer) = answer_arp(&frame) {
                self.port.transmit(self.sim.now(), answer);
            } else if let Verdict::Dropped(reason) =
                self.side.engine.first_shard().handle_frame(self.now(), &frame)
                && reason != DropReason::QKey
            {
                bail!("the engine drops a frame from the guest: {reason:?}");
            }
        }
        if self.side.engine.first_shard().poll_timeout().is_some_and(|at| at <= self.now()) {
            self.side.engine.first_shard().handle_timeout(self.now());
        }
        let mut slots = Slots { slot: vec![0; 4096 + 150], port: &self.port, now: self.sim.now() };
        self.side.engine.first_shard().poll_transmit(self.now(), &mut slots, usize::MAX);
        self.side.take_events();
        self.completions.extend(self.side.completions());
        Ok(())
    }
}

/// The link as a transmit queue.
struct Slots<'a> {
    slot: Vec<u8>,
    port: &'a Port,
    now: u64,
}

impl Transmit for Slots<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.port.is_writable().then_some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.port.transmit(self.now, self.slot[..len].to_vec());
    }
}

/// Returns the ARP reply if `frame` is an ARP request for this host's address.
fn answer_arp(frame: &[u8]) -> Option<Vec<u8>> {
    /// Ethernet and IPv4, lengths 6 and 4, request.
    const REQUEST: [u8; 10] = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    let body = frame.get(12..42)?;
    if body[..10] != REQUEST || body[26..30] != ADDRESS.octets() {
        return None;
    }
    let (mac, ip) = (&body[10..16], &body[16..20]);
    let mut answer = [mac, &HOST_MAC, &REQUEST, &HOST_MAC, &ADDRESS.octets(), mac, ip].concat();
    answer[21] = 2;
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arp_requests_for_this_host_are_answered() {
        let guest = [0x52, 0x54, 0, 0x77, 0, 2];
        let request = |ip: [u8; 4]| {
            let start: [&[u8]; 3] = [&[0xff; 6], &guest, &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]];
            [start.concat(), guest.to_vec(), vec![192, 168, 77, 2], vec![0; 6], ip.to_vec()].concat()
        };
        let answer = answer_arp(&request([192, 168, 77, 1])).expect("an answer");
        assert_eq!((&answer[..6], &answer[6..12], answer[21]), (&guest[..], &HOST_MAC[..], 2));
        assert_eq!((&answer[22..28], &answer[28..32]), (&HOST_MAC[..], &[192, 168, 77, 1][..]));
        assert_eq!(answer_arp(&request([192, 168, 77, 3])), None);
        assert_eq!(answer_arp(&[0; 30]), None);
    }
}
