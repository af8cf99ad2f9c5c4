// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scripts that a seed determines.

use device_sim::virtio_net::Features;
use fastrand::Rng;
use ndk_abi::{
    ndis::{
        NDIS_OID, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
        OID_GEN_INTERRUPT_MODERATION, OID_GEN_LINK_PARAMETERS, OID_GEN_MAXIMUM_TOTAL_SIZE,
        OID_GEN_NETWORK_LAYER_ADDRESSES, OID_GEN_RCV_OK, OID_GEN_RECEIVE_BLOCK_SIZE,
        OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_RECEIVE_HASH, OID_GEN_RECEIVE_SCALE_PARAMETERS,
        OID_GEN_STATISTICS, OID_GEN_TRANSMIT_BLOCK_SIZE, OID_GEN_TRANSMIT_BUFFER_SPACE,
        OID_GEN_VENDOR_DESCRIPTION, OID_GEN_VENDOR_DRIVER_VERSION, OID_GEN_VENDOR_ID, OID_GEN_VLAN_ID,
        OID_GEN_XMIT_OK, OID_OFFLOAD_ENCAPSULATION, OID_PM_PARAMETERS, OID_PNP_QUERY_POWER,
        OID_PNP_SET_POWER, OID_TCP_OFFLOAD_PARAMETERS, OID_TCP_RSC_STATISTICS,
    },
    ndk::{OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS},
};

use super::{
    host::{LATER, LONGEST_PAUSE},
    misbehavior::{ENTRIES, Misbehavior, Queue},
    script::{Large, Script, Setup},
    step::{Act, LinkFaults, RssPart, Side, Step},
};
use crate::{
    machine::{OID_VIORDMA_COUNTERS, OID_VIORDMA_TRACE},
    profiles::profiles,
};

/// Steps between two checks, on average.
const BETWEEN_CHECKS: usize = 12;

/// OIDs that are queried and set, and the length of their usual value.
const OIDS: [(NDIS_OID, usize); 33] = [
    (OID_GEN_CURRENT_PACKET_FILTER, 4),
    (OID_GEN_CURRENT_LOOKAHEAD, 4),
    (OID_GEN_INTERRUPT_MODERATION, 12),
    (OID_GEN_LINK_PARAMETERS, 40),
    (OID_GEN_MAXIMUM_TOTAL_SIZE, 4),
    (OID_GEN_RECEIVE_BLOCK_SIZE, 4),
    (OID_GEN_TRANSMIT_BLOCK_SIZE, 4),
    (OID_GEN_RECEIVE_BUFFER_SPACE, 4),
    (OID_GEN_TRANSMIT_BUFFER_SPACE, 4),
    (OID_GEN_STATISTICS, 0x98),
    (OID_GEN_XMIT_OK, 8),
    (OID_GEN_RCV_OK, 8),
    (OID_GEN_VENDOR_ID, 4),
    (OID_GEN_VENDOR_DESCRIPTION, 64),
    (OID_GEN_VENDOR_DRIVER_VERSION, 4),
    (OID_802_3_MULTICAST_LIST, 6),
    (OID_GEN_RECEIVE_SCALE_PARAMETERS, 48),
    (OID_GEN_RECEIVE_HASH, 60),
    (OID_GEN_VLAN_ID, 4),
    (OID_GEN_NETWORK_LAYER_ADDRESSES, 34),
    (OID_PM_PARAMETERS, 20),
    (OID_TCP_OFFLOAD_PARAMETERS, 20),
    (OID_OFFLOAD_ENCAPSULATION, 28),
    (OID_TCP_RSC_STATISTICS, 40),
    (OID_PNP_QUERY_POWER, 4),
    (OID_PNP_SET_POWER, 4),
    (OID_NDK_SET_STATE, 1),
    (OID_NDK_STATISTICS, 80),
    (OID_NDK_CONNECTIONS, 256),
    (OID_NDK_LOCAL_ENDPOINTS, 256),
    (OID_VIORDMA_COUNTERS, 8000),
    (OID_VIORDMA_TRACE, 4096),
    // None that a driver has.
    (0xff00_0001, 4),
];

