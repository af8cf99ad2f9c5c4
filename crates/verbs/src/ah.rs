// SPDX-License-Identifier: MIT OR Apache-2.0

//! Address handles.

use core::ffi::c_int;

use verbs_core::qp::{AddressHandle, AddressVector};

use crate::abi::attributes::{IbvAhAttr, IbvGlobalRoute, IbvGrh};
use crate::abi::context::IbvContext;
use crate::abi::device::IbvGid;
use crate::abi::flags::IBV_WC_GRH;
use crate::abi::objects::{IbvAh, IbvPd, IbvWc};
use crate::errno;
use crate::handles::{self, Handle};
use crate::pd::Pd;

/// An address handle.
#[repr(C)]
pub struct Ah {
    base: IbvAh,
    pub core: AddressHandle,
}

// SAFETY: it is `repr(C)` and begins with an `IbvAh`.
unsafe impl Handle for Ah {
    type C = IbvAh;
}

/// Returns the address vector of attributes.
pub fn vector(attr: &IbvAhAttr) -> AddressVector {
    AddressVector {
        gid: attr.grh.dgid.raw,
        flow_label: attr.grh.flow_label,
        gid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        service_level: attr.sl,
        port: attr.port_num,
        is_global: attr.is_global != 0,
    }
}

/// Returns the attributes of an address vector.
pub fn attributes(vector: &AddressVector) -> IbvAhAttr {
    IbvAhAttr {
        grh: IbvGlobalRoute {
            dgid: IbvGid { raw: vector.gid },
            flow_label: vector.flow_label,
            sgid_index: vector.gid_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        sl: vector.service_level,
        is_global: vector.is_global.into(),
        port_num: vector.port,
        ..IbvAhAttr::default()
    }
}

/// Creates an address handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut IbvPd, attr: *mut IbvAhAttr) -> *mut IbvAh {
    // SAFETY: the program passes a structure.
    let attr = unsafe { &*attr };
    errno::pointer(handles::get::<Pd>(pd).and_then(|domain| {
        let core = AddressHandle::new(&domain.core, &vector(attr))?;
        // SAFETY: the domain was found above.
        let context = unsafe { (*pd).context };
        Ok(handles::create(Ah { base: IbvAh { context, pd, handle: 0 }, core }))
    }))
}

/// Destroys an address handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut IbvAh) -> c_int {
    errno::status(handles::destroy::<Ah>(ah, |ah| {
        ah.core.destroy();
        Ok(())
    }))
}

/// Sets the attributes of an address handle for the sender of a received datagram, from the header in front of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut IbvContext,
    port: u8,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    attr: *mut IbvAhAttr,
) -> c_int {
    // SAFETY: the program passes a completion.
    if unsafe { (*wc).wc_flags } & IBV_WC_GRH == 0 {
        return errno::flag(Err(verbs_core::Error::Invalid));
    }
    // SAFETY: a header is 40 bytes in front of the datagram, at any alignment.
    let header = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
    let (gid, traffic_class) = sender(&header);
    let vector = AddressVector {
        gid,
        hop_limit: u8::MAX,
        traffic_class,
        port,
        is_global: true,
        ..AddressVector::default()
    };
    // SAFETY: the program passes a structure that the call may write.
    unsafe { attr.write(attributes(&vector)) };
    0
}

/// Returns GID and traffic class of the sender: an IPv6 header, or 20 bytes and an IPv4 header.
fn sender(header: &[u8; 40]) -> ([u8; 16], u8) {
    let mut gid = [0; 16];
    if header[0] >> 4 == 6 {
        gid.copy_from_slice(&header[8..24]);
        return (gid, header[0] << 4 | header[1] >> 4);
    }
    gid[10..12].fill(0xFF);
    gid[12..].copy_from_slice(&header[32..36]);
    (gid, header[21])
}

/// Creates an address handle for the sender of a received datagram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut IbvPd,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    port: u8,
) -> *mut IbvAh {
    let mut attr = IbvAhAttr::default();
    // SAFETY: the program passes what this function needs.
    if unsafe { ibv_init_ah_from_wc(core::ptr::null_mut(), port, wc, grh, &raw mut attr) } != 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the structure was written above.
    unsafe { ibv_create_ah(pd, &raw mut attr) }
}
