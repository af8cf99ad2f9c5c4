// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests and completions.

use crate::region::fast_register::Registration;
use crate::region::window::Binding;
use roce_wire::{Path, Qpn};

/// A scatter-gather element: one piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// In the address space of `key`: addresses of the region, or logical addresses with
    /// [`crate::PRIVILEGED_KEY`].
    pub address: u64,
    /// In bytes. If 0, neither address nor key is checked.
    pub length: u32,
    /// Local key (`L_Key`).
    pub key: u32,
}

impl Sge {
    /// Of length zero.
    pub(crate) const NONE: Self = Self { address: 0, length: 0, key: 0 };
}

/// Operation of a request on the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Sends a message to the peer's next receive.
    Send,
    /// Sends a message and invalidates a key of the peer.
    SendInvalidate { key: u32 },
    /// Writes local memory to the peer's memory.
    Write { address: u64, key: u32 },
    /// Reads the peer's memory into local memory.
    Read { address: u64, key: u32 },
    /// Registers pages under the key of an allocated region that is free. The caller chooses the low byte of the
    /// key. Needs [`SendData::Registration`]. In effect for every later request, and possibly earlier; if it
    /// completes as flushed, it may or may not have been executed. While a registration of the region is posted
    /// and not executed, another is refused as [`PostError::QueueFull`](crate::PostError::QueueFull).
    FastRegister { key: u32 },
    /// Frees a fast-registered region or a window: its key is invalid for every later request and for peers.
    /// Executed after all earlier requests. Takes no data.
    Invalidate { key: u32 },
    /// Binds a free window to a part of a region, for the peer of this queue pair. The caller chooses the low byte
    /// of the key. Needs [`SendData::Binding`]. In effect for every later request. As with registrations, one
    /// bind of a window can be posted and not executed.
    Bind { key: u32 },
}

impl SendOperation {
    /// Returns `true` if it sends nothing to the peer.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::FastRegister { .. } | Self::Invalidate { .. } | Self::Bind { .. })
    }

    /// Returns the kind of its completion.
    //= R-CQ-25
    pub(crate) const fn kind(self) -> CompletionKind {
        match self {
            Self::Send | Self::SendInvalidate { .. } => CompletionKind::Send,
            Self::Write { .. } => CompletionKind::Write,
            Self::Read { .. } => CompletionKind::Read,
            Self::FastRegister { .. } => CompletionKind::FastRegister,
            Self::Invalidate { .. } => CompletionKind::Invalidate,
            Self::Bind { .. } => CompletionKind::Bind,
        }
    }
}

bitflags::bitflags! {
    /// Options of a request on the send queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// No completion when it succeeds.
        const SILENT = 1 << 0;
        /// Starts after all earlier READs of the queue pair are complete.
        const FENCE = 1 << 1;
        /// Solicited event: the peer's receive completes as solicited.
        const SOLICITED = 1 << 2;
        /// Need not start before the next request without this flag, or [`Engine::undefer`](crate::Engine::undefer).
        const DEFER = 1 << 3;
        /// Of a READ: its success invalidates the key of its first element, which a registration or bind has set. If
        /// that is not possible, the READ fails as [`CompletionStatus::MemoryManagement`]. Later registrations, binds
        /// and invalidations wait for it. No effect on other operations.
        const INVALIDATE_SINK = 1 << 4;
    }
}

/// Data of a request on the send queue.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// Memory that must not change until the request completes.
    Sges(&'a [Sge]),
    /// Bytes that are copied before the post returns.
    Inline(&'a [&'a [u8]]),
    /// Parameters of [`SendOperation::FastRegister`].
    Registration(&'a Registration<'a>),
    /// Parameters of [`SendOperation::Bind`].
    Binding(&'a Binding),
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Returned in the completion.
    pub context: u64,
    pub operation: SendOperation,
    pub flags: SendFlags,
    pub data: SendData<'a>,
}

