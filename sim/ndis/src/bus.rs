// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's bus: plugging in a NIC, configuration space, register windows, resources.

use std::{
    fs::File,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use ndk_abi::{
    ndis::{
        NDIS_PHYSICAL_ADDRESS, NDIS_STATUS, NDIS_STATUS_RESOURCE_CONFLICT, NDIS_STATUS_RESOURCES,
        NDIS_STATUS_SUCCESS,
    },
    nt::{
        CM_RESOURCE_INTERRUPT_LATCHED, CM_RESOURCE_INTERRUPT_MESSAGE, CmResourceTypeInterrupt,
        CmResourceTypeMemory, CmResourceTypePort,
    },
};

use device_sim::{
    Bus, DmaSpace, Misuse, MisuseKind, Nic, NicOptions, PciFunction,
    link::{Datagrams, Port, Tunnel, Wire},
    mmio::{Failure, Windows},
    pci,
    virtio_net::Features,
};
use nt_sim::{
    BugCheck, Host, current, guest::Guest, host::FaultOutcome, image::registers::FaultContext, imports,
    memory::PAGE_SIZE, services::Slot, violation, world::World,
};

use crate::{
    adapter::{Adapter, adapter},
    interface::{self, interfaces},
    interrupt, owner,
    rules::{self, broken, require},
};

/// The mapped device registers of a host.
pub(crate) static WINDOWS: Slot<Windows> = Slot::new();

const MAP: &str = "NdisMMapIoSpace";
const PORTS: &str = "NdisMRegisterIoPortRange";

/// Whether the system enables bus mastering of the devices that it starts, instead of leaving that to drivers.
pub(crate) static BUS_MASTERING: Slot<AtomicBool> = Slot::new();

/// The command register in configuration space, and its bit for bus mastering.
const COMMAND: usize = 4;
const BUS_MASTER: u8 = 4;

/// The host as the bus of its device.
struct HostBus {
    host: Weak<Host>,
    world: Arc<World>,
}

impl Bus for HostBus {
    fn now(&self) -> u64 {
        self.world.now()
    }

    fn at(&self, time: u64, job: Box<dyn FnOnce() + Send>) {
        if let Some(host) = self.host.upgrade() {
            host.at(time, job);
        }
    }

    fn message(&self, message: pci::Message) {
        if let Some(host) = self.host.upgrade() {
            interrupt::deliver(&host, message);
        }
    }

    fn line(&self) {
        if let Some(host) = self.host.upgrade() {
            interrupt::deliver_line(&host);
        }
    }

    fn misuse(&self, misuse: Misuse) {
        let (code, text) = misuse_report(&misuse);
        violation(code, text)
    }

    fn is_alive(&self) -> bool {
        self.host.upgrade().is_some_and(|host| !host.is_dead())
    }
}

fn misuse_report(misuse: &Misuse) -> (BugCheck, String) {
    let code = match misuse.kind {
        MisuseKind::Dma => BugCheck::DRIVER_VERIFIER_DMA_VIOLATION,
        MisuseKind::Register | MisuseKind::Ring => BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
    };
    (code, format!("device: {}", misuse.text))
}

/// Plugs a NIC into the host. [`Miniport::start`](crate::Miniport::start) starts the driver on it.
///
/// # Panics
/// When the host's memory cannot be mapped for it.
pub(crate) fn plug(host: &Arc<Host>, options: NicOptions) -> Arc<Nic> {
    let made = plug_function(host, |bus, file, size| {
        let is_remapped = options.features.contains(Features::ACCESS_PLATFORM);
        let first = if is_remapped { DmaSpace::REMAPPED } else { DmaSpace::PHYSICAL };
        Ok(Nic::new(bus, Arc::new(DmaSpace::at(first, file, size)?), options))
    });
    made.expect("the machine has memory to map")
}

/// Plugs in, as [`plug`] does, a device that `make` creates from the host's bus, its memory, and the size of that in bytes.
///
/// # Errors
/// That of `make`, and when a file descriptor cannot be duplicated.
pub(crate) fn plug_function<F: PciFunction + 'static>(
    host: &Arc<Host>,
    make: impl FnOnce(Arc<dyn Bus>, File, usize) -> io::Result<Arc<F>>,
) -> io::Result<Arc<F>> {
    let physical = &host.memory.physical;
    let bus = Arc::new(HostBus { host: Arc::downgrade(host), world: host.world().clone() });
    let nic = make(bus, physical.file().try_clone()?, physical.size())?;
    interface::add(host, nic.clone());
    Ok(nic)
}

/// Enables bus mastering of a device that has been started or has got its power back, if the system does that.
pub(crate) fn enable_bus_mastering(host: &Host, nic: &dyn PciFunction) {
    if !host.state(&BUS_MASTERING).load(Relaxed) {
        return;
    }
    let mut command = [0; 2];
    nic.read_config(COMMAND, &mut command);
    nic.write_config(COMMAND, &[command[0] | BUS_MASTER, command[1]]);
}

