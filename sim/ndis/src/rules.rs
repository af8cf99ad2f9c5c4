// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDIS's rules, each with the pages that state it, and the reports of their violations.
//!
//! A check names its rule, so that none ends a driver without a source. What no page states is a [`Tolerance`](nt_sim::Tolerance), which a
//! check reports by [`Driver::undocumented`](crate::driver::Driver::undocumented).

use nt_sim::{BugCheck, violation};

/// An address that no memory has: the result of a call that fails, which a driver must not use.
pub(crate) const POISON: usize = 0xdead_dead_dead_dead;

/// A rule, and where it is stated.
#[derive(Debug)]
pub struct Rule {
    /// The rule, as the page of the verifier has it.
    pub statement: &'static str,
    /// The pages of the WDK that state it.
    pub pages: &'static str,
}

macro_rules! rules {
    ($($name:ident: $statement:literal, $pages:literal;)*) => {
        $(pub(crate) const $name: &Rule = &Rule { statement: $statement, pages: $pages };)*

        /// All rules, in the order of the page of the verifier.
        pub const RULES: &[&Rule] = &[$($name),*];
    };
}

rules! {
    HANDLERS: "a driver has the handlers that are required", "`NDIS_MINIPORT_DRIVER_CHARACTERISTICS`";
    OPTIONAL_HANDLERS: "optional handlers are set within `MiniportSetOptions`", "`NdisSetOptionalHandlers`";
    DEREGISTERED: "a driver is deregistered within `MiniportDriverUnload`, after its adapters are halted",
        "`NdisMDeregisterMiniportDriver`, `MINIPORT_UNLOAD`";
    HEADER: "a structure has the type, the revision and at least the size that its page states for the driver's version of NDIS",
        "`NDIS_OBJECT_HEADER`, the page of the structure";
    HANDLE: "a handle is of the kind that a function takes", "the parameters on the page of the function";
    PARAMETER: "a parameter that is not optional is given", "the parameters on the page of the function or structure";
    INITIALIZED: "`MiniportInitializeEx` does not pend", "`MINIPORT_INITIALIZE`";
    ATTRIBUTES_FIRST: "registration attributes precede what depends on them, and the general attributes",
        "`NdisMSetMiniportAttributes`, `MINIPORT_INITIALIZE`";
    CONTEXT: "an adapter has a context", "`NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES`";
    GENERAL: "general attributes have MTU, MAC address, link speed and packet filters",
        "`NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`";
    OIDS: "an adapter lists the OIDs that it supports", "`NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`, `OID_GEN_SUPPORTED_LIST`";
    STATES: "a function is called in the states of an adapter in which its operation exists",
        "\"Miniport Adapter States and Operations\"";
    TRANSITION_COMPLETED: "a pause or restart that pends is completed once", "`NdisMPauseComplete`, `NdisMRestartComplete`";
    PAUSED: "a pause completes when all sends are completed and all received lists are returned; it does not fail",
        "`MINIPORT_PAUSE`";
    HALTED: "an adapter holds nothing when `MiniportHaltEx` returns, and its device has stopped", "`MINIPORT_HALT`";
    SHUT_DOWN: "the device has stopped when `MiniportShutdownEx` returns", "`MINIPORT_SHUTDOWN`";
    SLEEP: "a low-power state is entered after all sends are completed; the request does not fail", "`OID_PNP_SET_POWER`";
    QUERY_POWER: "`OID_PNP_QUERY_POWER` succeeds", "`OID_PNP_QUERY_POWER`";
    RESET: "a reset is completed once, if `MiniportResetEx` has returned `NDIS_STATUS_PENDING`", "`NdisMResetComplete`";
    OID_COMPLETED: "an OID request that pends is completed once, before the next one",
        "`MINIPORT_OID_REQUEST`, `NdisMOidRequestComplete`";
    BYTES_WRITTEN: "a query writes no more than the buffer has", "`NDIS_OID_REQUEST`";
    STATISTICS: "statistics have the flags of their structure, and count errors among discards", "`OID_GEN_STATISTICS`, comments of `ntddndis.h`";
    GUIDS: "custom GUIDs have one kind, and data of the length that they state", "`OID_GEN_SUPPORTED_GUIDS`";
    STATUS_INDICATION: "`SourceHandle` of a status indication is the handle of its adapter", "`NDIS_STATUS_INDICATION`";
    COUNTED: "`SourceHandle` of a received list is the adapter's handle; the number of lists is that of the chain; the flag of `DISPATCH_LEVEL` is the level",
        "`NdisMIndicateReceiveNetBufferLists`, `NdisFIndicateReceiveNetBufferLists`";
    OWNED: "a driver completes, indicates, returns and frees lists that it owns",
        "`NdisMIndicateReceiveNetBufferLists`, `NdisMSendNetBufferListsComplete`, `MINIPORT_RETURN_NET_BUFFER_LISTS`";
    SOURCE: "the source of a sent list, by which NDIS returns it, is not changed", "`NET_BUFFER_LIST`";
    CHAIN: "a chain of lists ends", "`NET_BUFFER_LIST`";
    DATA: "the data of a NET_BUFFER is within its MDLs", "`NET_BUFFER`, `NdisAdvanceNetBufferDataStart`";
    THROTTLE: "a receive DPC indicates no more lists than it may, and keeps none for later where there is no limit",
        "`NDIS_RECEIVE_THROTTLE_PARAMETERS`";
    POOL_TAG: "a pool has a tag", "`NET_BUFFER_LIST_POOL_PARAMETERS`";
    POOL_WITH_BUFFERS: "`NdisAllocateNetBufferAndNetBufferList` takes from a pool with `fAllocateNetBuffer`",
        "`NdisAllocateNetBufferAndNetBufferList`";
    POOL_FREED: "a pool is freed after its lists", "`NdisFreeNetBufferListPool`";
    ALLOCATED: "lists and buffers are freed once, by the function for their pool", "`NdisFreeNetBufferList`, `NdisFreeNetBuffer`";
    CLONE: "`NdisFreeCloneNetBufferList` frees a clone", "`NdisFreeCloneNetBufferList`";
    CHECKSUMS: "what is reported of a checksum is true", "`NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO`";
    CHECKSUMS_IN_FORCE: "checksums are reported after `OID_OFFLOAD_ENCAPSULATION`, as far as the offload is in force",
        "`NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO`, `OID_OFFLOAD_ENCAPSULATION`";
    ENCAPSULATION: "offloads that are offered have an encapsulation", "`NDIS_TCP_IP_CHECKSUM_OFFLOAD`";
    OFFLOADS_IN_FORCE: "offloads in force are among those of the hardware",
        "`NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES`, `OID_TCP_OFFLOAD_HARDWARE_CAPABILITIES`";
    OFFLOAD_REPORTED: "a request that changes offloads is followed by the report of what is in force",
        "`NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG`, `OID_TCP_OFFLOAD_PARAMETERS`";
    LARGE_SEND: "a large send is completed with its result", "`NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO`";
    COALESCED: "coalesced segments are like one segment, and described as such; other frames are no longer than the MTU",
        "`NDIS_RSC_NBL_INFO`, \"Indicating Coalesced Segments\", \"Rules for Coalescing TCP/IP Packets\"";
    RSC_STATISTICS: "a miniport that coalesces segments has statistics of it", "`OID_TCP_RSC_STATISTICS`";
    MAC_OPTIONS: "priority and VLAN are reported by a miniport whose `MacOptions` have them", "`OID_GEN_MAC_OPTIONS`";
    RSS_CAPABILITIES: "the capabilities of receive side scaling have a hash function, queues, messages, and a table of a power of 2 entries",
        "`NDIS_RECEIVE_SCALE_CAPABILITIES`";
    RSS_PARAMETERS: "parameters of receive side scaling or of hashes that contradict the capabilities are refused",
        "`NDIS_RECEIVE_SCALE_PARAMETERS`, `NDIS_RECEIVE_HASH_PARAMETERS`";
    HASHED: "a frame is indicated with the hash that is asked for, on the processor of its entry of the table",
        "\"Indicating RSS Receive Data\"";
    SG_LIST: "a scatter/gather list is made once for a NET_BUFFER, and freed before its send is completed",
        "`NdisMAllocateNetBufferSGList`, `NdisMFreeNetBufferSGList`";
    DMA_FIRST: "an adapter is registered for DMA before it allocates shared memory", "`NdisAllocateSharedMemory`";
    FREED_AS_ALLOCATED: "shared memory is freed with the parameters of its allocation, ports with those of their registration",
        "`NdisMFreeSharedMemory`, `NdisFreeSharedMemory`, `NdisMDeregisterIoPortRange`";
    MAPPED: "what is mapped is among the adapter's resources", "`NdisMMapIoSpace`";
    UNMAPPED: "what is unmapped was mapped, with that length", "`NdisMUnmapIoSpace`";
    BUS_SPACE: "bus data are those of the configuration space", "`NdisMGetBusData`, `IRP_MN_READ_CONFIG`";
    INTERRUPT_HANDLERS: "an interrupt has its handlers", "`NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS`";
    MESSAGE_HANDLERS: "`MsiSupported` requires the handlers of messages", "`NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS`";
    ISR: "`MiniportInterrupt` returns whether its device has generated the interrupt, and has the device end it", "`MINIPORT_ISR`";
    MESSAGE: "the number of a message is below that of the messages", "`NdisMQueueDpc`, `NdisMSynchronizeWithInterruptEx`";
    SYNCHRONIZED: "a handler does not wait for itself", "`NdisMSynchronizeWithInterruptEx`";
    INTERRUPT_DEREGISTERED: "a device generates no interrupts when these are deregistered", "`NdisMDeregisterInterruptEx`";
    POLL_VERSION: "poll objects are for drivers of NDIS 6.85", "\"NDIS Poll Mode\"";
    POLL_HANDLERS: "a poll object has its handlers", "`NDIS_POLL_CHARACTERISTICS`";
    POLLED: "`NdisPoll` counts what it returns, within its limit, and changes no other member",
        "`NDIS_POLL_RECEIVE_DATA`, `NDIS_POLL_TRANSMIT_DATA`";
    POLL_PROCESSOR: "a poll object runs on a processor that exists", "`NdisSetPollAffinity`";
    POLL_DEREGISTERED: "a handler does not deregister its poll object, which waits for it", "`NdisDeregisterPoll`";
    RESERVED: "a reserved parameter is 0", "`NdisRequestPoll`";
    QUEUED_TWICE: "a work item is queued once at a time", "`NdisQueueIoWorkItem`, \"System Worker Threads\"";
    FREED_WHILE_QUEUED: "a work item is freed while it is not queued", "`NdisFreeIoWorkItem`, `IoFreeWorkItem`";
    FREED_WHILE_SET: "a timer object is freed while it is not set", "`NdisFreeTimerObject`, bug check 0xC7";
    RW_LOCK_RELEASED: "a read/write lock is released by its owner", "`NdisReleaseRWLock`";
    RW_LOCK_FREED: "a read/write lock is released before it is freed", "`NdisFreeRWLock`";
    DEVICE: "a device for programs has no routine for PnP or power requests, no class GUID, and keeps its `DeviceExtension`",
        "`NDIS_DEVICE_OBJECT_ATTRIBUTES`, `NdisRegisterDeviceEx`";
    NDK_HANDLERS: "an NDK provider has both handlers, and no flags", "`NDIS_NDK_PROVIDER_CHARACTERISTICS`";
    NDK_ATTRIBUTES: "an NDK provider states its capabilities at each start",
        "`NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES`, \"Initializing an NDK Miniport Adapter\"";
    NDK_OPEN: "`OpenNDKAdapterHandler` does not pend", "`OPEN_NDK_ADAPTER_HANDLER`";
    NDK_ADAPTER: "an NDK adapter has its header, the version that was asked for, and all functions",
        "`NDK_ADAPTER`, `NDK_OBJECT_HEADER`, `OPEN_NDK_ADAPTER_HANDLER`";
    NDK_CLOSE: "an NDK adapter closes when the objects below it are closed",
        "`CLOSE_NDK_ADAPTER_HANDLER`, \"NDKPI Object Lifetime Requirements\"";
    EVENT_IN_OID: "`NdisMNetPnPEvent` is not called inside `MiniportOidRequest`", "`OID_NDK_SET_STATE`";
    FILTER_ATTACHED: "a filter module has its context when `FilterAttach` returns, and releases everything in `FilterDetach`",
        "`FILTER_ATTACH`, `NdisFSetAttributes`, `FILTER_DETACH`";
    FILTER_ATTRIBUTES: "a filter module sets its attributes within `FilterAttach`", "`NdisFSetAttributes`";
    FILTER_PAUSED: "a filter module is paused when it has got its own lists back, and has given back those of others; it does not fail",
        "`FILTER_PAUSE`, \"Pausing a Filter Module\"";
    FILTER_COMPLETED: "a pause or restart of a filter module that pends is completed once",
        "`NdisFPauseComplete`, `NdisFRestartComplete`";
    FILTER_STATES: "a module makes lists in the state Running alone, with its handle as `SourceHandle`",
        "\"Filter Module States and Operations\", `NdisFSendNetBufferLists`, `NdisFIndicateReceiveNetBufferLists`";
    OWNED_BY_FILTER: "a module passes on, completes and returns lists that it has",
        "`NdisFSendNetBufferLists`, `NdisFSendNetBufferListsComplete`, `NdisFReturnNetBufferLists`";
    FILTER_OID: "a module completes a request that it has got and that pends once", "`FILTER_OID_REQUEST`, `NdisFOidRequestComplete`";
    FILTER_OID_STATES: "a module makes OID requests after `FilterAttach` and before `FilterDetach`", "`NdisFOidRequest`";
    FILTER_OID_CLONED: "a module passes on clones of OID requests that it has got", "`FILTER_OID_REQUEST`, `NdisAllocateCloneOidRequest`";
    OID_CLONE: "the clone of an OID request is freed once, with the handle of its allocation", "`NdisFreeCloneOidRequest`";
    FILTER_STATUS: "a module indicates statuses from `NdisFSetAttributes` on", "`NdisFIndicateStatus`";
    RESOURCES: "a list indicated with `NDIS_RECEIVE_FLAGS_RESOURCES` is passed on with that flag, and not returned",
        "`FILTER_RECEIVE_NET_BUFFER_LISTS`";
}

/// Reports a violation of an NDIS rule, and where the rule is stated.
#[cold]
pub(crate) fn broken(rule: &Rule, text: impl Into<String>) -> ! {
    let (text, pages) = (text.into(), rule.pages.replace('`', ""));
    violation(BugCheck::BUGCODE_NDIS_DRIVER, format!("{text} (source: WDK, {pages})"))
}

/// Reports `text` as a violation of a rule unless `kept`.
#[inline]
pub(crate) fn require(kept: bool, rule: &Rule, text: impl FnOnce() -> String) {
    if !kept {
        broken(rule, text());
    }
}