/// Features without which a device is usable.
const OPTIONAL: [Features; 21] = [
    Features::CSUM,
    Features::GUEST_CSUM,
    Features::HOST_TSO4,
    Features::HOST_TSO6,
    Features::HOST_USO,
    Features::HOST_ECN,
    Features::GUEST_TSO4,
    Features::GUEST_TSO6,
    Features::CTRL_GUEST_OFFLOADS,
    Features::GUEST_ANNOUNCE,
    Features::RING_RESET,
    Features::MRG_RXBUF,
    Features::STATUS,
    Features::CTRL_VQ,
    Features::CTRL_RX,
    Features::CTRL_VLAN,
    Features::EVENT_IDX,
    Features::SPEED_DUPLEX,
    Features::MTU,
    Features::CTRL_MAC_ADDR,
    Features::INDIRECT_DESC,
];

/// Settings of consumers' calls, of receiving, of VLANs and of offloads, with values other than the usual ones.
const KEYWORDS: &[(&str, &[&str])] = &[
    ("NdkCreateCompletion", &["1", "2", "3"]),
    ("NdkStrictReport", &["1"]),
    ("NdkStrictDelay", &["100"]),
    ("*NdisPoll", &["1"]),
    ("QueuePairs", &["1", "2", "3"]),
    ("*JumboPacket", &["590", "1514", "4088", "9014", "9999"]),
    ("*NetworkDirectRoCEFrameSize", &["256", "2048"]),
    ("*ReceiveBuffers", &["16", "64", "300", "4096"]),
    ("*TransmitBuffers", &["16", "64", "300"]),
    ("*RSS", &["0"]),
    ("*NumRSSQueues", &["1", "2", "3", "64"]),
    ("*UsoIPv4", &["0"]),
    ("*UsoIPv6", &["0"]),
    ("VlanID", &["1", "77", "4094"]),
    ("*PriorityVLANTag", &["0", "1", "2"]),
    ("*LsoV2IPv4", &["0"]),
    ("*LsoV2IPv6", &["0"]),
    ("*RscIPv4", &["0"]),
    ("*RscIPv6", &["0"]),
    ("*TCPChecksumOffloadIPv4", &["0", "1", "2"]),
    ("*UDPChecksumOffloadIPv4", &["0", "1", "2"]),
    ("*IPChecksumOffloadIPv4", &["0", "1", "2"]),
    ("*TCPChecksumOffloadIPv6", &["0", "1", "2"]),
    ("*UDPChecksumOffloadIPv6", &["0", "1", "2"]),
    ("RoCECongestionControl", &["0", "2"]),
    ("RoCEEarlyPlacement", &["0"]),
];

/// Returns the script of a seed with a number of steps.
#[must_use]
pub fn script(seed: u64, steps: usize) -> Script {
    let mut random = Rng::with_seed(seed);
    let setup = setup(&mut random, seed);
    let mut next = Vec::new();
    let steps = (0..steps).map(|_| next.pop().unwrap_or_else(|| step(&mut random, &mut next))).collect();
    Script { setup, steps }
}

