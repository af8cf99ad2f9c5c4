// SPDX-License-Identifier: MIT OR Apache-2.0

//! Identifiers.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use libc::sockaddr;
use verbs_core::cm::{CmId, EventChannel, PortSpace};
use verbs_core::{Error, addresses as gids};

use super::addresses::{read, storage};
use super::event::acknowledge;
use super::open_devices;
use crate::abi::attributes::IbvQpInitAttr;
use crate::abi::device::IbvGid;
use crate::abi::flags::{IBV_QPT_RC, IBV_QPT_UD};
use crate::abi::rdma::{RDMA_PS_TCP, RDMA_PS_UDP, RdmaCmId, RdmaEventChannel};
use crate::handles::{self, Handle};
use crate::{device, errno};

/// The default partition in network byte order.
const PKEY: u16 = 0xFFFF;

/// An event channel.
#[repr(C)]
pub struct Channel {
    base: RdmaEventChannel,
    pub core: Arc<EventChannel>,
}

// SAFETY: it is `repr(C)` and begins with an `RdmaEventChannel`.
unsafe impl Handle for Channel {
    type C = RdmaEventChannel;
}

/// Creates a channel.
pub fn create_channel() -> Result<*mut RdmaEventChannel, Error> {
    let core = EventChannel::new()?;
    let fd = core.as_fd().as_raw_fd();
    Ok(handles::create(Channel { base: RdmaEventChannel { fd }, core }))
}

/// An identifier.
#[repr(C)]
pub struct Id {
    base: RdmaCmId,
    pub core: Arc<CmId>,
    /// Calls wait for their events. The channel is the identifier's own.
    pub is_synchronous: Cell<bool>,
    /// Of a listener: attributes of the queue pairs that `rdma_get_request` creates.
    pub template: Cell<Option<IbvQpInitAttr>>,
}

// SAFETY: it is `repr(C)` and begins with an `RdmaCmId`.
unsafe impl Handle for Id {
    type C = RdmaCmId;
}

/// Returns the identifier of a pointer.
pub fn find<'a>(id: *mut RdmaCmId) -> Result<&'a Id, Error> {
    handles::get::<Id>(id)
}

/// Returns a copy of what the program sees of an identifier, which was found.
pub fn shown(id: *mut RdmaCmId) -> RdmaCmId {
    // SAFETY: the caller has found the identifier.
    unsafe { id.read() }
}

/// Changes what the program sees of an identifier, which was found.
pub fn update(id: *mut RdmaCmId, change: impl FnOnce(&mut RdmaCmId)) {
    // SAFETY: the caller has found the identifier. Programs call the functions of an identifier from one thread at a time.
    change(unsafe { &mut *id });
}

/// Acknowledges the last event of the calls that have waited, if there is one.
pub fn acknowledge_last(id: *mut RdmaCmId) {
    let last = shown(id).event;
    if !last.is_null() {
        update(id, |shown| shown.event = core::ptr::null_mut());
        // The program may have done so itself.
        let _ = acknowledge(last);
    }
}

/// Creates the structure for an identifier of the core; with a channel of its own if `channel` is null.
pub fn wrap(
    core: Arc<CmId>,
    channel: *mut RdmaEventChannel,
    is_synchronous: bool,
    context: *mut c_void,
) -> Result<*mut RdmaCmId, Error> {
    let pointer = handles::create_with(|pointer: *mut RdmaCmId| {
        // SAFETY: all-zero bytes are a valid identifier: null pointers, and addresses of no family.
        let mut base: RdmaCmId = unsafe { zeroed() };
        base.channel = channel;
        base.context = context;
        (base.ps, base.qp_type) = match core.space() {
            PortSpace::Tcp => (RDMA_PS_TCP, IBV_QPT_RC),
            PortSpace::Udp => (RDMA_PS_UDP, IBV_QPT_UD),
        };
        core.set_token(pointer.expose_provenance() as u64);
        Ok(Id { base, core, is_synchronous: Cell::new(is_synchronous), template: Cell::new(None) })
    })?;
    match show_addresses(pointer) {
        Ok(()) => Ok(pointer),
        Err(error) => {
            drop(handles::take::<Id>(pointer));
            Err(error)
        }
    }
}

/// Shows the program the addresses and the device that an identifier has.
pub fn show_addresses(id: *mut RdmaCmId) -> Result<(), Error> {
    let found = find(id)?;
    let device = found.core.device();
    let shared = device.as_ref().map(|device| open_devices::of(device.address())).transpose()?;
    let (local, remote) = (found.core.local(), found.core.remote());
    let gid = |address: SocketAddr| IbvGid { raw: gids::gid(address.ip()) };
    update(id, |shown| {
        let addr = &mut shown.route.addr;
        if let Some(local) = local {
            addr.src_storage = storage(local);
        }
        if let Some(remote) = remote {
            addr.dst_storage = storage(remote);
            addr.ibaddr.dgid = gid(remote);
        }
        if let Some(shared) = shared {
            shown.verbs = shared.context;
            shown.port_num = 1;
            addr.ibaddr.pkey = PKEY;
            if let Some(local) = local {
                addr.ibaddr.sgid = gid(local);
            }
            if shown.pd.is_null() {
                shown.pd = shared.pd;
            }
        }
    });
    Ok(())
}

