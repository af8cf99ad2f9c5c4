// SPDX-License-Identifier: MIT OR Apache-2.0

//! The endpoint under test: an engine with its memory and queues, and a record of its outputs.

use std::collections::BTreeMap;
use std::time::Duration;

use fallible::Arc;
use roce::{
    AcceptSpec, Access, Completion, Config, ConnEvent, ConnId, ConnectSpec, Cq, Engine, EngineEvent, Instant,
    ListenSpec, Pd, Qp, QpSpec, ReadLimits, Region, Srq, StashLimits, Transmit, Verdict,
};
use roce_wire::cm::{CmMessage, CommId, IpCm, IpEnds, ReqRepr, RtuRepr, ServiceId, TransportService};
use roce_wire::{Gid, PKEY_DEFAULT, Packet, PathMtu, Psn, Qpn, cm};

use crate::arena::{Arena, ZONE, Zone};
use crate::forge;

pub type Lock = parking_lot::RawMutex;

pub const PORT: u16 = 445;
pub const MTU: PathMtu = PathMtu::Bytes256;
pub const READS: u8 = 4;
pub const MAX_QPS: u32 = 16;
pub const MAX_REGIONS: u32 = 8;
pub const MAX_CONNECTIONS: u32 = 16;

/// An output of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Frame(Vec<u8>),
    Completion(Completion),
    Notice(u64),
    Conn(ConnId, ConnEventKind),
}

/// The kind of a [`ConnEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnEventKind {
    Request,
    Replied,
    Established,
    Refused,
    Disconnected,
    Aborted,
    TimedOut,
    DisconnectDone,
}

impl From<&ConnEvent> for ConnEventKind {
    fn from(event: &ConnEvent) -> Self {
        match event {
            ConnEvent::Request(_) => Self::Request,
            ConnEvent::Replied { .. } => Self::Replied,
            ConnEvent::Established { .. } => Self::Established,
            ConnEvent::Refused { .. } => Self::Refused,
            ConnEvent::Disconnected => Self::Disconnected,
            ConnEvent::Aborted => Self::Aborted,
            ConnEvent::TimedOut => Self::TimedOut,
            ConnEvent::DisconnectDone { .. } => Self::DisconnectDone,
        }
    }
}

/// An engine with a completion queue and a protection domain.
pub struct Endpoint {
    // Dropped before the memory that it may access.
    pub engine: Arc<Engine<Lock>>,
    pub arena: Arena,
    pub now: Instant,
    pub pd: Pd,
    pub cq: Arc<Cq<Lock>>,
    pub regions: [Option<Arc<Region>>; Zone::ALL.len()],
    /// The outputs, oldest first.
    pub outputs: Vec<Output>,
    /// Reports of drained send queues.
    pub drained: u32,
    /// The number of its address.
    number: u8,
}

impl Endpoint {
    pub fn new() -> Self {
        Self::with_stash(Config::new(0, [0; 32]).stash)
    }

    pub fn with_stash(stash: StashLimits) -> Self {
        Self::at(1, stash)
    }

    /// Creates an endpoint with address number `number`, 1 or 2.
    pub fn at(number: u8, stash: StashLimits) -> Self {
        let mut config = Config::new(0x0200_00FF_FE00_0000 + u64::from(number), [7; 32]);
        config.stash = stash;
        config.max_qps = MAX_QPS;
        config.max_regions = MAX_REGIONS;
        config.max_logical = 1;
        config.max_connections = MAX_CONNECTIONS;
        config.max_message = 1 << 16;
        config.max_reads = ReadLimits { inbound: READS, outbound: READS };
        config.max_mtu = PathMtu::Bytes1024;
        config.window = 8;
        config.ack_every = 4;
        let engine = Engine::try_new(config).expect("an engine");
        engine.connections().set_addresses(&[forge::address(number).0]).expect("an address");
        let pd = engine.create_pd();
        let cq = engine.create_cq(256, 1).expect("a completion queue");
        let regions = Zone::ALL.map(|_| None);
        let now = Instant::from_nanos(1_000_000_000);
        let (outputs, drained) = (Vec::new(), 0);
        Self { engine, arena: Arena::new(), now, pd, cq, regions, outputs, drained, number }
    }

    /// Registers a zone with the access rights of its purpose.
    pub fn register(&mut self, zone: Zone) {
        let access = match zone {
            Zone::Shared | Zone::Foreign => Access::all(),
            Zone::Readable => Access::REMOTE_READ,
            Zone::Sink | Zone::Windowed => Access::LOCAL_WRITE,
            Zone::Source => Access::empty(),
        };
        let pd = if zone == Zone::Foreign { self.engine.create_pd() } else { self.pd };
        let backing = self.arena.backing(zone);
        if zone == Zone::Shared {
            self.arena.allow(zone, 0, ZONE);
        }
        // SAFETY: the arena outlives the engine, and nothing refers to it while the engine runs.
        #[allow(unsafe_code, reason = "the contract of the registration")]
        let region = unsafe { self.engine.memory().register(pd, base(zone), ZONE as u64, access, backing) };
        self.regions[zone as usize] = Some(region.expect("room for a region"));
    }

