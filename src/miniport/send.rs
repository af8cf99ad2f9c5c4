//! NET_BUFFER_LISTs to the wire: each frame is copied into a transmit slot, so that the list can be completed at once.
//!
//! Lists that find no free slot wait, in order, for the transmit interrupt. IRQL <= `DISPATCH_LEVEL`.

use core::ffi::c_void;
use core::ptr::null_mut;

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_PORT_NUMBER, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_INVALID_LENGTH,
    NDIS_STATUS_PAUSED, NDIS_STATUS_SEND_ABORTED, NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST,
    NdisGetDataBuffer, NdisMSendNetBufferListsComplete,
};

use super::adapter::Adapter;
use super::statistics::Cast;
use crate::config::ETHERNET_HEADER;
use crate::nic::port::{TRANSMIT_BUDGET, Transmitter};

/// A list of NET_BUFFER_LISTs, linked through their `Next`. They are the driver's own until completed.
pub struct NblList {
    first: *mut NET_BUFFER_LIST,
    last: *mut NET_BUFFER_LIST,
}

impl NblList {
    pub const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub fn first(&self) -> *mut NET_BUFFER_LIST {
        self.first
    }

    /// Adds one list at the end; its `Next` is overwritten.
    ///
    /// # Safety
    /// `nbl` is the driver's own and on no list.
    pub unsafe fn push(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function's contract.
        unsafe { (*nbl).Next = null_mut() };
        if self.last.is_null() {
            self.first = nbl;
        } else {
            // SAFETY: everything on the list is the driver's own.
            unsafe { (*self.last).Next = nbl };
        }
        self.last = nbl;
    }

    /// Takes the first one off.
    pub fn pop(&mut self) -> Option<*mut NET_BUFFER_LIST> {
        let nbl = self.first;
        if nbl.is_null() {
            return None;
        }
        // SAFETY: everything on the list is the driver's own.
        self.first = unsafe { (*nbl).Next };
        if self.first.is_null() {
            self.last = null_mut();
        }
        // SAFETY: as above.
        unsafe { (*nbl).Next = null_mut() };
        Some(nbl)
    }
}

// SAFETY: the lists on it are owned, and have no thread affinity.
unsafe impl Send for NblList {}

/// What found no slot.
pub struct Waiting(NblList);

impl Waiting {
    pub const fn new() -> Self {
        Self(NblList::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes off, as a chain, what `select` chooses.
    pub fn take(&mut self, mut select: impl FnMut(&NET_BUFFER_LIST) -> bool) -> *mut NET_BUFFER_LIST {
        let (mut kept, mut taken) = (NblList::new(), NblList::new());
        while let Some(nbl) = self.0.pop() {
            // SAFETY: owned; nobody else refers to it.
            let chosen = select(unsafe { &*nbl });
            let list = if chosen { &mut taken } else { &mut kept };
            // SAFETY: just taken off its list.
            unsafe { list.push(nbl) };
        }
        self.0 = kept;
        taken.first()
    }
}

/// `MiniportSendNetBufferLists`.
pub unsafe extern "efiapi" fn send_net_buffer_lists(
    context: NDIS_HANDLE,
    mut chain: *mut NET_BUFFER_LIST,
    _port: NDIS_PORT_NUMBER,
    flags: u32,
) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    let mut arrived = NblList::new();
    while !chain.is_null() {
        let nbl = chain;
        // SAFETY: NDIS gave the chain to the driver.
        chain = unsafe { (*nbl).Next };
        begin(nbl);
        // SAFETY: the driver's own, taken out of the chain.
        unsafe { arrived.push(nbl) };
    }
    let flags =
        if flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL == 0 { 0 } else { NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL };
    let Some(_passing) = adapter.pass() else {
        complete(adapter, arrived.first(), Some(NDIS_STATUS_PAUSED), flags);
        return;
    };
    let done = adapter.port().with_transmitter(|transmitter| {
        // Under the lock: `abandon` takes it after the device was marked absent, and finds what went in before.
        if !adapter.port().is_present() {
            return NblList::new();
        }
        while let Some(nbl) = arrived.pop() {
            // SAFETY: just taken off its list.
            unsafe { transmitter.waiting.0.push(nbl) };
        }
        send_waiting(adapter, transmitter)
    });
    complete(adapter, done.first(), None, flags);
    // What did not go in.
    complete(adapter, arrived.first(), Some(NDIS_STATUS_ADAPTER_REMOVED), flags);
}

/// `MiniportCancelSend`.
pub unsafe extern "efiapi" fn cancel_send(context: NDIS_HANDLE, cancel_id: *mut c_void) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // A pause completes everything.
    let Some(_passing) = adapter.pass() else { return };
    let slot = NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId.0 as usize;
    let cancelled =
        adapter.port().take_waiting(|nbl| nbl.NetBufferListInfo.get(slot).is_some_and(|&id| id == cancel_id));
    complete(adapter, cancelled, Some(NDIS_STATUS_SEND_ABORTED), 0);
}

