// SPDX-License-Identifier: MIT OR Apache-2.0

//! NET_BUFFERs and NET_BUFFER_LISTs: pools, allocation, data.
//!
//! The structures are pool blocks, so that an overrun by the image faults.

use std::{
    collections::BTreeSet,
    iter,
    sync::{Arc, atomic::AtomicBool},
};

use ndk_abi::{
    ndis::{
        NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
        NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1, NDIS_STATUS, NDIS_STATUS_RESOURCES,
        NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
        NET_BUFFER_POOL_PARAMETERS,
    },
    nt::MDL,
};
use nt_sim::{
    Host, current,
    guest::Guest,
    imports,
    memory::pool::Tag,
    nt::mdl::{GuestMdl, MmBuildMdlForNonPagedPool},
    services::Slot,
};
use parking_lot::Mutex;

use crate::{
    block,
    handle::{self, HANDLES},
    owner,
    rules::{self, broken, require},
};

const LIST_POOL: &str = "NdisAllocateNetBufferListPool";
const BUFFER_POOL: &str = "NdisAllocateNetBufferPool";
const MDL_TAG: Tag = Tag(u32::from_le_bytes(*b"Ndmd"));
const LIST_TAG: Tag = Tag(u32::from_le_bytes(*b"Ndbl"));
/// The value of the bytes in front of a sent frame.
const IN_FRONT: u8 = 0xEE;

/// Size of NDIS's allocation for a NET_BUFFER_LIST, which is larger than the documented structure.
pub(crate) const LIST_LEN: usize = 0x180;

/// Received lists that the stacks of a host hold.
pub(crate) static LENT: Slot<Mutex<BTreeSet<usize>>> = Slot::new();

/// Whether MDLs of received NET_BUFFERs may describe more than their data.
pub(crate) static LONG_MDLS: Slot<AtomicBool> = Slot::new();

/// Returns whether the stack holds a list that the miniport has indicated.
pub(crate) fn is_lent(host: &Host, list: Guest<NET_BUFFER_LIST>) -> bool {
    host.state(&LENT).lock().contains(&list.address())
}

/// Returns the NET_BUFFERs of a list.
pub(crate) fn buffers(list: Guest<NET_BUFFER_LIST>) -> impl Iterator<Item = Guest<NET_BUFFER>> {
    let first = list.field::<*mut NET_BUFFER>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer));
    let buffer = |address: *mut NET_BUFFER| Some(Guest::new(address)).filter(|buffer| !buffer.is_null());
    iter::successors(buffer(first.read()), move |at: &Guest<NET_BUFFER>| buffer(at.read().Next))
}

/// A pool of NET_BUFFERs or NET_BUFFER_LISTs.
struct Pool {
    with_buffers: bool,
    /// Tag of what is allocated from it.
    tag: Tag,
    /// Addresses of allocated structures.
    out: Mutex<BTreeSet<usize>>,
}

/// Frees a pool, from which nothing may be allocated.
fn free_pool(what: &'static str, pool: usize) {
    let freed = handle::take::<Pool>("NET_BUFFER(_LIST) pool", pool);
    let out = freed.out.lock().len();
    require(out == 0, rules::POOL_FREED, || {
        format!(
            "{what}: {out} NET_BUFFERs or NET_BUFFER_LISTs of the pool with tag {} are not freed",
            freed.tag
        )
    });
}

fn write_buffer(buffer: Guest<NET_BUFFER>, pool: usize, mdl: Guest<MDL>, offset: u32, length: usize) {
    let (mut at, mut skip) = (mdl, offset);
    // The current MDL is the one in which the data starts.
    while !at.is_null() && skip > 0 && skip >= GuestMdl(at).byte_count() {
        skip -= GuestMdl(at).byte_count();
        at = Guest::from_address(GuestMdl(at).next());
    }
    let mut fields = buffer.read();
    fields.MdlChain = mdl.as_ptr();
    fields.CurrentMdl = at.as_ptr();
    fields.CurrentMdlOffset = skip;
    fields.DataOffset = offset;
    fields.Anonymous.stDataLength = length;
    fields.NdisPoolHandle = pool as *mut _;
    buffer.write(fields);
}