    pub fn qp(&self) -> Arc<Qp<Lock>> {
        self.qp_with(None)
    }

    /// Creates a queue pair that receives from `srq`, if given.
    pub fn qp_with(&self, srq: Option<Arc<Srq<Lock>>>) -> Arc<Qp<Lock>> {
        let spec = QpSpec {
            pd: self.pd,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq,
            send_depth: 16,
            recv_depth: 16,
            send_sges: 2,
            recv_sges: 2,
            inline: 32,
            context: 77,
        };
        self.engine.create_qp(spec).expect("room for a queue pair")
    }

    pub fn listen(&self) -> roce::ListenerId {
        let spec = ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 4, context: 500 };
        self.engine.connections().listen(&spec).expect("the port is free")
    }

    pub fn listen_for_datagrams(&self) -> roce::ListenerId {
        let spec = ListenSpec { ip: None, port: PORT, datagrams: true, backlog: 4, context: 501 };
        self.engine.connections().listen(&spec).expect("the port is free")
    }

    pub fn handle(&mut self, frame: &[u8]) -> Verdict {
        self.engine.first_shard().handle_frame(self.now, frame)
    }

    /// Handles the output of the engine after an input, with a transmit queue of `budget` slots. Returns the frames sent.
    pub fn drive(&mut self, budget: usize) -> Vec<Vec<u8>> {
        let mut slots = Slots { slot: [0xEE; SLOT], left: budget, frames: Vec::new() };
        while slots.left > 0 && self.engine.first_shard().poll_transmit(self.now, &mut slots, 16) == 16 {}
        self.outputs.extend(slots.frames.iter().cloned().map(Output::Frame));
        while let Some(event) = self.engine.poll_event() {
            match event {
                EngineEvent::Cq(notice) => self.outputs.push(Output::Notice(notice.context())),
                EngineEvent::Conn { id, event, .. } => {
                    self.outputs.push(Output::Conn(id, ConnEventKind::from(&event)));
                }
                EngineEvent::QpDrained { .. } => self.drained += 1,
                EngineEvent::Srq(_)
                | EngineEvent::NoticesDue { .. }
                | EngineEvent::CqGone { .. }
                | EngineEvent::SrqGone { .. }
                | EngineEvent::QpFailed { .. }
                | EngineEvent::PathSuspect { .. } => {}
            }
        }
        let mut completions = [Completion::EMPTY; 16];
        loop {
            let count = self.cq.poll(&mut completions);
            self.outputs.extend(completions.iter().take(count).copied().map(Output::Completion));
            if count < completions.len() {
                break;
            }
        }
        slots.frames
    }

    /// Advances to `at`, or to the engine's next timeout if that is earlier. Returns whether there was one.
    pub fn step_towards(&mut self, at: Instant) -> bool {
        let next = self.engine.first_shard().poll_timeout().filter(|&next| next <= at);
        self.now = self.now.max(next.unwrap_or(at));
        if next.is_some() {
            self.engine.first_shard().handle_timeout(self.now);
        }
        next.is_some()
    }

    /// Advances by `time`. Returns the frames sent meanwhile.
    pub fn pass(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let end = self.now + time;
        let mut frames = Vec::new();
        while self.step_towards(end) {
            frames.append(&mut self.drive(usize::MAX));
        }
        frames
    }

    /// Advances until no timer is running. Panics if that takes longer than `limit`.
    pub fn run_until_idle(&mut self, limit: Duration) {
        let end = self.now + limit;
        self.drive(usize::MAX);
        while self.engine.first_shard().poll_timeout().is_some() {
            assert!(self.step_towards(end), "a timer is still running after {limit:?}");
            self.drive(usize::MAX);
        }
        assert!(!self.engine.first_shard().wants_transmit(), "frames are pending without a notification");
    }

    /// Checks, after everything was destroyed, that the engine has room again for its maximum of each object.
    pub fn assert_all_released(&mut self) {
        for region in self.regions.iter_mut().filter_map(Option::take) {
            assert!(self.engine.memory().deregister(&region), "the region is not registered");
        }
        let zones = Zone::ALL.into_iter().cycle().take(MAX_REGIONS as usize);
        let regions: Vec<_> = zones
            .map(|zone| {
                self.register(zone);
                self.regions[zone as usize].take()
            })
            .collect();
        regions.into_iter().flatten().for_each(|region| assert!(self.engine.memory().deregister(&region)));
        let qps: Vec<_> = (0..MAX_QPS).map(|_| self.qp()).collect();
        for qp in qps.iter().take(MAX_CONNECTIONS as usize) {
            let spec = ConnectSpec {
                path: forge::path_between(self.number, PEER + 1 - self.number),
                local_port: 50000,
                remote_port: PORT,
                mtu: MTU,
                reads: ReadLimits { inbound: READS, outbound: READS },
                private_data: &[],
                context: 700,
            };
            self.engine.connections().connect(self.now, qp, &spec).expect("room for a connection");
        }
    }

    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = BTreeMap::new();
        self.engine.stats().each(|name, count| {
            counters.insert(name, count);
        });
        counters
    }

    /// Connects `qp` to a peer that the caller emulates.
    pub fn connect(&mut self, qp: &Arc<Qp<Lock>>) -> Link {
        self.listen();
        let path = forge::path(PEER);
        let transaction = 0x5EED;
        let req = request(PEER, PEER_COMM_ID, PEER_QPN, PEER_GUID);
        self.handle(&forge::datagram(&path, &CmMessage::Req(req), transaction));
        self.drive(8);
        let Some(Output::Conn(conn, ConnEventKind::Request)) = self.outputs.last().cloned() else {
            panic!("no request: {:?} {:x?}", self.counters(), self.outputs)
        };
        let reads = ReadLimits { inbound: READS, outbound: READS };
        let spec = AcceptSpec { reads, private_data: &[], context: 600 };
        self.engine.connections().accept(self.now, conn, qp, &spec).expect("accepted");
        let frames = self.drive(8);
        let rep = frames.iter().find_map(|frame| match forge::cm_message(&Packet::parse(frame).ok()?)? {
            (CmMessage::Rep(rep), _) => Some(rep),
            _ => None,
        });
        let rep = rep.expect("a REP");
        let rtu = RtuRepr {
            local_comm_id: PEER_COMM_ID,
            remote_comm_id: rep.local_comm_id,
            private_data: [0; 224],
        };
        self.handle(&forge::datagram(&path, &CmMessage::Rtu(rtu), transaction));
        self.drive(8);
        assert_eq!(self.outputs.last(), Some(&Output::Conn(conn, ConnEventKind::Established)));
        self.outputs.clear();
        Link { conn, qpn: qp.qpn(), psn: rep.starting_psn }
    }
}

