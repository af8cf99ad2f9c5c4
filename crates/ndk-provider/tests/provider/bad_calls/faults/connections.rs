// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of addresses, connectors, listeners and of buffers for results.

use super::*;
use Function as F;
use ndk_provider::Mistake as M;

pub static ROWS: &[Fault] = &[
    // Addresses.
    //= R-CREATE-51
    row(
        "a malformed address of a shared endpoint",
        |f| f == F::CreateSharedEndpoint,
        "source",
        INVALID,
        Some(M::CreateArguments),
        |a, w| a.source = malformed(w),
    ),
    //= R-CREATE-51
    row(
        "a malformed local address",
        |f| matches!(f, F::Connect | F::Listen),
        "source",
        INVALID,
        Some(M::ConnectArguments),
        |a, w| a.source = malformed(w),
    ),
    //= R-CREATE-51
    row("a malformed destination", is_connect, "destination", INVALID, Some(M::ConnectArguments), |a, w| {
        a.destination = malformed(w);
    }),
    //= R-CREATE-52
    row(
        "a wildcard address",
        |f| matches!(f, F::CreateSharedEndpoint | F::Connect),
        "source",
        Status(&[STATUS_INVALID_ADDRESS]),
        None,
        |a, _| a.source = Address::of("0.0.0.0:0".parse().unwrap()),
    ),
    //= R-CREATE-49, R-CONN-2, R-CONN-50
    row(
        "an address of another host",
        |f| matches!(f, F::CreateSharedEndpoint | F::Connect | F::Listen),
        "source",
        Status(&[STATUS_INVALID_ADDRESS]),
        None,
        |a, w| a.source = Address::of(w.b.at(0)),
    ),
    //= R-CREATE-48, R-CONN-3, R-CONN-50, R-CONN-54
    row(
        "an address in use",
        |f| matches!(f, F::CreateSharedEndpoint | F::Connect | F::Listen),
        "source",
        Status(&[STATUS_SHARING_VIOLATION]),
        None,
        |a, w| a.source = Address::of(w.a.at(446)),
    ),
    //= R-CONN-17
    row(
        "addresses of two families",
        is_connect,
        "destination",
        INVALID,
        Some(M::ConnectArguments),
        |a, w| {
            a.destination = Address::of(w.b.at_v6(9));
        },
    ),
    //= R-CONN-4
    alone(row(
        "a connection that exists",
        |f| f == F::ConnectShared,
        "destination",
        Status(&[STATUS_ADDRESS_ALREADY_EXISTS]),
        None,
        |a, w| {
            a.endpoint = w.busy_endpoint;
            a.destination = Address::of(w.b.at(445));
        },
    )),
    // Connectors and queue pairs.
    //= R-CLOSE-37
    row("a QP of another type", has_qp, "qp", INVALID, Some(M::WrongObject), |a, w| {
        a.qp = if w.random.below(2) == 0 { null_mut() } else { of_other_type(w, Kind::Qp).cast() };
    }),
    //= R-CLOSE-12
    strict(row("a closed QP", has_qp, "qp", INVALID, Some(M::UseAfterClose), |a, w| {
        a.qp = w.closed_of(Kind::Qp).cast();
    })),
    //= R-CONN-19
    row("a QP of another miniport adapter", has_qp, "qp", INVALID, Some(M::ConnectArguments), |a, w| {
        a.qp = w.foreign.qp;
    }),
    //= R-QP-75, R-CONN-18
    row(
        "a QP that is connected",
        has_qp,
        "qp",
        Status(&[STATUS_CONNECTION_ACTIVE]),
        Some(M::QpInUse),
        |a, w| {
            a.qp = w.line.qp;
        },
    ),
    //= R-QP-73
    row(
        "a QP that was connected",
        has_qp,
        "qp",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::QpInUse),
        |a, w| {
            a.qp = w.used_qp;
        },
    ),
    //= R-CLOSE-37
    row(
        "a shared endpoint of another type",
        |f| f == F::ConnectShared,
        "endpoint",
        INVALID,
        Some(M::WrongObject),
        |a, w| {
            let other = of_other_type(w, Kind::SharedEndpoint).cast();
            a.endpoint = if w.random.below(2) == 0 { null_mut() } else { other };
        },
    ),
    //= R-CONN-19
    row(
        "a shared endpoint of another miniport adapter",
        |f| f == F::ConnectShared,
        "endpoint",
        INVALID,
        Some(M::ConnectArguments),
        |a, w| a.endpoint = w.foreign.endpoint,
    ),
    //= R-CLOSE-12
    strict(row(
        "a closed shared endpoint",
        |f| f == F::ConnectShared,
        "endpoint",
        INVALID,
        Some(M::UseAfterClose),
        |a, w| a.endpoint = w.closed_of(Kind::SharedEndpoint).cast(),
    )),
    //= R-CONN-15
    row(
        "private data that is too long",
        has_data,
        "data",
        Status(&[STATUS_INVALID_BUFFER_SIZE]),
        Some(M::PrivateData),
        |a, w| {
            a.data_length = w.random.one_of(&[149, 600]);
            a.data = Some(vec![1; 600]);
        },
    ),
    //= R-CONN-15
    row(
        "private data too long for a request",
        is_connect,
        "data",
        Status(&[STATUS_INVALID_BUFFER_SIZE]),
        Some(M::PrivateData),
        |a, _| {
            a.data_length = 57;
            a.data = Some(vec![1; 57]);
        },
    ),
    //= R-CONN-16
    row("no private data with a length", has_data, "data", INVALID, Some(M::ConnectArguments), |a, w| {
        a.data_length = w.random.one_of(&[1, 56, u32::MAX]);
    }),
    //= R-CONN-18
    row(
        "a connector that is connected",
        is_connect,
        "state",
        Status(&[STATUS_CONNECTION_ACTIVE, STATUS_INVALID_DEVICE_STATE]),
        Some(M::ConnectorState),
        |a, w| a.object = w.line.connector.cast(),
    ),
    //= R-CONN-28
    row(
        "a connector that the peer has not accepted",
        is_complete,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::ConnectorState),
        |a, w| a.object = w.idle_connector.cast(),
    ),
    //= R-CONN-44
    row(
        "a connector that is not of a request",
        is_accept,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::ConnectorState),
        |a, w| {
            a.object = match w.random.below(2) {
                0 => w.idle_connector.cast(),
                _ => w.line.connector.cast(),
            }
        },
    ),
    //= R-CONN-36, R-CONN-40
    row(
        "a connector with nothing to reject",
        |f| f == F::Reject,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::ConnectorState),
        |a, w| a.object = w.idle_connector.cast(),
    ),
    //= R-CONN-86
    row(
        "a connector without a connection",
        |f| f == F::Disconnect,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::ConnectorState),
        |a, w| a.object = w.idle_connector.cast(),
    ),
    //= R-CONN-74, R-CONN-79
    row(
        "a connector without an address",
        |f| is_connector_getter(f) || f == F::GetConnectionData,
        "state",
        Status(&[STATUS_CONNECTION_INVALID]),
        Some(M::ConnectorState),
        |a, w| a.object = w.idle_connector.cast(),
    ),
    //= R-CONN-52
    row(
        "a listener that listens",
        |f| f == F::Listen,
        "state",
        Status(&[STATUS_INVALID_DEVICE_STATE]),
        Some(M::ListenerState),
        |a, w| a.object = w.listener.raw.cast(),
    ),
    //= R-CONN-79
    row(
        "a listener without an address",
        |f| f == F::ListenerAddress,
        "state",
        Status(&[STATUS_INVALID_DEVICE_STATE]),
        Some(M::ListenerState),
        |a, w| a.object = w.idle_listener.raw.cast(),
    ),
    // Results.
    //= R-CONN-75
    row(
        "a buffer too small for an address",
        is_address_getter,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, w| a.size = Some(w.random.below(16) as u32),
    ),
    //= R-CONN-76
    row(
        "no buffer of size 0",
        is_address_getter,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, _| {
            (a.buffer, a.size) = (false, Some(0));
        },
    ),
    //= R-CONN-66
    row(
        "a buffer too small for private data",
        |f| f == F::GetConnectionData,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, w| a.size = Some(w.random.below(20) as u32),
    ),
    //= R-CONN-69
    row(
        "no buffer with a size",
        |f| f == F::GetConnectionData,
        "size",
        INVALID,
        Some(M::NullResult),
        |a, w| (a.buffer, a.size) = (false, Some(w.random.one_of(&[1, 196, u32::MAX]))),
    ),
    row(
        "no size",
        |f| is_getter(f) || f == F::QueryAdapterInfo,
        "size",
        INVALID,
        Some(M::NullResult),
        |a, _| {
            a.size = None;
        },
    ),
    //= R-INFO-3
    row(
        "a buffer too small for the limits",
        |f| f == F::QueryAdapterInfo,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, w| a.size = Some(w.random.below(96) as u32),
    ),
    //= R-INFO-5
    row(
        "no buffer for the limits",
        |f| f == F::QueryAdapterInfo,
        "size",
        Status(&[STATUS_BUFFER_TOO_SMALL]),
        None,
        |a, _| (a.buffer, a.size) = (false, Some(0)),
    ),
    row(
        "no variable for the token",
        |f| f == F::GetPrivilegedToken,
        "out",
        Refused,
        Some(M::NullResult),
        |a, _| a.buffer = false,
    ),
    row(
        "no room for results",
        |f| matches!(f, F::GetCqResults | F::GetCqResultsEx),
        "out",
        Refused,
        Some(M::NullResult),
        |a, _| a.buffer = false,
    ),
];
