// SPDX-License-Identifier: MIT OR Apache-2.0

//! The initialized device: its control registers and its queues, each behind its own lock, and the owners of their memory.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use core::time::Duration;

use ndk_abi::ndis::{NDIS_HANDLE, NET_BUFFER_LIST};
use nt::SpinLock;
use virtio_net::{
    Control, ControlQueue, Duplex, Error, Features, IdleQueues, InterruptStatus, LinkState, NetConfig,
    PairQueue, QueueReset, ReceiveCounters, RssLimits, TransmitCounters, Vectors, Wait,
};

use super::dma::{DmaRegistration, SharedMemory};
use super::pci_resources::{enable_registers, set_bus_master};
use super::queue_pair::Pair;
use super::registers::{BarAccess, MappedBars};
use super::reset_wait::ResetWait;
use crate::nbl::NblList;
use driver_states::device::{DeviceEvent, DeviceState};

/// Longest time that [`Port::shut_down`] waits for the control registers: longer than the two resets of a restart take on a device that
/// responds.
const SHUT_DOWN_LIMIT: Duration = Duration::from_millis(2500);
/// Longest time that a user waits for the control queue. The thread that waits for an answer leaves it at once when the device stops.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// A device with its queues.
pub struct Port {
    handle: NDIS_HANDLE,
    pub vectors: Vectors,
    /// Of a device that interrupts by its line.
    pub interrupt_status: InterruptStatus<BarAccess>,
    /// `None` while a method has taken it for use at `PASSIVE_LEVEL`.
    control: SpinLock<Option<Control<SharedMemory, BarAccess>>>,
    /// `None` while a user has taken it for use at `PASSIVE_LEVEL`, and if the device has none.
    commands: SpinLock<Option<Box<ControlQueue<SharedMemory, BarAccess>>>>,
    has_commands: bool,
    /// The queues of pairs that the driver does not use.
    idle: SpinLock<IdleQueues<SharedMemory>>,
    features: Features,
    /// The configuration: its MTU is that for which buffers and attributes were set up.
    config: SpinLock<NetConfig>,
    /// A reset that takes longer.
    reset_wait: ResetWait,
    /// The device has lost its state since NDK consumers last had to close.
    rdma_lost: AtomicBool,
    /// The MAC address in use.
    station: [u8; 6],
    /// At least one.
    pairs: Vec<Pair>,
    /// Number of pairs that the device uses: all, or only the first.
    used_pairs: AtomicU32,
    state: AtomicU8,
    link_up: AtomicBool,
    /// The device has asked for an announcement of the adapter's addresses.
    announce: AtomicBool,
    /// Link speed in Mbit/s; 0 if the device does not report it.
    speed: AtomicU32,
    /// The number of a [`Duplex`].
    duplex: AtomicU8,
    // Dropped last, in this order: the DMA registration after all shared memory, the mappings after all register
    // access.
    _dma: DmaRegistration,
    bars: MappedBars,
}

// SAFETY: the handle is one that NDIS takes on any thread; everything else is `Sync` by itself.
unsafe impl Sync for Port {}
// SAFETY: NDIS takes the handle on any thread, and every other part is `Send`.
unsafe impl Send for Port {}

/// The parts of a [`Port`], in the order in which the port drops its fields.
pub struct Parts {
    pub control: Control<SharedMemory, BarAccess>,
    pub queues: Queues,
    pub dma: DmaRegistration,
    pub bars: MappedBars,
}

/// The queues that the driver uses: at least one pair, and the control queue if the device has one.
pub struct Queues {
    pub pairs: Vec<Pair>,
    pub idle: IdleQueues<SharedMemory>,
    pub commands: Option<Box<ControlQueue<SharedMemory, BarAccess>>>,
    pub vectors: Vectors,
}

