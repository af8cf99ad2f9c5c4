// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events that the driver writes to the system log: one table, from which the driver takes the identifiers, and the image's message
//! table and the page for administrators are generated.

use crate::{Edition, keywords::Audience};

/// An event as the driver writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Message identifier: severity in the top two bits, the customer bit, facility 0x0DA, number.
    pub id: u32,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Information,
    Warning,
    Error,
}

/// An event as Event Viewer shows it: a row of [`MESSAGES`].
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub event: Event,
    /// `%2` is the adapter's name; numbers follow as the event's data.
    pub text: &'static str,
    /// Action for the administrator.
    pub action: &'static str,
    pub audience: Audience,
}

impl Event {
    /// Returns the number by which documents name the event.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.id & 0xFFFF
    }

    /// Returns the severity, which is part of the identifier.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self.id >> 30 {
            3 => Severity::Error,
            2 => Severity::Warning,
            _ => Severity::Information,
        }
    }
}

impl Message {
    /// Returns the first edition of the driver that writes the event.
    #[must_use]
    pub const fn edition(&self) -> Edition {
        match self.audience {
            Audience::Administrator => Edition::Standard,
            Audience::ConsumerAuthor => Edition::Strict,
        }
    }

    /// Returns the row of an event, by its number.
    #[must_use]
    pub fn of(number: u32) -> Option<&'static Self> {
        MESSAGES.iter().find(|message| message.event.number() == number)
    }

    /// Returns what the event says of an adapter, without its name.
    #[must_use]
    pub fn sentence(&self) -> &'static str {
        self.text.strip_prefix("%2: ").unwrap_or(self.text)
    }

    const fn action(self, action: &'static str) -> Self {
        Self { action, ..self }
    }

    /// Of a mistake of an NDK consumer.
    const fn of_consumer(self) -> Self {
        Self {
            action: "Correct the consumer; [strict provider](strict.md) explains the mistake.",
            audience: Audience::ConsumerAuthor,
            ..self
        }
    }
}

const fn error(number: u32, text: &'static str) -> Message {
    message(0xE0DA_0000 | number, text)
}

const fn warning(number: u32, text: &'static str) -> Message {
    message(0xA0DA_0000 | number, text)
}

const fn information(number: u32, text: &'static str) -> Message {
    message(0x60DA_0000 | number, text)
}

/// Without an action, which each row adds.
const fn message(id: u32, text: &'static str) -> Message {
    Message { event: Event { id }, text, action: "", audience: Audience::Administrator }
}

macro_rules! events {
    ($($name:ident = $message:expr;)*) => {
        $(pub const $name: Event = ($message).event;)*
        /// All events, by number.
        pub const MESSAGES: &[Message] = &[$($message),*];
    };
}

