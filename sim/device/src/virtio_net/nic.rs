// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtio-net PCI function: registers in, events out.
//!
//! [`Nic`] is one PCI function with pairs of queues and a control queue, plugged into a machine
//! ([`Bus`]) and, by [`Nic::connect`], into a [link](crate::link). It validates everything its driver does and
//! reports violations as [`Misuse`]; after a violation it stops, as a device with NEEDS_RESET does.
//!
//! # How it runs
//!
//! Register accesses come from the driver's threads. A notification only schedules an
//! event on the [`Bus`]; that event processes the ring on the machine's hardware thread, up to a budget.

use std::{
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use trapped_access::Width;

use super::{
    common::Effect,
    control::ControlQueue,
    device::Device,
    features::Features,
    interrupt_coalescing::Parameters,
    options::{NicOptions, RECEIVE, Role, receive_index, transmit_index},
    receive::ReceiveQueues,
    scaling::RssLimits,
    transmit::TransmitQueues,
};
use crate::{
    bus::Bus,
    dma::DmaSpace,
    function::{Bar, PciFunction, Ports},
    link::wire::{Endpoint, Port},
    pci::{self, BarLayout, Identity, Message},
    registers::{Misuse, Registers},
};

/// A virtio-net device. Its state is that of the [`Device`] it derefs to.
pub struct Nic {
    this: Weak<Self>,
    device: Device,
    /// By queue: an event is scheduled.
    scheduled: Vec<AtomicBool>,
}

impl Deref for Nic {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl Nic {
    /// Creates a NIC plugged into `bus` that accesses memory through `memory`.
    #[must_use]
    pub fn new(bus: Arc<dyn Bus>, memory: Arc<DmaSpace>, options: NicOptions) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            scheduled: (0..options.queues()).map(|_| AtomicBool::new(false)).collect(),
            device: Device::new(bus, memory, options),
        })
    }

    /// Connects the NIC to one end of a link.
    ///
    /// # Panics
    /// When it is connected already.
    pub fn connect(&self, port: Port) {
        let this: Weak<dyn Endpoint> = self.this.clone();
        port.attach(this);
        assert!(self.port.set(port).is_ok(), "the NIC is connected to one link");
    }

    /// For this time the device executes no command of the control queue; then it executes those that it has.
    pub fn pause_commands(&self, pause: Duration) {
        self.pauses.pause_commands(self.bus.now(), pause);
    }

    /// For this time the device takes no frame to send; then it sends those that it has.
    pub fn pause_sending(&self, pause: Duration) {
        self.pauses.pause_sending(self.bus.now(), pause);
    }

    /// Returns the time until the last of the pauses of commands and of sending ends.
    #[must_use]
    pub fn pause_left(&self) -> Duration {
        let now = self.bus.now();
        let ends = self.pauses.of_commands(now).max(self.pauses.of_sending(now));
        ends.map_or(Duration::ZERO, |end| Duration::from_nanos(end - now))
    }

    /// From now on, commands are executed this time after a notification.
    pub fn set_command_time(&self, time: Duration) {
        self.pauses.set_command_time(time);
    }

    /// Returns how a queue coalesces interrupts.
    #[must_use]
    pub fn interrupt_parameters(&self, queue: usize) -> Parameters {
        self.interrupt_coalescing.lock().get(queue)
    }

    /// From now on, the device configuration states this MTU and these limits of receive side scaling: the device has migrated to a host with
    /// other software. Frames may be as long as before.
    pub fn migrate(&self, mtu: u16, limits: RssLimits) {
        self.common.lock().migrate(mtu, limits);
    }

    /// From now on, resets take this time.
    pub fn set_reset_time(&self, time: Duration) {
        self.common.lock().set_reset_time(time);
    }

    /// From now on, resets of single queues take this time, and those that last take no more of it.
    pub fn set_queue_reset_time(&self, time: Duration) {
        self.common.lock().set_queue_reset_time(self.bus.now(), time);
    }

    /// Ends all misbehavior that methods of [`Device`] have begun, and does the work that was left. What the driver has read already stays.
    pub fn behave(&self) {
        self.end_misbehavior();
        for (number, queue) in self.queues.iter().enumerate() {
            let is_enabled = queue.lock().is_enabled();
            if is_enabled {
                self.schedule(number, self.bus.now());
            }
        }
    }

    /// The wire has frames at `time`.
    pub(super) fn schedule_receive(&self, time: u64) {
        // Not through `schedule`: an event for a later time must not suppress one for now.
        let this = self.this.clone();
        let wake = move || {
            if let Some(nic) = this.upgrade() {
                if nic.is_running() {
                    nic.frames_arrived();
                } else {
                    ReceiveQueues { device: &nic }.discard();
                }
            }
        };
        self.bus.at(time.max(self.bus.now()), Box::new(wake));
    }

    /// Has frames on the wire received: at once if one pair is in use, otherwise each pair by an event of its own.
    fn frames_arrived(&self) {
        if self.active_pairs() == 1 {
            self.work(RECEIVE);
            return;
        }
        let waiting = ReceiveQueues { device: self }.steer();
        for pair in waiting {
            self.schedule(receive_index(pair), self.bus.now());
        }
    }

    /// Schedules an event for a queue, unless one is scheduled already.
    fn schedule(&self, queue: usize, time: u64) {
        // Pairs with the swap below: if the flag is set, the event has not read the ring yet.
        if self.scheduled[queue].swap(true, SeqCst) {
            return;
        }
        let this = self.this.clone();
        self.bus.at(
            time,
            Box::new(move || {
                if let Some(nic) = this.upgrade() {
                    nic.scheduled[queue].swap(false, SeqCst);
                    nic.work(queue);
                }
            }),
        );
    }

    /// Schedules an event for received frames that wait for others, or for the end of a pause. It does not read the wire: each reading has
    /// the wire wake the device once more.
    fn schedule_waiting(&self, queue: usize, time: u64) {
        let this = self.this.clone();
        let work = move || {
            if let Some(nic) = this.upgrade() {
                nic.work_on(queue, false);
            }
        };
        self.bus.at(time, Box::new(work));
    }

    fn work(&self, queue: usize) {
        self.work_on(queue, true);
    }

    fn work_on(&self, queue: usize, is_wire_read: bool) {
        if !self.reaches_memory() || !self.bus.is_alive() {
            return;
        }
        let role = self.common.lock().role(queue);
        let done = match role {
            Some(Role::Receive(pair)) => ReceiveQueues { device: self }.receive(pair, is_wire_read),
            Some(Role::Transmit(pair)) => TransmitQueues { device: self }.transmit(pair),
            Some(Role::Control) => ControlQueue { device: self }.control(queue),
            // Reset meanwhile.
            None => return,
        };
        match done {
            Ok(outcome) => {
                if role == Some(Role::Control) {
                    // More pairs may be in use now than when the frames on the wire arrived.
                    self.schedule_receive(self.bus.now());
                }
                if outcome.interrupt {
                    let signal = self.common.lock().of_queue(queue);
                    self.signal(Some(signal));
                }
                if outcome.more {
                    self.schedule(queue, self.bus.now());
                }
                for time in [outcome.later, outcome.interrupt_at].into_iter().flatten() {
                    self.schedule_waiting(queue, time);
                }
            }
            Err(misuse) => self.report(misuse),
        }
    }

    /// Returns whether the device responds to accesses of its registers.
    fn responds(&self) -> bool {
        self.with_config(|config| config.decodes_memory()).unwrap_or(false)
    }

    /// Refuses register accesses in D3.
    fn powered(&self) -> Result<(), Misuse> {
        if self.is_in_low_power() {
            return Err(Misuse::register("a register was accessed while the device is in D3"));
        }
        Ok(())
    }

    /// Handles a write to the notification structure.
    fn notify(&self, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        if width != Width::Word {
            return Err(Misuse::register("a queue notification must be a 16-bit write"));
        }
        let queue = value as usize;
        let expected = u64::from(pci::NOTIFY_MULTIPLIER) * value;
        if queue >= self.options.queues() || offset != expected {
            return Err(Misuse::register(format!(
                "notification of queue {value} written at offset {offset:#x}"
            )));
        }
        self.common.lock().may_notify(queue)?;
        self.counters.notifications.fetch_add(1, Relaxed);
        let role = self.common.lock().role(queue);
        if let Some(Role::Receive(pair)) = role
            && let Some(held) = self.steering.lock().release(pair)
        {
            self.schedule(receive_index(held), self.bus.now());
            self.schedule_receive(self.bus.now());
        }
        if queue == RECEIVE && self.options.quirks.repeats.is_some() {
            self.work(queue);
        } else {
            let is_control = role == Some(Role::Control);
            match if is_control { self.pauses.command_time() } else { 0 } {
                0 => self.schedule(queue, self.bus.now()),
                // An event of its own: it must not suppress one for now, as when the device is no longer slow.
                delay => self.schedule_waiting(queue, self.bus.now().saturating_add(delay)),
            }
        }
        Ok(())
    }

    fn common_write(&self, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        let (now, bus_master) = (self.bus.now(), self.config.lock().is_bus_master());
        let effect = self.common.lock().write(now, offset, width, value, bus_master, &self.memory)?;
        match effect {
            Effect::None => {}
            Effect::Reset => {
                self.lose_state();
                // Frames on the wire must not block the sender.
                self.schedule_receive(self.bus.now());
            }
            Effect::Enable(queue, ring) => {
                let mut queue = self.queues[queue].lock();
                queue.enable(&ring);
                // As in QEMU: the first completion interrupts regardless of the driver's event.
                queue.interrupt_next();
            }
            Effect::ResetQueue(queue) => self.lose_queue(queue),
            Effect::Start if self.shut_down.load(Relaxed) => {
                return Err(Misuse::register("DRIVER_OK was set after the driver was shut down"));
            }
            Effect::Start => {
                let accepted = self.common.lock().accepted();
                self.filter.lock().start(accepted);
                *self.guest_offloads.lock() = accepted.and(Features::GUEST_OFFLOADS);
                self.running.store(true, Relaxed);
                let lacks_queues =
                    self.options.quirks.insists_on_all_queues && !self.common.lock().has_enabled_all();
                if lacks_queues || self.fails_starts.load(Relaxed) {
                    self.need_reset();
                }
                // Buffers may have been made available before.
                self.schedule(RECEIVE, self.bus.now());
            }
        }
        Ok(())
    }
}

