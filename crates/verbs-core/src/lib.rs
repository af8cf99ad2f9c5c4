// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA devices of a user process on Linux, without a kernel module, a device file or privileges: the objects of libibverbs and
//! librdmacm on the RoCEv2 engine.
//!
//! A [`Device`](device::Device) has one IP address. Its frames travel as UDP datagrams of ordinary sockets. Calls of the application do most of the work: a
//! post builds and sends frames, a poll of an empty completion queue receives. One progress thread per device does the rest, and
//! sleeps while the application polls.
//!
//! Nothing here is in the form of the C interface; the crate `verbs` adds that.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`sys`] | system calls |
//! | [`environment`] | settings from environment variables |
//! | [`addresses`] | the addresses that become devices |
//! | [`link`] | frames in datagrams |
//! | [`events`] | queues of events with a file descriptor |
//! | [`device`] | the engine, the link, and who drives them |
//! | [`host`] | the devices of a process |
//! | [`cm`] | connections |
//! | [`registry`] | objects by the contexts in which the engine names them |
//! | [`cq`], [`srq`], [`qp`], [`memory`] | objects |

#![cfg(target_os = "linux")]

mod adapter;
pub mod addresses;
mod clock;
pub mod cm;
pub mod context;
pub mod cq;
pub mod device;
pub mod environment;
mod error;
pub mod events;
mod heard;
pub mod host;
pub mod limits;
mod link;
pub mod memory;
mod pace;
mod progress;
pub mod qp;
mod registry;
pub mod srq;
mod sys;
mod users;

pub use error::Error;
pub use link::{Consumer, FRAME, FrameBuffer, Producer};
pub use roce::{
    Access, AtomicOperation, AtomicRequest, Binding, CompletionKind, CompletionStatus, DatagramRequest,
    PrivateData, ReadLimits, RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge, WindowType,
};
pub use roce_wire::{PathMtu, Qpn};
pub use sys::request_large_pages;
pub use users::Unacknowledged;

/// The lock of the engine: a waiting thread sleeps in the kernel, since the owner may be preempted.
type Lock = parking_lot::RawMutex;