fn setup(random: &mut Rng, seed: u64) -> Setup {
    let mut setup = Setup { seed, packed: random.bool(), ..Setup::default() };
    setup.path_mtu = *pick(random, &[1024, 1024, 4096]);
    setup.processors = match random.u8(..16) {
        0 => 60,
        1..4 => 1,
        4..8 => 2,
        _ => random.u32(2..=16),
    };
    if random.u8(..4) == 0 {
        setup.group_size = random.u32(1..=8);
    }
    setup.pairs = *pick(random, &[1, 1, 2, 4, 8]);
    if random.bool() {
        for feature in OPTIONAL {
            if random.u8(..4) == 0 {
                setup.without |= feature.0;
            }
        }
    }
    // Devices without these are usual.
    for feature in [Features::RSS, Features::HASH_REPORT] {
        if random.bool() {
            setup.without |= feature.0;
        }
    }
    if random.u8(..4) == 0 {
        setup.reset_millis = random.u32(1..60);
    }
    if random.bool() {
        setup.mtu = *pick(random, &[1280, 1500, 2000, 4192, 9000, 9000]);
    }
    if random.u8(..4) == 0 {
        setup.speed = *pick(random, &[10, 1000, 100_000, u32::MAX]);
    }
    if random.u8(..4) == 0 {
        setup.command_micros = random.u32(1..2000);
    }
    if random.u8(..4) == 0 {
        // Less than a device must have, too: the driver does without.
        let (key, entries) = (*pick(random, &[40, 40, 16, 52]), *pick(random, &[128, 64, 16, 1]));
        setup.rss_limits = Some((key, entries, *pick(random, &[0x3f, 0x3, 0x1, 0])));
    }
    if random.u8(..4) == 0 {
        // None, and types beyond those that NDIS has asked for.
        setup.hash_report = Some(*pick(random, &[0, 7, 9, 10, u16::MAX]));
    }
    if random.u8(..4) == 0 {
        setup.messages = Some(*pick(random, &[0, 0, 1, 2, 3]));
    }
    if random.u8(..4) == 0 {
        setup.queue_sizes = [256, 256].map(|_| *pick(random, &[64, 256, 1024]));
    }
    if random.u8(..4) == 0 {
        // The last two are not used: of another vendor, and a group's.
        setup.station =
            (*pick(random, &["02A0B0C0D0E0", "FE0000000009", "00A0B0C0D0E0", "03A0B0C0D0E0"])).into();
    }
    if random.u8(..3) == 0 {
        profile(random, &mut setup);
    }
    setup.partial_checksums = random.u8(..4) == 0;
    if random.u8(..4) == 0 {
        let (length, size) = (*pick(random, &[0, 14, 54, u16::MAX]), *pick(random, &[1, 100, 500]));
        setup.large =
            Some(if random.bool() { Large::HeaderLength(length) } else { Large::SegmentSize(size) });
    }
    if random.u8(..4) == 0 {
        setup.repeats = random.u32(1..200);
    }
    for (name, values) in KEYWORDS {
        if random.u8(..10) == 0 {
            setup.keywords.push(((*name).into(), (*pick(random, values)).into()));
        }
    }
    setup
}

/// Gives the devices what one of another hypervisor or vendor offers, insists on and takes its time for. What it insists on is the first
/// device's.
fn profile(random: &mut Rng, setup: &mut Setup) {
    let profiles = profiles();
    let usable: Vec<_> = profiles.iter().filter(|profile| profile.refusal.is_none()).collect();
    let profile = pick(random, &usable);
    setup.without = !profile.features.0;
    setup.packed = profile.features.contains(Features::RING_PACKED);
    setup.messages = profile.messages;
    setup.pairs = profile.pairs;
    setup.queue_sizes = profile.queue_sizes;
    (setup.insists, setup.drops) =
        (profile.quirks.insists_on_all_queues, profile.quirks.drops_without_buffer);
    setup.command_micros = profile.quirks.command_time.as_micros() as u32;
    setup.reset_millis = profile.quirks.reset_time.as_millis() as u32;
}

fn pick<'a, T>(random: &mut Rng, from: &'a [T]) -> &'a T {
    &from[random.usize(..from.len())]
}

/// A number below `limit`, of any order of magnitude.
fn magnitude(random: &mut Rng, limit: u64) -> u64 {
    let shift = random.u32(..=limit.ilog2().max(1));
    random.u64(..(limit >> shift).max(1))
}