impl Port {
    /// `config` is the device's, `station` the MAC address in use.
    pub fn new(handle: NDIS_HANDLE, parts: Parts, config: &NetConfig, station: [u8; 6]) -> Self {
        let Queues { pairs, idle, commands, vectors } = parts.queues;
        let features = parts.control.features();
        Self {
            handle,
            vectors,
            interrupt_status: InterruptStatus::new(parts.bars.access(), parts.control.layout()),
            control: SpinLock::new(Some(parts.control)),
            has_commands: commands.is_some(),
            commands: SpinLock::new(commands),
            idle: SpinLock::new(idle),
            features,
            config: SpinLock::new(*config),
            reset_wait: ResetWait::new(),
            rdma_lost: AtomicBool::new(false),
            station,
            pairs,
            used_pairs: AtomicU32::new(1),
            state: AtomicU8::new(DeviceState::Running as u8),
            link_up: AtomicBool::new(config.link_up),
            announce: AtomicBool::new(false),
            speed: AtomicU32::new(config.speed.unwrap_or(0)),
            duplex: AtomicU8::new(config.duplex as u8),
            _dma: parts.dma,
            bars: parts.bars,
        }
    }

    /// Starts the device, which may interrupt from now on. Returns whether the link state has changed since the configuration was read,
    /// because a device does not interrupt for a change before its start. `PASSIVE_LEVEL`.
    pub fn start(&self) -> Result<bool, Error> {
        {
            let mut control = self.control.lock();
            self.start_queues(control.as_mut().ok_or(Error::OutOfOrder)?)?;
        }
        self.configuration_changed()
    }

    /// Starts the device, with the first pair in use.
    fn start_queues(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        control.start()?;
        for pair in &self.pairs {
            pair.start();
        }
        if let Some(first) = self.pairs.first() {
            first.set_used();
        }
        Ok(())
    }

    /// Has the started device use all pairs. A device that refuses continues with the first pair. `alive` as that of
    /// [`ControlQueue::set_pairs`]. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The device failed, or was stopped.
    pub fn use_all_pairs(&self, alive: impl FnMut(Duration) -> bool) -> Result<(), Error> {
        let Ok(count) = u16::try_from(self.pairs.len()) else { return Ok(()) };
        if count == 1 {
            return Ok(());
        }
        let limits = self.rss_limits();
        self.with_commands(|commands| {
            if commands.set_pairs(count, limits, alive)? {
                // Done with the control queue taken: `stop` waits for the queue before it resets the number of used
                // pairs.
                self.pairs.iter().for_each(Pair::set_used);
                self.used_pairs.store(u32::from(count), Ordering::Release);
            }
            Ok(())
        })
    }

    /// Stops the device, which loses its state: the queues are disconnected, then the device is reset. Waits for the end of
    /// the reset, at most a second: then it may not access memory, and [`restart`](Self::restart) waits on. `PASSIVE_LEVEL`, one caller of this
    /// or [`restart`](Self::restart) at a time.
    pub fn stop(&self) {
        let _ = self.step(DeviceEvent::Stop);
        self.disconnect();
        let Some(mut control) = self.control.lock().take() else { return };
        // After a reset that does not end, the device cannot access memory, either.
        let _ = control.reset();
        *self.control.lock() = Some(control);
    }

    /// Disconnects all queues, so that none notifies the device from now on. The device does not run.
    fn disconnect(&self) {
        // A user of the control queue stops waiting for an answer when the device does not run.
        let _ = self.with_commands(|commands| {
            commands.stop();
            Ok(())
        });
        // From now on no other thread increases the number of used pairs.
        self.used_pairs.store(1, Ordering::Release);
        self.pairs.iter().for_each(Pair::stop);
    }

