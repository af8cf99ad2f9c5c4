// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the status of a call to the consumer's mistake that is its reason.

use super::mistake::Mistake;
use crate::base::status::QUEUE_FULL;
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_abi::nt::{
    NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_BUFFER_OVERFLOW, STATUS_CONNECTION_ACTIVE,
    STATUS_CONNECTION_INVALID, STATUS_DATA_OVERRUN, STATUS_DEVICE_BUSY, STATUS_IMPLEMENTATION_LIMIT,
    STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE,
    STATUS_INVALID_PARAMETER, STATUS_INVALID_PARAMETER_MIX, STATUS_NOT_SUPPORTED,
};

/// The kind of call that a function of a dispatch table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Creates an object below this one.
    Create,
    /// Posts to the initiator queue.
    Initiate,
    /// Posts a fast registration, a bind or an invalidation.
    Register,
    /// Posts a receive.
    Receive,
    /// Connects a queue pair.
    Connect,
    /// A request that may pend, or an order that takes effect at once.
    Request,
    /// Returns what the object knows.
    Query,
}

/// Returns the mistake for which a call on an object of this type failed; `None` if no mistake of the consumer is
/// the reason, or it cannot be distinguished from another reason.
pub fn mistake(object: NDK_OBJECT_TYPE, kind: CallKind, status: NTSTATUS) -> Option<Mistake> {
    let mistake = match (kind, status) {
        (CallKind::Create, STATUS_INVALID_PARAMETER) => Mistake::CreateArguments,
        (CallKind::Initiate | CallKind::Receive | CallKind::Register, QUEUE_FULL) => Mistake::QueueFull,
        (CallKind::Initiate | CallKind::Receive, STATUS_DATA_OVERRUN) => Mistake::TooManySges,
        (CallKind::Initiate | CallKind::Receive, STATUS_BUFFER_OVERFLOW) => Mistake::TooLong,
        (CallKind::Initiate | CallKind::Receive, STATUS_INVALID_PARAMETER) => Mistake::RequestArguments,
        (CallKind::Receive, STATUS_INVALID_DEVICE_REQUEST) => Mistake::ReceiveWithSrq,
        (CallKind::Register, STATUS_INVALID_PARAMETER) => Mistake::Registration,
        (CallKind::Register, STATUS_ACCESS_VIOLATION) => Mistake::MissingRight,
        (CallKind::Register | CallKind::Initiate, STATUS_INVALID_DEVICE_REQUEST) => Mistake::RegionKind,
        (CallKind::Connect, STATUS_CONNECTION_ACTIVE | STATUS_CONNECTION_INVALID) => Mistake::QpInUse,
        (CallKind::Connect | CallKind::Request, STATUS_INVALID_BUFFER_SIZE) => Mistake::PrivateData,
        (CallKind::Connect, STATUS_INVALID_PARAMETER) => Mistake::ConnectArguments,
        (CallKind::Query, STATUS_INVALID_PARAMETER) => Mistake::NullResult,
        (CallKind::Connect, STATUS_INVALID_DEVICE_STATE) | (CallKind::Query, STATUS_CONNECTION_INVALID) => {
            Mistake::ConnectorState
        }
        (CallKind::Query, STATUS_INVALID_DEVICE_STATE)
            if object == NDK_OBJECT_TYPE::NdkObjectTypeListener =>
        {
            Mistake::ListenerState
        }
        (CallKind::Request, status) => return request(object, status),
        _ => return None,
    };
    Some(mistake)
}

fn request(object: NDK_OBJECT_TYPE, status: NTSTATUS) -> Option<Mistake> {
    let mistake = match (object, status) {
        (NDK_OBJECT_TYPE::NdkObjectTypeMr, STATUS_INVALID_PARAMETER | STATUS_IMPLEMENTATION_LIMIT) => {
            Mistake::Registration
        }
        (NDK_OBJECT_TYPE::NdkObjectTypeMr, STATUS_INVALID_DEVICE_STATE | STATUS_DEVICE_BUSY) => {
            Mistake::RegionState
        }
        (NDK_OBJECT_TYPE::NdkObjectTypeMr, STATUS_INVALID_DEVICE_REQUEST) => Mistake::RegionKind,
        (NDK_OBJECT_TYPE::NdkObjectTypeAdapter, STATUS_INVALID_PARAMETER) => Mistake::MappingArguments,
        (NDK_OBJECT_TYPE::NdkObjectTypeListener, STATUS_INVALID_DEVICE_STATE) => Mistake::ListenerState,
        (
            NDK_OBJECT_TYPE::NdkObjectTypeListener | NDK_OBJECT_TYPE::NdkObjectTypeConnector,
            STATUS_INVALID_PARAMETER,
        ) => Mistake::ConnectArguments,
        (NDK_OBJECT_TYPE::NdkObjectTypeConnector, STATUS_CONNECTION_INVALID) => Mistake::ConnectorState,
        (NDK_OBJECT_TYPE::NdkObjectTypeConnector, STATUS_CONNECTION_ACTIVE) => Mistake::QpInUse,
        (_, STATUS_INVALID_PARAMETER | STATUS_INVALID_PARAMETER_MIX | STATUS_BUFFER_OVERFLOW) => {
            Mistake::QueueSize
        }
        (_, STATUS_NOT_SUPPORTED) => Mistake::NoCapability,
        _ => return None,
    };
    Some(mistake)
}
