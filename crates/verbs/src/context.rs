// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts: what opened devices can do.

use core::ffi::{c_int, c_uint};
use core::mem::{offset_of, zeroed};
use std::sync::Arc;

use verbs_core::context::Context;
use verbs_core::device::guid;
use verbs_core::{Error, PathMtu, addresses, limits};

use crate::abi::context::{IbvContext, VerbsContext};
use crate::abi::device::{
    IbvCqModerationCaps, IbvDeviceAttr, IbvDeviceAttrEx, IbvGid, IbvGidEntry, IbvPortAttr,
    IbvQueryDeviceExInput,
};
use crate::abi::flags::{
    IBV_ATOMIC_HCA, IBV_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_SRQ_RESIZE, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS,
};
use crate::device::{self, ListedDevice};
use crate::handles::{self, Handle};
use crate::{errno, tables};

/// Capabilities of every device.
const CAPABILITIES: c_uint = IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_MGT_EXTENSIONS
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

/// Vendor of a device in software, as that of `rdma_rxe`: programs take 0 for a mistake.
const NO_VENDOR: u32 = 0x00FF_FFFF;

/// The default partition, with full membership.
const PKEY: u16 = 0xFFFF;

/// A context. The program sees the last field of its tables, and reaches the others backwards from there.
#[repr(C)]
pub struct OpenContext {
    pub verbs: VerbsContext,
    pub core: Arc<Context>,
    pub device: &'static ListedDevice,
}

// SAFETY: it has an `IbvContext` at this offset.
unsafe impl Handle for OpenContext {
    type C = IbvContext;
    const OFFSET: usize = offset_of!(OpenContext, verbs) + offset_of!(VerbsContext, context);
}

/// Returns the context of the core for a pointer.
pub fn find<'a>(context: *mut IbvContext) -> Result<&'a Arc<Context>, Error> {
    Ok(&handles::get::<OpenContext>(context)?.core)
}

/// Closes a context. Objects that are left keep what they use of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut IbvContext) -> c_int {
    errno::status(handles::destroy::<OpenContext>(context, |_| Ok(())))
}

/// Returns what a device can do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(context: *mut IbvContext, attr: *mut IbvDeviceAttr) -> c_int {
    let Ok(found) = handles::get::<OpenContext>(context) else { return libc::EINVAL };
    // SAFETY: the program passes a structure that the call may write.
    unsafe { attr.write(device_attributes(found.device)) };
    0
}

fn device_attributes(listed: &ListedDevice) -> IbvDeviceAttr {
    let guid = guid(listed.address()).to_be();
    let count = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let reads = c_int::from(limits::READS);
    IbvDeviceAttr {
        fw_ver: device::text(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: 0xFFFF_F000,
        vendor_id: NO_VENDOR,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: count(limits::QUEUE_PAIRS),
        max_qp_wr: count(limits::REQUESTS),
        device_cap_flags: CAPABILITIES,
        max_sge: count(limits::ELEMENTS),
        max_sge_rd: count(limits::ELEMENTS),
        max_cq: count(limits::OBJECTS),
        max_cqe: count(limits::COMPLETIONS),
        max_mr: count(limits::REGIONS),
        max_pd: count(limits::OBJECTS),
        max_qp_rd_atom: reads,
        max_ee_rd_atom: 0,
        max_res_rd_atom: reads * count(limits::QUEUE_PAIRS),
        max_qp_init_rd_atom: reads,
        max_ee_init_rd_atom: 0,
        atomic_cap: IBV_ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: count(limits::REGIONS),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: count(limits::OBJECTS),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: count(limits::OBJECTS),
        max_srq_wr: count(limits::REQUESTS),
        max_srq_sge: count(limits::ELEMENTS),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    }
}

/// Returns what a device can do, with what was added later.
pub unsafe extern "C" fn query_device_ex(
    context: *mut IbvContext,
    input: *const IbvQueryDeviceExInput,
    attr: *mut IbvDeviceAttrEx,
    size: usize,
) -> c_int {
    let Ok(found) = handles::get::<OpenContext>(context) else { return libc::EINVAL };
    // SAFETY: the program passes null or a structure.
    if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0)
        || size < size_of::<IbvDeviceAttr>()
    {
        return libc::EINVAL;
    }
    // SAFETY: all-zero bytes are a valid structure of numbers.
    let mut all: IbvDeviceAttrEx = unsafe { zeroed() };
    all.orig_attr = device_attributes(found.device);
    all.cq_mod_caps = IbvCqModerationCaps { max_cq_count: u16::MAX, max_cq_period: u16::MAX };
    all.phys_port_cnt_ex = 1;
    // SAFETY: the program passes `size` bytes that the call may write, of which the structure may be a part or the whole.
    unsafe { tables::copy_prefix(&all, attr.cast(), size) };
    0
}

