// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine linked natively, in place of the host with the driver: for requests that NDKPI cannot express.
//!
//! One thread drives the engine as the documentation of [`roce`] describes, over the link to the guest, without kernel
//! and driver. It is the other side of the guest's probe over IPv4.

mod host;
mod services;

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use device_sim::link::{Capture, Datagrams, Lost, Wire, WireOptions};
use ndis_sim::open_tunnel;
use ndk_consumer::{
    RemoteMemory,
    protocols::probe::{
        PORT,
        message::{Control, Kind, Reply, Request},
        pattern,
    },
};
use nt_sim::{ClockKind, Sim};
use roce::{AcceptSpec, CompletionStatus, ConnEvent, ConnectSpec};
use roce_testkit::Options;

use self::host::{Host, IMMEDIATE, RECEIVE, WINDOW};
use super::cases::{Case, NonNdkRequest, Side};

/// Port from which the host connects.
const LOCAL_PORT: u16 = 40_000;
/// The requests that the guest's probe sends with immediate data, in this order: true for a SEND, false for a WRITE; its length in bytes.
const IMMEDIATES: [(bool, usize); 5] = [(true, 100), (false, 100), (true, 2500), (false, 2500), (false, 0)];

/// Is the other side of one connection of the guest's probe. Calls `start`, which starts the probe, when it may connect. Returns notes for the
/// table.
///
/// # Errors
/// The guest does not connect in time, a request has an unexpected result, or `start` fails.
pub fn run(
    case: &Case,
    request: NonNdkRequest,
    datagrams: Datagrams,
    capture: Option<&Path>,
    start: impl FnOnce() -> Result<()>,
) -> Result<Vec<String>> {
    let sim = Sim::builder().clock(ClockKind::Threaded).build();
    let wire = Wire::new(WireOptions::immediate());
    let capture =
        capture.map(|path| Capture::create(path, &["engine", "outside"], Lost::Marked)).transpose()?;
    if let Some(capture) = &capture {
        wire.capture(capture.clone());
    }
    let mut host = Host::new(&sim, wire.port(0), case.mtu)?;
    let tunnel = open_tunnel(sim.world(), wire.port(1), datagrams)?;
    let outcome = start().and_then(|()| match case.client {
        Side::Linux => host.serve(request),
        Side::Viordma => host.connect(request),
    });
    drop(tunnel);
    if let Some(capture) = &capture {
        capture.finish()?;
    }
    outcome
}

impl Host<'_> {
    /// Connects to the probe of the guest, with the number of the scenario.
    fn connect(&mut self, request: NonNdkRequest) -> Result<Vec<String>> {
        self.post_receives()?;
        let key = self.window.key();
        let buffer = RemoteMemory { address: self.window.address(0), token: key, length: 0 };
        let private_data = Request { scenario: request.number(), count: 1, length: 4096, buffer }.encode();
        let spec = ConnectSpec {
            path: self.path(),
            local_port: LOCAL_PORT,
            remote_port: PORT,
            mtu: self.mtu,
            reads: Options::default().reads,
            private_data: &private_data,
            context: 0,
        };
        let id = self.side.engine.connections().connect(self.now(), &self.side.qp, &spec);
        let id = id.ok().context("cannot connect")?;
        self.until("reply", |host| host.has_event(|event| matches!(event, ConnEvent::Replied { .. })))?;
        self.side.engine.connections().complete(self.now(), id).ok().context("cannot complete")?;
        let notes = match request {
            NonNdkRequest::Service(service) => services::run(self, service, true),
            NonNdkRequest::Immediate | NonNdkRequest::Atomic => bail!("the guest has to connect"),
        };
        self.disconnect(id)?;
        notes
    }

    fn serve(&mut self, request: NonNdkRequest) -> Result<Vec<String>> {
        self.post_receives()?;
        let id = self.until("connection request", |host| host.side.conn)?;
        let key = self.window.key();
        let window = RemoteMemory { address: self.window.address(0), token: key, length: WINDOW as u64 };
        let reply = Reply { scenario: 0, window }.encode();
        let accept = AcceptSpec { reads: Options::default().reads, private_data: &reply, context: 0 };
        self.side
            .engine
            .connections()
            .accept(self.now(), id, &self.side.qp, &accept)
            .ok()
            .context("cannot accept")?;
        let notes = match request {
            NonNdkRequest::Immediate => self.receive_immediates(),
            NonNdkRequest::Atomic => self.refuse_atomic(),
            NonNdkRequest::Service(service) => {
                self.until("connection", |host| {
                    host.has_event(|event| matches!(event, ConnEvent::Established { .. }))
                })?;
                services::run(self, service, false)
            }
        };
        self.disconnect(id)?;
        notes
    }

    /// Checks the immediate data, the bytes and their place of each request.
    fn receive_immediates(&mut self) -> Result<Vec<String>> {
        for (item, (is_send, length)) in (0..).zip(IMMEDIATES) {
            let received = self.receive()?;
            ensure!(received.status == CompletionStatus::Success, "item {item}: {:?}", received.status);
            ensure!(
                received.immediate == Some(IMMEDIATE),
                "item {item}: immediate {:02x?}",
                received.immediate
            );
            ensure!(received.bytes as usize == length, "item {item}: {} bytes", received.bytes);
            let place = if is_send { received.context as usize * RECEIVE } else { 0 };
            let memory = if is_send { self.receives.read() } else { self.window.read() };
            ensure!(memory[place..][..length] == pattern(item, length), "item {item}: wrong bytes");
            self.post_receive(received.context)?;
            self.send(&Control::new(Kind::VERDICT, item, length).encode())?;
        }
        self.until("disconnect from the guest", |host| {
            host.has_event(|event| matches!(event, ConnEvent::Disconnected))
        })?;
        Ok(vec![format!("{} requests with immediate data", IMMEDIATES.len())])
    }

    /// Checks that the connection ends and that its receives are flushed.
    fn refuse_atomic(&mut self) -> Result<Vec<String>> {
        let received = self.receive()?;
        ensure!(received.status == CompletionStatus::Flushed, "a receive completed: {:?}", received.status);
        let has_ended = |event: &ConnEvent| matches!(event, ConnEvent::Aborted | ConnEvent::Disconnected);
        self.until("end of the connection", |host| host.has_event(has_ended))?;
        Ok(vec!["refused, the connection ended".to_owned()])
    }
}