impl Registers for Nic {
    fn read(&self, bar: u8, offset: u64, width: Width) -> Result<u64, Misuse> {
        if !self.responds() {
            return Ok(width.all_ones());
        }
        self.powered()?;
        match bar {
            pci::MSIX_BAR => self.config.lock().msix.read(offset, width),
            pci::VIRTIO_BAR => match offset {
                pci::COMMON..pci::ISR => self.common.lock().read(self.bus.now(), offset, width),
                pci::ISR if width == Width::Byte => Ok(self.line.take().into()),
                pci::ISR..pci::DEVICE => {
                    Err(Misuse::register("the interrupt status is one byte at the start of its structure"))
                }
                pci::DEVICE..pci::NOTIFY => {
                    let mac = self.filter.lock().mac();
                    self.common.lock().read_device(offset - pci::DEVICE, width, mac)
                }
                _ => Err(Misuse::register("a read of the notification structure, which is write-only")),
            },
            _ => Ok(width.all_ones()),
        }
    }

    fn write(&self, bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse> {
        if !self.responds() {
            return Ok(());
        }
        self.powered()?;
        let written = match bar {
            pci::VIRTIO_BAR => match offset {
                pci::COMMON..pci::ISR => self.common_write(offset, width, value),
                pci::NOTIFY..pci::VIRTIO_BAR_LEN => self.notify(offset - pci::NOTIFY, width, value),
                _ => Err(Misuse::register(format!("a write to read-only register {offset:#x}"))),
            },
            // The system owns the MSI-X table.
            _ => Err(Misuse::register(format!("a write to BAR {bar}"))),
        };
        if written.is_err() {
            self.need_reset();
        }
        written
    }
}

impl PciFunction for Nic {
    fn mac(&self) -> [u8; 6] {
        self.device.mac()
    }

