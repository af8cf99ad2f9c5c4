// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message interrupts, the line, and their DPCs.
//!
//! All devices of a host without messages share one level-triggered line, with one more device that no driver knows: after each interrupt of
//! theirs, and in D3, that one interrupts. The line stays asserted until the driver has read the interrupt status of its device. (windows-packaging §8.4)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
};

use device_sim::pci::Message;
use ndk_abi::{
    ndis::{
        MINIPORT_SYNCHRONIZE_INTERRUPT, NDIS_INTERRUPT_TYPE, NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE,
        NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS, NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT,
        NDIS_RECEIVE_THROTTLE_PARAMETERS, NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1,
        NDIS_STATUS, NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES,
        NDIS_STATUS_SUCCESS,
    },
    nt::{GROUP_AFFINITY, IO_INTERRUPT_MESSAGE_INFO},
};
use nt_sim::{Host, Irql, cpu::CpuId, current, guest::Guest, image::call, imports, services::Slot};
use parking_lot::Mutex;

use crate::{
    adapter::{Adapter, adapter},
    handle::{self, HANDLES},
    message_info, owner,
    rules::{self, require},
    wait::wait_until,
};

pub(crate) static VECTORS: Slot<Mutex<Vectors>> = Slot::new();

/// `MaxNblsToIndicate`: maximum number of frames that a receive DPC may indicate, or [`INDICATE_ALL`].
pub(crate) static RECEIVE_LIMIT: Slot<AtomicU32> = Slot::new();

/// The limit at first.
pub(crate) const DEFAULT_RECEIVE_LIMIT: u32 = 64;

/// NDIS_INDICATE_ALL_NBLS: NDIS does not limit the indications of a DPC.
const INDICATE_ALL: u32 = u32::MAX;

const REGISTER: &str = "NdisMRegisterInterruptEx";
/// Address of messages: the local APIC.
const MESSAGE_ADDRESS: u64 = 0xfee0_0000;
/// The processor that the line interrupts.
const OF_LINE: CpuId = CpuId(0);
/// The first vector of devices.
const FIRST_VECTOR: u32 = 0x50;

/// The interrupts of a host and their messages, by message data.
#[derive(Default)]
pub struct Vectors {
    next: u32,
    table: BTreeMap<u32, (Arc<Interrupt>, u32)>,
    /// The interrupts of devices on the line.
    line: Vec<Arc<Interrupt>>,
}

/// A registered interrupt.
pub struct Interrupt {
    handle: usize,
    adapter: Arc<Adapter>,
    context: usize,
    characteristics: NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
    messages: u32,
    table: Guest<IO_INTERRUPT_MESSAGE_INFO>,
    /// The interrupt spin lock of each message, or one for all messages: the thread that holds it plus one, or 0.
    locks: Box<[AtomicUsize]>,
    connected: AtomicBool,
    /// Number of running ISRs, and of queued and running DPCs.
    active: AtomicU32,
    /// Queued DPCs that have not started: message and CPU.
    queued: Mutex<BTreeSet<(u32, CpuId)>>,
}

// SAFETY: function pointers and addresses of the image, used on the host's threads only.
unsafe impl Send for Interrupt {}
// SAFETY: as above; what changes is atomic or behind a lock.
unsafe impl Sync for Interrupt {}

/// Sets the limit of the DPCs that run from now on; `None` for no limit.
pub(crate) fn set_receive_limit(host: &Host, limit: Option<u32>) {
    host.state(&RECEIVE_LIMIT).store(limit.unwrap_or(INDICATE_ALL), SeqCst);
}

/// Returns the number of lists that a receive DPC, or a call of `NdisPoll`, may indicate; all ones for no limit.
pub(crate) fn receive_limit(host: &Host) -> u32 {
    host.state(&RECEIVE_LIMIT).load(SeqCst)
}

/// Returns a message that no other interrupt of the host uses.
fn claim_message(host: &Host) -> Message {
    let mut vectors = host.state(&VECTORS).lock();
    vectors.next += 1;
    Message { address: MESSAGE_ADDRESS, data: FIRST_VECTOR + vectors.next - 1 }
}

/// Returns the processor that a message interrupts: by default those of all devices are in group 0 (WDK: IRQ_GROUP_POLICY).
fn processor_of(host: &Host, message: u32) -> CpuId {
    CpuId(message % host.cpus.groups().count(0))
}

