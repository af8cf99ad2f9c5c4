// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair: receive and transmit queue, each behind its own lock.
//!
//! The transmit queue has two kinds of senders: NDIS's NET_BUFFER_LISTs and the provider's pump. Lock order: transmit queue,
//! then the locks that the pump takes. No callback of NDIS or of a consumer is called with a lock held.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};

use fallible::Arc;
use ndk_abi::ndis::NET_BUFFER_LIST;
use nt::{Deferred, ServedLock, SpinLock};
use virtio_net::{
    Control, Error, FrameInfo, NotifyRegister, Polled, QueuePair, ReceiveCounters, ReceiveQueue,
    TransmitCounters,
};

use super::dma::SharedMemory;
use super::queue_resets::LastReset;
use super::rdma_slots::{RdmaSlots, TransmitSlots};
use super::registers::BarAccess;
use super::transmit_progress::{Progress, Watch};
use super::transmit_watchdog::Watchdog;
use super::vlan_tag::Tag;
use crate::nbl::{NblList, WaitingSends};

/// Frames that one call of a sender may queue while it holds the lock: about 100 us of copying. The rest is deferred, which
/// bounds the time at `DISPATCH_LEVEL` if a fast device returns slots continuously.
pub const TRANSMIT_BUDGET: usize = 128;
/// Number of passes that one sender makes for those that arrive meanwhile, before it defers their work.
const PASSES: usize = 2;
/// Kinds of senders of [`ServedLock::serve`]: a pump does not send NET_BUFFER_LISTs, and a sender of these does not pump.
const LISTS: usize = 1;
const PUMP: usize = 2;
/// Padding after a pair, in bytes: no two pairs share a cache line, or a pair of lines that a processor fetches
/// together.
const PADDING: usize = 128;

/// The transmit queue, and the NET_BUFFER_LISTs for which no slot was free.
pub struct Transmitter {
    pub queue: TransmitSlots,
    pub waiting: WaitingSends,
    /// The device uses this queue.
    pub is_used: bool,
    /// The tag that RDMA frames get.
    tag: Option<Tag>,
    /// The routine that resumes waiting senders; `None` while there is no interrupt.
    deferred: Option<Arc<Deferred>>,
    watch: Watch,
}

/// Both queues of a pair.
pub struct Pair {
    /// Interrupt messages of the receive and the transmit queue.
    vectors: [u16; 2],
    /// Number of their buffers.
    sizes: [u16; 2],
    receive: SpinLock<ReceiveQueue<SharedMemory, BarAccess>>,
    /// The notification register of the receive queue while the device may use it, for other pairs: their polls do not wait for one of this.
    notify_register: SpinLock<Option<NotifyRegister>>,
    /// The last reset of the receive queue alone.
    last_receive_reset: SpinLock<LastReset>,
    /// A sender that finds the lock held leaves its work to the holder.
    transmit: ServedLock<Transmitter>,
    /// NET_BUFFER_LISTs that are not yet among those that wait in the transmitter. Their sender has the lock or has requested service.
    arrived: SpinLock<NblList>,
    /// There are such lists. Changed with their lock held.
    has_arrived: AtomicBool,
    /// A sender waits for transmit slots.
    starved: AtomicBool,
    /// RDMA is resumed first when slots become free; otherwise Ethernet is.
    rdma_first: AtomicBool,
    _padding: [u8; PADDING],
}

impl Pair {
    /// Creates a pair of its queues; `vectors` are their interrupt messages.
    pub fn new(queues: QueuePair<SharedMemory, BarAccess>, vectors: [u16; 2]) -> Self {
        Self {
            vectors,
            sizes: [queues.receive.size(), queues.transmit.size()],
            notify_register: SpinLock::new(queues.receive.notify_register()),
            receive: SpinLock::new(queues.receive),
            last_receive_reset: SpinLock::new(LastReset::default()),
            transmit: ServedLock::new(Transmitter {
                queue: queues.transmit,
                waiting: WaitingSends::new(),
                is_used: false,
                tag: None,
                deferred: None,
                watch: Watch::default(),
            }),
            arrived: SpinLock::new(NblList::new()),
            has_arrived: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            rdma_first: AtomicBool::new(false),
            _padding: [0; PADDING],
        }
    }

