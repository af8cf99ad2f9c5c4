// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDK object types, one module each. An object checks a call against NDKPI's rules and its own state, and
//! passes it to the engine. The functions that consumers call are in `dispatch`.

pub mod adapter;
pub mod connector;
pub mod cq;
pub mod lam;
pub mod listener;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod shared_endpoint;
pub mod srq;
