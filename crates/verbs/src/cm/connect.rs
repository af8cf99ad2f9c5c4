// SPDX-License-Identifier: MIT OR Apache-2.0

//! Resolving, listening, connecting, accepting, disconnecting.

use core::ffi::{c_int, c_void};

use libc::sockaddr;
use verbs_core::cm::{ConnectParameters, PortSpace};
use verbs_core::qp::QpState;
use verbs_core::{Error, ReadLimits, limits};

use super::addresses::read;
use super::channel::take;
use super::event::number;
use super::id::{acknowledge_last, find, show_addresses, shown, update};
use super::objects::{change_qp, fail_qp};
use crate::abi::attributes::IbvEce;
use crate::abi::rdma::{RdmaCmId, RdmaConnParam};
use crate::errno;
use verbs_core::cm::CmEventKind;

/// Retry counts of a program that names none.
const RETRIES: u8 = 7;

/// `IBV_EVENT_COMM_EST`.
const COMM_EST: c_int = 4;

/// Waits for the event of a call, if the identifier is one whose calls wait.
pub fn complete(id: *mut RdmaCmId) -> Result<(), Error> {
    if !find(id)?.is_synchronous.get() {
        return Ok(());
    }
    acknowledge_last(id);
    let event = take(shown(id).channel)?;
    update(id, |shown| shown.event = event);
    // SAFETY: the event was created just now.
    let event = unsafe { &*event };
    match event.status {
        0 => Ok(()),
        _ if event.event == number(CmEventKind::Rejected) => Err(Error::System(libc::ECONNREFUSED)),
        status => Err(Error::System(status.abs())),
    }
}

/// Finds the device by which an address is reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program passes null or an address.
    let source = if source.is_null() { Ok(None) } else { unsafe { read(source) }.map(Some) };
    // SAFETY: the program passes an address.
    let destination = unsafe { read(destination) };
    errno::flag(find(id).and_then(|found| {
        found.core.resolve_address(source?, destination?)?;
        show_addresses(id)?;
        complete(id)
    }))
}

/// Completes the route to the resolved address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout_ms: c_int) -> c_int {
    errno::flag(find(id).and_then(|found| found.core.resolve_route()).and_then(|()| complete(id)))
}

/// Listens for requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    errno::flag(find(id).and_then(|found| {
        found.core.listen(backlog)?;
        show_addresses(id)
    }))
}

/// Calls `call` with the parameters of a connect or accept; `reads` are those of a program that names none.
///
/// # Safety
/// `param` is null or a structure of a program.
unsafe fn with_parameters<T>(
    id: *mut RdmaCmId,
    param: *const RdmaConnParam,
    call: impl FnOnce(&ConnectParameters<'_>) -> T,
) -> T {
    // SAFETY: by the contract of this function.
    let param = unsafe { param.as_ref() };
    let private_data: &[u8] = match param {
        Some(param) if !param.private_data.is_null() && param.private_data_len > 0 => {
            let length = usize::from(param.private_data_len);
            // SAFETY: the program passes that many bytes.
            unsafe { core::slice::from_raw_parts(param.private_data.cast(), length) }
        }
        _ => &[],
    };
    let qp = shown(id).qp;
    let (qpn, srq) = if qp.is_null() {
        param.map_or((0, false), |param| (param.qp_num, param.srq != 0))
    } else {
        // SAFETY: the queue pair of an identifier lives as long as the identifier names it.
        let qp = unsafe { &*qp };
        (qp.qp_num, !qp.srq.is_null())
    };
    call(&ConnectParameters {
        private_data,
        reads: param.map_or(ReadLimits { inbound: limits::READS, outbound: limits::READS }, |param| {
            ReadLimits { inbound: param.responder_resources, outbound: param.initiator_depth }
        }),
        retries: param.map_or(RETRIES, |param| param.retry_count),
        rnr_retries: param.map_or(RETRIES, |param| param.rnr_retry_count),
        qpn,
        srq,
    })
}

/// Requests a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int {
    errno::flag(find(id).and_then(|found| {
        // SAFETY: the program passes null or a structure.
        unsafe { with_parameters(id, param, |parameters| found.core.connect(parameters)) }?;
        complete(id)
    }))
}

/// Accepts a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int {
    errno::flag(find(id).and_then(|found| {
        let datagrams = found.core.space() == PortSpace::Udp;
        if !datagrams {
            change_qp(id, QpState::ReadyToReceive)?;
            change_qp(id, QpState::ReadyToSend)?;
        }
        // SAFETY: the program passes null or a structure.
        let accepted = unsafe { with_parameters(id, param, |parameters| found.core.accept(parameters)) };
        accepted.inspect_err(|_| fail_qp(id))?;
        // For datagrams no event follows.
        if datagrams { Ok(()) } else { complete(id) }
    }))
}

/// Rejects a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(id: *mut RdmaCmId, data: *const c_void, length: u8) -> c_int {
    let data: &[u8] = if data.is_null() || length == 0 {
        &[]
    } else {
        // SAFETY: the program passes that many bytes.
        unsafe { core::slice::from_raw_parts(data.cast(), length.into()) }
    };
    errno::flag(find(id).and_then(|found| found.core.reject(data)))
}

/// Establishes a connection of a queue pair that the program has created and made ready itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut RdmaCmId) -> c_int {
    errno::flag(
        find(id).and_then(
            |found| {
                if shown(id).qp.is_null() { found.core.establish() } else { Err(Error::Invalid) }
            },
        ),
    )
}

/// Reports that a packet of the peer has arrived before the connection was established.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(id: *mut RdmaCmId, event: c_int) -> c_int {
    errno::flag(
        find(id).and_then(
            |found| {
                if event == COMM_EST { found.core.traffic_seen() } else { Err(Error::Invalid) }
            },
        ),
    )
}

/// Disconnects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut RdmaCmId) -> c_int {
    errno::flag(find(id).and_then(|found| {
        found.core.check_connected()?;
        fail_qp(id);
        found.core.disconnect()?;
        complete(id)
    }))
}

/// Fails as `EOPNOTSUPP` unless the parameters are those of no vendor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    // SAFETY: the program passes null or a structure.
    let none = unsafe { ece.as_ref() }.map(|ece| ece.vendor_id == 0);
    errno::flag(match (find(id), none) {
        (Ok(_), Some(true)) => Ok(()),
        (Ok(_), Some(false)) => Err(Error::Unsupported),
        _ => Err(Error::Invalid),
    })
}

/// Returns the parameters of no vendor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    errno::flag(find(id).and_then(|_| {
        if ece.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: the program passes a structure that the call may write.
        unsafe { ece.write(IbvEce::default()) };
        Ok(())
    }))
}
