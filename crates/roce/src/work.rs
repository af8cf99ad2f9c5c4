// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests and their completions: what consumers post, and what comes back.

use crate::region::fast_register::Registration;
use crate::region::window::Binding;
use roce_wire::NakCode;

/// One piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// In the address space of `key`: the region's own addresses, or logical addresses with
    /// [`crate::PRIVILEGED_KEY`].
    pub address: u64,
    /// In bytes. An element of length 0 contributes nothing, and neither its address nor its key is
    /// looked at.
    pub length: u32,
    pub key: u32,
}

/// What a request on the send queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// A message for the peer's next receive.
    Send,
    /// The same, and takes back the right of access under a key of the peer.
    SendInvalidate { key: u32 },
    /// Local memory to the peer's.
    Write { address: u64, key: u32 },
    /// The peer's memory to local memory.
    Read { address: u64, key: u32 },
    /// Registers pages under the key of a region that was allocated for that and is free; the key's low
    /// byte is the caller's to choose. Needs [`SendData::Registration`]. Good for every later request, and
    /// possibly earlier; when it completes as flushed, it may or may not have been done. One registration of
    /// a region can wait for its turn: while it does, another is refused as
    /// [`PostError::QueueFull`](crate::PostError::QueueFull), and may be posted again when that one is done.
    FastRegister { key: u32 },
    /// Makes a fast-registered region or a window free again: its key is dead for every later request and
    /// for peers. Waits for all earlier requests. Takes no data.
    Invalidate { key: u32 },
    /// Binds a window that is free to a part of a region, for the peer of this queue pair; the key's low
    /// byte is the caller's to choose. Needs [`SendData::Binding`]. Good for every later request. One bind of a
    /// window can wait for its turn, as one registration can.
    Bind { key: u32 },
}

impl SendOperation {
    /// Whether nothing of it goes to the peer.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::FastRegister { .. } | Self::Invalidate { .. } | Self::Bind { .. })
    }
}

bitflags::bitflags! {
    /// How a request on the send queue is done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// No completion when it succeeds.
        const SILENT = 1 << 0;
        /// Not begun before all earlier READs of the queue pair are complete.
        const FENCE = 1 << 1;
        /// The peer's receive completes as solicited.
        const SOLICITED = 1 << 2;
        /// More requests follow at once: may wait for them.
        const DEFER = 1 << 3;
    }
}

/// Where the data of a request on the send queue is.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// In memory that stays as it is until the request completes.
    Sges(&'a [Sge]),
    /// In pieces that are copied before the post returns.
    Inline(&'a [&'a [u8]]),
    /// What [`SendOperation::FastRegister`] is to do.
    Registration(&'a Registration<'a>),
    /// What [`SendOperation::Bind`] is to do.
    Binding(&'a Binding),
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub context: u64,
    pub operation: SendOperation,
    pub flags: SendFlags,
    pub data: SendData<'a>,
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion.
    pub context: u64,
    pub sges: &'a [Sge],
}

/// How a request ended.
///
/// Source: rocev2 §9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    Success,
    /// The message was longer than the receive.
    LocalLength,
    /// The queue pair could not do it.
    LocalOperation,
    /// A local element is not inside its region, or the region is gone, of another protection domain, or
    /// without the right.
    LocalProtection,
    /// Given up because the queue pair is in error.
    Flushed,
    /// The peer answered what it should not have.
    BadResponse,
    /// A peer's request broke a rule at this side while it used the receive.
    LocalAccess,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive posted for too long.
    RnrRetryExceeded,
    /// A registration, a bind or an invalidation that the key's state does not allow: registered already,
    /// free already, or gone.
    MemoryManagement,
}

impl CompletionStatus {
    /// What a requester makes of a fatal NAK.
    pub(crate) const fn from_nak(code: NakCode) -> Self {
        //= rocev2 §9
        match code {
            NakCode::INVALID_REQUEST => Self::RemoteInvalidRequest,
            NakCode::REMOTE_ACCESS => Self::RemoteAccess,
            NakCode::REMOTE_OPERATIONAL => Self::RemoteOperation,
            _ => Self::BadResponse,
        }
    }
}

/// What kind of request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// Of a send queue: SEND, with or without invalidation.
    Send,
    Write,
    Read,
    FastRegister,
    Invalidate,
    Bind,
    /// Of a receive queue.
    Receive,
    /// Of a receive queue, and the peer invalidated this key.
    ReceiveInvalidate {
        key: u32,
    },
}

impl CompletionKind {
    /// Whether it is of a receive queue.
    #[inline]
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveInvalidate { .. })
    }
}

/// A request that has ended. All fields are valid whatever the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`crate::QpSpec::context`] of the queue pair that did it.
    pub qp_context: u64,
    /// `context` of the request.
    pub context: u64,
    pub kind: CompletionKind,
    pub status: CompletionStatus,
    /// Length of a message received; for other kinds, of the request. 0 unless successful.
    pub bytes: u32,
    /// Immediate data of the message received, if it had some.
    pub immediate: Option<[u8; 4]>,
}

impl Completion {
    /// What a place for a completion holds before a poll has filled it.
    pub const EMPTY: Self = Self {
        qp_context: 0,
        context: 0,
        kind: CompletionKind::Send,
        status: CompletionStatus::Success,
        bytes: 0,
        immediate: None,
    };
}
