// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events that the driver writes to the system log. The build script creates the image's message table from them, so
//! that Event Viewer shows these texts.
#![allow(dead_code, reason = "the driver uses the identifiers, the build script the texts")]

/// One event. In the text `%2` is the adapter's name; numbers follow as the event's data.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Message identifier: severity in the top two bits, the customer bit, facility 0x0DA, number.
    pub id: u32,
    pub text: &'static str,
}

const fn error(number: u32, text: &'static str) -> Event {
    Event { id: 0xE0DA_0000 | number, text }
}

const fn warning(number: u32, text: &'static str) -> Event {
    Event { id: 0xA0DA_0000 | number, text }
}

macro_rules! events {
    ($($name:ident = $severity:ident($number:literal, $text:literal);)*) => {
        $(#[doc = $text] pub const $name: Event = $severity($number, $text);)*
        /// Every event, by number.
        pub const EVENTS: &[Event] = &[$($name),*];
    };
}

events! {
    NO_RESOURCES = error(1, "%2: the system does not have enough memory or other resources to start the adapter.");
    CONFIGURATION = error(2, "%2: the adapter's configuration cannot be read.");
    NDIS_REFUSED = error(3, "%2: a request to NDIS failed while the adapter was starting. Data: the request's number, its status.");
    REMOVED = error(10, "%2: the device does not respond, or was removed.");
    NO_CAPABILITIES = error(11, "%2: the device has no PCI capabilities. It is a legacy virtio device, which this driver does not support.");
    BROKEN_CAPABILITIES = error(12, "%2: the device's PCI capability list is malformed.");
    MISSING_STRUCTURE = error(13, "%2: the device does not have a usable virtio configuration structure. Data: the type of the structure.");
    RESET_TIMEOUT = error(14, "%2: the device did not complete its reset.");
    NO_VERSION_1 = error(15, "%2: the device does not offer VERSION_1. This driver supports virtio 1.0 and later only.");
    FEATURES_REJECTED = error(16, "%2: the device rejected the features that the driver accepted.");
    NO_QUEUE = error(17, "%2: the device does not have a queue that the driver needs. Data: the index of the queue.");
    BAD_QUEUE_SIZE = error(18, "%2: the device reports an invalid queue size. Data: the size.");
    VECTOR_REFUSED = error(19, "%2: the device refused an interrupt vector.");
    NOTIFY_OUT_OF_RANGE = error(20, "%2: the notification address of a queue is out of range. Data: the index of the queue.");
    BROKEN_RING = error(21, "%2: the device wrote an invalid entry to its used ring. The adapter has stopped. Data: the kind of error.");
    NEEDS_RESET = error(22, "%2: the device requested a reset. The adapter has stopped.");
    OUT_OF_ORDER = error(23, "%2: internal error: the driver initialized the device in the wrong order.");
    NO_MESSAGE_INTERRUPTS = error(24, "%2: the system did not assign message-signaled interrupts to the device.");
    ROCE_FRAME_SIZE = warning(40, "%2: RDMA uses a smaller RoCE frame size than configured, because the adapter's Ethernet frames are too short. Data: the size in use, the configured size.");
}