fn mtu_code(mtu: PathMtu) -> c_int {
    c_int::from(tables::mtu_code(mtu))
}

fn port_attributes(core: &Context) -> IbvPortAttr {
    IbvPortAttr {
        state: IBV_PORT_ACTIVE,
        max_mtu: mtu_code(PathMtu::Bytes4096),
        active_mtu: mtu_code(core.device().active_mtu()),
        gid_tbl_len: 1,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: limits::MESSAGE,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        // 1 x 2.5 Gbit/s, the least that can be named: the true speed is that of the processor.
        active_width: 1,
        active_speed: 1,
        // Link up.
        phys_state: 5,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        ..IbvPortAttr::default()
    }
}

/// Returns the attributes of a port.
pub unsafe extern "C" fn query_port(
    context: *mut IbvContext,
    port: u8,
    attr: *mut IbvPortAttr,
    size: usize,
) -> c_int {
    let (Ok(core), 1) = (find(context), port) else { return libc::EINVAL };
    // SAFETY: the program passes `size` bytes that the call may write.
    unsafe { tables::copy_prefix(&port_attributes(core), attr.cast(), size) };
    0
}

/// Returns the attributes of a port, for programs that know its first fields only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(context: *mut IbvContext, port: u8, attr: *mut IbvPortAttr) -> c_int {
    // SAFETY: the structure that the program passes ends before this field.
    unsafe { query_port(context, port, attr, offset_of!(IbvPortAttr, port_cap_flags2)) }
}

fn gid_entry(core: &Context) -> IbvGidEntry {
    IbvGidEntry {
        gid: IbvGid { raw: addresses::gid(core.device().address()) },
        gid_index: 0,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: core.device().interface_index(),
    }
}

/// Returns a GID of a port, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    gid: *mut IbvGid,
) -> c_int {
    let (Ok(core), 1, 0) = (find(context), port, index) else {
        return errno::flag(Err(Error::Invalid));
    };
    // SAFETY: the program passes a structure that the call may write.
    unsafe { gid.write(gid_entry(core).gid) };
    0
}

/// Returns the type of a GID, as sysfs counts: 1 for RoCE version 2; or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut IbvContext,
    port: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    let (Ok(_), 1, 0) = (find(context), port, index) else { return errno::flag(Err(Error::Invalid)) };
    // SAFETY: the program passes a number that the call may write.
    unsafe { kind.write(1) };
    0
}

/// Returns a GID with its attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut IbvContext,
    port: u32,
    index: u32,
    entry: *mut IbvGidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    let (Ok(core), 1, 0) = (find(context), port, flags) else { return libc::EINVAL };
    if index != 0 {
        return libc::ENODATA;
    }
    // SAFETY: the program passes `size` bytes that the call may write.
    unsafe { tables::copy_prefix(&gid_entry(core), entry.cast(), size) };
    0
}

/// Returns all GIDs, up to `max`. Their number, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut IbvContext,
    entries: *mut IbvGidEntry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let (Ok(core), 1.., 0) = (find(context), max, flags) else { return -(libc::EINVAL as isize) };
    // SAFETY: the program passes `size` bytes for each of at least one entry.
    unsafe { tables::copy_prefix(&gid_entry(core), entries.cast(), size) };
    1
}

/// Returns a P_Key in network byte order, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let (Ok(_), 1, 0) = (find(context), port, index) else { return errno::flag(Err(Error::Invalid)) };
    // SAFETY: the program passes a number that the call may write.
    unsafe { pkey.write(PKEY) };
    0
}

/// Returns the index of a P_Key, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(context: *mut IbvContext, port: u8, pkey: u16) -> c_int {
    match (find(context), port, pkey) {
        (Ok(_), 1, PKEY) => 0,
        _ => errno::flag(Err(Error::Invalid)),
    }
}