/// Draws a step. Those that follow it are added to `next`, the last one first.
fn step(random: &mut Rng, next: &mut Vec<Step>) -> Step {
    if random.usize(..BETWEEN_CHECKS) == 0 {
        return Step::Check;
    }
    let side = *pick(random, &[Side::Alpha, Side::Alpha, Side::Beta]);
    match random.u8(..20) {
        0..3 => Step::Wait(magnitude(random, 50_000)),
        // As long as connections, and what a driver waits for.
        3 => Step::Wait(magnitude(random, 10_000_000)),
        4..6 => Step::Copy(1 + magnitude(random, 2 << 20) as usize),
        6..8 => Step::Tcp(1 + magnitude(random, 1 << 20) as usize),
        8 => Step::Faults(faults(random)),
        9..13 => loop {
            let act = act(random);
            if act.can_be_later() {
                break Step::Later(magnitude(random, LATER.as_micros() as u64), side, act);
            }
        },
        _ => match act(random) {
            act @ Act::PauseSending(_) if random.bool() => pause_of_a_copy(random, Step::On(side, act), next),
            act => Step::On(side, act),
        },
    }
}

/// Has a pause begin while a connection has requests: chance rarely does.
fn pause_of_a_copy(random: &mut Rng, pause: Step, next: &mut Vec<Step>) -> Step {
    *next = vec![Step::Check, pause, Step::Wait(random.u64(500..5000))];
    if random.bool() {
        next.remove(0);
    }
    Step::Copy(random.usize(4 << 20..8 << 20))
}

fn faults(random: &mut Rng) -> LinkFaults {
    let mut share = || if random.bool() { 0 } else { random.u16(..25) };
    LinkFaults { loss: share(), duplication: share(), corruption: share(), reordering: share() }
}

fn act(random: &mut Rng) -> Act {
    match random.u8(..90) {
        0..5 => Act::Restart,
        5..8 => Act::Reenable,
        8 => Act::Halt,
        9..11 => Act::Start,
        11..14 => Act::Sleep,
        14..18 => Act::Wake,
        18 => Act::Remove,
        19 => Act::Vanish,
        20 => Act::Insert,
        21 => Act::ShutDown,
        22..25 => Act::Fail,
        25 => Act::Stuck,
        26..28 => Act::Unsteady(random.bool()),
        28..30 => Act::Interrupt(random.u16(..18)),
        30..33 => Act::Link(random.bool()),
        33..35 => Act::Rdma(random.bool()),
        35 => Act::ReceiveHash(random.bool()),
        36 => Act::Rss(*pick(random, &[0, 1, 2, 3, 4, 8, 16])),
        68..76 => Act::Misbehave(misbehavior(random)),
        76 => Act::Speed(*pick(random, &[0, 10, 2500, 400_000, u32::MAX])),
        77..79 => Act::Vlan(*pick(random, &[0, 1, 77, 4094, 4095])),
        60..63 => Act::RssPart(rss_part(random)),
        63 => Act::Coalescing([random.bool(), random.bool()]),
        64 => Act::Encapsulation([random.bool(), random.bool()]),
        65 | 79 => Act::Stall(random.u16(..8)),
        66..68 => Act::Announce,
        80..82 => Act::PauseCommands(pause(random)),
        82..84 => Act::PauseSending(pause(random)),
        84..86 => Act::CommandTime(pause(random)),
        86..88 => Act::ResetTime(*pick(random, &[0, 5, 100, 900, 1500, 3000])),
        88..90 => Act::QueueResetTime(*pick(random, &[0, 100, 900, 1500, 20_000])),
        37..41 => query(random),
        41..47 => set(random),
        47..53 => frames(random),
        53..55 => Act::Cancel,
        55..57 => Act::Keep(random.bool()),
        57 => Act::Shortage(*pick(random, &[0, 5, 50, 500])),
        _ => Act::FailNth(random.u16(..200)),
    }
}

/// A time in milliseconds: of any order of magnitude, or of about the retries of a connection.
fn pause(random: &mut Rng) -> u32 {
    if random.u8(..4) == 0 {
        return random.u32(900..2500);
    }
    magnitude(random, LONGEST_PAUSE.as_millis() as u64) as u32
}

fn frames(random: &mut Rng) -> Act {
    // Longer ones than the adapter's are cut.
    let longest = *pick(random, &[1515, 1515, 9015]);
    Act::Frames { count: random.usize(1..200), length: random.usize(14..longest) }
}

