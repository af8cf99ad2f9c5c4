// SPDX-License-Identifier: MIT OR Apache-2.0

//! The initialized device: its control registers and its queues, each behind its own lock, and the owners of their memory.
//!
//! The transmit queue has two kinds of senders: NDIS's NET_BUFFER_LISTs and the provider's pump. Lock order: transmit queue,
//! then the locks that the pump takes. No callback of NDIS or of a consumer is called with a lock held.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use core::time::Duration;

use fallible::Arc;
use ndk_abi::ndis::{NDIS_HANDLE, NET_BUFFER_LIST};
use nt::{Deferred, ServedLock, SpinLock};
use virtio_net::{
    Control, ControlQueue, Error, NetConfig, Polled, QueuePair, ReceiveCounters, ReceiveQueue,
    TransmitCounters, TransmitQueue, Vectors, Wait,
};

use super::dma::{DmaRegistration, SharedMemory};
use super::registers::{BarAccess, MappedBars};
use super::resources::set_bus_master;
use super::state::{DeviceEvent, DeviceState};
use crate::nbl::WaitingSends;

/// Frames that one call of a sender may queue while it holds the lock: about 100 us of copying. The rest is deferred, which
/// bounds the time at `DISPATCH_LEVEL` if a fast device returns slots continuously.
pub const TRANSMIT_BUDGET: usize = 128;
/// How often one pump repeats for callers that arrived meanwhile, before it defers their work.
const PUMP_PASSES: usize = 2;
/// Time that [`Port::shut_down`] waits for the control registers: longer than the two resets of a restart take from a device
/// that responds.
const SHUT_DOWN_LIMIT: Duration = Duration::from_millis(2500);
/// Time that a user of the control queue waits for it: longer than a command takes that is not answered.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The transmit queue on this kernel.
pub type TransmitSlots = TransmitQueue<SharedMemory, BarAccess>;

/// The transmit queue, and the NET_BUFFER_LISTs for which no slot was free.
pub struct Transmitter {
    pub queue: TransmitSlots,
    pub waiting: WaitingSends,
    /// Resumes senders that wait; `None` while there is no interrupt.
    deferred: Option<Arc<Deferred>>,
}

/// A device with its queues.
pub struct Port {
    handle: NDIS_HANDLE,
    pub vectors: Vectors,
    /// `None` while [`stop`](Self::stop) or [`restart`](Self::restart) uses it at `PASSIVE_LEVEL`.
    control: SpinLock<Option<Control<SharedMemory, BarAccess>>>,
    /// `None` while a user has it at `PASSIVE_LEVEL`, and if the device has none.
    commands: SpinLock<Option<Box<ControlQueue<SharedMemory, BarAccess>>>>,
    has_commands: bool,
    /// The configuration that buffers and attributes were made for.
    config: NetConfig,
    receive: SpinLock<ReceiveQueue<SharedMemory, BarAccess>>,
    /// A pump that finds it taken leaves its work to the holder.
    transmit: ServedLock<Transmitter>,
    /// A sender waits for transmit slots.
    starved: AtomicBool,
    state: AtomicU8,
    link_up: AtomicBool,
    /// In Mbit/s; 0 if the device does not report it.
    speed: AtomicU32,
    // Dropped last, in this order: the registration after all shared memory, the mappings after all access.
    _dma: DmaRegistration,
    _bars: MappedBars,
}

// SAFETY: the handle is one that NDIS takes on any thread; everything else is `Sync` by itself.
unsafe impl Sync for Port {}
// SAFETY: as above.
unsafe impl Send for Port {}

/// The parts of a [`Port`]. Dropped in this order, which is that of the port's own fields.
pub struct Parts {
    pub control: Control<SharedMemory, BarAccess>,
    pub queues: Queues,
    pub dma: DmaRegistration,
    pub bars: MappedBars,
}

/// The queues that the driver uses: one pair, and the control queue if the device has one.
pub struct Queues {
    pub pair: QueuePair<SharedMemory, BarAccess>,
    pub commands: Option<Box<ControlQueue<SharedMemory, BarAccess>>>,
    pub vectors: Vectors,
}

