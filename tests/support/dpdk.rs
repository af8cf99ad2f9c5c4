// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver on rings that DPDK's vhost library processes, behind QEMU's virtio-net-pci: a second device that was written by
//! others. DPDK polls the rings, asks for no notifications while it does, and completes frames in batches.

use std::sync::Arc;

use crate::{
    bed::{exchange, miniport, started_with},
    copying::copy,
};
use lab::{
    device::{DeviceKind, QemuBackend, QemuVariant},
    has_dpdk, has_qemu,
    testbed::{Options, Testbed},
};
use qemu_device::{DpdkSwitch, Identity};

/// Two hosts whose devices have these properties, and what connects them. `None` if a program or the image is missing.
pub fn started(properties: &[&str], identity: Identity) -> Option<(Testbed, Arc<DpdkSwitch>)> {
    started_with_pairs(1, properties, identity)
}

/// [`started`], with so many queue pairs and processors.
pub fn started_with_pairs(
    pairs: u16,
    properties: &[&str],
    identity: Identity,
) -> Option<(Testbed, Arc<DpdkSwitch>)> {
    if !has_qemu() || !has_dpdk() {
        return None;
    }
    let switch = Arc::new(DpdkSwitch::start(pairs).expect("testpmd starts"));
    let variant = QemuVariant {
        backend: QemuBackend::Dpdk(switch.clone()),
        properties: properties.iter().map(|&property| property.to_owned()).collect(),
        identity,
        ..QemuVariant::default()
    };
    let device = DeviceKind::Qemu(variant);
    let processors = u32::from(pairs.max(2));
    let options = Options { device, real_time: true, path_mtu: 1024, processors, ..Options::default() };
    let bed = started_with(&options)?;
    switch.await_queues().expect("DPDK uses all queues");
    Some((bed, switch))
}

/// More frames than the ring has descriptors, of all lengths.
pub fn frames() -> Vec<Vec<u8>> {
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
    let len = |number: usize| 60 + number * 37 % 1_000;
    let frame =
        |number| header.into_iter().chain((0..).map(move |at: usize| (at * number) as u8)).take(len(number));
    (0..600).map(|number| frame(number).collect()).collect()
}

/// Data by RDMA both ways, and Ethernet frames in bursts that fit the backend's queue.
pub fn transfer(bed: &Testbed) {
    // First: the exchange leaves a filter that drops ARP requests.
    copy(bed);
    let [sender, receiver] = bed.machines().map(miniport);
    for burst in frames().chunks(64) {
        exchange(bed, &sender, &receiver, burst);
    }
}
