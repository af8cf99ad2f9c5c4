// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mistakes of consumers that a strict provider reports, each with the rule of `docs/rules/ndkpi.md`.

/// Declares the mistakes with the numbers of their events and their rules.
macro_rules! mistakes {
    ($($(#[$doc:meta])* $Name:ident = $number:literal, $rule:literal;)*) => {
        /// A consumer's mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mistake { $($(#[$doc])* $Name = $number,)* }

        impl Mistake {
            /// Every mistake, by number.
            pub const ALL: &'static [Self] = &[$(Self::$Name),*];

            /// Returns the number of the rule.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$Name => $rule,)* }
            }
        }
    };
}

mistakes! {
    /// A call above the IRQL at which it may be made. Detail: the IRQL. Above `DISPATCH_LEVEL` the call is refused.
    WrongIrql = 60, "R-IRQL-1";
    /// An object pointer that is null or of another type. Detail: the low half of the pointer.
    WrongObject = 61, "R-CLOSE-37";
    /// A call on an object after its close was requested.
    UseAfterClose = 62, "R-CLOSE-12";
    /// A close while an object below it is open. Detail: the low half of that object's address.
    AntecedentClosed = 63, "R-CLOSE-9";
    /// No completion callback for a call that may pend.
    NoCallback = 64, "R-LAM-16";
    /// Two calls at once that the consumer must serialize: posts to one queue, polls and arms of one CQ.
    ConcurrentCalls = 65, "R-QP-8";
    /// Too many scatter/gather elements.
    TooManySges = 66, "R-QP-16";
    /// A post to a full queue.
    QueueFull = 67, "R-QP-18";
    /// More bytes than a request, or an inline request, may have.
    TooLong = 68, "R-QP-19";
    /// Flags that are undefined or not valid for the request, or a null list.
    RequestArguments = 69, "R-QP-23";
    /// An initiator request on a queue pair that was never connected.
    NotConnected = 70, "R-QP-4";
    /// An element with a token that is unknown or of another protection domain, outside its region, or without the
    /// right. Detail: the token.
    UnknownToken = 71, "R-QP-43";
    /// Memory is deregistered, or its region closed, while a posted request uses it. Detail: the token.
    MemoryInUse = 72, "R-MR-21";
    /// A logical address mapping is released while a posted request uses it.
    MappingInUse = 73, "R-LAM-23";
    /// A receive posted to a queue pair with a shared receive queue.
    ReceiveWithSrq = 74, "R-QP-84";
    /// A function or request of the other kind of memory region, or a read without a read limit.
    RegionKind = 75, "R-CREATE-43";
    /// A region in the wrong state: registered twice, not registered, or with a window bound.
    RegionState = 76, "R-MR-19";
    /// Memory, length, pages or flags that cannot be registered.
    Registration = 77, "R-MR-1";
    /// Rights that the region does not have.
    MissingRight = 78, "R-MR-31";
    /// Memory or a length for which no logical address mapping can be built.
    MappingArguments = 79, "R-LAM-1";
    /// Sizes above the limits of the adapter, no callback, or objects that do not belong together.
    CreateArguments = 80, "R-CREATE-32";
    /// A queue pair that is connected, or was.
    QpInUse = 81, "R-QP-75";
    /// A call that the connector's state does not allow.
    ConnectorState = 82, "R-CONN-28";
    /// Private data that is too long. Detail: the status.
    PrivateData = 83, "R-CONN-15";
    /// Addresses, private data or objects that cannot be connected.
    ConnectArguments = 84, "R-CONN-17";
    /// A listener that listens already, or that has no address yet.
    ListenerState = 85, "R-CONN-52";
    /// A depth that a queue cannot be given.
    QueueSize = 86, "R-SRQ-11";
    /// A function of a capability that the adapter does not report.
    NoCapability = 87, "R-CQ-42";
    /// A completion queue overflowed: it is smaller than the queues that complete to it.
    CqOverflow = 88, "R-CQ-32";
    /// A null pointer for a result, or for the results of a poll.
    NullResult = 89, "R-CONN-69";
    /// Reports were suppressed because there were too many. Detail: their number.
    Suppressed = 90, "";
}

impl Mistake {
    /// Returns the number of the event.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the mistake with this number.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|mistake| *mistake as u8 == number)
    }
}

/// A mistake of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MistakeReport {
    pub mistake: Mistake,
    /// `NDK_OBJECT_TYPE` of the object.
    pub object_type: u8,
    /// The low half of the address of the object, as the consumer knows it.
    pub object: u32,
    /// More about the mistake; the status of the call if [`Mistake`] does not say otherwise.
    pub detail: u32,
}