    /// Returns the number of buffers of the receive and the transmit queue.
    pub fn sizes(&self) -> [u16; 2] {
        self.sizes
    }

    /// Sets the deferred routine that resumes a sender; `None` before the interrupt is deregistered. `PASSIVE_LEVEL`.
    pub fn set_deferred(&self, deferred: Option<Arc<Deferred>>) {
        let before = self.transmitter(|transmitter| core::mem::replace(&mut transmitter.deferred, deferred));
        drop(before);
    }

    /// Sets the watchdog, which runs while slots are outstanding; `None` before the adapter is halted. `PASSIVE_LEVEL`.
    pub fn set_watchdog(&self, watchdog: Option<Arc<Watchdog>>) {
        let before =
            self.transmitter(|transmitter| core::mem::replace(&mut transmitter.watch.watchdog, watchdog));
        drop(before);
    }

    /// Checks whether the device returns slots. A check with `is_expected` `false` does not count. Restarts the watchdog while slots are
    /// outstanding. IRQL <= `DISPATCH_LEVEL`.
    pub fn check_progress(&self, is_expected: bool) -> Progress {
        self.with_transmitter(|transmitter| {
            let Transmitter { queue, watch, is_used, .. } = transmitter;
            // An error is reported by `transmit_fault`.
            let _ = queue.reap();
            let is_due = *is_used && is_expected && !queue.is_idle();
            watch.check(queue.completed(), is_due)
        })
    }

