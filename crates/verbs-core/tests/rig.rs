// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device with a queue pair and memory.

use core::net::IpAddr;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use verbs_core::context::Context;
use verbs_core::cq::{CompletionQueue, WorkCompletion};
use verbs_core::device::Device;
use verbs_core::environment::Settings;
use verbs_core::memory::{MemoryRegion, ProtectionDomain, Range};
use verbs_core::qp::{
    AddressVector, Capabilities, Mask, QpAttributes, QpState, QueuePair, QueuePairSpec, Service,
};
use verbs_core::{Access, Error, PathMtu, SendData, SendFlags, SendOperation, SendRequest, Sge, addresses};

/// Returns an address of the loopback interface that no other test has.
pub fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    [127, 88, 1, NEXT.fetch_add(1, Ordering::Relaxed)].into()
}

/// Returns whether there are events, for which it waits as `poll` does.
pub fn is_readable(events: &impl AsFd, timeout_ms: i32) -> bool {
    let mut descriptor = libc::pollfd { fd: events.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which is writable.
    unsafe { libc::poll(&raw mut descriptor, 1, timeout_ms) == 1 }
}

/// A device with a queue pair, and 8192 bytes of registered memory.
pub struct Side {
    pub device: Arc<Device>,
    pub context: Arc<Context>,
    pub pd: Arc<ProtectionDomain>,
    pub cq: Arc<CompletionQueue>,
    pub qp: Arc<QueuePair>,
    region: MemoryRegion,
    memory: Vec<u8>,
}

impl Side {
    pub const BYTES: usize = 8192;

    pub fn new(address: IpAddr, settings: &Settings) -> Self {
        let device = Device::open(address, settings, None).unwrap();
        let context = Context::new(Arc::clone(&device)).unwrap();
        let pd = ProtectionDomain::new(&context);
        let cq = CompletionQueue::new(&context, 100, None, 1).unwrap();
        let qp = QueuePair::new(spec(&pd, &cq)).unwrap();
        let memory = vec![0u8; Self::BYTES];
        let range = Range {
            address: memory.as_ptr().expose_provenance(),
            length: memory.len(),
            base: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
        };
        // SAFETY: the memory lives until the region is destroyed, and is read only when no request is outstanding.
        let region = unsafe { MemoryRegion::register(&pd, &range) }.unwrap();
        Self { device, context, pd, cq, qp, region, memory }
    }

    pub fn sge(&self, length: u32) -> Sge {
        Sge { address: 0, length, key: self.region.key() }
    }

    pub fn key(&self) -> u32 {
        self.region.key()
    }

    pub fn fill(&mut self, from: &[u8]) {
        self.memory[..from.len()].copy_from_slice(from);
    }

    pub fn read(&self) -> &[u8] {
        &self.memory
    }

    /// Connects the queue pair to a peer.
    pub fn connect(&self, peer: &Self) {
        for (state, mask) in steps() {
            self.qp.modify(&attributes(state, peer), mask).unwrap();
        }
    }

    /// Posts a request without elements or with one, and starts it.
    pub fn post(&self, id: u64, operation: SendOperation, length: u32) -> Result<(), Error> {
        let sges = [self.sge(length)];
        let data = SendData::Sges(&sges);
        let request = SendRequest { context: id, operation, flags: SendFlags::empty(), data };
        self.qp.post_send(&request, None)?;
        self.qp.start();
        Ok(())
    }

    /// Waits for `count` completions.
    pub fn completions(&self, count: usize) -> Vec<WorkCompletion> {
        let started = Instant::now();
        let mut all = Vec::new();
        while all.len() < count {
            assert!(started.elapsed() < Duration::from_secs(20), "{all:?}");
            self.cq.poll(count - all.len(), |completion| all.push(completion)).unwrap();
        }
        all
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.qp.destroy();
        self.region.destroy().unwrap();
        self.cq.destroy().unwrap();
        self.pd.destroy().unwrap();
    }
}

pub fn spec(pd: &Arc<ProtectionDomain>, cq: &Arc<CompletionQueue>) -> QueuePairSpec {
    QueuePairSpec {
        pd: Arc::clone(pd),
        service: Service::Reliable,
        send_cq: Arc::clone(cq),
        receive_cq: Arc::clone(cq),
        srq: None,
        capabilities: Capabilities { send_requests: 16, receive_requests: 16, ..Capabilities::default() },
        signal_all: false,
        token: 2,
    }
}

/// Returns the changes to RTS with their attributes.
pub fn steps() -> [(QpState, Mask); 3] {
    [
        (QpState::Init, Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS),
        (
            QpState::ReadyToReceive,
            Mask::STATE
                | Mask::PATH
                | Mask::PATH_MTU
                | Mask::DESTINATION
                | Mask::RECEIVE_PSN
                | Mask::INBOUND_READS
                | Mask::RNR_TIMER,
        ),
        (
            QpState::ReadyToSend,
            Mask::STATE
                | Mask::TIMEOUT
                | Mask::RETRIES
                | Mask::RNR_RETRIES
                | Mask::SEND_PSN
                | Mask::OUTBOUND_READS,
        ),
    ]
}

pub fn attributes(state: QpState, peer: &Side) -> QpAttributes {
    QpAttributes {
        state,
        port: 1,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        path: AddressVector {
            gid: addresses::gid(peer.device.address()),
            port: 1,
            is_global: true,
            ..AddressVector::default()
        },
        path_mtu: PathMtu::Bytes1024,
        destination: peer.qp.qpn(),
        outbound_reads: 4,
        inbound_reads: 4,
        rnr_timer: 12,
        timeout: 14,
        retries: 7,
        rnr_retries: 7,
        ..QpAttributes::default()
    }
}