/// A datagram for the send queue of a queue pair that is [open for datagrams](crate::QpChange::OpenDatagrams).
#[derive(Clone, Copy, Debug)]
pub struct DatagramRequest<'a> {
    /// Returned in the completion.
    pub context: u64,
    /// The path to the peer. The engine chooses its UDP source port.
    pub path: &'a Path,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The Q_Key of the peer. If its most significant bit is set, that of this queue pair is sent instead.
    pub q_key: u32,
    pub immediate: Option<[u8; 4]>,
    /// [`SendFlags::FENCE`] and [`SendFlags::INVALIDATE_SINK`] have no effect.
    pub flags: SendFlags,
    /// Elements or inline data, up to the path MTU in all.
    pub data: SendData<'a>,
}

/// An atomic operation on a number of 8 bytes in the peer's memory, in the byte order of the peer's machine.
///
/// Source: IBTA Volume 1, section 9.4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Stores `swap` if the number is `compare`.
    CompareSwap { compare: u64, swap: u64 },
    /// Adds `add`, modulo 2^64.
    FetchAdd { add: u64 },
}

/// An atomic operation for the send queue. It returns what the number was before.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRequest {
    /// Returned in the completion.
    pub context: u64,
    /// A multiple of 8; otherwise the peer refuses the request as invalid.
    pub address: u64,
    pub key: u32,
    pub operation: AtomicOperation,
    /// [`SendFlags::SOLICITED`] and [`SendFlags::INVALIDATE_SINK`] have no effect.
    pub flags: SendFlags,
    /// 8 bytes of local memory, which get the number in the byte order of this machine.
    pub sink: Sge,
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Returned in the completion.
    pub context: u64,
    pub sges: &'a [Sge],
}

/// Status of a completion.
///
/// Source: rocev2 §9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    Success,
    /// The message is longer than the receive.
    LocalLength,
    /// The queue pair could not execute the request.
    LocalOperation,
    /// A local element is out of its region's bounds, or the region is deregistered, of another protection domain,
    /// or without the access right.
    LocalProtection,
    /// Flushed because the queue pair is in the error state.
    Flushed,
    /// The peer's response is invalid.
    BadResponse,
    /// The peer's request that used this receive violated access rights of this side.
    LocalAccess,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer could not execute the request.
    RemoteOperation,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive posted until the RNR retries were used up.
    RnrRetryExceeded,
    /// The key's state does not allow the registration, bind or invalidation: registered already, free already,
    /// or deregistered.
    MemoryManagement,
}

/// Kind of the completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// SEND, with or without invalidation or immediate data.
    Send,
    /// WRITE, with or without immediate data.
    Write,
    Read,
    /// Atomic compare-and-swap.
    CompareSwap,
    /// Atomic fetch-and-add.
    FetchAdd,
    FastRegister,
    Invalidate,
    Bind,
    /// Receive.
    Receive,
    /// Receive of a SEND with Invalidate: the peer invalidated this key.
    ReceiveInvalidate {
        key: u32,
    },
    /// Receive of a datagram, which begins after 40 bytes: the IPv6 header of the frame, or 20 zero bytes and the IPv4 header.
    ReceiveDatagram {
        /// The queue pair that has sent it.
        source: Qpn,
    },
    /// Receive of a WRITE with immediate data: the message is in the memory that the peer has named, nothing in the receive.
    ReceiveWrite,
}

impl CompletionKind {
    /// Returns `true` for a request of a receive queue.
    #[inline]
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(
            self,
            Self::Receive
                | Self::ReceiveInvalidate { .. }
                | Self::ReceiveDatagram { .. }
                | Self::ReceiveWrite
        )
    }
}

/// A work completion. All fields are valid with any status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`crate::QpSpec::context`] of the queue pair.
    pub qp_context: u64,
    /// `context` of the request.
    pub context: u64,
    pub kind: CompletionKind,
    pub status: CompletionStatus,
    /// Length of the message received; for other kinds, of the request. 0 unless successful.
    pub bytes: u32,
    /// Immediate data of the message received, if any.
    pub immediate: Option<[u8; 4]>,
}

impl Completion {
    /// Initial value of an element that a poll fills.
    pub const EMPTY: Self = Self {
        qp_context: 0,
        context: 0,
        kind: CompletionKind::Send,
        status: CompletionStatus::Success,
        bytes: 0,
        immediate: None,
    };
}