    fn bars(&self) -> Vec<Bar> {
        let layout = self.options.quirks.bars;
        let bar = |number, start, len| Bar { number, start, len };
        let mut bars = vec![bar(pci::MSIX_BAR, pci::MSIX_BAR_AT.into(), pci::MSIX_BAR_LEN)];
        if layout == BarLayout::AfterMemory {
            bars.push(bar(pci::EXTRA_BAR, pci::EXTRA_MEMORY_AT.into(), pci::EXTRA_MEMORY_LEN));
        }
        if self.options.quirks.identity != Identity::Legacy {
            bars.push(bar(pci::VIRTIO_BAR, layout.virtio_bar_at(), pci::VIRTIO_BAR_LEN));
        }
        bars
    }

    fn ports(&self) -> Option<Ports> {
        let quirks = &self.options.quirks;
        if quirks.identity != Identity::Modern {
            return Some(Ports { start: pci::LEGACY_BAR_AT, count: pci::LEGACY_BAR_LEN });
        }
        let ports = Ports { start: pci::EXTRA_PORTS_AT, count: pci::EXTRA_PORTS_LEN };
        (quirks.bars == BarLayout::AfterPorts).then_some(ports)
    }

    fn vectors(&self) -> u16 {
        if self.options.quirks.is_granted_its_line { 0 } else { self.options.vectors }
    }

