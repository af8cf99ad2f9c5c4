// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pool of NET_BUFFER_LISTs in which received frames are indicated to NDIS.

use alloc::vec::Vec;
use core::ptr::null_mut;

use fallible::{AliasableBytes, vec};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    NET_BUFFER_LIST_POOL_PARAMETERS, NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1, NdisAllocateMdl,
    NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool, NdisFreeMdl, NdisFreeNetBufferList,
    NdisFreeNetBufferListPool,
};
use ndk_abi::nt::MDL;
use nt::SpinLock;
use virtio_net::MAX_COALESCED;

use crate::events::{Failure, Request};
use crate::nbl::{NblList, set_info};
use crate::pool;

/// NET_BUFFER_LISTs in the pool for each queue pair but the first. Together they limit how many received frames the protocol stack can
/// hold, and how many can wait for a processor that they were handed over to.
const LISTS_PER_PAIR: usize = 256;
/// NBLs without which an adapter does not start, unless its queues have fewer buffers.
const LEAST_LISTS: usize = 64;
/// Upper limit of the memory for the NBLs of the first queue pair, in bytes.
const LIST_MEMORY: usize = 8 << 20;
/// Additional NBLs for coalesced frames, of 64 KiB each: about as many frames as 256 buffers of a receive queue hold.
const LARGE_LISTS_PER_PAIR: usize = 16;

/// Part of the NBLs that the stack cannot keep: with fewer free ones, it must copy what is indicated (`NDIS_RECEIVE_FLAGS_RESOURCES`).
const RESERVE: u32 = 8;

/// Length of the shortest frame of Ethernet without its FCS, in bytes. A virtual link has shorter ones, which are padded.
const MIN_FRAME: usize = 60;

/// One NET_BUFFER_LIST with its buffer.
struct Entry {
    nbl: *mut NET_BUFFER_LIST,
    mdl: *mut MDL,
    /// The MDL refers to the buffer, and the protocol stack reads and writes it.
    buffer: AliasableBytes,
}

/// Out-of-band information of a received NBL.
#[derive(Clone, Copy)]
pub struct ReceivedInfo {
    /// `TcpIpChecksumNetBufferListInfo`.
    pub checksum: usize,
    /// `Ieee8021QNetBufferListInfo`.
    pub priority_vlan: usize,
    /// `TcpRecvSegCoalesceInfo`: the number of segments. `DupAckCount` is 0: the device does not coalesce duplicate acknowledgments.
    pub coalesced: usize,
}

/// The NBLs with buffers of one length.
struct Kind {
    free: SpinLock<Free>,
    /// Number of NBLs, constant once the pool is complete.
    total: u32,
}

/// Free NBLs, and their number.
struct Free {
    lists: NblList,
    count: u32,
}

impl Kind {
    const fn new() -> Self {
        Self { free: SpinLock::new(Free { lists: NblList::new(), count: 0 }), total: 0 }
    }

    fn is_low(&self) -> bool {
        self.free.lock().count < self.total / RESERVE
    }

    /// Takes a free NBL. Also returns how many are left.
    fn take(&self) -> Option<(*mut NET_BUFFER_LIST, u32)> {
        let mut free = self.free.lock();
        let nbl = free.lists.pop()?;
        free.count = free.count.wrapping_sub(1);
        Some((nbl, free.count))
    }
}

impl Free {
    /// Adds an NBL.
    ///
    /// # Safety
    /// As for [`NblList::push`].
    unsafe fn add(&mut self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: this function has the contract of `push`: the driver owns the NBL, and it is on no list.
        unsafe { self.lists.push(nbl) };
        self.count = self.count.wrapping_add(1);
    }
}

/// Parameters of the number of NBLs.
#[derive(Clone, Copy)]
pub struct Lists {
    /// Queue pairs.
    pub pairs: usize,
    /// Buffers of a receive queue, for all of which the first queue pair has NBLs.
    pub buffers: usize,
    /// There are NBLs for coalesced frames, too.
    pub are_coalesced: bool,
}

impl Lists {
    /// Returns the number of NBLs for frames of up to `max_frame` bytes.
    fn ordinary(self, max_frame: usize) -> usize {
        let fitting = LIST_MEMORY.checked_div(max_frame).unwrap_or(LEAST_LISTS).max(LEAST_LISTS);
        let others = self.pairs.saturating_sub(1).saturating_mul(LISTS_PER_PAIR.min(self.buffers));
        self.buffers.min(fitting).saturating_add(others)
    }

    /// Returns the number of NBLs for coalesced frames.
    fn large(self) -> usize {
        if self.are_coalesced { LARGE_LISTS_PER_PAIR.saturating_mul(self.pairs) } else { 0 }
    }
}

