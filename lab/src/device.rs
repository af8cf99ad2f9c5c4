// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network device of a host: simulated in this process, or QEMU's.

use std::{io, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use device_sim::{
    Nic, NicOptions, PciFunction,
    link::{Datagrams, Port, Tunnel},
};
use ndis_sim::{NdisHost as _, open_tunnel};
use nt_sim::Host;
use qemu_device::{Backend, DpdkSwitch, Identity, QemuNic, QemuOptions, Slot, TapNetwork};
use tempfile::TempDir;

/// Which device a host has.
#[derive(Clone, Debug, Default)]
pub enum DeviceKind {
    /// The device of `device_sim`.
    #[default]
    Simulated,
    /// QEMU's virtio-net-pci. In real time only; [`Quirks`](device_sim::Quirks) do not apply to it.
    Qemu(QemuVariant),
}

/// Name of a kind of device on a command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum DeviceName {
    #[default]
    Simulated,
    Qemu,
}

impl DeviceName {
    /// Returns the kind of device, with the options it has unless others are named.
    #[must_use]
    pub fn kind(self) -> DeviceKind {
        match self {
            Self::Simulated => DeviceKind::Simulated,
            Self::Qemu => DeviceKind::Qemu(QemuVariant::default()),
        }
    }
}

/// Backend of a device of QEMU, which processes its queues and takes its frames.
#[derive(Clone, Debug, Default)]
pub enum QemuBackend {
    /// QEMU, and the link in this process.
    #[default]
    Link,
    /// DPDK. Frames do not pass the link in this process, which has no faults for them, and no capture.
    Dpdk(Arc<DpdkSwitch>),
    /// QEMU, and a tap interface for each device, with so many queue pairs. Likewise without the link.
    Tap { network: Arc<TapNetwork>, pairs: u16 },
}

/// Options of a device of QEMU.
#[derive(Clone, Debug, Default)]
pub struct QemuVariant {
    pub backend: QemuBackend,
    pub identity: Identity,
    pub slot: Slot,
    /// Properties of the device, as QEMU names them: `mrg_rxbuf=off`.
    pub properties: Vec<String>,
}

/// A device that is plugged into a host.
pub(crate) enum Device {
    Simulated(Arc<Nic>),
    Qemu { nic: Arc<QemuNic>, link: QemuLink },
}

/// How the frames of a device of QEMU travel.
pub(crate) enum QemuLink {
    /// Over the link in this process.
    Sockets { sockets: Sockets, tunnel: Option<Tunnel> },
    /// Over its backend, which runs as long as it is used.
    Backend { _running: QemuBackend },
}

/// A directory for the two sockets between a device of QEMU and the link in this process.
pub(crate) struct Sockets(TempDir);

impl Device {
    /// Plugs a device into `host`. It is not connected.
    ///
    /// # Errors
    /// QEMU does not start.
    pub fn plug(host: &Arc<Host>, kind: &DeviceKind, options: NicOptions) -> Result<Self> {
        match kind {
            DeviceKind::Simulated => Ok(Self::Simulated(host.plug(options))),
            DeviceKind::Qemu(variant) => {
                let (backend, link) = match &variant.backend {
                    QemuBackend::Link => {
                        let sockets = Sockets::new().context("cannot make a directory for sockets")?;
                        let backend = Backend::Datagrams { local: sockets.device(), remote: sockets.link() };
                        (backend, QemuLink::Sockets { sockets, tunnel: None })
                    }
                    QemuBackend::Dpdk(switch) => {
                        let socket = switch.next_socket().context("the switch has two ports, both in use")?;
                        (
                            Backend::VhostUser { socket, pairs: switch.pairs() },
                            QemuLink::Backend { _running: variant.backend.clone() },
                        )
                    }
                    QemuBackend::Tap { network, pairs } => {
                        let tap = network.add_tap(*pairs, options.mtu).context("no tap interface")?;
                        let link = QemuLink::Backend { _running: variant.backend.clone() };
                        (Backend::Tap { network: network.clone(), tap }, link)
                    }
                };
                let qemu = QemuOptions {
                    mtu: Some(options.mtu),
                    identity: variant.identity,
                    slot: variant.slot,
                    properties: variant.properties.clone(),
                    ..QemuOptions::new(options.mac, backend)
                };
                let make = |bus, memory, len| QemuNic::new(bus, memory, len, &qemu);
                let nic = host.plug_function(make).context("cannot plug in QEMU's device")?;
                Ok(Self::Qemu { nic, link })
            }
        }
    }

    /// Connects the device to one end of a link, unless its backend connects it to another device.
    ///
    /// # Errors
    /// The sockets between QEMU and the link cannot be opened.
    pub fn connect(&mut self, host: &Host, port: Port) -> Result<()> {
        match self {
            Self::Simulated(nic) => nic.connect(port),
            Self::Qemu { link: QemuLink::Sockets { sockets, tunnel }, .. } => {
                let datagrams = Datagrams::unix(&sockets.link(), &sockets.device())?;
                *tunnel = Some(open_tunnel(host.world(), port, datagrams)?);
            }
            Self::Qemu { link: QemuLink::Backend { .. }, .. } => {}
        }
        Ok(())
    }

    pub fn function(&self) -> Arc<dyn PciFunction> {
        match self {
            Self::Simulated(nic) => nic.clone(),
            Self::Qemu { nic, .. } => nic.clone(),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Self::Qemu { nic, .. } = self {
            nic.close();
        }
    }
}

impl Sockets {
    fn new() -> io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    /// Returns the path of the socket that receives frames for the device.
    fn device(&self) -> PathBuf {
        self.0.path().join("device")
    }

    /// Returns the path of the socket that receives frames for the link.
    fn link(&self) -> PathBuf {
        self.0.path().join("link")
    }
}
