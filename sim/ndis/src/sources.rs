// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pages of the WDK that state NDIS's rules: for the reports of the rules' violations, and for `docs/verifier.md`, which a test
//! compares with this table.

/// A rule, and where it is stated.
pub struct Source {
    /// The rule, as the page of the verifier has it.
    pub rule: &'static str,
    /// The pages that state it; none was found if it is `None`.
    pub pages: Option<&'static str>,
    /// The pages that were read in vain, if none was found.
    pub remark: &'static str,
    /// The reports of its violations: each contains all parts of one of these.
    pub reports: &'static [&'static [&'static str]],
}

const fn stated(
    rule: &'static str,
    pages: &'static str,
    reports: &'static [&'static [&'static str]],
) -> Source {
    Source { rule, pages: Some(pages), remark: "", reports }
}

const fn not_found(
    rule: &'static str,
    remark: &'static str,
    reports: &'static [&'static [&'static str]],
) -> Source {
    Source { rule, pages: None, remark, reports }
}

/// The rules whose pages were looked for.
pub const SOURCES: &[Source] = &[
    stated(
        "a pause completes when all sends are completed and all received lists are returned; it does not fail",
        "`MINIPORT_PAUSE`",
        &[&["MiniportPause failed"], &["MiniportPause completed"]],
    ),
    stated(
        "an adapter holds nothing when `MiniportHaltEx` returns",
        "`MINIPORT_HALT`",
        &[&["MiniportHaltEx", " returned without releasing: "]],
    ),
    stated(
        "registration attributes precede what depends on them, and the general attributes",
        "`NdisMSetMiniportAttributes`, `MINIPORT_INITIALIZE`",
        &[
            &["were set before the registration attributes"],
            &["MiniportInitializeEx succeeded without general attributes"],
        ],
    ),
    stated(
        "optional handlers are set within `MiniportSetOptions`",
        "`NdisSetOptionalHandlers`",
        &[&["NdisSetOptionalHandlers was called outside of MiniportSetOptions"]],
    ),
    stated(
        "a driver is deregistered within `MiniportDriverUnload`",
        "`NdisMDeregisterMiniportDriver`",
        &[&["MiniportDriverUnload returned without NdisMDeregisterMiniportDriver"]],
    ),
    stated(
        "shared memory is freed with the parameters of its allocation, ports with those of their registration",
        "`NdisMFreeSharedMemory`, `NdisMDeregisterIoPortRange`",
        &[
            &["NdisMFreeSharedMemory of ", ": its logical address is not "],
            &["NdisMFreeSharedMemory of ", ": more than were allocated there"],
            &["NdisMDeregisterIoPortRange of port "],
        ],
    ),
    stated(
        "`NdisAllocateNetBufferAndNetBufferList` takes from a pool with `fAllocateNetBuffer`",
        "`NdisAllocateNetBufferAndNetBufferList`",
        &[&["the pool was not allocated with fAllocateNetBuffer"]],
    ),
    stated(
        "a pool is freed after its lists",
        "`NdisFreeNetBufferListPool`",
        &[&[" NET_BUFFERs or NET_BUFFER_LISTs of the pool with tag "]],
    ),
    stated(
        "`SourceHandle` of a received list is the adapter's handle; the number of lists is that of the chain; the flag of `DISPATCH_LEVEL` is the level",
        "`NdisMIndicateReceiveNetBufferLists`",
        &[
            &["the SourceHandle of a received NET_BUFFER_LIST is not the adapter's handle"],
            &["NdisMIndicateReceiveNetBufferLists: NumberOfNetBufferLists is "],
            &["NdisMIndicateReceiveNetBufferLists", ": the flags say DISPATCH_LEVEL"],
        ],
    ),
    stated(
        "a scatter/gather list is freed",
        "`NdisMAllocateNetBufferSGList`",
        &[&[" scatter/gather lists are not freed"], &["whose scatter/gather list is not freed"]],
    ),
    stated(
        "a read/write lock is released before it is freed",
        "`NdisFreeRWLock`",
        &[&["NdisFreeRWLock of a lock that is held"]],
    ),
    stated(
        "`MiniportInterrupt` returns whether its device has generated the interrupt",
        "`MINIPORT_ISR`",
        &[
            &["MiniportInterrupt claimed an interrupt of another device"],
            &["MiniportInterrupt did not claim the interrupt"],
        ],
    ),
    stated(
        "`MsiSupported` requires the handlers of messages",
        "`NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS`",
        &[&["MsiSupported requires "]],
    ),
    stated(
        "an OID request that pends is completed once, before the next one",
        "`MINIPORT_OID_REQUEST`, `NdisMOidRequestComplete`",
        &[
            &["was completed, and MiniportOidRequest returned "],
            &["an OID request was completed twice"],
            &["the OID request ", " pends"],
        ],
    ),
    stated(
        "a reset is completed if `MiniportResetEx` has returned `NDIS_STATUS_PENDING`",
        "`NdisMResetComplete`",
        &[&["NdisMResetComplete was called, but no reset is in progress"]],
    ),
    stated(
        "a device for programs has no routine for PnP or power requests, no class GUID, and keeps its `DeviceExtension`",
        "`NDIS_DEVICE_OBJECT_ATTRIBUTES`, `NdisRegisterDeviceEx`",
        &[
            &["NdisRegisterDeviceEx", " with a routine for "],
            &["NdisRegisterDeviceEx", ": DeviceClassGuid is reserved"],
            &["the driver changed DeviceExtension of a device of NdisRegisterDeviceEx"],
        ],
    ),
    stated(
        "a filter module has its context when `FilterAttach` returns, and releases everything in `FilterDetach`",
        "`FILTER_ATTACH`, `NdisFSetAttributes`, `FILTER_DETACH`",
        &[
            &["FilterAttach succeeded without NdisFSetAttributes"],
            &["FilterDetach", " returned without releasing: "],
        ],
    ),
    stated(
        "a filter module is paused when it has got its own lists back, and has given back those of others; it does not fail",
        "`FILTER_PAUSE`, \"Pausing a Filter Module\"",
        &[&["FilterPause failed"], &["FilterPause completed"]],
    ),
    stated(
        "a module makes lists in the state Running alone, with its handle as `SourceHandle`",
        "\"Filter Module States and Operations\", `NdisFSendNetBufferLists`, `NdisFIndicateReceiveNetBufferLists`",
        &[
            &[" of a list of the filter module's own in state "],
            &["which the filter module neither holds nor has made"],
        ],
    ),
    stated(
        "a list indicated with `NDIS_RECEIVE_FLAGS_RESOURCES` is passed on with that flag, and not returned",
        "`FILTER_RECEIVE_NET_BUFFER_LISTS`",
        &[
            &[", which was indicated with NDIS_RECEIVE_FLAGS_RESOURCES, was returned"],
            &[" without NDIS_RECEIVE_FLAGS_RESOURCES, with which "],
        ],
    ),
    not_found(
        "a work item that is freed while it is queued",
        "that of `NdisFreeIoWorkItem` has no remark",
        &[&["NdisFreeIoWorkItem of a work item that is queued"]],
    ),
    not_found(
        "a timer object that is freed while it is set",
        "that of `NdisFreeTimerObject` does not require `NdisCancelTimerObject`",
        &[&["NdisFreeTimerObject of a timer that is set"]],
    ),
];

/// Returns where the rule is stated that a report is about.
pub(crate) fn of_report(text: &str) -> String {
    let is_of =
        |source: &&Source| source.reports.iter().any(|parts| parts.iter().all(|part| text.contains(part)));
    match SOURCES.iter().find(is_of) {
        Some(Source { pages: Some(pages), .. }) => format!("source: WDK, {}", pages.replace('`', "")),
        Some(_) => "no source was found".into(),
        None => "no source was looked for".into(),
    }
}