    /// Brings a stopped device back: negotiates, programs the queues, which keep their memory, and starts the device. Returns whether the
    /// link state changed. `PASSIVE_LEVEL`, one caller of this or [`stop`](Self::stop) at a time.
    ///
    /// # Errors
    /// [`Error::ResetTimeout`] if the reset takes longer than another second: the call can be repeated, as often as needed. Others: the
    /// device is gone, or differs from before. It stays stopped.
    pub fn restart(&self) -> Result<bool, Error> {
        if self.state() == DeviceState::Absent {
            return Err(Error::Removed);
        }
        // Also if the system has enabled bus mastering with the power: the reset may not end.
        enable_registers(self.handle);
        let mut control = self.control.lock().take().ok_or(Error::OutOfOrder)?;
        let restarted = self.restart_with(&mut control);
        *self.control.lock() = Some(control);
        // The device may have been removed or shut down while the registers were taken.
        let absent = if self.state() == DeviceState::Absent { Err(Error::Removed) } else { Ok(()) };
        if let Err(error) = restarted.and(absent) {
            self.stop();
            if error == Error::ResetTimeout {
                self.reset_wait.go_on(self.handle)?;
            }
            return Err(error);
        }
        self.reset_wait.end();
        self.configuration_changed().inspect_err(|_| self.stop())
    }