impl Port {
    pub fn new(handle: NDIS_HANDLE, parts: Parts, config: &NetConfig) -> Self {
        let Queues { pair: QueuePair { receive, transmit }, commands, vectors } = parts.queues;
        Self {
            handle,
            vectors,
            control: SpinLock::new(Some(parts.control)),
            has_commands: commands.is_some(),
            commands: SpinLock::new(commands),
            config: *config,
            receive: SpinLock::new(receive),
            transmit: ServedLock::new(Transmitter {
                queue: transmit,
                waiting: WaitingSends::new(),
                deferred: None,
            }),
            starved: AtomicBool::new(false),
            state: AtomicU8::new(DeviceState::Running as u8),
            link_up: AtomicBool::new(config.link_up),
            speed: AtomicU32::new(config.speed.unwrap_or(0)),
            _dma: parts.dma,
            _bars: parts.bars,
        }
    }

    /// Sets the deferred routine that resumes a sender; `None` before the interrupt is deregistered. `PASSIVE_LEVEL`.
    pub fn set_deferred(&self, deferred: Option<Arc<Deferred>>) {
        let before = self.transmitter(|transmitter| core::mem::replace(&mut transmitter.deferred, deferred));
        drop(before);
    }

    /// Starts the device, which may interrupt from now on. Returns whether the link state changed since the configuration was
    /// read: a device does not interrupt for a change before its start. `PASSIVE_LEVEL`.
    pub fn start(&self) -> Result<bool, Error> {
        {
            let mut control = self.control.lock();
            let control = control.as_mut().ok_or(Error::OutOfOrder)?;
            control.start()?;
            self.receive.lock().start();
        }
        self.configuration_changed()
    }

    /// Stops the device, which loses its state: the queues are disconnected, then the device is reset. Waits for the end of
    /// the reset, at most a second. `PASSIVE_LEVEL`, one caller of this or [`restart`](Self::restart) at a time.
    pub fn stop(&self) {
        let _ = self.step(DeviceEvent::Stop);
        self.disconnect();
        let Some(mut control) = self.control.lock().take() else { return };
        // A device that was removed needs no reset.
        let reset = control.reset();
        *self.control.lock() = Some(control);
        if reset == Err(Error::ResetTimeout) {
            // The device does not respond: disable its DMA in PCI configuration space.
            set_bus_master(self.handle, false);
        }
    }

    /// Has no queue notify the device from now on. The device does not run.
    fn disconnect(&self) {
        self.transmitter(|transmitter| transmitter.queue.stop());
        self.receive.lock().stop();
        // A user of the control queue waits for no answer of a device that does not run.
        let _ = self.with_commands(ControlQueue::stop);
    }

    /// Brings a stopped device back: negotiates, programs the queues, which keep their memory, and starts it. Returns whether
    /// the link state changed. `PASSIVE_LEVEL`, one caller of this or [`stop`](Self::stop) at a time.
    ///
    /// # Errors
    /// The device does not respond, or is not the one it was. It stays stopped.
    pub fn restart(&self) -> Result<bool, Error> {
        if self.state() == DeviceState::Absent {
            return Err(Error::Removed);
        }
        set_bus_master(self.handle, true);
        let mut control = self.control.lock().take().ok_or(Error::OutOfOrder)?;
        let restarted = self.restart_with(&mut control);
        *self.control.lock() = Some(control);
        // Removed or shut down meanwhile, when the registers were not in their place.
        let absent = if self.state() == DeviceState::Absent { Err(Error::Removed) } else { Ok(()) };
        if let Err(error) = restarted.and(absent) {
            self.stop();
            return Err(error);
        }
        self.configuration_changed().inspect_err(|_| self.stop())
    }

    fn restart_with(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        control.renegotiate()?;
        let config = control.net_config()?;
        // Buffers and filters were made for these.
        if (config.mac, config.mtu) != (self.config.mac, self.config.mtu) {
            return Err(Error::Changed);
        }
        let mut commands = self.take_commands();
        if commands.is_none() && self.has_commands {
            return Err(Error::CommandTimeout);
        }
        let restarted = self.restart_queues(control, commands.as_deref_mut());
        *self.commands.lock() = commands;
        restarted
    }

    fn restart_queues(
        &self,
        control: &mut Control<SharedMemory, BarAccess>,
        commands: Option<&mut ControlQueue<SharedMemory, BarAccess>>,
    ) -> Result<(), Error> {
        // Not only the lock: a pump that finds it taken relies on the holder.
        self.transmitter(|transmitter| {
            let mut receive = self.receive.lock();
            let Vectors { config, receive: of_receive, transmit: of_transmit, .. } = self.vectors;
            control.reassign_config_vector(config)?;
            receive.reprogram(control, of_receive)?;
            transmitter.queue.reprogram(control, of_transmit)?;
            if let Some(commands) = commands {
                commands.reprogram(control)?;
            }
            // Before the device runs: its first interrupt must find it running.
            if !self.step(DeviceEvent::Start) {
                return Err(Error::Removed);
            }
            control.start()?;
            receive.start();
            Ok(())
        })
    }