fn misbehavior(random: &mut Rng) -> Misbehavior {
    match random.u8(..9) {
        0..4 => {
            let pair = random.u16(..8);
            let queues = [Queue::Receive(pair), Queue::Receive(pair), Queue::Transmit(pair), Queue::Control];
            let &(_, entry) = pick(random, &ENTRIES);
            Misbehavior::Corrupt(*pick(random, &queues), entry)
        }
        4 => Misbehavior::Buffers(random.u16(..8), *pick(random, &[0, 2, 3, 64, u16::MAX])),
        5 => Misbehavior::Unanswered,
        6 => Misbehavior::Withdrawn(pick(random, &OPTIONAL).0),
        _ => Misbehavior::Refused(random.u8(..6)),
    }
}

fn rss_part(random: &mut Rng) -> RssPart {
    match random.u8(..6) {
        0 | 1 => RssPart::Table { processors: random.u8(1..17), log2: random.u8(..9) },
        2 => RssPart::NoTable,
        3 => RssPart::Key(random.u8(..)),
        // The types that NDIS has, and a type that is none of them at times.
        4 => RssPart::Types(u32::from(random.u8(1..)) << 8),
        _ => RssPart::Default(random.u8(..16)),
    }
}

fn query(random: &mut Rng) -> Act {
    let &(oid, usual) = pick(random, &OIDS);
    Act::Query(oid, length(random, usual))
}

/// Mostly the usual length.
fn length(random: &mut Rng, usual: usize) -> usize {
    match random.u8(..8) {
        0 => 0,
        1 => random.usize(..=usual),
        2 => usual + random.usize(..40),
        _ => usual,
    }
}

fn set(random: &mut Rng) -> Act {
    let &(oid, usual) = pick(random, &OIDS);
    let length = length(random, usual).min(256);
    let mut value: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
    let sensible = random.u8(..4) != 0;
    match oid {
        OID_GEN_CURRENT_PACKET_FILTER if sensible => value = u32::from(random.u8(..64)).to_le_bytes().into(),
        OID_802_3_MULTICAST_LIST => {
            let count = random.usize(..40);
            value = (0..count * 6).map(|at| if at % 6 == 0 { 1 } else { random.u8(..) }).collect();
        }
        OID_TCP_OFFLOAD_PARAMETERS if sensible => {
            // A header of revision 1, then the parameters: 0 changes nothing.
            value = [0x80, 1, 20, 0].into_iter().chain((0..16).map(|_| random.u8(..5))).collect();
        }
        OID_OFFLOAD_ENCAPSULATION if sensible => {
            value = ndis_sim::offload::encapsulation([random.bool(), random.bool()]);
        }
        OID_GEN_INTERRUPT_MODERATION if sensible => {
            // A header of revision 1, no flags, moderation enabled or disabled.
            value = [0x80, 1, 12, 0, 0, 0, 0, 0, random.u8(2..4), 0, 0, 0].into();
        }
        OID_GEN_NETWORK_LAYER_ADDRESSES if sensible => value = addresses(random),
        // A power state that exists is set by the power manager only.
        OID_PNP_SET_POWER => value = value.into_iter().map(|byte| byte | 0x10).collect(),
        OID_GEN_VLAN_ID if sensible => value = u32::from(random.u16(..4096)).to_le_bytes().into(),
        OID_NDK_SET_STATE => value.push(0),
        _ => {}
    }
    Act::Set(oid, value)
}

/// A NETWORK_ADDRESS_LIST of IPv4 addresses for examples (RFC 5737).
fn addresses(random: &mut Rng) -> Vec<u8> {
    const IP: u16 = 2;
    let count = random.u32(..15);
    let mut list = [&count.to_le_bytes()[..], &IP.to_le_bytes()].concat();
    for last in 0..count {
        list.extend([16, 0]);
        list.extend(IP.to_le_bytes());
        list.extend([0, 0, 0, 0, 192, 0, 2, last as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    list
}
