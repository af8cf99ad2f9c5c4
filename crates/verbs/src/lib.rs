// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C interface of libibverbs and librdmacm, as of rdma-core 44, on [`verbs_core`].
//!
//! Each exported function checks its arguments, looks its objects up, calls one method of the core, and turns the result into what its
//! manual page says: an error number, or a null pointer or -1 with `errno`. Functions of what is not
//! offered are not here: `symbols/` lists what they return, and `cargo xtask verbs` makes them.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`abi`] | structures in the layout of the headers |
//! | [`errno`] | error numbers |
//! | [`handles`] | objects that a program holds pointers to |
//! | [`device`], [`open`], [`context`] | devices, ports, GIDs |
//! | [`pd`], [`mr`], [`mw`], [`cq`], [`channel`], [`srq`], [`qp`], [`ah`] | objects |
//! | [`post`], [`elements`], [`builder`], [`qp_ex`] | work requests |
//! | [`async_events`] | asynchronous events |
//! | [`cm`] | librdmacm |
//! | [`names`], [`rates`] | texts and conversions |

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "implements functions that C programs call with pointers")]

pub mod abi;
mod ah;
mod async_events;
mod builder;
mod channel;
mod cm;
mod context;
mod cq;
mod device;
mod elements;
mod errno;
mod handles;
mod mr;
mod mw;
mod names;
mod open;
mod pd;
mod post;
mod qp;
mod qp_ex;
mod rates;
mod srq;
mod tables;