events! {
    NO_RESOURCES = error(1, "%2: the system does not have enough memory or other resources to start the adapter.")
        .action("Give the system more memory, or lower `QueuePairs`, and enable the adapter again.");
    CONFIGURATION = error(2, "%2: the adapter's configuration cannot be read.")
        .action("Remove the device in Device Manager, and scan for hardware changes.");
    NDIS_REFUSED = error(3, "%2: a request to NDIS failed while the adapter was starting. Data: the request's number, its status.")
        .action("Restart the system. If the event returns, report its data.");
    REMOVED = error(10, "%2: the device does not respond, or was removed.")
        .action("None if the device was removed. Otherwise look at the log of the host.");
    NO_CAPABILITIES = error(11, "%2: the device has no virtio capabilities. It is a legacy virtio device, which this driver does not support.")
        .action("Give the virtual machine a modern or transitional device (QEMU: `disable-modern=off`).");
    BROKEN_CAPABILITIES = error(12, "%2: the device's PCI capability list is malformed.")
        .action("Update the software of the virtual machine's host.");
    MISSING_STRUCTURE = error(13, "%2: the device does not have a usable virtio configuration structure. Data: the type of the structure.")
        .action("Update the software of the virtual machine's host.");
    RESET_LATE = warning(14, "%2: the device has not completed its reset yet. The driver waits for it. Data: the seconds that it has taken.")
        .action("None if the adapter works again. Otherwise look at the log and at the load of the host.");
    NO_VERSION_1 = error(15, "%2: the device does not offer VERSION_1. This driver supports virtio 1.0 and later only.")
        .action("Give the virtual machine a modern or transitional device (QEMU: `disable-modern=off`).");
    FEATURES_REJECTED = error(16, "%2: the device rejected the features that the driver accepted.")
        .action("Update the software of the virtual machine's host.");
    NO_QUEUE = error(17, "%2: the device does not have a queue that the driver needs. Data: the index of the queue.")
        .action("Compare the number of queues in the device's configuration with that of its back end.");
    BAD_QUEUE_SIZE = error(18, "%2: the device reports an invalid queue size. Data: the size.")
        .action("Correct the queue size in the device's configuration.");
    VECTOR_REFUSED = error(19, "%2: the device refused an interrupt vector.")
        .action("Give the device more interrupt vectors (QEMU: `vectors`).");
    NOTIFY_OUT_OF_RANGE = error(20, "%2: the notification address of a queue is out of range. Data: the index of the queue.")
        .action("Update the software of the virtual machine's host.");
    BROKEN_RING = error(21, "%2: the device wrote an invalid entry to its used ring, and will be reset. Data: the kind of error.")
        .action("None if event 41 follows. If it returns, update the software of the host.");
    NEEDS_RESET = error(22, "%2: the device requested a reset.")
        .action("None if event 41 follows. If it returns, look at the log of the host.");
    OUT_OF_ORDER = error(23, "%2: internal error: the driver initialized the device in the wrong order.")
        .action("Report it, with the version of the driver.");
    LINE_INTERRUPT = warning(24, "%2: the device has no message-signaled interrupts (MSI-X). The adapter works by its line interrupt, with one queue pair, and more slowly.")
        .action("Give the device interrupt vectors if it can have any (QEMU: `vectors`).");
    CHANGED = error(25, "%2: after a reset, the device offers less than before.")
        .action("Disable and enable the adapter: it then uses what the device offers now.");
    GIVEN_UP = error(26, "%2: the device cannot be used after a reset, or corrupts its rings after each reset. The adapter is removed.")
        .action("Look at the events before this one. Then disable and enable the adapter in Device Manager.");
    UNSTEADY_CONFIG = error(27, "%2: the device's configuration cannot be read, because it changes at each read.")
        .action("Update the software of the virtual machine's host.");
    COMMAND_LATE = warning(28, "%2: the device has not answered a command within two seconds. The driver does without, and programs it when it answers.")
        .action("None. If it returns, look at the load of the host.");
    COMMAND_REFUSED = warning(29, "%2: the device filters received frames, and refused to change its filter. Frames that it does not pass are missing.")
        .action("Disable and enable the adapter if frames are missing. Update the software of the virtual machine's host.");
    TRANSMIT_STALLED = warning(30, "%2: the device has taken no frame to send for five seconds. Frames that cannot wait are not sent. Data: the number of the queue pair.")
        .action("If it lasts, look at the back end of the device: tap, vhost, switch.");
    BYPASSES_IOMMU = error(31, "%2: the system remaps DMA, but the device does not offer ACCESS_PLATFORM (QEMU: iommu_platform=on), so that it would access wrong memory.")
        .action("Set `iommu_platform=on` for the device, or remove the virtual IOMMU.");
    QUEUE_RESET_LATE = warning(32, "%2: the device has not completed the reset of a queue. The driver waits for it, and other queues go on. Data: the number of the queue pair.")
        .action("None if the adapter works again. Otherwise look at the back end of the device: tap, vhost, switch.");
    START_DELAYED = warning(33, "%2: the device has failed again and again. It is reset, and started again after a pause. Data: the seconds of the pause.")
        .action("None if event 41 follows. If it returns, look at the log of the host.");
    ROCE_FRAME_SIZE = warning(40, "%2: RDMA uses a smaller RoCE frame size than configured, because the adapter's Ethernet frames are too short. Data: the size in use, the configured size.")
        .action("Raise `*JumboPacket` and the MTU of the device, or lower `*NetworkDirectRoCEFrameSize`.");
    RECOVERED = warning(41, "%2: the device was reset and works again. RDMA connections were ended.")
        .action("None. The event before says why.");
    QUEUE_RESET = warning(42, "%2: the device did not take frames to send, and has reset the transmit queue. Frames were lost, no connections. Data: the number of the queue pair.")
        .action("None. If it returns, look at the back end of the device: tap, vhost, switch.");
    FEWER_PAIRS = warning(43, "%2: there is not enough memory for as many queue pairs as the adapter could use. It uses fewer. Data: the number in use, the number that it could use.")
        .action("Give the system more memory, or lower `QueuePairs`.");
    INVALID_ADDRESS = warning(44, "%2: the device reports a MAC address that no station can have. The adapter uses a random one.")
        .action("Give the device a unicast address in the configuration of the virtual machine.");
    FEWER_BUFFERS = warning(45, "%2: there is not enough memory for as many receive and transmit buffers as configured. The adapter uses fewer. Data: the receive buffers and the transmit buffers of a queue pair.")
        .action("Give the system more memory, or lower `*ReceiveBuffers` and `*TransmitBuffers`.");
    OMITTED = warning(46, "%2: an event was left out of the log, because it came too often. Data: the number of the event, how often it was left out.")
        .action("Look at the first events with that number, or record a [trace](administration.md#tracing), which has all of them.");
    QUEUE_CORRUPT = warning(47, "%2: the device wrote an invalid entry to its used ring, and resets the queue. Frames were lost, no connections. Data: the number of the queue pair, the kind of error.")
        .action("Update the software of the virtual machine's host, and report the event to its makers.");
    INVALID_KEYWORD = warning(48, "%2: a setting of the adapter has a value that is not allowed. Its default is used. Data: the number of the setting, the value.")
        .action("Correct the setting: the page of settings states the number of each, and the values that it can have.");
    NO_TRACE = warning(50, "%2: the driver works, but cannot write a trace, because the system has refused the registration of its provider. Data: the status.")
        .action("None unless you need a trace: then restart the system.");
    RDMA_ON_256 = information(51, "%2: RDMA is on: RoCEv2, path MTU 256. Path MTU 4096 needs an MTU of 4192 bytes. Data: the MTU of the adapter, the configured RoCE frame size.")
        .action("None. For more throughput, give the device and each link an MTU of 4192 or more, and set `*NetworkDirectRoCEFrameSize` to 4096.");
    RDMA_ON_512 = information(52, "%2: RDMA is on: RoCEv2, path MTU 512. Path MTU 4096 needs an MTU of 4192 bytes. Data: the MTU of the adapter, the configured RoCE frame size.")
        .action("None. For more throughput, give the device and each link an MTU of 4192 or more, and set `*NetworkDirectRoCEFrameSize` to 4096.");
    RDMA_ON_1024 = information(53, "%2: RDMA is on: RoCEv2, path MTU 1024. Path MTU 4096 needs an MTU of 4192 bytes. Data: the MTU of the adapter, the configured RoCE frame size.")
        .action("None. For more throughput, give the device and each link an MTU of 4192 or more, and set `*NetworkDirectRoCEFrameSize` to 4096.");
    RDMA_ON_2048 = information(54, "%2: RDMA is on: RoCEv2, path MTU 2048. Path MTU 4096 needs an MTU of 4192 bytes. Data: the MTU of the adapter, the configured RoCE frame size.")
        .action("None. For more throughput, give the device and each link an MTU of 4192 or more, and set `*NetworkDirectRoCEFrameSize` to 4096.");
    RDMA_ON_4096 = information(55, "%2: RDMA is on: RoCEv2, path MTU 4096, the largest. Data: the MTU of the adapter, the configured RoCE frame size.")
        .action("None.");
    RDMA_OFF_KEYWORD = information(56, "%2: RDMA is off, because it is disabled for this adapter: `*NetworkDirect` is 0.")
        .action("None if that is wanted. Otherwise `Enable-NetAdapterRdma`.");
    RDMA_OFF_WINDOWS = information(57, "%2: RDMA is off, because Windows has turned it off.")
        .action("None if that is wanted. Otherwise `Set-NetOffloadGlobalSetting -NetworkDirect Enabled`, and `Enable-NetAdapterRdma`.");
    RDMA_OFF_DEVICE = information(58, "%2: RDMA is off, because the device does not work or has no power. Connections end. RDMA is on again when the device works and consumers have closed. Data: the number of NDK adapters that consumers have open.")
        .action("Look at the event before this one. If the device works again and no event says that RDMA is on, a consumer does not close: restart the system.");
    CONSUMER_WRONG_IRQL = warning(60, "%2: an NDK consumer called a function above its IRQL (R-IRQL-1). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_WRONG_OBJECT = warning(61, "%2: an NDK consumer passed a null pointer or an object of another type (R-CLOSE-37). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_USE_AFTER_CLOSE = warning(62, "%2: an NDK consumer used an object after closing it (R-CLOSE-12). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_ANTECEDENT_CLOSED = warning(63, "%2: an NDK consumer closed an object before the objects below it, for which its close waits (R-CLOSE-9). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_NO_CALLBACK = warning(64, "%2: an NDK consumer passed no completion callback to a call that may pend (R-LAM-16). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_CONCURRENT_CALLS = warning(65, "%2: an NDK consumer made two calls at once that must not overlap: posts to one queue, or polls and arms of one completion queue (R-QP-8). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_TOO_MANY_SGES = warning(66, "%2: an NDK consumer posted a request with too many scatter/gather elements (R-QP-16). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_QUEUE_FULL = warning(67, "%2: an NDK consumer posted a request to a full queue (R-QP-18). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_TOO_LONG = warning(68, "%2: an NDK consumer posted a request with too many bytes (R-QP-19). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_REQUEST_ARGUMENTS = warning(69, "%2: an NDK consumer posted a request with invalid flags or a null list (R-QP-23). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_NOT_CONNECTED = warning(70, "%2: an NDK consumer posted a request to a queue pair that was never connected (R-QP-4). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_UNKNOWN_TOKEN = warning(71, "%2: an NDK consumer posted a request with a token that is not valid for its address, length and access (R-QP-43). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_MEMORY_IN_USE = warning(72, "%2: an NDK consumer released registered memory that a posted request uses (R-MR-21). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_MAPPING_IN_USE = warning(73, "%2: an NDK consumer released a logical address mapping that a posted request uses (R-LAM-23). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_RECEIVE_WITH_SRQ = warning(74, "%2: an NDK consumer posted a receive to a queue pair that has a shared receive queue (R-QP-84). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_REGION_KIND = warning(75, "%2: an NDK consumer used a memory region of the other kind (R-CREATE-43). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_REGION_STATE = warning(76, "%2: an NDK consumer used a memory region in the wrong state (R-MR-19). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_REGISTRATION = warning(77, "%2: an NDK consumer registered memory with invalid arguments (R-MR-1). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_MISSING_RIGHT = warning(78, "%2: an NDK consumer requested rights that a memory region does not have (R-MR-31). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_MAPPING_ARGUMENTS = warning(79, "%2: an NDK consumer requested a logical address mapping with invalid arguments (R-LAM-1). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_CREATE_ARGUMENTS = warning(80, "%2: an NDK consumer created an object with invalid arguments (R-CREATE-32). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_QP_IN_USE = warning(81, "%2: an NDK consumer connected a queue pair that is or was connected (R-QP-75). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_CONNECTOR_STATE = warning(82, "%2: an NDK consumer made a call that the state of the connector does not allow (R-CONN-28). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_PRIVATE_DATA = warning(83, "%2: an NDK consumer passed too much private data (R-CONN-15). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_CONNECT_ARGUMENTS = warning(84, "%2: an NDK consumer passed addresses, private data or objects that cannot be used for a connection (R-CONN-17). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_LISTENER_STATE = warning(85, "%2: an NDK consumer called NdkListen twice, or asked for the address of a listener before NdkListen (R-CONN-52). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_QUEUE_SIZE = warning(86, "%2: an NDK consumer requested an invalid depth of a queue (R-SRQ-11). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_NO_CAPABILITY = warning(87, "%2: an NDK consumer called a function of a capability that the adapter does not report (R-CQ-42). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_CQ_OVERFLOW = warning(88, "%2: an NDK consumer let a completion queue overflow (R-CQ-32). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_NULL_RESULT = warning(89, "%2: an NDK consumer passed a null pointer for a result (R-CONN-69). Data: the type of the object, the low half of its address, details.").of_consumer();
    CONSUMER_SUPPRESSED = warning(90, "%2: more mistakes of NDK consumers were found than are reported. Data: 0, 0, their number.").of_consumer();
}