/// Returns a set of processors of group 0.
fn of_group_0(processors: u32) -> GROUP_AFFINITY {
    GROUP_AFFINITY { Mask: processors as usize, Group: 0, Reserved: [0; 3] }
}

/// Delivers a message from the device.
pub(crate) fn deliver(host: &Arc<Host>, message: Message) {
    let target = host.state(&VECTORS).lock().table.get(&message.data).cloned();
    let Some((interrupt, id)) = target else { return };
    let cpu = processor_of(host, id);
    let on = host.clone();
    interrupt.active.fetch_add(1, SeqCst);
    host.interrupt(cpu, Irql::DEVICE_LEVEL, move || {
        interrupt.service(&on, id, cpu);
        interrupt.active.fetch_sub(1, SeqCst);
    });
}

/// Has the line interrupt: a device on it has asserted it, perhaps one without a driver.
pub(crate) fn deliver_line(host: &Arc<Host>) {
    let line = host.state(&VECTORS).lock().line.clone();
    if line.is_empty() {
        return;
    }
    let on = host.clone();
    for interrupt in &line {
        interrupt.active.fetch_add(1, SeqCst);
    }
    host.interrupt(OF_LINE, Irql::DEVICE_LEVEL, move || {
        // As for any level-triggered interrupt: until the line is no longer asserted.
        while line.iter().any(|interrupt| interrupt.asserts_line()) {
            let _ = line.iter().any(|interrupt| interrupt.service_line(&on));
        }
        for interrupt in &line {
            // The other device on the line.
            interrupt.service_line(&on);
            interrupt.active.fetch_sub(1, SeqCst);
        }
    });
}

/// Calls the handlers that disable or enable the line.
pub(crate) fn set_line_enabled(host: &Arc<Host>, is_enabled: bool) {
    let of_line = host.state(&VECTORS).lock().line.clone();
    for interrupt in &of_line {
        let handlers = &interrupt.characteristics;
        let handler =
            if is_enabled { handlers.EnableInterruptHandler } else { handlers.DisableInterruptHandler };
        let me = current();
        let old = me.raise(Irql::DEVICE_LEVEL);
        if let Some(handler) = handler {
            interrupt.locked(0, || {
                call("MiniportEnableInterruptEx", || {
                    // SAFETY: the image registered the function under this contract.
                    unsafe { handler(interrupt.context as *mut _) };
                });
            });
        }
        me.lower(old);
    }
}

impl Interrupt {
    /// Registers an interrupt with a number of messages, which a table describes.
    fn new(
        host: &Arc<Host>,
        adapter: &Arc<Adapter>,
        context: usize,
        characteristics: NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
        (messages, table): (u32, Guest<IO_INTERRUPT_MESSAGE_INFO>),
    ) -> Arc<Self> {
        let locks = if characteristics.MsiSyncWithAllMessages == 0 { messages.max(1) } else { 1 };
        let registered = host.state(&HANDLES).insert_with(|handle| {
            Arc::new(Self {
                handle,
                adapter: adapter.clone(),
                context,
                characteristics,
                messages,
                table,
                locks: (0..locks).map(|_| AtomicUsize::new(0)).collect(),
                connected: AtomicBool::new(true),
                active: AtomicU32::new(0),
                queued: Mutex::default(),
            })
        });
        owner::hold(host, adapter.handle, REGISTER, registered.handle);
        registered
    }

    /// Runs `body` with the interrupt spin lock of a message, at its level.
    fn locked<T>(&self, message: u32, body: impl FnOnce() -> T) -> T {
        let lock = &self.locks[message as usize % self.locks.len()];
        let me = current();
        let mine = me.id().0 as usize + 1;
        while let Err(holder) = lock.compare_exchange(0, mine, SeqCst, SeqCst) {
            require(holder != mine, rules::SYNCHRONIZED, || {
                format!("NdisMSynchronizeWithInterruptEx of message {message} by its own handler: deadlock")
            });
            me.yield_now();
        }
        let result = body();
        lock.store(0, SeqCst);
        result
    }