    fn restart_with(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        control.renegotiate()?;
        let mut config = control.net_config()?;
        let before = *self.config.lock();
        if config.mac == Some(self.station) {
            // A reset need not undo that the driver has set this address.
            config.mac = before.mac;
        }
        // NDIS takes no shorter frames than the driver has stated at the start. Longer ones do not arrive: other stations use the MTU of the network.
        if config.mtu < before.mtu {
            return Err(Error::Changed);
        }
        *self.config.lock() = NetConfig { mtu: before.mtu, ..config };
        let mut commands = self.take_commands();
        if commands.is_none() && self.has_commands {
            return Err(Error::OutOfOrder);
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
        control.reassign_config_vector(self.vectors.of_config())?;
        for pair in &self.pairs {
            pair.reprogram(control)?;
        }
        self.idle.lock().reprogram(control)?;
        if let Some(commands) = commands {
            commands.reprogram(control)?;
        }
        // Set before the device starts, because its first interrupt must find the state Running. Senders wait until the
        // queues are used.
        if !self.step(DeviceEvent::Start) {
            return Err(Error::Removed);
        }
        self.start_queues(control)
    }

    /// Runs `use_it` with exclusive use of the control queue, if the device has one. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// Those of `use_it`, and [`Error::OutOfOrder`] if another user keeps the queue for too long.
    pub fn with_commands(
        &self,
        use_it: impl FnOnce(&mut ControlQueue<SharedMemory, BarAccess>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.has_commands {
            return Ok(());
        }
        let mut commands = self.take_commands().ok_or(Error::OutOfOrder)?;
        let result = use_it(&mut commands);
        *self.commands.lock() = Some(commands);
        result
    }

    /// Whether the device has a control queue.
    pub fn has_commands(&self) -> bool {
        self.has_commands
    }

    /// The adapter's handle.
    pub fn handle(&self) -> NDIS_HANDLE {
        self.handle
    }

    fn take_commands(&self) -> Option<Box<ControlQueue<SharedMemory, BarAccess>>> {
        let platform = SharedMemory::new(self.handle);
        let mut wait = Wait::new(&platform, COMMAND_LIMIT);
        loop {
            let commands = self.commands.lock().take();
            if commands.is_some() || !wait.go_on() {
                return commands;
            }
        }
    }

    /// The accepted features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The device's own MAC address, if it has one.
    pub fn device_address(&self) -> Option<[u8; 6]> {
        self.config.lock().mac
    }

    /// The device's RSS limits; `None` if the device has neither RSS nor HASH_REPORT.
    pub fn rss_limits(&self) -> Option<RssLimits> {
        self.config.lock().rss
    }

    /// Returns the pairs, at least one.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Notifies the device that the receive queues of the pairs in use have buffers, but not that of pair `number`. IRQL <=
    /// `DISPATCH_LEVEL`.
    #[cold]
    pub fn notify_other_receive_queues(&self, number: u32) {
        let registers = self.bars.access();
        for (other, pair) in (0..self.used_pairs()).zip(&self.pairs) {
            if other != number {
                pair.notify_receive(&registers);
            }
        }
    }

    /// Returns the number of buffers of the receive and the transmit queue of the first pair; those of no other have more.
    pub fn queue_sizes(&self) -> [u16; 2] {
        self.pairs.first().map_or([0; 2], Pair::sizes)
    }

    /// Returns the number of pairs that the device uses: all, or 1. Unused pairs are idle.
    pub fn used_pairs(&self) -> u32 {
        self.used_pairs.load(Ordering::Acquire)
    }

    /// Calls `pump`, which belongs to shard `shard`, to fill slots; see
    /// `ndk_provider::environment::Environment::transmit`.
    pub fn pump(&self, shard: u32, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        if !self.is_running() {
            return;
        }
        match self.pairs.get(shard as usize) {
            Some(pair) if shard < self.used_pairs() => pair.pump(pump),
            _ => {
                if let Some(first) = self.pairs.first() {
                    first.pump_shared(pump);
                }
            }
        }
    }

    /// Returns the shards whose frames a pair sends.
    pub fn shards_of(&self, pair: u32) -> impl Iterator<Item = u32> {
        let all = self.pairs.len() as u32;
        let end = if pair == 0 && self.used_pairs() == 1 { all } else { pair.saturating_add(1) };
        pair..end
    }

    /// Checks for changes after a configuration interrupt. Returns an error if the device has failed, otherwise whether the link changed:
    /// its state, or its speed while it is up. With a single message, every interrupt leads here. Accesses no register if the device does
    /// not run. IRQL <= `DISPATCH_LEVEL`.
    pub fn configuration_changed(&self) -> Result<bool, Error> {
        let control = self.control.lock();
        let Some(control) = control.as_ref().filter(|_| self.is_running()) else { return Ok(false) };
        control.check()?;
        let LinkState { is_up, speed, duplex } = match control.link() {
            // The configuration changed during the read: the interrupt for that change leads here again.
            Err(Error::UnsteadyConfig) => return Ok(false),
            link => link?,
        };
        if control.asks_for_announcement() {
            self.announce.store(true, Ordering::Release);
        }
        let speed = speed.unwrap_or(0);
        let has_other_duplex = self.duplex.swap(duplex as u8, Ordering::Relaxed) != duplex as u8;
        let has_other_speed = self.speed.swap(speed, Ordering::Relaxed) != speed || has_other_duplex;
        let was_up = self.link_up.swap(is_up, Ordering::AcqRel);
        Ok(was_up != is_up || is_up && has_other_speed)
    }

    /// Returns whether the device has asked for an announcement since the last call.
    pub fn take_announcement(&self) -> bool {
        self.announce.swap(false, Ordering::AcqRel)
    }

    /// Whether the device runs and can reset a single queue.
    pub fn resets_queues(&self) -> bool {
        self.is_running() && self.features.contains(Features::RING_RESET)
    }

    /// Has the running device reset a queue. The frames in it are lost. Waits at most a second for the end of the reset; a further call waits
    /// on, for 20 ms, and the queue is not used until then. `PASSIVE_LEVEL`, one caller of this, [`stop`](Self::stop) or
    /// [`restart`](Self::restart) at a time.
    ///
    /// # Errors
    /// The device cannot reset queues, does not respond, or has failed.
    pub fn reset_queue(&self, queue: PairQueue) -> Result<QueueReset, Error> {
        let (PairQueue::Receive(number) | PairQueue::Transmit(number)) = queue;
        let pair = self.pairs.get(usize::from(number)).ok_or(Error::OutOfOrder)?;
        let mut control = self.control.lock().take().ok_or(Error::OutOfOrder)?;
        let mut outcome = Err(Error::OutOfOrder);
        if self.resets_queues() {
            match queue {
                PairQueue::Receive(_) => pair.stop_receive(),
                PairQueue::Transmit(_) => pair.stop_transmit(),
            }
            outcome = control.reset_queue(queue);
            if outcome == Ok(QueueReset::Ended) {
                let restarted = match queue {
                    PairQueue::Receive(_) => pair.restart_receive(&mut control),
                    PairQueue::Transmit(_) => pair.restart_transmit(&mut control),
                };
                outcome = restarted.map(|()| QueueReset::Ended);
            }
        }
        *self.control.lock() = Some(control);
        outcome
    }

    /// Whether the device runs and its link is up.
    pub fn link_up(&self) -> bool {
        self.is_running() && self.link_up.load(Ordering::Acquire)
    }

    /// The link speed in Mbit/s; 0 if the device does not report it.
    pub fn speed(&self) -> u32 {
        self.speed.load(Ordering::Relaxed)
    }

    /// The link's duplex mode.
    pub fn duplex(&self) -> Duplex {
        Duplex::of(self.duplex.load(Ordering::Relaxed))
    }

    /// Returns the state of the device.
    pub fn state(&self) -> DeviceState {
        DeviceState::ALL
            .get(usize::from(self.state.load(Ordering::Acquire)))
            .copied()
            .unwrap_or(DeviceState::Absent)
    }

    /// Sets whether the device has lost its state since NDK consumers last had to close their adapters.
    pub fn set_rdma_lost(&self, is_lost: bool) {
        self.rdma_lost.store(is_lost, Ordering::Release);
    }

    /// Whether RDMA objects can be created: the device runs, and still has the state of those that consumers have.
    pub fn has_rdma(&self) -> bool {
        self.is_running() && !self.rdma_lost.load(Ordering::Acquire)
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

    /// Gives up the device: it is not started again. Starts a reset without waiting for its end, unless the device is stopped. Interrupts
    /// and DMA end at once. If a work item is resetting the device, waits for it, at most [`SHUT_DOWN_LIMIT`]. `PASSIVE_LEVEL`.
    pub fn shut_down(&self) {
        let _ = self.step(DeviceEvent::Remove);
        self.disconnect();
        let platform = SharedMemory::new(self.handle);
        let mut wait = Wait::new(&platform, SHUT_DOWN_LIMIT);
        loop {
            if let Some(control) = self.control.lock().as_ref() {
                if control.is_finished() {
                    return;
                }
                control.reset_without_waiting();
                break;
            }
            // A work item that is late will find that the device was given up.
            if !wait.go_on() {
                break;
            }
        }
        // Whether or not the reset ends: the memory belongs to others soon.
        set_bus_master(self.handle, false);
    }

    /// Resets the device, which was [shut down](Self::shut_down), and waits for the end of that, at most a second. Afterwards it does not
    /// access memory, and a message is such an access: it does not interrupt. `PASSIVE_LEVEL`.
    pub fn await_reset(&self) {
        let Some(mut control) = self.control.lock().take() else { return };
        if !control.is_finished() {
            let _ = control.reset();
        }
        *self.control.lock() = Some(control);
    }

    /// Returns the receive counters, summed over all pairs.
    pub fn receive_counters(&self) -> ReceiveCounters {
        self.pairs.iter().map(Pair::receive_counters).sum()
    }

    /// Returns the transmit counters, summed over all pairs.
    pub fn transmit_counters(&self) -> TransmitCounters {
        self.pairs.iter().map(Pair::transmit_counters).sum()
    }

    /// Removes the waiting NET_BUFFER_LISTs for which `cancelled` returns `true`, and returns them as a chain.
    pub fn take_waiting(&self, mut cancelled: impl FnMut(&NET_BUFFER_LIST) -> bool) -> *mut NET_BUFFER_LIST {
        let mut taken = NblList::new();
        for pair in &self.pairs {
            taken.append(pair.take_waiting(&mut cancelled));
        }
        taken.first()
    }
}

impl Drop for Port {
    /// Stops the device's DMA before the queues' memory is freed. `PASSIVE_LEVEL`, after the interrupt was
    /// deregistered.
    fn drop(&mut self) {
        let Some(control) = self.control.get_mut() else { return };
        // Accesses no register if the device was reset already, or its reset did not end: it may be in a low-power state.
        if !control.is_finished() {
            // Without an end, the device cannot access memory. Nor can any once `control` was dropped, before the queues.
            let _ = control.reset();
        }
    }
}
