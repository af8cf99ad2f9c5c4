//! The NIC: PCI configuration space and the virtio-net device.