fn create(
    channel: *mut RdmaEventChannel,
    context: *mut c_void,
    space: c_int,
) -> Result<*mut RdmaCmId, Error> {
    let host = device::host().ok_or(Error::NoDevice)?;
    let space = match space {
        RDMA_PS_TCP => PortSpace::Tcp,
        RDMA_PS_UDP => PortSpace::Udp,
        _ => return Err(Error::Unsupported),
    };
    let is_synchronous = channel.is_null();
    let channel = if is_synchronous { create_channel()? } else { channel };
    let events = &handles::get::<Channel>(channel)?.core;
    wrap(CmId::new(host, space, events), channel, is_synchronous, context)
}

/// Creates an identifier; without a channel, one whose calls wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut RdmaEventChannel,
    id: *mut *mut RdmaCmId,
    context: *mut c_void,
    space: c_int,
) -> c_int {
    errno::flag(create(channel, context, space).map(|created| {
        // SAFETY: the program passes a pointer that the call may write.
        unsafe { id.write(created) };
    }))
}

/// Destroys an identifier. Waits until its events are acknowledged, but for the last one of calls that have waited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    errno::flag(find(id).and_then(|found| {
        let own = found.is_synchronous.get().then(|| shown(id).channel);
        acknowledge_last(id);
        handles::destroy::<Id>(id, |id| {
            id.core.destroy();
            Ok(())
        })?;
        own.map_or(Ok(()), |channel| handles::destroy::<Channel>(channel, |_| Ok(())))
    }))
}

/// Moves an identifier to another channel; without one, to a channel of its own, and its calls wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> c_int {
    errno::flag(migrate(id, channel))
}

/// Moves an identifier to another channel.
pub fn migrate(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> Result<(), Error> {
    let found = find(id)?;
    let own = found.is_synchronous.get().then(|| shown(id).channel);
    if own.is_some() && channel.is_null() {
        return Ok(());
    }
    let to = if channel.is_null() { create_channel()? } else { channel };
    found.core.migrate(&handles::get::<Channel>(to)?.core);
    found.is_synchronous.set(channel.is_null());
    update(id, |shown| shown.channel = to);
    own.map_or(Ok(()), |channel| handles::destroy::<Channel>(channel, |_| Ok(())))
}

/// Binds an identifier to a local address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut RdmaCmId, address: *mut sockaddr) -> c_int {
    // SAFETY: the program passes an address.
    let address = unsafe { read(address) };
    errno::flag(find(id).and_then(|found| {
        found.core.bind(address?)?;
        show_addresses(id)
    }))
}

const OPTION_ID: c_int = 0;
const OPTION_ID_TOS: c_int = 0;
const OPTION_ID_REUSEADDR: c_int = 1;
const OPTION_ID_AFONLY: c_int = 2;
const OPTION_ID_ACK_TIMEOUT: c_int = 3;

/// Sets an option of an identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut RdmaCmId,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: usize,
) -> c_int {
    errno::flag(find(id).and_then(|found| {
        if level != OPTION_ID {
            return Err(Error::Unsupported);
        }
        let size = match option {
            OPTION_ID_TOS | OPTION_ID_ACK_TIMEOUT => 1,
            OPTION_ID_REUSEADDR | OPTION_ID_AFONLY => size_of::<c_int>(),
            _ => return Err(Error::Unsupported),
        };
        if length != size || value.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: the program passes a value of that length, whose lowest byte comes first.
        let byte = unsafe { value.cast::<u8>().read() };
        match option {
            OPTION_ID_TOS => found.core.set_traffic_class(byte),
            OPTION_ID_ACK_TIMEOUT => found.core.set_ack_timeout(byte)?,
            OPTION_ID_AFONLY => found.core.set_one_family(byte != 0),
            // A port is free as soon as its owner releases it.
            _ => {}
        }
        Ok(())
    }))
}

/// Returns the local port in network byte order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut RdmaCmId) -> u16 {
    find(id).ok().and_then(|found| found.core.local()).map_or(0, |address| address.port().to_be())
}

/// Returns the port of the peer in network byte order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut RdmaCmId) -> u16 {
    find(id).ok().and_then(|found| found.core.remote()).map_or(0, |address| address.port().to_be())
}