fn allocate_list(
    pool: usize,
    context: u16,
    buffer: Option<(Guest<MDL>, u32, usize)>,
) -> Option<Guest<NET_BUFFER_LIST>> {
    let host = current().host().clone();
    let from: Arc<Pool> = handle::object("NET_BUFFER_LIST pool", pool);
    require(buffer.is_none() || from.with_buffers, rules::POOL_WITH_BUFFERS, || {
        "NdisAllocateNetBufferAndNetBufferList: the pool was not allocated with fAllocateNetBuffer".into()
    });
    let extra = if from.with_buffers { size_of::<NET_BUFFER>() } else { 0 };
    let list =
        block::allocate(&host, LIST_LEN + extra + usize::from(context), from.tag)?.cast::<NET_BUFFER_LIST>();
    from.out.lock().insert(list.address());
    let mut first = Guest::null();
    if let Some((mdl, offset, length)) = buffer {
        first = list.field::<NET_BUFFER>(LIST_LEN);
        write_buffer(first, pool, mdl, offset, length);
    }
    let fields = list.as_ptr();
    Guest::new(fields)
        .field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer))
        .write(first.address());
    Guest::new(fields).field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, NdisPoolHandle)).write(pool);
    Some(list)
}

/// A NET_BUFFER_LIST of the stack, with a NET_BUFFER, MDLs and data for each of its frames.
pub(crate) struct StackList {
    pub list: Guest<NET_BUFFER_LIST>,
    frames: Vec<StackFrame>,
}

/// The memory of a frame.
struct StackFrame {
    /// The last one first.
    mdls: Vec<Guest<MDL>>,
    data: Guest<u8>,
}

impl StackFrame {
    /// Makes a list of one frame; see [`StackList::with_offset`].
    fn new(host: &Host, frame: &[u8], mdl_len: usize, offset: usize) -> Option<Self> {
        let data = block::allocate(host, offset + frame.len(), LIST_TAG)?;
        data.write_bytes(&vec![IN_FRONT; offset]);
        data.add(offset).write_bytes(frame);
        let Some(mdls) = build_mdls(host, data.address(), offset + frame.len(), mdl_len) else {
            block::release(host, data, LIST_TAG);
            return None;
        };
        Some(Self { mdls, data })
    }

    fn free(self, host: &Host) {
        release_mdls(host, self.mdls);
        block::release(host, self.data, LIST_TAG);
    }
}

impl StackList {
    /// Builds a list for `frame`, of which each MDL describes `mdl_len` bytes, or one all if that is 0; returns `None` when
    /// resources run low.
    pub fn new(host: &Host, frame: &[u8], mdl_len: usize) -> Option<Self> {
        Self::with_offset(host, &[frame], mdl_len, 0)
    }

    /// Makes a list of several frames, each behind `offset` bytes of its first MDLs.
    pub fn with_offset(host: &Host, frames: &[&[u8]], mdl_len: usize, offset: usize) -> Option<Self> {
        let mut parts = Vec::new();
        parts.extend(frames.iter().map_while(|frame| StackFrame::new(host, frame, mdl_len, offset)));
        let len = LIST_LEN + frames.len() * size_of::<NET_BUFFER>();
        let list = if parts.len() == frames.len() { block::allocate(host, len, LIST_TAG) } else { None };
        let Some(list) = list else {
            for part in parts {
                part.free(host);
            }
            return None;
        };
        let list = list.cast::<NET_BUFFER_LIST>();
        let buffer = |number: usize| list.field::<NET_BUFFER>(LIST_LEN + number * size_of::<NET_BUFFER>());
        for (number, (part, frame)) in parts.iter().zip(frames).enumerate() {
            write_buffer(buffer(number), 0, part.mdls.last().copied()?, offset as u32, frame.len());
            let next = if number + 1 < frames.len() { buffer(number + 1).address() } else { 0 };
            buffer(number).field::<usize>(std::mem::offset_of!(NET_BUFFER, Next)).write(next);
        }
        list.field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).write(buffer(0).address());
        Some(Self { list, frames: parts })
    }

    /// Adds to the `DataLength` of each frame, but not to its MDLs.
    pub fn lengthen(&self, bytes: usize) {
        for buffer in buffers(self.list) {
            let length = buffer.field::<usize>(std::mem::offset_of!(NET_BUFFER, Anonymous));
            length.write(length.read() + bytes);
        }
    }

    /// Makes it a list without NET_BUFFERs.
    pub fn remove_buffers(&self) {
        self.list.field::<usize>(std::mem::offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).write(0);
    }

    pub fn free(self, host: &Host) {
        block::release(host, self.list.cast(), LIST_TAG);
        self.frames.into_iter().for_each(|frame| frame.free(host));
    }
}