    /// Runs `use_it` with the control queue, which no other thread uses meanwhile; `None` if the device has none, or another
    /// user has it for too long. `PASSIVE_LEVEL`.
    pub fn with_commands<T>(
        &self,
        use_it: impl FnOnce(&mut ControlQueue<SharedMemory, BarAccess>) -> T,
    ) -> Option<T> {
        let mut commands = self.take_commands()?;
        let result = use_it(&mut commands);
        *self.commands.lock() = Some(commands);
        Some(result)
    }

    fn take_commands(&self) -> Option<Box<ControlQueue<SharedMemory, BarAccess>>> {
        if !self.has_commands {
            return None;
        }
        let platform = SharedMemory::new(self.handle);
        let mut wait = Wait::new(&platform, COMMAND_LIMIT);
        loop {
            let commands = self.commands.lock().take();
            if commands.is_some() || !wait.go_on() {
                return commands;
            }
        }
    }

    /// The device's own MAC address, if it has one.
    pub fn device_address(&self) -> Option<[u8; 6]> {
        self.config.mac
    }

    /// Takes at most `budget` frames from the device, each with whether its checksum is known to be right. The device sends no receive interrupts meanwhile, so that a
    /// second processor waits here only for the end of [`request_receive_interrupt`](Self::request_receive_interrupt), or
    /// after a spurious interrupt. IRQL <= `DISPATCH_LEVEL`.
    pub fn poll(&self, budget: u32, sink: impl FnMut(&[u8], bool)) -> Result<Polled, Error> {
        let mut receive = self.receive.lock();
        receive.suppress_interrupts();
        receive.poll(budget, sink)
    }

    /// Requests a receive interrupt. Returns `true` if frames have arrived already: the caller must poll again.
    pub fn request_receive_interrupt(&self) -> bool {
        self.receive.lock().request_interrupt()
    }

    /// Runs `send` with the transmit queue, then notifies the device. IRQL <= `DISPATCH_LEVEL`.
    pub fn with_transmitter<T>(&self, send: impl FnOnce(&mut Transmitter) -> T) -> T {
        self.transmitter(|transmitter| {
            let result = send(transmitter);
            transmitter.queue.kick();
            self.go_on_later(transmitter, false);
            result
        })
    }

    /// Calls `pump` to fill slots until it has no more frames or no slot is free; see
    /// `ndk_provider::environment::Environment::transmit`.
    pub fn pump(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        if !self.is_running() {
            return;
        }
        self.transmit.serve(PUMP_PASSES, |transmitter, last| {
            let mut slots = Slots { queue: &mut transmitter.queue, left: TRANSMIT_BUDGET, exhausted: false };
            while !slots.exhausted && pump(&mut slots) > 0 {}
            let exhausted = slots.exhausted;
            transmitter.queue.kick();
            self.go_on_later(transmitter, exhausted || last);
        });
    }

    /// Runs `use_it` with the transmit lock held. The deferred routine serves a pump that arrived meanwhile.
    fn transmitter<T>(&self, use_it: impl FnOnce(&mut Transmitter) -> T) -> T {
        self.transmit.with(use_it, |transmitter| self.go_on_later(transmitter, true))
    }

    /// Returns whether a sender waited for slots, and clears that.
    pub fn take_starved(&self) -> bool {
        self.starved.swap(false, Ordering::AcqRel)
    }

    /// Reads the configuration after a configuration interrupt: an error if the device has failed, otherwise whether the link
    /// changed: its state, or the speed while it is up. Accesses no register of a device that does not run. IRQL <= `DISPATCH_LEVEL`.
    pub fn configuration_changed(&self) -> Result<bool, Error> {
        let control = self.control.lock();
        let Some(control) = control.as_ref().filter(|_| self.is_running()) else { return Ok(false) };
        control.check()?;
        let config = match control.net_config() {
            // It changed meanwhile: the interrupt for that change leads here again.
            Err(Error::UnsteadyConfig) => return Ok(false),
            config => config?,
        };
        let speed = config.speed.unwrap_or(0);
        let has_other_speed = self.speed.swap(speed, Ordering::Relaxed) != speed;
        let was_up = self.link_up.swap(config.link_up, Ordering::AcqRel);
        Ok(was_up != config.link_up || config.link_up && has_other_speed)
    }

