// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that others ship, as data: what they offer, what they insist on, and how slow they are, as far as the simulated device has it.
//! Each names the source of the facts.

use std::time::Duration;

use crate::testbed::Options;
use device_sim::{Quirks, pci::Identity, virtio_net::Features};

/// The event with which the driver refuses a device with the legacy interface only.
const NO_CAPABILITIES: u32 = viordma_inf::events::NO_CAPABILITIES.number();

/// A device of a hypervisor or of a vendor.
pub struct Profile {
    pub name: &'static str,
    /// Where its features and sizes stand.
    pub source: &'static str,
    pub features: Features,
    pub pairs: u16,
    /// Interrupt messages; `None` for as many as it has use for.
    pub messages: Option<u16>,
    pub queue_sizes: [u16; 2],
    pub quirks: Quirks,
    /// The event with which the driver refuses it.
    pub refusal: Option<u32>,
}

impl Profile {
    /// Returns two hosts with such a device each.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            features: self.features,
            pairs: self.pairs,
            messages: self.messages,
            queue_sizes: self.queue_sizes,
            quirks: self.quirks,
            peer_quirks: self.quirks,
            path_mtu: 1024,
            ..Options::default()
        }
    }
}

const fn all(features: &[Features]) -> Features {
    let (mut bits, mut rest) = (Features::VERSION_1.0, features);
    while let [first, others @ ..] = rest {
        bits |= first.0;
        rest = others;
    }
    Features(bits)
}

const CHECKSUMS: Features = Features(Features::CSUM.0 | Features::GUEST_CSUM.0);
const TSO: Features = Features(Features::HOST_TSO4.0 | Features::HOST_TSO6.0);
const GUEST_TSO: Features = Features(Features::GUEST_TSO4.0 | Features::GUEST_TSO6.0);
const FILTERS: Features = Features(Features::CTRL_VQ.0 | Features::CTRL_RX.0 | Features::CTRL_VLAN.0);
const RINGS: Features = Features(Features::INDIRECT_DESC.0 | Features::EVENT_IDX.0);

/// QEMU's device without host_mtu and speed.
const QEMU: Features = Features(
    Features::DEFAULT.without(Features::MTU).without(Features::SPEED_DUPLEX).without(Features::HOST_USO).0
        | Features::MQ.0,
);

const fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Returns the devices.
#[must_use]
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn profiles() -> Vec<Profile> {
    vec![
        Profile {
            name: "QEMU, tap",
            source: "QEMU 7.2, hw/net/virtio-net.c: virtio_net_properties, virtio_net_get_features; queues of 256",
            features: QEMU,
            pairs: 2,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks::default(),
            refusal: None,
        },
        Profile {
            name: "QEMU, vhost",
            source: "QEMU 7.2, hw/net/vhost_net.c: kernel_feature_bits, without RING_PACKED; host_mtu, rx_queue_size=1024",
            features: Features(QEMU.without(Features::RING_RESET).0 | Features::MTU.0),
            pairs: 2,
            messages: None,
            queue_sizes: [1024, 256],
            quirks: Quirks::default(),
            refusal: None,
        },
        Profile {
            name: "QEMU, vhost-user with DPDK",
            source: "QEMU 7.2, hw/net/vhost_net.c: user_feature_bits; DPDK 22.11, lib/vhost: drops without a buffer",
            features: all(&[
                CHECKSUMS,
                TSO,
                GUEST_TSO,
                FILTERS,
                RINGS,
                Features::CTRL_GUEST_OFFLOADS,
                Features::MAC,
                Features::MRG_RXBUF,
                Features::STATUS,
                Features::GUEST_ANNOUNCE,
                Features::MQ,
                Features::CTRL_MAC_ADDR,
                Features::MTU,
                Features::RING_PACKED,
            ]),
            pairs: 2,
            messages: None,
            queue_sizes: [1024, 1024],
            quirks: Quirks { drops_without_buffer: true, ..Quirks::default() },
            refusal: None,
        },
        Profile {
            name: "Cloud Hypervisor",
            source: "virtio-devices/src/net.rs: no CTRL_RX, STATUS or MRG_RXBUF; activate() expects all queues (2020)",
            features: all(&[
                CHECKSUMS,
                TSO,
                GUEST_TSO,
                Features::HOST_ECN,
                Features::EVENT_IDX,
                Features::CTRL_VQ,
                Features::CTRL_GUEST_OFFLOADS,
                Features::MQ,
                Features::MAC,
                Features::MTU,
            ]),
            pairs: 2,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks { insists_on_all_queues: true, ..Quirks::default() },
            refusal: None,
        },
        Profile {
            name: "Firecracker",
            source: "src/vmm/src/devices/virtio/net/device.rs: no control queue and no link state; queues of 256",
            features: all(&[
                CHECKSUMS,
                TSO,
                GUEST_TSO,
                Features::MRG_RXBUF,
                Features::EVENT_IDX,
                Features::MAC,
                Features::MTU,
            ]),
            pairs: 1,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks::default(),
            refusal: None,
        },
        Profile {
            name: "crosvm",
            source: "devices/src/virtio/net.rs: IPv4 segmentation only; activate() expects all queues, with MQ of all pairs",
            features: all(&[
                CHECKSUMS,
                Features::CTRL_VQ,
                Features::CTRL_GUEST_OFFLOADS,
                Features::GUEST_TSO4,
                Features::HOST_TSO4,
                Features::MTU,
                Features::MQ,
                Features::MAC,
                RINGS,
                Features::RING_PACKED,
            ]),
            pairs: 2,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks { insists_on_all_queues: true, ..Quirks::default() },
            refusal: None,
        },
        Profile {
            name: "VirtualBox",
            source: "src/VBox/Devices/Network/DevVirtioNet.cpp: VIRTIONET_HOST_FEATURES_OFFERED; Virtio/VirtioCore.cpp: no MSI-X",
            features: all(&[
                CHECKSUMS,
                TSO,
                GUEST_TSO,
                FILTERS,
                Features::STATUS,
                Features::GUEST_ANNOUNCE,
                Features::MAC,
                Features::MRG_RXBUF,
            ]),
            pairs: 1,
            messages: Some(0),
            queue_sizes: [256, 256],
            quirks: Quirks::default(),
            refusal: None,
        },
        Profile {
            name: "OpenVMM",
            source: "vm/devices/virtio/virtio_net/src/lib.rs: traits(); packed rings, no control queue",
            features: all(&[
                CHECKSUMS,
                TSO,
                Features::HOST_USO,
                Features::MAC,
                Features::STATUS,
                RINGS,
                Features::RING_PACKED,
            ]),
            pairs: 1,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks::default(),
            refusal: None,
        },
        Profile {
            name: "bhyve",
            source: "usr.sbin/bhyve/pci_virtio_net.c: VTNET_S_HOSTCAPS, queues of 1024; the legacy interface only",
            features: all(&[Features::MAC, Features::STATUS, Features::INDIRECT_DESC]),
            pairs: 1,
            messages: None,
            queue_sizes: [1024, 1024],
            quirks: Quirks { identity: Identity::Legacy, ..Quirks::default() },
            refusal: Some(NO_CAPABILITIES),
        },
        Profile {
            name: "mlx5 vDPA",
            source: "Linux, drivers/vdpa/mlx5/net/mlx5_vnet.c: get_supported_features(): CTRL_MAC_ADDR without CTRL_RX; hardware drops",
            features: all(&[
                CHECKSUMS,
                TSO,
                Features::CTRL_VQ,
                Features::CTRL_VLAN,
                Features::CTRL_MAC_ADDR,
                Features::MQ,
                Features::STATUS,
                Features::MTU,
                Features::MAC,
                Features::MRG_RXBUF,
                Features::ACCESS_PLATFORM,
            ]),
            pairs: 2,
            messages: None,
            queue_sizes: [256, 256],
            quirks: Quirks { command_time: millis(5), drops_without_buffer: true, ..Quirks::default() },
            refusal: None,
        },
        Profile {
            name: "a data processing unit",
            source: "virtio-win issue 1348: commands answered after 3 s; virtio-spec issue 250: busy after DRIVER_OK; virtio 1.2 4.1.4.3",
            features: all(&[
                CHECKSUMS,
                TSO,
                FILTERS,
                RINGS,
                Features::CTRL_MAC_ADDR,
                Features::GUEST_ANNOUNCE,
                Features::MQ,
                Features::STATUS,
                Features::MTU,
                Features::MAC,
                Features::MRG_RXBUF,
                Features::ACCESS_PLATFORM,
                Features::SPEED_DUPLEX,
            ]),
            pairs: 2,
            messages: None,
            queue_sizes: [1024, 1024],
            quirks: Quirks {
                command_time: millis(3000),
                reset_time: millis(1500),
                drops_without_buffer: true,
                ..Quirks::default()
            },
            refusal: None,
        },
    ]
}