    /// Runs the ISR.
    fn service(self: &Arc<Self>, host: &Arc<Host>, message: u32, cpu: CpuId) {
        let Some(handler) = self.characteristics.MessageInterruptHandler else { return };
        if !self.connected.load(SeqCst) {
            return;
        }
        let (mut default_dpc, mut targets) = (0_u8, 0_u32);
        let (default_out, targets_out) = (&raw mut default_dpc, &raw mut targets);
        self.locked(message, || {
            call("MiniportMessageInterrupt", || {
                // SAFETY: the image registered the function under this contract; both results live through the call.
                unsafe { handler(self.context as *mut _, message, default_out, targets_out) }
            })
        });
        // SAFETY: written by the image through the pointer, if at all.
        if unsafe { default_out.read_volatile() } != 0 {
            self.queue_dpc(host, message, cpu, 0);
            return;
        }
        // SAFETY: the variable lives in this call; the image has written it through the pointer, if at all, before it
        // returned.
        let targets = unsafe { targets_out.read_volatile() };
        self.queue_dpcs(host, message, of_group_0(targets), 0);
    }

    /// Returns whether the device asserts the line, and the driver is there to handle that.
    fn asserts_line(&self) -> bool {
        self.connected.load(SeqCst) && self.adapter.nic.is_line_asserted()
    }

    /// Runs the ISR of the line. Returns whether it has claimed the interrupt.
    fn service_line(self: &Arc<Self>, host: &Arc<Host>) -> bool {
        let Some(handler) = self.characteristics.InterruptHandler else { return false };
        if !self.connected.load(SeqCst) {
            return false;
        }
        let nic = &self.adapter.nic;
        let (mut default_dpc, mut targets) = (0_u8, 0_u32);
        let (default_out, targets_out) = (&raw mut default_dpc, &raw mut targets);
        let was_asserted = self.asserts_line();
        let (is_claimed, is_acknowledged) = self.locked(0, || {
            let before = nic.line_acknowledgments();
            let is_claimed = call("MiniportInterrupt", || {
                // SAFETY: the image registered the function under this contract; both results live through the call.
                unsafe { handler(self.context as *mut _, default_out, targets_out) }
            }) != 0;
            (is_claimed, nic.line_acknowledgments() != before)
        });
        require(!is_claimed || is_acknowledged, rules::ISR, || {
            "MiniportInterrupt claimed an interrupt of another device on the line, or left the line asserted"
                .into()
        });
        require(is_claimed || !is_acknowledged, rules::ISR, || {
            "MiniportInterrupt did not claim the interrupt whose cause it has read".into()
        });
        require(is_claimed || !was_asserted || !self.asserts_line(), rules::ISR, || {
            "MiniportInterrupt left the line asserted by its device: the interrupt never ends".into()
        });
        if !is_claimed {
            return false;
        }
        // SAFETY: written by the image through the pointer, if at all.
        if unsafe { default_out.read_volatile() } != 0 {
            self.queue_dpc(host, 0, OF_LINE, 0);
        } else {
            // SAFETY: the variable lives in this call; the image has written it through the pointer, if at all, before it returned.
            let targets = unsafe { targets_out.read_volatile() };
            self.queue_dpcs(host, 0, of_group_0(targets), 0);
        }
        true
    }

    /// Queues the message's DPC on each CPU of a set; returns those of the set on which it was not queued already.
    fn queue_dpcs(
        self: &Arc<Self>,
        host: &Arc<Host>,
        message: u32,
        targets: GROUP_AFFINITY,
        context: usize,
    ) -> u64 {
        let groups = host.cpus.groups();
        let queued = groups.cpus(targets).filter(|&cpu| self.queue_dpc(host, message, cpu, context));
        queued.fold(0, |set, cpu| set | 1 << groups.number(cpu).Number)
    }

    fn queue_dpc(self: &Arc<Self>, host: &Arc<Host>, message: u32, cpu: CpuId, context: usize) -> bool {
        if !self.queued.lock().insert((message, cpu)) {
            return false;
        }
        self.active.fetch_add(1, SeqCst);
        let (this, on) = (self.clone(), host.clone());
        host.queue_dpc(cpu, move || {
            this.queued.lock().remove(&(message, cpu));
            this.run_dpc(&on, message, cpu, context);
            this.active.fetch_sub(1, SeqCst);
        });
        true
    }