    /// Whether the device runs and its link is up.
    pub fn link_up(&self) -> bool {
        self.is_running() && self.link_up.load(Ordering::Acquire)
    }

    /// The link speed in Mbit/s; 0 if the device does not report it.
    pub fn speed(&self) -> u32 {
        self.speed.load(Ordering::Relaxed)
    }

    /// Returns the state of the device.
    pub fn state(&self) -> DeviceState {
        DeviceState::ALL
            .get(usize::from(self.state.load(Ordering::Acquire)))
            .copied()
            .unwrap_or(DeviceState::Absent)
    }

    /// Whether the device moves frames.
    pub fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == DeviceState::Running as u8
    }

    /// Applies `event` to the state of the device; `false` if the transition table does not allow it.
    pub fn step(&self, event: DeviceEvent) -> bool {
        let next = |number: u8| Some(DeviceState::ALL.get(usize::from(number))?.on(event).ok()? as u8);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Gives up the device, which is not started again, and starts a reset without waiting for its end, unless the device is
    /// stopped. Interrupts and DMA end soon after. A work item that resets the device meanwhile is waited for, at most
    /// [`SHUT_DOWN_LIMIT`]. `PASSIVE_LEVEL`.
    pub fn shut_down(&self) {
        let _ = self.step(DeviceEvent::Remove);
        self.disconnect();
        let platform = SharedMemory::new(self.handle);
        let mut wait = Wait::new(&platform, SHUT_DOWN_LIMIT);
        loop {
            if let Some(control) = self.control.lock().as_ref() {
                if !control.is_finished() {
                    control.reset_without_waiting();
                }
                return;
            }
            if !wait.go_on() {
                break;
            }
        }
        // The work item, which finds the device given up, is late.
        set_bus_master(self.handle, false);
    }

    pub fn receive_counters(&self) -> ReceiveCounters {
        self.receive.lock().counters()
    }

    /// The error that stopped the transmit queue: the device violated the ring's format.
    pub fn transmit_fault(&self) -> Option<Error> {
        self.transmitter(|transmitter| transmitter.queue.fault())
    }

    pub fn transmit_counters(&self) -> TransmitCounters {
        self.transmitter(|transmitter| transmitter.queue.counters())
    }

    /// Removes the waiting NET_BUFFER_LISTs that `cancelled` selects, and returns them as a chain.
    pub fn take_waiting(&self, cancelled: impl FnMut(&NET_BUFFER_LIST) -> bool) -> *mut NET_BUFFER_LIST {
        self.transmitter(|transmitter| transmitter.waiting.take(cancelled))
    }

    /// If a sender waits for slots, has it resumed when slots are free: by the transmit message's DPC, or by the deferred
    /// routine. `waits` says that the caller waits as well.
    fn go_on_later(&self, transmitter: &mut Transmitter, waits: bool) {
        if waits || !transmitter.waiting.is_empty() {
            self.starved.store(true, Ordering::Release);
        }
        // Also for senders that waited before: reclaiming slots has withdrawn the request for an interrupt.
        let Some(deferred) = &transmitter.deferred else { return };
        if !self.starved.load(Ordering::Acquire) {
            return;
        }
        // No interrupt follows if slots are free already or the ring is broken. The deferred routine resumes sending, or gives
        // up the device.
        if transmitter.queue.request_interrupt() || transmitter.queue.fault().is_some() {
            deferred.queue();
        }
    }
}

impl Drop for Port {
    /// Stops the device's DMA before the queues' memory is freed. `PASSIVE_LEVEL`, interrupts are deregistered.
    fn drop(&mut self) {
        let Some(control) = self.control.get_mut() else { return };
        // No register is accessed of a device that was reset already, or whose reset did not end: it may be in a low-power state.
        if !control.is_finished() && control.reset() == Err(Error::ResetTimeout) {
            // The device does not respond: disable its DMA in PCI configuration space.
            set_bus_master(self.handle, false);
        }
    }
}

/// The transmit queue with a budget, as the engine's transmitter.
struct Slots<'a> {
    queue: &'a mut TransmitSlots,
    left: usize,
    /// No slot was free, or the budget is used up.
    exhausted: bool,
}

impl roce::Transmit for Slots<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        let slot = if self.left == 0 { None } else { self.queue.slot() };
        self.exhausted = slot.is_none();
        slot
    }

    fn commit(&mut self, len: usize) {
        self.left = self.left.saturating_sub(1);
        self.queue.commit(len);
    }
}