fn release_mdls(host: &Host, mdls: Vec<Guest<MDL>>) {
    for mdl in mdls {
        block::release(host, mdl.cast(), MDL_TAG);
    }
}

/// Builds a chain of MDLs of `mdl_len` bytes each, and returns them, the last one first; a single one if `mdl_len` is 0.
fn build_mdls(host: &Host, address: usize, length: usize, mdl_len: usize) -> Option<Vec<Guest<MDL>>> {
    let each = if mdl_len == 0 { length.max(1) } else { mdl_len };
    let mut mdls: Vec<Guest<MDL>> = Vec::new();
    for offset in (0..length.max(1)).step_by(each).rev() {
        let Some(mdl) = build_mdl(host, address + offset, each.min(length - offset)) else {
            release_mdls(host, mdls);
            return None;
        };
        GuestMdl(mdl).set_next(mdls.last().map_or(0, |next| next.address()));
        mdls.push(mdl);
    }
    Some(mdls)
}

fn build_mdl(host: &Host, address: usize, length: usize) -> Option<Guest<MDL>> {
    let mdl = block::allocate(host, GuestMdl::size_for(address, length), MDL_TAG)?.cast::<MDL>();
    describe(mdl, address, u32::try_from(length).ok()?);
    Some(mdl)
}

/// Makes an MDL describe nonpaged memory.
pub(crate) fn describe(mdl: Guest<MDL>, address: usize, length: u32) {
    GuestMdl(mdl).initialize(address, length);
    MmBuildMdlForNonPagedPool(mdl);
}

/// Returns where the data of a NET_BUFFER is: the addresses and lengths of its parts.
pub(crate) fn parts(buffer: Guest<NET_BUFFER>) -> Vec<(usize, usize)> {
    first_parts(buffer, data_length(&buffer.read()))
}

/// Returns the [`parts`] of the first `wanted` bytes.
fn first_parts(buffer: Guest<NET_BUFFER>, wanted: usize) -> Vec<(usize, usize)> {
    let fields = buffer.read();
    let length = data_length(&fields);
    let (mut parts, mut found) = (Vec::new(), 0);
    let (mut mdl, mut skip) = (Guest::new(fields.CurrentMdl), fields.CurrentMdlOffset as usize);
    while found < wanted {
        require(!mdl.is_null(), rules::DATA, || {
            format!("a NET_BUFFER has DataLength {length}, but its MDLs describe {found} bytes")
        });
        let of = GuestMdl(mdl);
        let part = (of.byte_count() as usize).saturating_sub(skip).min(wanted - found);
        if part > 0 {
            parts.push((of.mapped() + skip, part));
        }
        found += part;
        mdl = Guest::from_address(of.next());
        skip = 0;
    }
    parts
}

/// Returns a sentence about a received NET_BUFFER whose MDLs do not end where its data does.
pub(crate) fn excess_of_mdls(buffer: Guest<NET_BUFFER>) -> Option<String> {
    let fields = buffer.read();
    let mdl = |mdl: Guest<MDL>| Some(mdl).filter(|mdl| !mdl.is_null());
    let mdls = iter::successors(mdl(Guest::new(fields.MdlChain)), |at: &Guest<MDL>| {
        mdl(Guest::from_address(GuestMdl(*at).next()))
    });
    let described: usize = mdls.map(|mdl| GuestMdl(mdl).byte_count() as usize).sum();
    let used = fields.DataOffset as usize + data_length(&fields);
    (described > used).then(|| {
        format!(
            "the MDLs of a received NET_BUFFER describe {described} bytes, but its data ends after {used}"
        )
    })
}

fn data_length(fields: &NET_BUFFER) -> usize {
    // SAFETY: both members of the union are integers of at least 32 bits.
    unsafe { fields.Anonymous.DataLength as usize }
}

/// Returns the data of a NET_BUFFER.
pub(crate) fn bytes(buffer: Guest<NET_BUFFER>) -> Vec<u8> {
    first_bytes(buffer, data_length(&buffer.read()))
}