/// The pool. Every NBL is either free or indicated to the stack; indicated NBLs count in the adapter's traffic.
pub struct ReceivePool {
    handle: NDIS_HANDLE,
    pool: NDIS_HANDLE,
    entries: Vec<Entry>,
    /// Longest frame that is not coalesced, in bytes.
    max_frame: usize,
    /// NBLs for frames of up to `max_frame` bytes.
    ordinary: Kind,
    /// NBLs for coalesced frames.
    large: Kind,
}

// SAFETY: handles and lists have no thread affinity; the free list is behind its lock, an entry's buffer is written
// only by the caller that removed its list from the free list.
unsafe impl Send for ReceivePool {}
// SAFETY: free lists are changed behind their locks, and an NBL that was taken from one belongs to one caller.
unsafe impl Sync for ReceivePool {}

impl ReceivePool {
    /// Returns a pool for frames of up to `max_frame` bytes, and for coalesced ones if there are any. The pool is smaller if memory is
    /// short, but has at least [`LEAST_LISTS`], and the NBLs for coalesced frames of one queue pair. `PASSIVE_LEVEL`.
    pub fn new(handle: NDIS_HANDLE, max_frame: usize, lists: Lists) -> Result<Self, Failure> {
        let (size, large) = (lists.ordinary(max_frame), lists.large());
        let mut parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
                Size: NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
            },
            ProtocolId: 0,
            fAllocateNetBuffer: 1,
            ContextSize: 0,
            PoolTag: pool::TAG,
            DataSize: 0,
        };
        // SAFETY: the parameters are complete and good for the call.
        let pool = unsafe { NdisAllocateNetBufferListPool(handle, &raw mut parameters) };
        if pool.is_null() {
            return Err(Failure::Ndis(Request::ReceivePool, ndk_abi::ndis::NDIS_STATUS_RESOURCES));
        }
        let mut this =
            Self { handle, pool, entries: Vec::new(), max_frame, ordinary: Kind::new(), large: Kind::new() };
        vec::reserve_exact(&mut this.entries, size.saturating_add(large))
            .map_err(|_| Failure::NoResources)?;
        for (count, least, len) in
            [(size, LEAST_LISTS, max_frame), (large, LARGE_LISTS_PER_PAIR, MAX_COALESCED.max(max_frame))]
        {
            for number in 0..count {
                if this.add(len).is_some() {
                    continue;
                }
                if number < least {
                    // Dropping `this` frees the lists allocated so far.
                    return Err(Failure::NoResources);
                }
                break;
            }
        }
        Ok(this)
    }

    /// Adds an NBL with a buffer of `len` bytes.
    fn add(&mut self, len: usize) -> Option<()> {
        let buffer = AliasableBytes::try_new(len).ok()?;
        let is_large = len > self.max_frame;
        let len = u32::try_from(len).ok()?;
        // SAFETY: the buffer is nonpaged and stays where it is as long as its entry.
        let mdl = unsafe { NdisAllocateMdl(self.handle, buffer.as_ptr().cast(), len) };
        if mdl.is_null() {
            return None;
        }
        // SAFETY: the pool is live and has NET_BUFFERs; the MDL describes `len` bytes.
        let nbl = unsafe { NdisAllocateNetBufferAndNetBufferList(self.pool, 0, 0, mdl, 0, 0) };
        if nbl.is_null() {
            // SAFETY: allocated above, used by nothing.
            unsafe { NdisFreeMdl(mdl) };
            return None;
        }
        let index = self.entries.len();
        // Does not fail: memory for all entries was reserved.
        let _ = vec::push_within_capacity(&mut self.entries, Entry { nbl, mdl, buffer });
        // SAFETY: fresh, so the driver's own.
        unsafe { (*nbl).MiniportReserved = [core::ptr::without_provenance_mut(index), null_mut()] };
        // SAFETY: as above, and on no list.
        unsafe { self.kind(is_large).free.lock().add(nbl) };
        let kind = if is_large { &mut self.large } else { &mut self.ordinary };
        kind.total = kind.total.saturating_add(1);
        Some(())
    }

    fn kind(&self, is_large: bool) -> &Kind {
        if is_large { &self.large } else { &self.ordinary }
    }

    /// Whether so few NBLs are free that the stack must keep none of those that are indicated now.
    pub fn is_low(&self) -> bool {
        self.ordinary.is_low() || self.large.is_low()
    }

    /// Copies a frame and its out-of-band information into a free NBL. Returns the NBL, and how many are left for frames like this one;
    /// `None` if there was none, or the frame is too long.
    pub fn fill(&self, frame: &[u8], info: ReceivedInfo) -> Option<(*mut NET_BUFFER_LIST, u32)> {
        let is_large = frame.len() > self.max_frame;
        if is_large && info.coalesced == 0 {
            return None;
        }
        let kind = self.kind(is_large);
        let (nbl, left) = kind.take()?;
        if self.copy(nbl, frame, info).is_none() {
            // SAFETY: just taken off the free list.
            unsafe { kind.free.lock().add(nbl) };
            return None;
        }
        Some((nbl, left))
    }

    fn copy(&self, nbl: *mut NET_BUFFER_LIST, frame: &[u8], info: ReceivedInfo) -> Option<()> {
        // SAFETY: one of the pool's own lists, off the free list, so not referenced elsewhere.
        let list = unsafe { &mut *nbl };
        let [index, _] = list.MiniportReserved;
        let entry = self.entries.get(index.addr())?;
        if frame.len() > entry.buffer.len() {
            return None;
        }
        // SAFETY: the buffer is this list's alone, long enough, and read by no other thread while the list is off all lists.
        unsafe { core::ptr::copy_nonoverlapping(frame.as_ptr(), entry.buffer.as_ptr(), frame.len()) };
        let len = match MIN_FRAME.checked_sub(frame.len()) {
            Some(missing @ 1..) => pad(entry, frame.len(), missing),
            _ => frame.len(),
        };
        // As `NdisAdjustMdlLength` does: Server 2025's iSCSI initiator takes the length of the MDL for that of the data.
        // SAFETY: this list's own MDL, whose buffer is at least as long, as it was when the MDL was built.
        unsafe { (*entry.mdl).ByteCount = len as u32 };
        // SAFETY: the NET_BUFFER allocated together with the list.
        let net_buffer = unsafe { &mut *list.FirstNetBuffer };
        net_buffer.Anonymous.stDataLength = len;
        net_buffer.DataOffset = 0;
        net_buffer.MdlChain = entry.mdl;
        net_buffer.CurrentMdl = entry.mdl;
        net_buffer.CurrentMdlOffset = 0;
        list.NetBufferListInfo = [null_mut(); 27];
        set_info(list, NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo, info.checksum);
        set_info(list, NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo, info.priority_vlan);
        set_info(list, NDIS_NET_BUFFER_LIST_INFO::TcpRecvSegCoalesceInfo, info.coalesced);
        list.SourceHandle = self.handle;
        list.Status = NDIS_STATUS_SUCCESS;
        list.NblFlags = 0;
        Some(())
    }

    /// Puts NBLs back on the free list. Returns their number.
    pub fn take_back(&self, mut chain: *mut NET_BUFFER_LIST) -> u32 {
        let mut returned = 0_u32;
        let (mut free, mut free_large) = (self.ordinary.free.lock(), None);
        while !chain.is_null() {
            let nbl = chain;
            // SAFETY: the stack gave the chain back.
            chain = unsafe { (*nbl).Next };
            // SAFETY: one of the pool's own, which the stack no longer uses.
            let [index, _] = unsafe { (*nbl).MiniportReserved };
            let is_large =
                self.entries.get(index.addr()).is_some_and(|entry| entry.buffer.len() > self.max_frame);
            let list =
                if is_large { free_large.get_or_insert_with(|| self.large.free.lock()) } else { &mut free };
            // SAFETY: one of the pool's own, on no list.
            unsafe { list.add(nbl) };
            returned = returned.wrapping_add(1);
        }
        returned
    }
}

/// Clears `missing` bytes behind a frame of `len` bytes in the buffer of a list, as far as there are any. Returns the length with them.
#[cold]
fn pad(entry: &Entry, len: usize, missing: usize) -> usize {
    let missing = missing.min(entry.buffer.len().saturating_sub(len));
    // SAFETY: the buffer has `len + missing` bytes.
    let end = unsafe { entry.buffer.as_ptr().add(len) };
    // SAFETY: as above, and it is the list's alone.
    unsafe { end.write_bytes(0, missing) };
    len.saturating_add(missing)
}

impl Drop for ReceivePool {
    /// No NBL is indicated: NDIS halts an adapter only after a pause. `PASSIVE_LEVEL`.
    fn drop(&mut self) {
        for entry in &self.entries {
            // SAFETY: allocated in `add`, back from the stack, freed once.
            unsafe { NdisFreeNetBufferList(entry.nbl) };
            // SAFETY: allocated in `add`, freed once, after the list that refers to it.
            unsafe { NdisFreeMdl(entry.mdl) };
        }
        // SAFETY: allocated in `new`; all its lists are free.
        unsafe { NdisFreeNetBufferListPool(self.pool) };
    }
}
