// SPDX-License-Identifier: MIT OR Apache-2.0

//! One RDMA WRITE between two engines that exchange frames through a vector instead of a network.
//!
//! Run with `cargo run -p roce --example drive`.
#![allow(unsafe_code, reason = "an engine accesses registered memory by pointer")]

use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use fallible::Arc;
use lock_api::{GuardSend, RawMutex};
use roce::{
    AcceptSpec, Access, Backing, Completion, CompletionStatus, Config, ConnEvent, ConnectSpec, Cq, Engine,
    EngineEvent, Instant, ListenSpec, Qp, QpSpec, ReadLimits, SendData, SendFlags, SendOperation,
    SendRequest, Sge, Transmit, Verdict,
};
use roce_wire::{MacAddr, Path, PathMtu};

/// The engines' lock: a spin lock. In a kernel, `lock` also raises to `DISPATCH_LEVEL`.
struct Lock(AtomicBool);

// SAFETY: `try_lock` succeeds for one caller until `unlock`; acquire and release order the accesses between.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it as a constant")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PORT: u16 = 445;
const READS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// A transmit queue: frames for the other host.
struct Wire {
    slot: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Transmit for Wire {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

struct Host {
    engine: Arc<Engine<Lock>>,
    cq: Arc<Cq<Lock>>,
    qp: Arc<Qp<Lock>>,
    wire: Wire,
}

impl Host {
    fn new(number: u8) -> Result<Self> {
        let engine = Engine::<Lock>::try_new(Config::new(number.into(), [number; 32]))?;
        engine.connections().set_addresses(&[ip(number)])?;
        let (pd, cq) = (engine.create_pd(), engine.create_cq(16, 0)?);
        let qp = engine.create_qp(QpSpec {
            pd,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            send_depth: 16,
            recv_depth: 16,
            send_sges: 1,
            recv_sges: 1,
            inline: 0,
            context: 0,
        })?;
        Ok(Self { engine, cq, qp, wire: Wire { slot: vec![0; 4096 + 150], frames: Vec::new() } })
    }

    /// Transmits, takes events and reads the timer, as a driver does after any command or input. Returns the
    /// connection events.
    fn drive(&mut self, now: Instant) -> Vec<(roce::ConnId, ConnEvent)> {
        while self.engine.first_shard().poll_transmit(now, &mut self.wire, 64) == 64 {}
        let mut events = Vec::new();
        while let Some(event) = self.engine.poll_event() {
            // A driver notifies the consumer of an armed completion queue here, then drops the notice.
            if let EngineEvent::Conn { id, event, .. } = event {
                events.push((id, event));
            }
        }
        // A driver sets its timer to `poll_timeout` here, and calls `handle_timeout` when it expires. This
        // example loses no frames, so nothing times out.
        let _deadline = self.engine.first_shard().poll_timeout();
        events
    }
}

fn ip(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn main() -> Result<()> {
    let mut now = Instant::from_nanos(0);
    let mut hosts = [Host::new(1)?, Host::new(2)?];

    // Host 1 reads from `source`, host 2's `target` is written by its peer.
    let mut source = *b"written by RDMA";
    let mut target = [0; 15];
    let regions = [(&mut source, Access::empty()), (&mut target, Access::LOCAL_WRITE | Access::REMOTE_WRITE)];
    let mut registered = Vec::new();
    for (host, (memory, access)) in hosts.iter().zip(regions) {
        let base = NonNull::from(memory).cast();
        // SAFETY: both arrays live until the end of `main`, after the engine's last use, and are not
        // accessed until the WRITE is complete.
        let backing = unsafe { Backing::contiguous(base, 15) }?;
        // SAFETY: the memory that `backing` names lives until the end of `main`, as said above.
        registered.push(unsafe { host.engine.memory().register(host.qp.pd(), 0x1000, 15, access, backing) }?);
    }

    // Host 2 listens, host 1 connects: REQ.
    hosts[1].engine.connections().listen(&ListenSpec {
        ip: None,
        port: PORT,
        datagrams: false,
        backlog: 1,
        context: 0,
    })?;
    let connect = ConnectSpec {
        path: Path::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), ip(1), ip(2)),
        local_port: 50000,
        remote_port: PORT,
        mtu: PathMtu::Bytes1024,
        reads: READS,
        private_data: b"",
        context: 0,
    };
    hosts[0].engine.connections().connect(now, &hosts[0].qp, &connect)?;

    let mut results = [Completion::EMPTY];
    for _ in 0..20 {
        // Frames of each host arrive at the other; ICRC and addresses are checked there.
        now = now + std::time::Duration::from_micros(10);
        for (from, to) in [(0, 1), (1, 0)] {
            for frame in std::mem::take(&mut hosts[from].wire.frames) {
                assert_eq!(hosts[to].engine.first_shard().handle_frame(now, &frame), Verdict::Consumed);
            }
        }
        for (number, host) in hosts.iter_mut().enumerate() {
            for (id, event) in host.drive(now) {
                println!("{now:?} host {}: {event:?}", number + 1);
                match event {
                    // REQ received: REP.
                    ConnEvent::Request(_) => {
                        let accept = AcceptSpec { reads: READS, private_data: b"", context: 0 };
                        host.engine.connections().accept(now, id, &host.qp, &accept)?;
                    }
                    // REP received: RTU, and the first request.
                    ConnEvent::Replied { .. } => {
                        host.engine.connections().complete(now, id)?;
                        let [local, remote] = [&registered[0], &registered[1]];
                        let sge = Sge { address: local.base(), length: 15, key: local.key() };
                        host.engine.post_send(
                            &host.qp,
                            &SendRequest {
                                context: 7,
                                operation: SendOperation::Write { address: remote.base(), key: remote.key() },
                                flags: SendFlags::empty(),
                                data: SendData::Sges(&[sge]),
                            },
                        )?;
                    }
                    _ => {}
                }
                host.drive(now);
            }
        }
        if hosts[0].cq.poll(&mut results) == 1 {
            break;
        }
    }
    assert_eq!((results[0].context, results[0].status), (7, CompletionStatus::Success));
    println!("{now:?} host 1: the WRITE is complete");
    println!("host 2's memory: {:?}", String::from_utf8_lossy(&target));
    Ok(())
}