/// Returns the first `wanted` of the [`bytes`].
fn first_bytes(buffer: Guest<NET_BUFFER>, wanted: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(wanted);
    for (address, len) in first_parts(buffer, wanted) {
        let start = bytes.len();
        bytes.resize(start + len, 0);
        Guest::<u8>::from_address(address).read_bytes(&mut bytes[start..]);
    }
    bytes
}

/// Moves the start of the data by `delta` bytes inside its MDLs.
fn move_start(buffer: Guest<NET_BUFFER>, offset: u32, length: usize) {
    let fields = buffer.read();
    write_buffer(buffer, fields.NdisPoolHandle.addr(), Guest::new(fields.MdlChain), offset, length);
}

fn length_of(buffer: Guest<NET_BUFFER>) -> usize {
    // SAFETY: any bits are an integer.
    unsafe { buffer.read().Anonymous.stDataLength }
}

fn require_header(what: &str, header: NDIS_OBJECT_HEADER, size: u16) {
    require(header.Type == NDIS_OBJECT_TYPE_DEFAULT && header.Size >= size, rules::HEADER, || {
        format!("{what} with parameters of type {:#x} and {} bytes", header.Type, header.Size)
    });
}

fn new_pool(owner: usize, kind: &'static str, tag: u32, with_buffers: bool) -> usize {
    require(tag != 0, rules::POOL_TAG, || format!("{kind}: PoolTag is 0"));
    let host = current().host().clone();
    if host.low_resources.fails() {
        return 0;
    }
    let pool =
        host.state(&HANDLES).insert(Arc::new(Pool { with_buffers, tag: Tag(tag), out: Mutex::default() }));
    owner::hold(&host, owner, kind, pool);
    pool
}