/// Returns the NICs in the host, in the order they were plugged in.
pub(crate) fn nics(host: &Host) -> Vec<Arc<dyn PciFunction>> {
    interfaces(host).iter().map(|interface| interface.nic.clone()).collect()
}

/// Cuts the power and the cables: from now on nothing the host sends appears on a link.
pub(crate) fn kill(host: &Host) {
    for nic in nics(host) {
        nic.power_off();
    }
    host.power_off();
}

/// Connects one end of a link to a datagram socket outside the simulation.
///
/// # Errors
/// When no thread can be started.
///
/// # Panics
/// When the clock of `world` is not real time, or the end of the link is attached already.
pub fn open_tunnel(world: &Arc<World>, port: Port, datagrams: Datagrams) -> io::Result<Tunnel> {
    assert!(!world.clock.is_deterministic(), "a tunnel needs the threaded clock");
    let world = world.clone();
    Tunnel::open(move || world.now(), port, datagrams)
}

/// Joins two NICs, of one host or of two, `a` at end 0.
///
/// # Panics
/// When a NIC is connected already.
pub fn join_nics(wire: &Arc<Wire>, a: &Arc<Nic>, b: &Arc<Nic>) {
    a.connect(wire.port(0));
    b.connect(wire.port(1));
}

/// Executes an access to device registers that faulted at `address`.
///
/// # Safety
/// `context` is that of the calling thread, interrupted by the fault.
pub(crate) unsafe fn access_register(
    host: &Host,
    address: usize,
    context: &mut FaultContext<'_>,
) -> FaultOutcome {
    // SAFETY: the caller's promise: the interrupted instruction was just fetched from there.
    match unsafe { host.state(&WINDOWS).access(address, context) } {
        Ok(()) => FaultOutcome::Handled,
        Err(Failure::NotMapped) => FaultOutcome::NotMine,
        Err(Failure::Instruction(text)) => {
            FaultOutcome::Violation(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
        }
        Err(Failure::Misuse(misuse)) => {
            let (code, text) = misuse_report(&misuse);
            FaultOutcome::Violation(code, text)
        }
    }
}

/// Bytes of a `CM_PARTIAL_RESOURCE_DESCRIPTOR`, which is packed.
const DESCRIPTOR_LEN: usize = 20;

/// Returns a descriptor: type, exclusive sharing, flags, 64-bit start, length.
fn descriptor(kind: u8, flags: u32, first: u64, second: u32) -> [u8; DESCRIPTOR_LEN] {
    const DEVICE_EXCLUSIVE: u8 = 1;
    let mut bytes = [0; DESCRIPTOR_LEN];
    bytes[0] = kind;
    bytes[1] = DEVICE_EXCLUSIVE;
    bytes[2..4].copy_from_slice(&(flags as u16).to_le_bytes());
    bytes[4..12].copy_from_slice(&first.to_le_bytes());
    bytes[12..16].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// Returns the resources assigned to the device as a `CM_PARTIAL_RESOURCE_LIST`.
pub(crate) fn resources(nic: &dyn PciFunction) -> Vec<u8> {
    let ports = nic.ports().map(|ports| {
        const PORT_IO: u32 = 1;
        descriptor(CmResourceTypePort, PORT_IO, ports.start.into(), ports.count.into())
    });
    let memory = nic.bars().into_iter();
    let memory = memory.map(|bar| descriptor(CmResourceTypeMemory, 0, bar.start, bar.len as u32));
    let flags = CM_RESOURCE_INTERRUPT_MESSAGE | CM_RESOURCE_INTERRUPT_LATCHED;
    let vectors = u32::from(nic.vectors());
    // Translated: level and vector, then the affinity.
    let level = u64::from(nt_sim::Irql::DEVICE_LEVEL.0);
    let messages = (0..vectors)
        .map(|vector| descriptor(CmResourceTypeInterrupt, flags, level | u64::from(0x50 + vector) << 32, 1));
    // Without messages the device has its line, which is level-triggered.
    let line = (vectors == 0).then(|| descriptor(CmResourceTypeInterrupt, 0, level | 0x50 << 32, 1));
    let descriptors: Vec<_> = ports.into_iter().chain(memory).chain(messages).chain(line).collect();
    let mut list = Vec::with_capacity(8 + descriptors.len() * DESCRIPTOR_LEN);
    list.extend_from_slice(&1_u16.to_le_bytes());
    list.extend_from_slice(&1_u16.to_le_bytes());
    list.extend_from_slice(&(descriptors.len() as u32).to_le_bytes());
    list.extend(descriptors.iter().flatten());
    list
}

fn map(adapter: &Adapter, start: u64, len: usize) -> Result<usize, NDIS_STATUS> {
    let host = current().host().clone();
    let end = start.saturating_add(len as u64);
    let bar = adapter.nic.bars().into_iter().find(|bar| start >= bar.start && end <= bar.start + bar.len);
    let Some(bar) = bar.filter(|_| len > 0) else {
        broken(
            rules::MAPPED,
            format!("{MAP} of {len} bytes at {start:#x}, which are not among the adapter's resources"),
        )
    };
    let inside = (start % PAGE_SIZE as u64) as usize;
    let pages = (inside + len).div_ceil(PAGE_SIZE);
    // Reserved and never mapped: every access faults.
    let address = host.memory.space.reserve(pages).ok_or(NDIS_STATUS_RESOURCES)? + inside;
    host.state(&WINDOWS).map(address, len, adapter.nic.clone(), bar.number, start - bar.start);
    owner::hold(&host, adapter.handle, MAP, address);
    Ok(address)
}

/// The configuration space of a device.
const PCI_WHICHSPACE_CONFIG: u32 = 0;

imports! { IMPORTS: "ndis.sys" =>
    /// Reads configuration space; returns the number of bytes read.
    [<= HIGH_LEVEL]
    fn NdisMGetBusData(handle: usize, space: u32, offset: u32, buffer: Guest<u8>, length: u32) -> u32 {
        let adapter = adapter(handle);
        require(space == PCI_WHICHSPACE_CONFIG, rules::BUS_SPACE, || format!("NdisMGetBusData of space {space}"));
        let mut bytes = vec![0xff; (length as usize).min(pci::CONFIG_LEN)];
        let Some(read) = adapter.nic.read_config(offset as usize, &mut bytes) else {
            buffer.fill(0xff, length as usize);
            return length;
        };
        buffer.write_bytes(&bytes[..read]);
        read as u32
    }

    /// Writes configuration space; returns the number of bytes written.
    [<= HIGH_LEVEL]
    fn NdisMSetBusData(handle: usize, space: u32, offset: u32, buffer: Guest<u8>, length: u32) -> u32 {
        let adapter = adapter(handle);
        require(space == PCI_WHICHSPACE_CONFIG, rules::BUS_SPACE, || format!("NdisMSetBusData of space {space}"));
        let mut bytes = vec![0; (length as usize).min(pci::CONFIG_LEN)];
        buffer.read_bytes(&mut bytes);
        adapter.nic.write_config(offset as usize, &bytes).unwrap_or(0) as u32
    }

    /// Maps registers of the device.
    [== PASSIVE_LEVEL]
    fn NdisMMapIoSpace(
        address: Guest<usize>,
        handle: usize,
        physical: NDIS_PHYSICAL_ADDRESS,
        length: u32,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        match map(&adapter, physical.QuadPart.cast_unsigned(), length as usize) {
            Ok(mapped) => {
                address.write(mapped);
                NDIS_STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Unmaps registers of the device.
    [== PASSIVE_LEVEL]
    fn NdisMUnmapIoSpace(handle: usize, address: usize, length: u32) {
        let _ = adapter(handle);
        let host = current().host().clone();
        require(owner::is_held(&host, handle, MAP, address), rules::UNMAPPED, || {
            format!("NdisMUnmapIoSpace of {address:#x}, which the adapter has not mapped")
        });
        let mapped = host.state(&WINDOWS).unmap(address);
        require(mapped == Some(length as usize), rules::UNMAPPED, || {
            format!("NdisMUnmapIoSpace of {length} bytes at {address:#x}; the length mapped there is {mapped:?}")
        });
        let pages = (address % PAGE_SIZE + length as usize).div_ceil(PAGE_SIZE);
        host.memory.space.release(address - address % PAGE_SIZE, pages);
        let _ = owner::release(&host, MAP, address);
    }

    /// Claims ports of the device. On x64 their addresses are the ports themselves. No instruction accesses them here: it is a
    /// general protection fault.
    [== PASSIVE_LEVEL]
    fn NdisMRegisterIoPortRange(
        offset: Guest<usize>,
        handle: usize,
        first: u32,
        count: u32,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        let last = first.saturating_add(count);
        let is_assigned = adapter.nic.ports().is_some_and(|ports| {
            let (start, end) = (u32::from(ports.start), u32::from(ports.start) + u32::from(ports.count));
            first >= start && count > 0 && last <= end
        });
        if !is_assigned {
            return NDIS_STATUS_RESOURCE_CONFLICT;
        }
        offset.write(first as usize);
        owner::hold(current().host(), handle, PORTS, first as usize);
        NDIS_STATUS_SUCCESS
    }

    /// Gives ports back.
    [== PASSIVE_LEVEL]
    fn NdisMDeregisterIoPortRange(handle: usize, first: u32, _count: u32, _offset: usize) {
        let _ = adapter(handle);
        let host = current().host().clone();
        require(owner::is_held(&host, handle, PORTS, first as usize), rules::FREED_AS_ALLOCATED, || {
            format!("NdisMDeregisterIoPortRange of port {first:#x}, which the adapter has not claimed")
        });
        let _ = owner::release(&host, PORTS, first as usize);
    }
}