    /// Sends an untagged frame, with the tag of the adapter's VLAN; `false` if no slot is free or the device does not use the queue. IRQL
    /// <= `DISPATCH_LEVEL`.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.with_transmitter(|transmitter| {
            if !transmitter.is_used {
                return false;
            }
            let mut slots =
                RdmaSlots { queue: &mut transmitter.queue, tag: transmitter.tag, left: 1, exhausted: false };
            let Some(slot) = roce::Transmit::slot(&mut slots) else { return false };
            for (to, from) in slot.iter_mut().zip(frame) {
                *to = *from;
            }
            roce::Transmit::commit(&mut slots, frame.len());
            true
        })
    }

    /// Stops the transmit queue, before the device resets it.
    pub fn stop_transmit(&self) {
        self.transmitter(|transmitter| transmitter.queue.stop());
    }

    /// Programs the transmit queue again after the running device has reset it, and resumes senders. Frames that were not sent are dropped.
    ///
    /// # Errors
    /// The device's queue differs from before. The queue is then stopped.
    pub fn restart_transmit(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        let [_, of_transmit] = self.vectors;
        self.with_transmitter(|transmitter| transmitter.queue.reprogram(control, of_transmit))
    }

    /// Stops the receive queue, before the device resets it.
    pub fn stop_receive(&self) {
        *self.notify_register.lock() = None;
        self.receive.lock().stop();
    }

    /// Programs the receive queue again after the running device has reset it. Frames that it contained are lost.
    ///
    /// # Errors
    /// The device's queue differs from before. The queue is then stopped.
    pub fn restart_receive(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        let [of_receive, _] = self.vectors;
        self.program_receive(|receive| receive.restart(control, of_receive))
    }

    /// Has the receive queue programmed, and takes its notification register.
    fn program_receive(
        &self,
        program: impl FnOnce(&mut ReceiveQueue<SharedMemory, BarAccess>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let register = {
            let mut receive = self.receive.lock();
            program(&mut receive)?;
            receive.notify_register()
        };
        *self.notify_register.lock() = register;
        Ok(())
    }

    /// Notifies the device, whose registers these are, that the receive queue has buffers, unless it may not use the queue. IRQL <=
    /// `DISPATCH_LEVEL`.
    pub fn notify_receive(&self, registers: &BarAccess) {
        if let Some(register) = *self.notify_register.lock() {
            register.write(registers);
        }
    }

    /// Records a reset of the receive queue alone, and stops it until then. Returns `false`, and does nothing, if the last one was within the
    /// last minute.
    pub fn take_receive_reset(&self) -> bool {
        let may_reset = self.last_receive_reset.lock().take();
        if may_reset {
            self.stop_receive();
        }
        may_reset
    }

    /// Sets the tag of RDMA frames from now on.
    pub fn set_tag(&self, tag: Option<Tag>) {
        self.transmitter(|transmitter| transmitter.tag = tag);
    }

    /// Makes the receive buffers available to the started device.
    pub fn start(&self) {
        self.receive.lock().start();
    }

    /// Allows sends from now on: the device uses the queue.
    pub fn set_used(&self) {
        self.transmitter(|transmitter| transmitter.is_used = true);
    }

    /// Disconnects both queues from the device.
    pub fn stop(&self) {
        self.transmitter(|transmitter| {
            transmitter.queue.stop();
            transmitter.is_used = false;
            transmitter.watch.clear();
        });
        self.stop_receive();
    }

    /// Programs both queues into the device again after its reset.
    ///
    /// # Errors
    /// The device's queues differ from before. The queues are then stopped.
    pub fn reprogram(&self, control: &mut Control<SharedMemory, BarAccess>) -> Result<(), Error> {
        let [of_receive, of_transmit] = self.vectors;
        self.program_receive(|receive| receive.reprogram(control, of_receive))?;
        // By `transmitter`, which also serves a pump that found the lock held.
        self.transmitter(|transmitter| transmitter.queue.reprogram(control, of_transmit))
    }

    /// Passes at most `budget` received frames to `sink`, each with its virtio-net information, until it breaks. Suppresses receive
    /// interrupts. IRQL <= `DISPATCH_LEVEL`.
    pub fn poll(
        &self,
        budget: u32,
        sink: impl FnMut(&mut [u8], FrameInfo) -> ControlFlow<()>,
    ) -> Result<Polled, Error> {
        let mut receive = self.receive.lock();
        receive.suppress_interrupts();
        receive.poll(budget, sink)
    }

    /// Sets whether the device's hashes are passed on with frames that arrive from now on; see
    /// [`ReceiveQueue::report_hashes`].
    pub fn report_hashes(&self, are_reported: bool) {
        self.receive.lock().report_hashes(are_reported);
    }

    /// Requests a receive interrupt. Returns `true` if frames have arrived already: the caller must poll again.
    pub fn request_receive_interrupt(&self) -> bool {
        self.receive.lock().request_interrupt()
    }

    /// Suppresses receive interrupts.
    pub fn suppress_receive_interrupts(&self) {
        self.receive.lock().suppress_interrupts();
    }

    /// Runs `send` with the transmit queue, then notifies the device. IRQL <= `DISPATCH_LEVEL`.
    fn with_transmitter<T>(&self, send: impl FnOnce(&mut Transmitter) -> T) -> T {
        self.transmitter(|transmitter| {
            let result = send(transmitter);
            transmitter.queue.kick();
            self.go_on_later(transmitter, false);
            result
        })
    }

    /// Adds `lists` to those that wait, and calls `send` to send these, then notifies the device. If another thread has the transmit queue,
    /// that one calls its own `send`, or the deferred routine does, which takes the lock first to look for a fault: so it begins after the
    /// pass of the holder that queued it. IRQL <= `DISPATCH_LEVEL`.
    //= R-IRQL-10
    pub fn send_lists(&self, lists: NblList, mut send: impl FnMut(&mut Transmitter)) {
        self.add_arrived(lists);
        self.transmit.serve(LISTS, PASSES, |transmitter, postpones| {
            self.take_arrived(transmitter);
            send(transmitter);
            transmitter.queue.kick();
            self.go_on_later(transmitter, postpones);
        });
    }

    fn add_arrived(&self, lists: NblList) {
        if lists.is_empty() {
            return;
        }
        let mut arrived = self.arrived.lock();
        arrived.append(lists);
        self.has_arrived.store(true, Ordering::Relaxed);
    }

    /// Lets the lists that have arrived wait with the others. The sender that added lists requests service next, which orders the flag.
    fn take_arrived(&self, transmitter: &mut Transmitter) {
        if !self.has_arrived.load(Ordering::Relaxed) {
            return;
        }
        let mut arrived = self.arrived.lock();
        transmitter.waiting.append(arrived.take_all());
        self.has_arrived.store(false, Ordering::Relaxed);
    }

    /// Calls `pump` to fill slots until it has no more frames or no slot is free; see
    /// `ndk_provider::environment::Environment::transmit`. No other shard uses the queue.
    pub fn pump(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        self.transmit.serve(PUMP, PASSES, |transmitter, postpones| self.fill(transmitter, postpones, pump));
    }

    /// Calls `pump` to fill slots of a queue that several shards use: waits for the lock, because its holder does not call other shards'
    /// pumps.
    #[cold]
    pub fn pump_shared(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        self.transmitter(|transmitter| self.fill(transmitter, false, pump));
    }

    fn fill(
        &self,
        transmitter: &mut Transmitter,
        postpones: bool,
        pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize,
    ) {
        if !transmitter.is_used {
            // The device was reset meanwhile, and every connection was aborted. NET_BUFFER_LISTs are refused by their sender.
            if postpones {
                self.go_on_later(transmitter, true);
            }
            return;
        }
        let tag = transmitter.tag;
        let mut slots =
            RdmaSlots { queue: &mut transmitter.queue, tag, left: TRANSMIT_BUDGET, exhausted: false };
        while !slots.exhausted && pump(&mut slots) > 0 {}
        let exhausted = slots.exhausted;
        transmitter.queue.kick();
        self.go_on_later(transmitter, exhausted || postpones);
    }

    /// Runs `use_it` with the transmit lock held. The deferred routine serves a pump that arrived meanwhile.
    fn transmitter<T>(&self, use_it: impl FnOnce(&mut Transmitter) -> T) -> T {
        self.transmit.with(use_it, |transmitter| self.go_on_later(transmitter, true))
    }

    /// Returns whether a sender was waiting for slots, and clears the flag.
    pub fn take_starved(&self) -> bool {
        self.starved.swap(false, Ordering::AcqRel)
    }

    /// Returns whether to resume RDMA before Ethernet: every second time, so that neither gets all slots.
    pub fn take_turn(&self) -> bool {
        self.rdma_first.fetch_xor(true, Ordering::Relaxed)
    }

    /// Returns the violation of the ring's format by which the transmit queue has failed, if it has, and whether a reset of the queue alone
    /// is to follow: if `may_reset`, and the last one was longer ago than a minute. Then the queue is stopped until it has been reset, and
    /// has no fault.
    pub fn transmit_fault(&self, may_reset: bool) -> Option<(Error, bool)> {
        self.transmitter(|transmitter| {
            let error = transmitter.queue.fault()?;
            let is_reset = may_reset && transmitter.watch.last_reset.take();
            if is_reset {
                transmitter.queue.stop();
            }
            Some((error, is_reset))
        })
    }

    pub fn receive_counters(&self) -> ReceiveCounters {
        self.receive.lock().counters()
    }

    pub fn transmit_counters(&self) -> TransmitCounters {
        self.transmitter(|transmitter| transmitter.queue.counters())
    }

    /// Removes and returns the waiting NET_BUFFER_LISTs for which `cancelled` returns `true`.
    pub fn take_waiting(&self, cancelled: impl FnMut(&NET_BUFFER_LIST) -> bool) -> NblList {
        self.transmitter(|transmitter| {
            self.take_arrived(transmitter);
            transmitter.waiting.take(cancelled)
        })
    }

    /// If a sender waits for slots, arranges for it to be resumed when slots are free: by the transmit message's DPC, or by the deferred
    /// routine. `waits`: the caller waits, too.
    fn go_on_later(&self, transmitter: &mut Transmitter, waits: bool) {
        if let Some(watchdog) = transmitter.watch.watchdog.as_deref()
            && transmitter.is_used
            && !transmitter.queue.is_idle()
        {
            watchdog.start();
        }
        if waits || !transmitter.waiting.is_empty() {
            self.starved.store(true, Ordering::Release);
        }
        // Also for senders that waited before: reclaiming slots has canceled the interrupt request.
        let Some(deferred) = &transmitter.deferred else { return };
        if !self.starved.load(Ordering::Acquire) {
            return;
        }
        // No interrupt follows if slots are free already, the ring is broken or the device does not use it. The deferred routine resumes
        // sending, gives up the device, or fails the sends.
        if !transmitter.is_used
            || transmitter.queue.request_interrupt()
            || transmitter.queue.fault().is_some()
        {
            deferred.queue();
        }
    }
}
