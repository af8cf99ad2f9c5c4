// SPDX-License-Identifier: MIT OR Apache-2.0

//! The PCI function: register accesses to QEMU, interrupts from QEMU.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use device_sim::{
    Bus, DmaSpace, Misuse, PciFunction, Registers,
    function::{Bar, Ports},
    link::Port,
    pci::{CONFIG_LEN, Message},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use trapped_access::Width;

use crate::{
    capabilities::{Structure, Structures},
    common::{DEVICE_STATUS, DRIVER_OK, NEEDS_RESET},
    damage::damage,
    doorbells::{DOORBELL, Doorbells, VECTORS, message_data},
    options::{Backend, QemuOptions, Slot},
    pci::{Address, Firmware},
    process::{Connections, DOORBELL_SLOT, MEMORY, NIC, NIC_SLOT, Process},
    qmp::Qmp,
    qtest::Qtest,
};

const ALL_ONES: u64 = 0xff;

const MSIX_ENABLE: u64 = 1 << 15;
const MSIX_MASK: u64 = 1 << 14;
/// Power states in the power management control.
const D0: u64 = 0;
const D3: u64 = 3;

/// Time between two reads of the interrupt status of a device without messages.
const POLL: Duration = Duration::from_micros(200);

/// How often a ring is damaged until the device notices.
const DAMAGE_ATTEMPTS: usize = 200;

/// Time limit of the first interrupt of the doorbell device.
const DOORBELL_TIMEOUT: Duration = Duration::from_secs(10);

/// A virtio-net-pci device of QEMU. [`QemuNic::close`] or drop ends QEMU.
pub struct QemuNic {
    shared: Arc<QemuState>,
    /// The thread that delivers QEMU's interrupts; `None` when the device is closed.
    interrupts: Mutex<Option<JoinHandle<()>>>,
}

struct QemuState {
    /// QEMU; `None` when the device is closed.
    process: Mutex<Option<Process>>,
    bus: Arc<dyn Bus>,
    memory: Arc<DmaSpace>,
    mac: [u8; 6],
    function: Address,
    bars: Vec<Bar>,
    ports: Option<Ports>,
    structures: Structures,
    /// Bus address of the doorbell register.
    doorbell: u64,
    doorbells: Doorbells,
    qtest: Mutex<Qtest>,
    qmp: Mutex<Qmp>,
    /// The messages that the system programmed, by vector.
    messages: Mutex<Vec<Option<Message>>>,
    /// Causes of the line's interrupt that the driver has not read, and how often it has read any.
    line: Line,
    /// The device's interrupts are read from its interrupt status, also those of the line: QEMU 7.2 without KVM ends with a segmentation fault when a
    /// device with a vhost-user backend and MSI-X starts.
    polled: bool,
    removed: AtomicBool,
    low_power: AtomicBool,
    shut_down: AtomicBool,
}

/// The line of a device without messages, whose interrupt status is read before the driver does.
#[derive(Default)]
struct Line {
    causes: AtomicU8,
    acknowledgments: AtomicU64,
}