    fn is_line_asserted(&self) -> bool {
        let is_enabled = || self.with_config(|config| !config.is_line_disabled()) == Some(true);
        self.line.has_cause() && !self.is_in_low_power() && is_enabled()
    }

    fn line_acknowledgments(&self) -> u64 {
        self.line.acknowledgments()
    }

    fn memory(&self) -> &Arc<DmaSpace> {
        self.device.memory()
    }

    fn port(&self) -> Option<&Port> {
        self.device.port()
    }

    fn read_config(&self, offset: usize, into: &mut [u8]) -> Option<usize> {
        self.with_config(|config| config.read(offset, into))
    }

    fn write_config(&self, offset: usize, from: &[u8]) -> Option<usize> {
        let written = self.with_config(|config| config.write(offset, from));
        if self.is_line_asserted() {
            // The line may have been disabled.
            self.bus.line();
        }
        written
    }

    fn program_vector(&self, vector: u16, message: Message) {
        self.with_config(|config| config.msix.program(vector, message));
    }

    fn enable_msix(&self, enabled: bool) {
        self.with_config(|config| config.enable_msix(enabled));
    }

    fn is_running(&self) -> bool {
        self.device.reaches_memory()
    }

    fn uses(&self, address: u64, len: u64) -> bool {
        self.device.uses(address, len)
    }

    fn remove(&self) {
        self.device.remove();
    }

    fn power_off(&self) {
        if let Some(port) = self.device.port() {
            port.wire().cut(port.end());
        }
    }

    fn shut_down(&self) {
        self.device.shut_down();
    }

    fn enter_low_power(&self) {
        self.device.enter_low_power();
    }

    fn is_in_low_power(&self) -> bool {
        self.device.is_in_low_power()
    }

    fn leave_low_power(&self) {
        self.device.leave_low_power();
    }
}

impl Endpoint for Nic {
    fn wake_at(&self, time: u64) {
        self.schedule_receive(time);
    }

    fn writable(&self) {
        for pair in 0..self.active_pairs() {
            self.schedule(transmit_index(pair), self.bus.now());
        }
    }

    fn is_alive(&self) -> bool {
        self.bus.is_alive() && !self.is_removed()
    }
}
