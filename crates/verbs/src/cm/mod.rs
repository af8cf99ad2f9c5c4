// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of librdmacm.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`addresses`] | socket addresses |
//! | [`addrinfo`] | `rdma_getaddrinfo` |
//! | [`open_devices`] | the contexts that identifiers share |
//! | [`event`] | events |
//! | [`id`] | identifiers |
//! | [`objects`] | queue pairs of identifiers, and their completion queues |
//! | [`channel`] | event channels |
//! | [`connect`] | connecting, accepting, disconnecting |
//! | [`endpoint`] | identifiers that are used without events |

mod addresses;
mod addrinfo;
mod channel;
mod connect;
mod endpoint;
mod event;
mod id;
mod objects;
mod open_devices;