    fn run_dpc(self: &Arc<Self>, host: &Arc<Host>, message: u32, cpu: CpuId, context: usize) {
        let (of_line, of_message) =
            (self.characteristics.InterruptDpcHandler, self.characteristics.MessageInterruptDpcHandler);
        let limit = receive_limit(host);
        let mut throttle = NDIS_RECEIVE_THROTTLE_PARAMETERS { MaxNblsToIndicate: limit, MoreNblsPending: 0 };
        let parameters = &raw mut throttle;
        self.adapter.data_path.throttled(limit, || {
            let (own, context) = (self.context as *mut _, context as *mut _);
            match (self.messages, of_line, of_message) {
                (0, Some(handler), _) => call("MiniportInterruptDPC", || {
                    // SAFETY: the image registered the function under this contract; the parameters live through the call.
                    unsafe { handler(own, context, parameters.cast(), std::ptr::null_mut()) }
                }),
                (1.., _, Some(handler)) => call("MiniportMessageInterruptDPC", || {
                    // SAFETY: the image registered this function under its contract, too; the parameters live through the call.
                    unsafe { handler(own, message, context, parameters.cast(), std::ptr::null_mut()) }
                }),
                _ => {}
            }
        });
        // SAFETY: our own variable, which the image may have written through the pointer.
        let throttle = unsafe { parameters.read_volatile() };
        let more = throttle.MoreNblsPending & 1 != 0;
        require(!more || limit != INDICATE_ALL, rules::THROTTLE, || {
            "a receive DPC without a limit returned with MoreNblsPending, for which NDIS does not call it again".into()
        });
        if more {
            self.queue_dpc(host, message, cpu, context);
        }
    }

    /// Waits until no ISR and no DPC runs or is queued.
    fn drain(&self) {
        wait_until(|| self.active.load(SeqCst) == 0);
    }
}

/// Queues the DPC of `message` on each CPU of a set; on the current CPU when the set is empty.
fn queue(handle: usize, message: u32, targets: GROUP_AFFINITY, context: usize) -> u64 {
    let interrupt: Arc<Interrupt> = handle::object("interrupt handle", handle);
    require(message < interrupt.messages.max(1), rules::MESSAGE, || {
        format!("NdisMQueueDpc of message {message} of {}", interrupt.messages)
    });
    let me = current();
    if targets.Mask == 0 {
        let cpu = me.cpu();
        let is_queued = interrupt.queue_dpc(me.host(), message, cpu, context);
        return if is_queued { 1 << me.host().cpus.groups().number(cpu).Number } else { 0 };
    }
    interrupt.queue_dpcs(me.host(), message, targets, context)
}