/// Sends what waits as far as slots go, after the device returned some. `DISPATCH_LEVEL`.
pub fn resume(adapter: &Adapter) {
    let Some(_passing) = adapter.pass() else { return };
    let done = adapter.port().with_transmitter(|transmitter| send_waiting(adapter, transmitter));
    complete(adapter, done.first(), None, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
}

/// Completes everything that waits, unsent, after the device was marked absent.
pub fn abandon(adapter: &Adapter) {
    // A pause completes everything.
    let Some(_passing) = adapter.pass() else { return };
    abort_waiting(adapter, NDIS_STATUS_ADAPTER_REMOVED);
}

/// Completes everything that waits, unsent: the adapter pauses or its device is gone.
pub fn abort_waiting(adapter: &Adapter, status: NDIS_STATUS) {
    let waiting = adapter.port().take_waiting(|_| true);
    complete(adapter, waiting, Some(status), 0);
}

/// Copies frames into slots, list by list; returns the finished ones.
fn send_waiting(adapter: &Adapter, transmitter: &mut Transmitter) -> NblList {
    let mut done = NblList::new();
    let mut budget = TRANSMIT_BUDGET;
    while let Some(nbl) = transmitter.waiting.0.pop() {
        if !send_list(adapter, transmitter, nbl, &mut budget) {
            // No slot, or enough for now: it stays first in line, at the frame it stopped at.
            let mut rest = core::mem::replace(&mut transmitter.waiting.0, NblList::new());
            // SAFETY: just taken off its list.
            unsafe { transmitter.waiting.0.push(nbl) };
            while let Some(next) = rest.pop() {
                // SAFETY: just taken off its list.
                unsafe { transmitter.waiting.0.push(next) };
            }
            break;
        }
        // SAFETY: just taken off its list.
        unsafe { done.push(nbl) };
    }
    done
}

/// Copies the frames of one list from where it stands; `false` if slots or the budget ran out.
fn send_list(
    adapter: &Adapter,
    transmitter: &mut Transmitter,
    nbl: *mut NET_BUFFER_LIST,
    budget: &mut usize,
) -> bool {
    loop {
        let net_buffer = position(nbl);
        if net_buffer.is_null() {
            return true;
        }
        let Some(left) = budget.checked_sub(1) else { return false };
        *budget = left;
        let Some(slot) = transmitter.queue.slot() else { return false };
        if let Some(len) = copy(net_buffer, slot) {
            let cast = Cast::of(slot);
            transmitter.queue.commit(len);
            adapter.statistics().sent(cast, len);
        } else {
            set_status(nbl, NDIS_STATUS_INVALID_LENGTH);
            adapter.statistics().send_failed();
        }
        // SAFETY: a frame of a list that is the driver's own.
        set_position(nbl, unsafe { (*net_buffer).Next });
    }
}

/// Copies one frame into `slot`; its length, or `None` if it is too short, too long or not mappable.
fn copy(net_buffer: *mut NET_BUFFER, slot: &mut [u8]) -> Option<usize> {
    // SAFETY: a frame of a list that is the driver's own.
    let len = unsafe { (*net_buffer).Anonymous };
    // SAFETY: both views of the length are the same number.
    let len = unsafe { len.DataLength };
    if len < ETHERNET_HEADER {
        return None;
    }
    let slot = slot.get_mut(..len as usize)?;
    // SAFETY: the storage has the length asked for.
    let data = unsafe { NdisGetDataBuffer(net_buffer, len, slot.as_mut_ptr().cast(), 1, 0) };
    if data.is_null() {
        return None;
    }
    if !core::ptr::eq(data.cast::<u8>(), slot.as_ptr()) {
        // SAFETY: the frame lies in one piece at `data`, and the slot is memory of the driver's.
        unsafe { core::ptr::copy_nonoverlapping(data.cast::<u8>(), slot.as_mut_ptr(), slot.len()) };
    }
    Some(slot.len())
}

/// Gives lists back to NDIS; with `status`, all with that one.
fn complete(adapter: &Adapter, chain: *mut NET_BUFFER_LIST, status: Option<NDIS_STATUS>, flags: u32) {
    if chain.is_null() {
        return;
    }
    let mut nbl = chain;
    while !nbl.is_null() {
        set_position(nbl, null_mut());
        if let Some(status) = status {
            set_status(nbl, status);
        }
        // SAFETY: the chain is the driver's own until completed below.
        nbl = unsafe { (*nbl).Next };
    }
    // SAFETY: the chain was given to `MiniportSendNetBufferLists` and is completed once; no lock is held.
    unsafe { NdisMSendNetBufferListsComplete(adapter.handle(), chain, flags) };
}

/// Makes a list ready: nothing of it is sent.
fn begin(nbl: *mut NET_BUFFER_LIST) {
    // SAFETY: the driver's own.
    let first = unsafe { (*nbl).FirstNetBuffer };
    set_position(nbl, first);
    set_status(nbl, NDIS_STATUS_SUCCESS);
}

fn set_status(nbl: *mut NET_BUFFER_LIST, status: NDIS_STATUS) {
    // SAFETY: the driver's own.
    unsafe { (*nbl).Status = status };
}

/// The first frame of a list that is not sent yet; kept in the miniport's own field of it.
fn position(nbl: *mut NET_BUFFER_LIST) -> *mut NET_BUFFER {
    // SAFETY: the driver's own.
    let [position, _] = unsafe { (*nbl).MiniportReserved };
    position.cast()
}

fn set_position(nbl: *mut NET_BUFFER_LIST, position: *mut NET_BUFFER) {
    // SAFETY: the driver's own.
    unsafe { (*nbl).MiniportReserved = [position.cast(), null_mut()] };
}
