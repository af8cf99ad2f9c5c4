// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls through the dispatch tables.

use super::arguments::{Arguments, Callbacks};
use super::{Function, Kind, NONE};
use crate::support::*;

use Function as F;

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: every context is a `Callbacks` that is never freed.
    unsafe { &*context.cast::<Callbacks>() }.record(status, object.expose_provenance());
}

unsafe extern "efiapi" fn on_request(context: *mut c_void, status: NTSTATUS) {
    // SAFETY: a request gets the `Callbacks` of its call as its context, which are leaked.
    unsafe { &*context.cast::<Callbacks>() }.record(status, 0);
}

unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    // SAFETY: a close gets leaked `Callbacks` as well, which outlive the object.
    unsafe { &*context.cast::<Callbacks>() }.record(STATUS_SUCCESS, 0);
}

unsafe extern "efiapi" fn on_connect(_: *mut c_void, _: *mut NDK_CONNECTOR) {
    panic!("a listener without requests");
}

unsafe extern "efiapi" fn on_cq(_: *mut c_void, _: NTSTATUS) {}
unsafe extern "efiapi" fn on_disconnect(_: *mut c_void) {}
unsafe extern "efiapi" fn on_disconnect_ex(_: *mut c_void, reason: u32) {
    assert_eq!(reason, 0);
}

/// A call that was made.
pub struct Made {
    /// The status that it returned, see [`NONE`].
    pub status: NTSTATUS,
    pub callbacks: &'static Callbacks,
    /// The object that was created inline.
    pub created: *mut c_void,
    pub buffer: Box<Guarded>,
    pub variables: Box<Variables>,
}

/// Variables that a call writes. Not on the stack: one that pends writes them until its callback.
pub struct Variables {
    /// Size of the buffer in bytes.
    pub size: u32,
    /// Offset of a mapping in its first page.
    offset: u32,
}

const UNWRITTEN: usize = 0x5a5a_5a50;

/// Calls a member of the table of `$right`, an object of this type, with any object.
macro_rules! on {
    ($right:expr, $Type:ty, $object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        // SAFETY: an open object of the type; its table is static.
        let table = unsafe { &*(*$right.cast::<$Type>()).Dispatch };
        let function = table.$member.expect("no member is null");
        // SAFETY: objects and pointers are refused if they are wrong; lists have as many elements as stated.
        let answer = unsafe { function($object.cast() $(, $argument)*) };
        observed::call(table, stringify!($member), &answer, module_path!());
        answer
    }};
}