imports! { IMPORTS: "ndis.sys" =>
    /// Allocates a pool of NET_BUFFER_LISTs.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateNetBufferListPool(owner: usize, parameters: Guest<NET_BUFFER_LIST_POOL_PARAMETERS>) -> usize {
        let parameters = parameters.read();
        require_header(LIST_POOL, parameters.Header, NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1);
        new_pool(owner, LIST_POOL, parameters.PoolTag, parameters.fAllocateNetBuffer != 0)
    }

    /// Frees a pool of NET_BUFFER_LISTs.
    [<= DISPATCH_LEVEL]
    fn NdisFreeNetBufferListPool(pool: usize) {
        free_pool("NdisFreeNetBufferListPool", pool);
        let _ = owner::release(current().host(), LIST_POOL, pool);
    }

    /// Allocates a NET_BUFFER_LIST without NET_BUFFER.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateNetBufferList(pool: usize, context: u16, _backfill: u16) -> Guest<NET_BUFFER_LIST> {
        allocate_list(pool, context, None).unwrap_or(Guest::null())
    }

    /// Allocates a NET_BUFFER_LIST with one NET_BUFFER.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateNetBufferAndNetBufferList(
        pool: usize,
        context: u16,
        _backfill: u16,
        mdl: Guest<MDL>,
        offset: u32,
        length: usize,
    ) -> Guest<NET_BUFFER_LIST> {
        allocate_list(pool, context, Some((mdl, offset, length))).unwrap_or(Guest::null())
    }

    /// Frees a NET_BUFFER_LIST, and the NET_BUFFER that came with it.
    [<= DISPATCH_LEVEL]
    fn NdisFreeNetBufferList(list: Guest<NET_BUFFER_LIST>) {
        let pool: usize = list.field(std::mem::offset_of!(NET_BUFFER_LIST, NdisPoolHandle)).read();
        let from: Arc<Pool> = handle::object("NET_BUFFER_LIST pool", pool);
        require(!is_lent(current().host(), list), rules::OWNED, || {
            format!("NdisFreeNetBufferList of {:#x}, which the stack has not returned", list.address())
        });
        require(from.out.lock().remove(&list.address()), rules::ALLOCATED, || {
            format!("NdisFreeNetBufferList of {:#x}, which is not allocated from its pool", list.address())
        });
        block::release(current().host(), list.cast(), from.tag);
    }

    /// Allocates a pool of NET_BUFFERs.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateNetBufferPool(owner: usize, parameters: Guest<NET_BUFFER_POOL_PARAMETERS>) -> usize {
        let parameters = parameters.read();
        require_header(BUFFER_POOL, parameters.Header, NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1);
        new_pool(owner, BUFFER_POOL, parameters.PoolTag, true)
    }

    /// Frees a pool of NET_BUFFERs.
    [<= DISPATCH_LEVEL]
    fn NdisFreeNetBufferPool(pool: usize) {
        free_pool("NdisFreeNetBufferPool", pool);
        let _ = owner::release(current().host(), BUFFER_POOL, pool);
    }

    /// Allocates a NET_BUFFER.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateNetBuffer(pool: usize, mdl: Guest<MDL>, offset: u32, length: usize) -> Guest<NET_BUFFER> {
        let from: Arc<Pool> = handle::object("NET_BUFFER pool", pool);
        let host = current().host().clone();
        let Some(buffer) = block::allocate(&host, size_of::<NET_BUFFER>(), from.tag) else { return Guest::null() };
        from.out.lock().insert(buffer.address());
        write_buffer(buffer.cast(), pool, mdl, offset, length);
        buffer.cast()
    }

    /// Frees a NET_BUFFER.
    [<= DISPATCH_LEVEL]
    fn NdisFreeNetBuffer(buffer: Guest<NET_BUFFER>) {
        let from: Arc<Pool> = handle::object("NET_BUFFER pool", buffer.read().NdisPoolHandle.addr());
        require(from.out.lock().remove(&buffer.address()), rules::ALLOCATED, || {
            format!("NdisFreeNetBuffer of {:#x}, which is not allocated from its pool", buffer.address())
        });
        block::release(current().host(), buffer.cast(), from.tag);
    }

    /// Returns the first bytes of a NET_BUFFER contiguously: in place, or copied to `storage`; null if neither is
    /// possible, or when resources to map them run low.
    [<= DISPATCH_LEVEL]
    fn NdisGetDataBuffer(
        buffer: Guest<NET_BUFFER>,
        needed: u32,
        storage: Guest<u8>,
        align: u32,
        offset: u32,
    ) -> Guest<u8> {
        let fields = buffer.read();
        if needed == 0 || needed as usize > length_of(buffer) {
            return Guest::null();
        }
        // Memory of user mode is not mapped before.
        if current().host().low_resources.fails() {
            return Guest::null();
        }
        let mdl = GuestMdl(Guest::new(fields.CurrentMdl));
        let at = mdl.mapped() + fields.CurrentMdlOffset as usize;
        let aligned = align <= 1 || at % align as usize == offset as usize;
        if aligned && mdl.byte_count() - fields.CurrentMdlOffset >= needed {
            return Guest::from_address(at);
        }
        if storage.is_null() {
            return Guest::null();
        }
        storage.write_bytes(&first_bytes(buffer, needed as usize));
        storage
    }

    /// Moves the start of the data forward.
    [<= DISPATCH_LEVEL]
    fn NdisAdvanceNetBufferDataStart(buffer: Guest<NET_BUFFER>, delta: u32, _free: u8, _handler: usize) {
        let length = length_of(buffer);
        require(delta as usize <= length, rules::DATA, || format!("data of {length} bytes advanced by {delta}"));
        move_start(buffer, buffer.read().DataOffset + delta, length - delta as usize);
    }

    /// Moves the start of the data back, into unused space of its MDLs.
    [<= DISPATCH_LEVEL]
    fn NdisRetreatNetBufferDataStart(buffer: Guest<NET_BUFFER>, delta: u32, _backfill: u32, _handler: usize) -> NDIS_STATUS {
        let Some(offset) = buffer.read().DataOffset.checked_sub(delta) else { return NDIS_STATUS_RESOURCES };
        move_start(buffer, offset, length_of(buffer) + delta as usize);
        NDIS_STATUS_SUCCESS
    }

    /// Allocates and builds an MDL for nonpaged memory; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn NdisAllocateMdl(_owner: usize, address: usize, length: u32) -> Guest<MDL> {
        build_mdl(current().host(), address, length as usize).unwrap_or(Guest::null())
    }

    /// Frees an MDL of `NdisAllocateMdl`.
    [<= DISPATCH_LEVEL]
    fn NdisFreeMdl(mdl: Guest<MDL>) {
        if mdl.is_null() {
            broken(rules::PARAMETER, "NdisFreeMdl of null");
        }
        block::release(current().host(), mdl.cast(), MDL_TAG);
    }
}