imports! { IMPORTS: "ndis.sys" =>
    /// Connects the miniport's interrupt handlers, which may run before this returns.
    [== PASSIVE_LEVEL]
    fn NdisMRegisterInterruptEx(
        handle: usize,
        context: usize,
        characteristics: Guest<NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS>,
        interrupt: Guest<usize>,
    ) -> NDIS_STATUS {
        let adapter = adapter(handle);
        // Only a miniport of a device has an interrupt; a virtual one sets no such flag. (WDK: registration attributes)
        if !adapter.attributes().has_flags(NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE) {
            return NDIS_STATUS_INVALID_PARAMETER;
        }
        let mut requested = characteristics.read();
        require(
            requested.Header.Type == NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT
                && requested.Header.Size >= NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1, rules::HEADER,
            || format!("NdisMRegisterInterruptEx: the characteristics have type {:#x} and {} bytes", requested.Header.Type, requested.Header.Size),
        );
        require(requested.InterruptHandler.is_some() && requested.InterruptDpcHandler.is_some(), rules::INTERRUPT_HANDLERS, || {
            "NdisMRegisterInterruptEx: InterruptHandler and InterruptDpcHandler are required".into()
        });
        let line = requested.DisableInterruptHandler.is_some() && requested.EnableInterruptHandler.is_some();
        require(line, rules::INTERRUPT_HANDLERS, || "NdisMRegisterInterruptEx: DisableInterruptHandler and EnableInterruptHandler are required".into());
        let vectors = adapter.nic.vectors();
        let host = current().host().clone();
        if vectors == 0 {
            // The device has its line.
            requested.InterruptType = NDIS_INTERRUPT_TYPE::NDIS_CONNECT_LINE_BASED;
            characteristics.write(requested);
            let registered = Interrupt::new(&host, &adapter, context, requested, (0, Guest::null()));
            interrupt.write(registered.handle);
            host.state(&VECTORS).lock().line.push(registered);
            deliver_line(&host);
            return NDIS_STATUS_SUCCESS;
        }
        if requested.MsiSupported == 0 {
            // The line of a device with messages is not supported.
            return NDIS_STATUS_NOT_SUPPORTED;
        }
        require(requested.MessageInterruptHandler.is_some() && requested.MessageInterruptDpcHandler.is_some(), rules::MESSAGE_HANDLERS, || {
            "NdisMRegisterInterruptEx: MsiSupported requires MessageInterruptHandler and MessageInterruptDpcHandler".into()
        });
        let messages =
            requested.DisableMessageInterruptHandler.is_some() && requested.EnableMessageInterruptHandler.is_some();
        require(messages, rules::MESSAGE_HANDLERS, || "NdisMRegisterInterruptEx: MsiSupported requires handlers to disable and enable a message".into());
        let claimed: Vec<_> = (0..vectors).map(|vector| (claim_message(&host), processor_of(&host, vector.into()))).collect();
        let Some(table) = message_info::build(&host, &claimed) else { return NDIS_STATUS_RESOURCES };
        requested.InterruptType = NDIS_INTERRUPT_TYPE::NDIS_CONNECT_MESSAGE_BASED;
        requested.MessageInfoTable = table.as_ptr();
        characteristics.write(requested);
        let registered = Interrupt::new(&host, &adapter, context, requested, (vectors.into(), table));
        interrupt.write(registered.handle);
        for (vector, (message, _)) in (0..vectors).zip(claimed) {
            host.state(&VECTORS).lock().table.insert(message.data, (registered.clone(), vector.into()));
            adapter.nic.program_vector(vector, message);
        }
        adapter.nic.enable_msix(true);
        NDIS_STATUS_SUCCESS
    }

    /// Disconnects the handlers; returns when none is running.
    [== PASSIVE_LEVEL]
    fn NdisMDeregisterInterruptEx(interrupt: usize) {
        let registered = handle::take::<Interrupt>("interrupt handle", interrupt);
        require(!registered.adapter.nic.is_running(), rules::INTERRUPT_DEREGISTERED, || {
            "NdisMDeregisterInterruptEx while the device is running and may interrupt; reset it first".into()
        });
        registered.connected.store(false, SeqCst);
        let host = current().host().clone();
        registered.adapter.nic.enable_msix(false);
        {
            let mut vectors = host.state(&VECTORS).lock();
            vectors.table.retain(|_, (of, _)| of.handle != interrupt);
            vectors.line.retain(|of| of.handle != interrupt);
        }
        registered.drain();
        if registered.messages != 0 {
            message_info::free(&host, registered.table);
        }
        let _ = owner::release(&host, REGISTER, interrupt);
    }

    /// Calls a function that the ISR of the message does not interrupt, on any processor.
    [<= DIRQL]
    fn NdisMSynchronizeWithInterruptEx(
        interrupt: usize,
        message: u32,
        function: Option<MINIPORT_SYNCHRONIZE_INTERRUPT>,
        context: usize,
    ) -> u8 {
        let registered = handle::object::<Interrupt>("interrupt handle", interrupt);
        require(message < registered.messages.max(1), rules::MESSAGE, || {
            format!("NdisMSynchronizeWithInterruptEx of message {message} of {}", registered.messages)
        });
        let me = current();
        let level = me.irql().max(Irql::DEVICE_LEVEL);
        let Some(function) = function else { return 0 };
        let old = me.raise(level);
        let result = registered.locked(message, || {
            call("MiniportSynchronizeInterrupt", || {
                // SAFETY: the image passed the function with this context.
                unsafe { function(context as *mut _) }
            })
        });
        me.lower(old);
        result
    }

    /// Queues the DPC of a message on CPUs of group 0.
    [<= DIRQL]
    fn NdisMQueueDpc(interrupt: usize, message: u32, targets: u32, context: usize) -> u32 {
        queue(interrupt, message, of_group_0(targets), context) as u32
    }

    /// Queues the DPC of a message on CPUs of a group.
    [<= HIGH_LEVEL]
    fn NdisMQueueDpcEx(interrupt: usize, message: u32, targets: Guest<GROUP_AFFINITY>, context: usize) -> usize {
        require(!targets.is_null(), rules::PARAMETER, || "NdisMQueueDpcEx: TargetProcessors is null".into());
        let targets = targets.read();
        require(current().host().cpus.groups().cpus(targets).next().is_some(), rules::PARAMETER, || {
            format!("NdisMQueueDpcEx for processors {:#x} of group {}", targets.Mask, targets.Group)
        });
        queue(interrupt, message, targets, context) as usize
    }
}