impl QemuNic {
    /// Starts QEMU with a device plugged into `bus` that reaches `memory`, `len` bytes. It ends with the calling thread.
    ///
    /// # Errors
    /// When QEMU does not start, or the device does not have what the simulated system needs.
    pub fn new(bus: Arc<dyn Bus>, memory: File, len: usize, options: &QemuOptions) -> io::Result<Arc<Self>> {
        let (process, connections) = Process::start(options, &memory, len)?;
        let Connections { mut qtest, qmp, doorbells } = connections;
        let mut firmware = Firmware::start(&mut qtest)?;
        let ivshmem = Address { bus: 0, device: DOORBELL_SLOT };
        let (ivshmem_bars, _) = firmware.assign(ivshmem, false)?;
        firmware.enable_bus_mastering(ivshmem)?;
        let in_slot = Address { bus: 0, device: NIC_SLOT };
        let (function, (bars, ports)) = match options.slot {
            Slot::RootBus => (in_slot, firmware.assign(in_slot, true)?),
            Slot::RootPort => (Address { bus: 1, device: 0 }, firmware.open_port(in_slot, 1)?),
        };
        let structures = Structures::find(&mut firmware, function, &bars)?;
        let notifier = Notifier::find(&mut firmware, ivshmem, &ivshmem_bars)?;
        notifier.aim(&mut qtest, &structures)?;
        let doorbell = ivshmem_bars.first().map_or(0, |bar| bar.start) + DOORBELL;
        await_doorbells(&mut qtest, &doorbells, doorbell)?;
        let shared = Arc::new(QemuState {
            process: Mutex::new(Some(process)),
            bus,
            memory: Arc::new(DmaSpace::at(MEMORY, memory, len)?),
            mac: options.mac,
            function,
            bars,
            ports,
            structures,
            doorbell,
            doorbells,
            qtest: Mutex::new(qtest),
            qmp: Mutex::new(qmp),
            messages: Mutex::new(vec![None; structures.vectors.into()]),
            line: Line::default(),
            polled: structures.vectors == 0 || matches!(options.backend, Backend::VhostUser { .. }),
            removed: AtomicBool::new(false),
            low_power: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let interrupts = thread::Builder::new().name("QEMU interrupts".to_owned()).spawn(move || {
            if of_thread.polled {
                QemuState::poll_interrupts(&of_thread);
            } else {
                of_thread.doorbells.run(|vector| QemuState::interrupt(&of_thread, vector));
            }
        })?;
        Ok(Arc::new(Self { shared, interrupts: Mutex::new(Some(interrupts)) }))
    }

    /// Damages the ring of transmit queue `queue` in memory, so that the device sets NEEDS_RESET and does nothing until it is reset.
    /// Returns whether it has. In packed rings it needs the feature INDIRECT_DESC.
    #[must_use]
    pub fn damage_ring(&self, queue: u16) -> bool {
        let structures = &self.shared.structures;
        // One command, so that the driver does not select another queue meanwhile, or reset the device before it was seen.
        let attempt = |number| {
            let damage = |qtest: &mut Qtest| damage(structures, qtest, queue.into(), number);
            self.shared.with_qtest(damage)
        };
        // The driver may repair it.
        (0..DAMAGE_ATTEMPTS).any(|number| attempt(number) == Some(true))
    }

    /// Executes a command of QEMU's monitor. The device is `nic` there, its backend `link`.
    ///
    /// # Errors
    /// QEMU refuses it, or does not reply.
    fn monitor(&self, command: &str, arguments: &Value) -> io::Result<Value> {
        self.shared.qmp.lock().execute(command, arguments)
    }

    /// Sets the link state that the device reports.
    ///
    /// # Errors
    /// QEMU does not reply.
    pub fn set_link(&self, up: bool) -> io::Result<()> {
        self.monitor("set_link", &json!({ "name": NIC, "up": up })).map(drop)
    }

    /// Stops the machine: the device processes no queue until it goes on.
    ///
    /// # Errors
    /// QEMU does not reply.
    pub fn stop(&self, stopped: bool) -> io::Result<()> {
        self.monitor(if stopped { "stop" } else { "cont" }, &json!({})).map(drop)
    }

    /// Has the device ask its driver for an announcement of its addresses.
    ///
    /// # Errors
    /// QEMU does not reply.
    pub fn announce(&self) -> io::Result<()> {
        // Milliseconds. The device asks in the first round.
        let rounds = json!({ "initial": 1, "max": 1, "rounds": 1, "step": 1, "interfaces": [NIC] });
        self.monitor("announce-self", &rounds).map(drop)
    }

    /// Returns the receive filters as `query-rx-filter` describes them.
    ///
    /// # Errors
    /// QEMU does not reply.
    pub fn receive_filters(&self) -> io::Result<Value> {
        Ok(self.monitor("query-rx-filter", &json!({ "name": NIC }))?[0].take())
    }

    /// Returns the device's own index of the used ring of a queue; in a packed ring, its position.
    ///
    /// # Errors
    /// QEMU does not reply, or there is no such queue.
    pub fn used_index(&self, queue: u16) -> io::Result<u16> {
        let path = format!("/machine/peripheral/{NIC}/virtio-backend");
        let status = self.monitor("x-query-virtio-queue-status", &json!({ "path": path, "queue": queue }))?;
        let index = status["used-idx"].as_u64().and_then(|index| u16::try_from(index).ok());
        index.ok_or_else(|| io::Error::other(format!("no used-idx in {status}")))
    }

    /// Stops QEMU's process, or lets it go on: meanwhile it does not answer.
    ///
    /// # Errors
    /// It has ended.
    pub fn set_process_stopped(&self, stopped: bool) -> io::Result<()> {
        match &*self.shared.process.lock() {
            Some(process) => process.set_stopped(stopped),
            None => Err(io::Error::other("QEMU has ended")),
        }
    }

    /// Removes the device and ends QEMU. A host may outlive its simulation, and its devices with it.
    pub fn close(&self) {
        self.shared.removed.store(true, Relaxed);
        let Some(interrupts) = self.interrupts.lock().take() else { return };
        self.shared.doorbells.stop();
        // A panic of the thread has been reported by its panic hook.
        let _ = interrupts.join();
        drop(self.shared.process.lock().take());
    }
}

impl Drop for QemuNic {
    fn drop(&mut self) {
        self.close();
    }
}

/// The doorbell device as a source of messages: an eventfd makes it send one.
struct Notifier {
    function: Address,
    /// Bus address of its MSI-X table, and offset of message control.
    table: u64,
    control: u16,
}

impl Notifier {
    fn find(firmware: &mut Firmware<'_>, function: Address, bars: &[Bar]) -> io::Result<Self> {
        const MSIX: u8 = 0x11;
        let capability = firmware.capabilities(function)?.into_iter().find(|&(id, _)| id == MSIX);
        let (_, at) = capability.ok_or_else(|| io::Error::other("the doorbell device has no MSI-X"))?;
        let place = firmware.read(function, at + 4, Width::Dword)?;
        let bar = bars.iter().find(|bar| u64::from(bar.number) == place & 7);
        let bar = bar.ok_or_else(|| io::Error::other("the doorbell device has no BAR for its vectors"))?;
        Ok(Self { function, table: bar.start + (place & !7), control: at + 2 })
    }

    /// Aims vector n at the notification register of queue n.
    fn aim(&self, qtest: &mut Qtest, nic: &Structures) -> io::Result<()> {
        for queue in 0..VECTORS {
            let offset = u64::from(queue) * nic.multiplier;
            if offset < nic.notify.len {
                let message = Message { address: nic.notify.address + offset, data: queue.into() };
                program(qtest, self.table, queue, message)?;
            }
        }
        let control = self.function.config(self.control);
        qtest.write(control, Width::Word, MSIX_ENABLE)
    }
}

/// Programs and unmasks an entry of the MSI-X table at `table`.
fn program(qtest: &mut Qtest, table: u64, vector: u16, message: Message) -> io::Result<()> {
    let entry = table + 16 * u64::from(vector);
    qtest.write(entry, Width::Dword, message.address)?;
    qtest.write(entry + 4, Width::Dword, message.address >> 32)?;
    qtest.write(entry + 8, Width::Dword, message.data.into())?;
    qtest.write(entry + 12, Width::Dword, 0)
}

/// Waits until the doorbell device has taken all eventfds.
fn await_doorbells(qtest: &mut Qtest, doorbells: &Doorbells, register: u64) -> io::Result<()> {
    let last = VECTORS - 1;
    let start = Instant::now();
    while !doorbells.take(last) {
        if start.elapsed() > DOORBELL_TIMEOUT {
            return Err(io::Error::other("the doorbell device sends no interrupt"));
        }
        qtest.write(register, Width::Dword, message_data(last).into())?;
        thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

impl QemuState {
    /// Runs a command; `None` when QEMU does not reply. From then on the device is removed.
    fn with_qtest<T>(&self, command: impl FnOnce(&mut Qtest) -> io::Result<T>) -> Option<T> {
        if self.removed.load(Relaxed) {
            return None;
        }
        let result = command(&mut self.qtest.lock());
        result
            .inspect_err(|error| {
                self.removed.store(true, Relaxed);
                let end = self.process.lock().as_mut().map(Process::end).unwrap_or_default();
                eprintln!("QEMU's device is lost: {error}; {end}");
            })
            .ok()
    }

    fn status(&self) -> Option<u64> {
        let address = self.structures.common.address + DEVICE_STATUS;
        self.with_qtest(|qtest| qtest.read(address, Width::Byte)).filter(|&status| status != ALL_ONES)
    }

    fn reset(&self) {
        let address = self.structures.common.address + DEVICE_STATUS;
        self.with_qtest(|qtest| qtest.write(address, Width::Byte, 0));
    }

    fn is_running(&self) -> bool {
        !self.low_power.load(Relaxed)
            && self.status().is_some_and(|status| status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK)
    }

    /// The doorbell device signaled `vector`.
    fn interrupt(this: &Arc<Self>, vector: u16) {
        let Some(Some(message)) = this.messages.lock().get(usize::from(vector)).copied() else { return };
        if this.removed.load(Relaxed) || this.low_power.load(Relaxed) {
            return;
        }
        let of_event = this.clone();
        this.bus.at(this.bus.now(), Box::new(move || of_event.bus.message(message)));
    }

    /// Delivers every message when the interrupt status is not zero, until the device is removed. A driver must expect
    /// interrupts without a cause, since the status does not name the queue.
    fn poll_interrupts(this: &Arc<Self>) {
        while !this.removed.load(Relaxed) {
            let status = this.with_qtest(|qtest| qtest.read(this.structures.isr.address, Width::Byte));
            if let Some(status) = status.filter(|&status| status != 0) {
                if this.structures.vectors == 0 && !this.low_power.load(Relaxed) {
                    this.line.causes.fetch_or(status as u8, SeqCst);
                    let of_event = this.clone();
                    this.bus.at(this.bus.now(), Box::new(move || of_event.bus.line()));
                }
                (0..this.structures.vectors).for_each(|vector| Self::interrupt(this, vector));
            }
            thread::sleep(POLL);
        }
    }

    fn address(&self, bar: u8, offset: u64, width: Width) -> Option<u64> {
        let bar = self.bars.iter().find(|other| other.number == bar)?;
        (offset + width.bytes() as u64 <= bar.len).then_some(bar.start + offset)
    }

    fn powered(&self) -> Result<(), Misuse> {
        if self.low_power.load(Relaxed) {
            return Err(Misuse::register("a register was accessed while the device is in D3"));
        }
        Ok(())
    }

    /// Handles a write at `offset` of the notification structure.
    fn notify(&self, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        if width != Width::Word {
            return Err(Misuse::register("a queue notification must be a 16-bit write"));
        }
        if offset != value * self.structures.multiplier {
            return Err(Misuse::register(format!(
                "notification of queue {value} written at offset {offset:#x}"
            )));
        }
        if !self.doorbells.notify(value as u16) {
            let address = self.structures.notify.address + offset;
            self.with_qtest(|qtest| qtest.write(address, width, value));
        }
        Ok(())
    }

    fn is_system_register(&self, bar: u8, offset: u64) -> bool {
        self.structures.vectors > 0 && self.structures.table.contains(bar, offset).is_some()
    }

    fn set_power(&self, state: u64) {
        if let Some(control) = self.structures.power_control {
            let address = self.function.config(control);
            self.with_qtest(|qtest| qtest.write(address, Width::Word, state));
        }
    }
}

impl Registers for QemuNic {
    fn read(&self, bar: u8, offset: u64, width: Width) -> Result<u64, Misuse> {
        let shared = &self.shared;
        if shared.removed.load(Relaxed) {
            return Ok(width.all_ones());
        }
        shared.powered()?;
        if shared.structures.notify.contains(bar, offset).is_some() {
            return Err(Misuse::register("a read of the notification structure, which is write-only"));
        }
        if shared.structures.vectors == 0 && shared.structures.isr.contains(bar, offset) == Some(0) {
            let causes = shared.line.causes.swap(0, SeqCst);
            shared.line.acknowledgments.fetch_add(u64::from(causes != 0), SeqCst);
            return Ok(causes.into());
        }
        let address = shared.address(bar, offset, width);
        let value = address.and_then(|address| shared.with_qtest(|qtest| qtest.read(address, width)));
        Ok(value.unwrap_or(width.all_ones()))
    }

    fn write(&self, bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        let shared = &self.shared;
        if shared.removed.load(Relaxed) {
            return Ok(());
        }
        shared.powered()?;
        if let Some(inside) = shared.structures.notify.contains(bar, offset) {
            return shared.notify(inside, width, value);
        }
        if shared.is_system_register(bar, offset) {
            return Err(Misuse::register("a write to the MSI-X table, which the system owns"));
        }
        let is_status =
            |common: &Structure| common.contains(bar, offset) == Some(DEVICE_STATUS) && width == Width::Byte;
        if is_status(&shared.structures.common) && value & DRIVER_OK != 0 && shared.shut_down.load(Relaxed) {
            return Err(Misuse::register("DRIVER_OK was set after the driver was shut down"));
        }
        if let Some(address) = shared.address(bar, offset, width) {
            shared.with_qtest(|qtest| qtest.write(address, width, value));
        }
        Ok(())
    }
}

impl PciFunction for QemuNic {
    fn mac(&self) -> [u8; 6] {
        self.shared.mac
    }

    fn bars(&self) -> Vec<Bar> {
        self.shared.bars.clone()
    }

    fn ports(&self) -> Option<Ports> {
        self.shared.ports
    }

    fn vectors(&self) -> u16 {
        self.shared.structures.vectors
    }

    fn is_line_asserted(&self) -> bool {
        let shared = &self.shared;
        let is_there = !shared.removed.load(Relaxed) && !shared.low_power.load(Relaxed);
        is_there && shared.line.causes.load(SeqCst) != 0
    }

    fn line_acknowledgments(&self) -> u64 {
        self.shared.line.acknowledgments.load(SeqCst)
    }

    fn memory(&self) -> &Arc<DmaSpace> {
        &self.shared.memory
    }

    fn port(&self) -> Option<&Port> {
        None
    }

    fn read_config(&self, offset: usize, into: &mut [u8]) -> Option<usize> {
        let len = CONFIG_LEN.saturating_sub(offset).min(into.len());
        let address = self.shared.function.config(offset as u16);
        let read = |qtest: &mut Qtest| qtest.read_bytes(address, &mut into[..len]);
        self.shared.with_qtest(read).map(|()| len)
    }

    fn write_config(&self, offset: usize, from: &[u8]) -> Option<usize> {
        let len = CONFIG_LEN.saturating_sub(offset).min(from.len());
        let address = self.shared.function.config(offset as u16);
        // As the bus does: in one access if it is aligned.
        let unit = if len.is_power_of_two() && len <= 4 && offset.is_multiple_of(len) { len } else { 1 };
        let width = Width::of(unit)?;
        for (number, bytes) in from[..len].chunks(unit).enumerate() {
            let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            let at = address + (number * unit) as u64;
            self.shared.with_qtest(|qtest| qtest.write(at, width, value))?;
        }
        Some(len)
    }

    fn program_vector(&self, vector: u16, message: Message) {
        let shared = &self.shared;
        let known = shared.messages.lock().get_mut(usize::from(vector)).map(|slot| *slot = Some(message));
        if known.is_none() || vector >= VECTORS {
            return;
        }
        let doorbell = Message { address: shared.doorbell, data: message_data(vector) };
        let table = shared.structures.table.address;
        shared.with_qtest(|qtest| program(qtest, table, vector, doorbell));
    }

    fn enable_msix(&self, enabled: bool) {
        let shared = &self.shared;
        if shared.structures.vectors == 0 || shared.polled {
            return;
        }
        let control = shared.function.config(shared.structures.msix_control);
        shared.with_qtest(|qtest| {
            let old = qtest.read(control, Width::Word)? & !(MSIX_ENABLE | MSIX_MASK);
            qtest.write(control, Width::Word, old | if enabled { MSIX_ENABLE } else { 0 })
        });
    }

    fn is_running(&self) -> bool {
        self.shared.is_running()
    }

    /// A running device may use all memory that it shares with the driver.
    fn uses(&self, _address: u64, _len: u64) -> bool {
        self.shared.is_running()
    }

    fn remove(&self) {
        self.shared.reset();
        self.shared.removed.store(true, Relaxed);
    }

    fn power_off(&self) {
        self.remove();
    }

    fn shut_down(&self) {
        self.shared.shut_down.store(true, Relaxed);
    }

    fn enter_low_power(&self) {
        let was_running = self.shared.is_running();
        self.shared.low_power.store(true, Relaxed);
        self.shared.set_power(D3);
        if was_running {
            self.shared.bus.misuse(Misuse::register(
                "the device was put in D3 while it was running: its DMA and interrupts were not stopped",
            ));
        }
    }

    fn is_in_low_power(&self) -> bool {
        self.shared.low_power.load(Relaxed)
    }

    fn leave_low_power(&self) {
        self.shared.set_power(D0);
        // QEMU keeps the state of a device in D3; others do not.
        self.shared.reset();
        self.shared.low_power.store(false, Relaxed);
    }
}
