// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of the dispatch tables, one structure with the arguments of all of them, and their calls.

mod arguments;
mod make;

use crate::support::*;
pub use arguments::{Address, Arguments, Callbacks};
pub use make::{Made, make};

/// A function of a dispatch table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    QueryAdapterInfo,
    BuildLam,
    ReleaseLam,
    CreateCq,
    CreatePd,
    CreateSharedEndpoint,
    CreateConnector,
    CreateListener,
    CreateMr,
    CreateMw,
    CreateSrq,
    CreateQp,
    CreateQpWithSrq,
    GetPrivilegedToken,
    ResizeCq,
    ArmCq,
    GetCqResults,
    GetCqResultsEx,
    ControlModeration,
    RegisterMr,
    DeregisterMr,
    InitializeFast,
    GetRemoteToken,
    GetLocalToken,
    GetWindowToken,
    ModifySrq,
    SrqReceive,
    Flush,
    Send,
    SendAndInvalidate,
    Receive,
    Write,
    Read,
    Bind,
    FastRegister,
    Invalidate,
    Connect,
    ConnectShared,
    CompleteConnect,
    CompleteConnectEx,
    Accept,
    AcceptEx,
    Reject,
    GetConnectionData,
    ConnectorLocalAddress,
    ConnectorPeerAddress,
    Disconnect,
    Listen,
    ListenerAddress,
    ControlConnectEvents,
    EndpointAddress,
    Query(Kind),
    Close(Kind),
}

/// A type of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Adapter = 1,
    Qp,
    Cq,
    Mr,
    Mw,
    Pd,
    SharedEndpoint,
    Connector,
    Listener,
    Srq,
}

use Function as F;

pub const KINDS: [Kind; 10] = [
    Kind::Adapter,
    Kind::Qp,
    Kind::Cq,
    Kind::Mr,
    Kind::Mw,
    Kind::Pd,
    Kind::SharedEndpoint,
    Kind::Connector,
    Kind::Listener,
    Kind::Srq,
];

/// Every function of the tables.
pub fn functions() -> Vec<Function> {
    let mut all = vec![
        F::QueryAdapterInfo,
        F::BuildLam,
        F::ReleaseLam,
        F::GetPrivilegedToken,
        F::ResizeCq,
        F::ArmCq,
        F::GetCqResults,
        F::GetCqResultsEx,
        F::ControlModeration,
        F::RegisterMr,
        F::DeregisterMr,
        F::InitializeFast,
        F::GetRemoteToken,
        F::GetLocalToken,
        F::GetWindowToken,
        F::ModifySrq,
        F::SrqReceive,
        F::Flush,
        F::Send,
        F::SendAndInvalidate,
        F::Receive,
        F::Write,
        F::Read,
        F::Bind,
        F::FastRegister,
        F::Invalidate,
        F::Connect,
        F::ConnectShared,
        F::CompleteConnect,
        F::CompleteConnectEx,
        F::Accept,
        F::AcceptEx,
        F::Reject,
        F::GetConnectionData,
        F::ConnectorLocalAddress,
        F::ConnectorPeerAddress,
        F::Disconnect,
        F::Listen,
        F::ListenerAddress,
        F::ControlConnectEvents,
        F::EndpointAddress,
    ];
    all.extend(CREATES);
    all.extend(KINDS.map(F::Query));
    all.extend(KINDS[1..].iter().map(|kind| F::Close(*kind)));
    all
}

impl Function {
    /// Returns the type of the object that the function is called on.
    pub fn object(self) -> Kind {
        match self {
            F::QueryAdapterInfo
            | F::BuildLam
            | F::ReleaseLam
            | F::CreateCq
            | F::CreatePd
            | F::CreateSharedEndpoint
            | F::CreateConnector
            | F::CreateListener => Kind::Adapter,
            F::CreateMr
            | F::CreateMw
            | F::CreateSrq
            | F::CreateQp
            | F::CreateQpWithSrq
            | F::GetPrivilegedToken => Kind::Pd,
            F::ResizeCq | F::ArmCq | F::GetCqResults | F::GetCqResultsEx | F::ControlModeration => Kind::Cq,
            F::RegisterMr | F::DeregisterMr | F::InitializeFast | F::GetRemoteToken | F::GetLocalToken => {
                Kind::Mr
            }
            F::GetWindowToken => Kind::Mw,
            F::ModifySrq | F::SrqReceive => Kind::Srq,
            F::Flush
            | F::Send
            | F::SendAndInvalidate
            | F::Receive
            | F::Write
            | F::Read
            | F::Bind
            | F::FastRegister
            | F::Invalidate => Kind::Qp,
            F::Connect
            | F::ConnectShared
            | F::CompleteConnect
            | F::CompleteConnectEx
            | F::Accept
            | F::AcceptEx
            | F::Reject
            | F::GetConnectionData
            | F::ConnectorLocalAddress
            | F::ConnectorPeerAddress
            | F::Disconnect => Kind::Connector,
            F::Listen | F::ListenerAddress | F::ControlConnectEvents => Kind::Listener,
            F::EndpointAddress => Kind::SharedEndpoint,
            F::Query(kind) | F::Close(kind) => kind,
        }
    }

    /// Returns what the function returns if it is refused because of its object.
    //= R-CLOSE-37
    pub fn refusal(self) -> NTSTATUS {
        match self {
            F::Close(_) => STATUS_SUCCESS,
            F::ReleaseLam
            | F::ArmCq
            | F::Flush
            | F::ControlConnectEvents
            | F::GetPrivilegedToken
            | F::GetCqResults
            | F::GetCqResultsEx
            | F::GetRemoteToken
            | F::GetLocalToken
            | F::GetWindowToken => NONE,
            _ => STATUS_INVALID_PARAMETER,
        }
    }
}

impl Function {
    pub fn is_create(self) -> bool {
        CREATES.contains(&self)
    }
}

pub const CREATES: &[Function] = &[
    F::CreateCq,
    F::CreatePd,
    F::CreateSharedEndpoint,
    F::CreateConnector,
    F::CreateListener,
    F::CreateMr,
    F::CreateMw,
    F::CreateSrq,
    F::CreateQp,
    F::CreateQpWithSrq,
];

/// In place of a status: the number 0, or a variable that was not written.
pub const NONE: NTSTATUS = NTSTATUS::MIN;