/// Makes a call. `post` is the context of a request.
#[allow(clippy::too_many_lines, reason = "one arm for each function")]
pub fn make(function: Function, arguments: &Arguments, post: *mut c_void) -> Made {
    // Never freed: a late callback must be counted, not crash.
    let callbacks: &'static Callbacks = Box::leak(Box::default());
    let context: *mut c_void = core::ptr::from_ref(callbacks).cast_mut().cast();
    let Arguments { object, right, level, numbers, flags, mr, mw, .. } = *arguments;
    let created = arguments.completion.then_some(on_create as NDK_FN_CREATE_COMPLETION);
    let done = arguments.completion.then_some(on_request as NDK_FN_REQUEST_COMPLETION);
    let closed = arguments.completion.then_some(on_close as NDK_FN_CLOSE_COMPLETION);
    let notify = arguments.notification.then_some(on_cq as NDK_FN_CQ_NOTIFICATION_CALLBACK);
    let connects = arguments.notification.then_some(on_connect as NDK_FN_CONNECT_EVENT_CALLBACK);
    let disconnects = Some(on_disconnect as NDK_FN_DISCONNECT_EVENT_CALLBACK);
    let disconnects_ex = Some(on_disconnect_ex as NDK_FN_DISCONNECT_EVENT_CALLBACK_EX);
    let mut object_out: *mut c_void = core::ptr::without_provenance_mut(UNWRITTEN);
    let slot = if arguments.out { &raw mut object_out } else { null_mut() };
    let sgl = arguments.list.as_ref().map_or(null(), Vec::as_ptr);
    let count = arguments.count;
    let pages = arguments.pages.as_ref().map_or(null(), |pages| pages.as_ptr().cast());
    let (address, key) = arguments.remote;
    let (source, destination) = (arguments.source.pointer(), arguments.destination.pointer());
    let data = arguments.data.as_ref().map_or(null(), |data| data.as_ptr().cast());
    let base = pointer(arguments.base);
    let mut buffer = Guarded::new();
    buffer.0[..arguments.lam.len()].copy_from_slice(&arguments.lam);
    let into: *mut c_void = if arguments.buffer { buffer.pointer() } else { null_mut() };
    let mut variables = Box::new(Variables { size: arguments.size.unwrap_or(0), offset: 0 });
    let (size, offset) = (&raw mut variables.size, &raw mut variables.offset);
    let size = if arguments.size.is_some() { size } else { null_mut() };
    let mut token = CANARY as u32;
    let number = |number: u32| if number == 0 { NONE } else { STATUS_SUCCESS };
    let none: *mut c_void = null_mut();
    let mut call = || match function {
        F::QueryAdapterInfo => on!(right, NDK_ADAPTER, object, NdkQueryAdapterInfo, into.cast(), size),
        F::BuildLam => {
            let (mdl, length) = (arguments.mdl, arguments.length);
            on!(
                right,
                NDK_ADAPTER,
                object,
                NdkBuildLAM,
                mdl,
                length,
                done,
                context,
                into.cast(),
                size,
                offset
            )
        }
        F::ReleaseLam => {
            on!(right, NDK_ADAPTER, object, NdkReleaseLAM, into.cast());
            NONE
        }
        F::CreateCq => on!(
            right,
            NDK_ADAPTER,
            object,
            NdkCreateCq,
            numbers[0],
            notify,
            none,
            none.cast(),
            created,
            context,
            slot.cast()
        ),
        F::CreatePd => on!(right, NDK_ADAPTER, object, NdkCreatePd, created, context, slot.cast()),
        F::CreateSharedEndpoint => {
            let length = arguments.source.1;
            on!(
                right,
                NDK_ADAPTER,
                object,
                NdkCreateSharedEndpoint,
                source,
                length,
                created,
                context,
                slot.cast()
            )
        }
        F::CreateConnector => {
            on!(right, NDK_ADAPTER, object, NdkCreateConnector, created, context, slot.cast())
        }
        F::CreateListener => {
            on!(right, NDK_ADAPTER, object, NdkCreateListener, connects, none, created, context, slot.cast())
        }
        F::CreateMr => {
            on!(right, NDK_PD, object, NdkCreateMr, numbers[0] as u8, created, context, slot.cast())
        }
        F::CreateMw => on!(right, NDK_PD, object, NdkCreateMw, created, context, slot.cast()),
        F::CreateSrq => on!(
            right,
            NDK_PD,
            object,
            NdkCreateSrq,
            numbers[0],
            numbers[1],
            numbers[2],
            notify,
            none,
            none.cast(),
            created,
            context,
            slot.cast()
        ),
        F::CreateQp => on!(
            right,
            NDK_PD,
            object,
            NdkCreateQp,
            arguments.receive_cq,
            arguments.initiator_cq,
            none,
            numbers[0],
            numbers[1],
            numbers[2],
            numbers[3],
            numbers[4],
            created,
            context,
            slot.cast()
        ),
        F::CreateQpWithSrq => on!(
            right,
            NDK_PD,
            object,
            NdkCreateQpWithSrq,
            arguments.receive_cq,
            arguments.initiator_cq,
            arguments.srq,
            none,
            numbers[1],
            numbers[3],
            numbers[4],
            created,
            context,
            slot.cast()
        ),
        F::GetPrivilegedToken => {
            let variable = if arguments.buffer { &raw mut token } else { null_mut() };
            on!(right, NDK_PD, object, NdkGetPrivilegedMemoryRegionToken, variable);
            if token == CANARY as u32 { NONE } else { STATUS_SUCCESS }
        }
        F::ResizeCq => on!(right, NDK_CQ, object, NdkResizeCq, numbers[0], done, context),
        F::ArmCq => {
            on!(right, NDK_CQ, object, NdkArmCq, numbers[0]);
            NONE
        }
        F::GetCqResults => number(on!(right, NDK_CQ, object, NdkGetCqResults, into.cast(), 4)),
        F::GetCqResultsEx => number(on!(right, NDK_CQ, object, NdkGetCqResultsEx, into.cast(), 4)),
        F::ControlModeration => {
            on!(right, NDK_CQ, object, NdkControlCqInterruptModeration, numbers[0], numbers[1])
        }
        F::RegisterMr => {
            let (mdl, length) = (arguments.mdl, arguments.length);
            on!(right, NDK_MR, object, NdkRegisterMr, mdl, length, flags, done, context)
        }
        F::DeregisterMr => on!(right, NDK_MR, object, NdkDeregisterMr, done, context),
        F::InitializeFast => {
            on!(right, NDK_MR, object, NdkInitializeFastRegisterMr, numbers[0], 1, done, context)
        }
        F::GetRemoteToken => number(on!(right, NDK_MR, object, NdkGetRemoteTokenFromMr)),
        F::GetLocalToken => number(on!(right, NDK_MR, object, NdkGetLocalTokenFromMr)),
        F::GetWindowToken => number(on!(right, NDK_MW, object, NdkGetRemoteTokenFromMw)),
        F::ModifySrq => on!(right, NDK_SRQ, object, NdkModifySrq, numbers[0], numbers[1], done, context),
        F::SrqReceive => on!(right, NDK_SRQ, object, NdkSrqReceive, post, sgl, count),
        F::Flush => {
            on!(right, NDK_QP, object, NdkFlush);
            NONE
        }
        F::Send => on!(right, NDK_QP, object, NdkSend, post, sgl, count, flags),
        F::SendAndInvalidate => {
            on!(right, NDK_QP, object, NdkSendAndInvalidate, post, sgl, count, flags, key)
        }
        F::Receive => on!(right, NDK_QP, object, NdkReceive, post, sgl, count),
        F::Write => on!(right, NDK_QP, object, NdkWrite, post, sgl, count, address, key, flags),
        F::Read => on!(right, NDK_QP, object, NdkRead, post, sgl, count, address, key, flags),
        F::Bind => on!(right, NDK_QP, object, NdkBind, post, mr, mw, base, arguments.length, flags),
        F::FastRegister => {
            let (offset, length) = (arguments.offset, arguments.length);
            on!(right, NDK_QP, object, NdkFastRegister, post, mr, count, pages, offset, length, base, flags)
        }
        F::Invalidate => on!(right, NDK_QP, object, NdkInvalidate, post, arguments.target, flags),
        F::Connect => on!(
            right,
            NDK_CONNECTOR,
            object,
            NdkConnect,
            arguments.qp,
            source,
            arguments.source.1,
            destination,
            arguments.destination.1,
            numbers[0],
            numbers[1],
            data,
            arguments.data_length,
            done,
            context
        ),
        F::ConnectShared => on!(
            right,
            NDK_CONNECTOR,
            object,
            NdkConnectWithSharedEndpoint,
            arguments.qp,
            arguments.endpoint,
            destination,
            arguments.destination.1,
            numbers[0],
            numbers[1],
            data,
            arguments.data_length,
            done,
            context
        ),
        F::CompleteConnect => {
            on!(right, NDK_CONNECTOR, object, NdkCompleteConnect, disconnects, none, done, context)
        }
        F::CompleteConnectEx => {
            on!(right, NDK_CONNECTOR, object, NdkCompleteConnectEx, disconnects_ex, none, done, context)
        }
        F::Accept => on!(
            right,
            NDK_CONNECTOR,
            object,
            NdkAccept,
            arguments.qp,
            numbers[0],
            numbers[1],
            data,
            arguments.data_length,
            disconnects,
            none,
            done,
            context
        ),
        F::AcceptEx => on!(
            right,
            NDK_CONNECTOR,
            object,
            NdkAcceptEx,
            arguments.qp,
            numbers[0],
            numbers[1],
            data,
            arguments.data_length,
            disconnects_ex,
            none,
            done,
            context
        ),
        F::Reject => on!(right, NDK_CONNECTOR, object, NdkReject, data, arguments.data_length),
        F::GetConnectionData => {
            let none: *mut u32 = null_mut();
            on!(right, NDK_CONNECTOR, object, NdkGetConnectionData, none, none, into, size)
        }
        F::ConnectorLocalAddress => on!(right, NDK_CONNECTOR, object, NdkGetLocalAddress, into.cast(), size),
        F::ConnectorPeerAddress => on!(right, NDK_CONNECTOR, object, NdkGetPeerAddress, into.cast(), size),
        F::Disconnect => on!(right, NDK_CONNECTOR, object, NdkDisconnect, done, context),
        F::Listen => {
            on!(right, NDK_LISTENER, object, NdkListen, source, arguments.source.1, done, context)
        }
        F::ListenerAddress => on!(right, NDK_LISTENER, object, NdkGetLocalAddress, into.cast(), size),
        F::ControlConnectEvents => {
            on!(right, NDK_LISTENER, object, NdkControlConnectEvents, numbers[0] as u8);
            NONE
        }
        F::EndpointAddress => on!(right, NDK_SHARED_ENDPOINT, object, NdkGetLocalAddress, into.cast(), size),
        F::Query(kind) => query(kind, right, object),
        F::Close(kind) => close(kind, right, object, closed, context),
    };
    let status = if level == 0 { call() } else { nt::irql::at_level(level, call) };
    let created = if status == STATUS_SUCCESS && object_out.addr() != UNWRITTEN { object_out } else { none };
    check_variable(function, arguments, status, object_out);
    Made { status, callbacks, created, buffer, variables }
}