/// The peer's address number.
pub const PEER: u8 = 2;
pub const PEER_QPN: Qpn = Qpn::new(0x22);
pub const PEER_GUID: u64 = 0x0200_00FF_FE00_0002;
const PEER_COMM_ID: CommId = CommId(0x2222);
/// The first PSN of the endpoint; the third one wraps.
pub const ENDPOINT_PSN: Psn = Psn::new(0x00FF_FFFE);

/// A connection of the endpoint, from the view of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub conn: ConnId,
    /// Queue pair of the endpoint.
    pub qpn: Qpn,
    /// The first PSN of the peer.
    pub psn: Psn,
}

/// Returns the address of a zone's first byte, for SGEs and peers.
pub const fn base(zone: Zone) -> u64 {
    0x7000_0000 + zone as u64 * 0x10_0000 + 0x123
}

/// Returns a valid REQ from address number `from`.
pub fn request(from: u8, comm_id: CommId, qpn: Qpn, guid: u64) -> ReqRepr {
    let path = forge::path(from);
    let mut primary_path = [0; cm::CmPath::LEN];
    cm::CmPathRepr {
        local_lid: 0xFFFF,
        remote_lid: 0xFFFF,
        local_gid: Gid::from(path.local_ip),
        remote_gid: Gid::from(path.remote_ip),
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        subnet_local: false,
        local_ack_timeout: 14,
    }
    .emit(&mut primary_path);
    let ends = IpEnds { source: path.local_ip, source_port: 50000, destination: path.remote_ip };
    let mut private_data = [0; 92];
    ends.repr().emit(private_data.first_chunk_mut::<{ IpCm::LEN }>().expect("92 bytes"));
    ReqRepr {
        local_comm_id: comm_id,
        vendor_id: 0,
        service_id: ServiceId::port(PORT),
        local_ca_guid: guid,
        local_q_key: 0,
        local_qpn: qpn,
        responder_resources: READS,
        local_eecn: 0,
        initiator_depth: READS,
        remote_eecn: 0,
        remote_cm_response_timeout: 18,
        transport_service: TransportService::RC,
        end_to_end_flow_control: false,
        starting_psn: ENDPOINT_PSN,
        local_cm_response_timeout: 18,
        retry_count: 7,
        p_key: PKEY_DEFAULT,
        path_mtu: MTU.code(),
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary_path,
        alternate_path: [0; cm::CmPath::LEN],
        private_data,
    }
}

/// Length of a transmit slot in bytes: the longest frame.
const SLOT: usize = 1024 + 200;

/// A transmit queue.
struct Slots {
    slot: [u8; SLOT],
    left: usize,
    frames: Vec<Vec<u8>>,
}

impl Transmit for Slots {
    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.left > 0).then_some(self.slot.as_mut_slice())
    }

    fn commit(&mut self, len: usize) {
        self.left -= 1;
        self.frames.push(self.slot[..len].to_vec());
    }
}
