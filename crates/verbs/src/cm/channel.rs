// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event channels.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use verbs_core::Error;
use verbs_core::cm::{CmEvent, CmEventKind, CmId, Parameters, PortSpace};
use verbs_core::qp::QpState;

use super::event::{Event, number};
use super::id::{Channel, Id, create_channel, find, migrate, show_addresses, shown, wrap};
use super::objects::{change_qp, fail_qp};
use crate::abi::rdma::{EventParam, RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel, RdmaUdParam};
use crate::ah;
use crate::errno;
use crate::handles;

/// Creates an event channel.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut RdmaEventChannel {
    errno::pointer(create_channel())
}

/// Destroys an event channel, which no identifier may use. Its events are dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel) {
    if handles::destroy::<Channel>(channel, |_| Ok(())).is_err() {
        errno::set(libc::EINVAL);
    }
}

/// Waits for the next event of a channel.
pub fn take(channel: *mut RdmaEventChannel) -> Result<*mut RdmaCmEvent, Error> {
    loop {
        // Kept while the call waits: another thread may destroy the channel meanwhile.
        let core = Arc::clone(&handles::get::<Channel>(channel)?.core);
        let event = core.take()?;
        let counted = Arc::clone(event.counted());
        match convert(event, Arc::clone(&counted)) {
            Some(pointer) => return Ok(pointer),
            // It was about an identifier that is gone, or a request whose identifier could not be created.
            None => counted.acknowledge(),
        }
    }
}

/// Returns the event for the program. Changes the queue pair as the event requires.
fn convert(event: CmEvent<CmId>, counted: Arc<CmId>) -> Option<*mut RdmaCmEvent> {
    let CmEvent { id, listener, mut kind, mut status, parameters } = event;
    let listener = listener.map(|listener| pointer_of(&listener));
    let pointer = match listener {
        Some(listener) => accept_request(listener, id).ok()?,
        None => pointer_of(&id),
    };
    let space = find(pointer).ok()?.core.space();
    match kind {
        CmEventKind::ConnectResponse if !shown(pointer).qp.is_null() => {
            if let Err(error) = respond(pointer) {
                fail_qp(pointer);
                (kind, status) = (CmEventKind::ConnectError, -errno::number(error));
            } else {
                kind = CmEventKind::Established;
            }
        }
        CmEventKind::AddressResolved => show_addresses(pointer).ok()?,
        CmEventKind::Rejected | CmEventKind::Unreachable => fail_qp(pointer),
        _ => {}
    }
    let listen_id = listener.unwrap_or(core::ptr::null_mut());
    let created = handles::create_with(|place: *mut RdmaCmEvent| {
        // The private data has its place behind the event.
        let private_data = place.wrapping_byte_add(core::mem::offset_of!(Event, private_data));
        let param = match space {
            PortSpace::Tcp => EventParam { conn: conn_param(&parameters, private_data.cast()) },
            PortSpace::Udp => EventParam { ud: ud_param(&parameters, private_data.cast()) },
        };
        let base = RdmaCmEvent { id: pointer, listen_id, event: number(kind), status, param };
        Ok(Event { base, private_data: parameters.private_data, id: counted })
    });
    created.ok()
}

/// Makes the queue pair ready after the peer's acceptance, and establishes the connection.
fn respond(id: *mut RdmaCmId) -> Result<(), Error> {
    change_qp(id, QpState::ReadyToReceive)?;
    change_qp(id, QpState::ReadyToSend)?;
    find(id)?.core.establish()
}

/// Creates the identifier of a request.
fn accept_request(listener: *mut RdmaCmId, id: Arc<CmId>) -> Result<*mut RdmaCmId, Error> {
    let found = find(listener)?;
    let from = shown(listener);
    let created = wrap(id, from.channel, false, from.context)?;
    if found.is_synchronous.get()
        && let Err(error) = migrate(created, core::ptr::null_mut())
    {
        drop(handles::take::<Id>(created));
        return Err(error);
    }
    Ok(created)
}

fn pointer_of(id: &CmId) -> *mut RdmaCmId {
    core::ptr::with_exposed_provenance_mut(id.token() as usize)
}

fn conn_param(parameters: &Parameters, private_data: *const c_void) -> RdmaConnParam {
    let len = parameters.private_data.as_slice().len();
    RdmaConnParam {
        private_data: if len == 0 { core::ptr::null() } else { private_data },
        private_data_len: u8::try_from(len).unwrap_or(u8::MAX),
        responder_resources: parameters.reads.inbound,
        initiator_depth: parameters.reads.outbound,
        flow_control: 1,
        retry_count: parameters.retries,
        rnr_retry_count: parameters.rnr_retries,
        srq: 0,
        qp_num: parameters.qpn,
    }
}

fn ud_param(parameters: &Parameters, private_data: *const c_void) -> RdmaUdParam {
    let RdmaConnParam { private_data, private_data_len, qp_num, .. } = conn_param(parameters, private_data);
    let ah_attr = ah::attributes(&parameters.path);
    RdmaUdParam { private_data, private_data_len, ah_attr, qp_num, qkey: parameters.q_key }
}

/// Waits for the next event of a channel, or returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    errno::flag(take(channel).map(|taken| {
        // SAFETY: the program passes a pointer that the call may write.
        unsafe { event.write(taken) };
    }))
}