/// Checks what a create call did to the variable for the object.
//= R-CREATE-3, R-CREATE-5
fn check_variable(function: Function, arguments: &Arguments, status: NTSTATUS, object: *mut c_void) {
    let is_create = arguments.out && function.is_create();
    match status {
        _ if !is_create => assert_eq!(object.addr(), UNWRITTEN, "{function:?}"),
        STATUS_SUCCESS => assert!(!object.is_null() && object.addr() != UNWRITTEN, "{function:?}"),
        STATUS_PENDING => assert_eq!(object.addr(), UNWRITTEN, "{function:?}: written although it pends"),
        _ => assert!(object.is_null(), "{function:?}: a create call that fails writes null"),
    }
}

/// `NdkQueryExtension` of an object of any type.
//= R-EXT-1, R-EXT-2
fn query(kind: Kind, right: *mut c_void, object: *mut c_void) -> NTSTATUS {
    let mut id = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
    let (id, version) = (&raw mut id, NDK_VERSION { Major: 1, Minor: 0 });
    let mut extension = Guarded::new();
    let out = extension.pointer();
    let status = match kind {
        Kind::Adapter => on!(right, NDK_ADAPTER, object, NdkQueryExtension, id, version, out),
        Kind::Qp => on!(right, NDK_QP, object, NdkQueryExtension, id, version, out),
        Kind::Cq => on!(right, NDK_CQ, object, NdkQueryExtension, id, version, out),
        Kind::Mr => on!(right, NDK_MR, object, NdkQueryExtension, id, version, out),
        Kind::Mw => on!(right, NDK_MW, object, NdkQueryExtension, id, version, out),
        Kind::Pd => on!(right, NDK_PD, object, NdkQueryExtension, id, version, out),
        Kind::SharedEndpoint => on!(right, NDK_SHARED_ENDPOINT, object, NdkQueryExtension, id, version, out),
        Kind::Connector => on!(right, NDK_CONNECTOR, object, NdkQueryExtension, id, version, out),
        Kind::Listener => on!(right, NDK_LISTENER, object, NdkQueryExtension, id, version, out),
        Kind::Srq => on!(right, NDK_SRQ, object, NdkQueryExtension, id, version, out),
    };
    //= R-EXT-3
    extension.check(0, "NdkQueryExtension");
    status
}

fn close(
    kind: Kind,
    right: *mut c_void,
    object: *mut c_void,
    closed: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    match kind {
        Kind::Adapter => unreachable!("NDIS closes adapters"),
        Kind::Qp => on!(right, NDK_QP, object, NdkCloseQp, closed, context),
        Kind::Cq => on!(right, NDK_CQ, object, NdkCloseCq, closed, context),
        Kind::Mr => on!(right, NDK_MR, object, NdkCloseMr, closed, context),
        Kind::Mw => on!(right, NDK_MW, object, NdkCloseMw, closed, context),
        Kind::Pd => on!(right, NDK_PD, object, NdkClosePd, closed, context),
        Kind::SharedEndpoint => {
            on!(right, NDK_SHARED_ENDPOINT, object, NdkCloseSharedEndpoint, closed, context)
        }
        Kind::Connector => on!(right, NDK_CONNECTOR, object, NdkCloseConnector, closed, context),
        Kind::Listener => on!(right, NDK_LISTENER, object, NdkCloseListener, closed, context),
        Kind::Srq => on!(right, NDK_SRQ, object, NdkCloseSrq, closed, context),
    }
}
