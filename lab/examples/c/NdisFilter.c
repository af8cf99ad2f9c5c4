// SPDX-License-Identifier: MIT OR Apache-2.0

// A lightweight filter in C, which lets everything pass and counts it. docs/consumer.md builds it; `--filter` puts it above a miniport.

#include "ndis6.h"

// "Filt"
#define TAG 0x746C6946

typedef struct {
    NDIS_HANDLE Filter;
    LONG volatile Sent;
    LONG volatile Received;
    LONG volatile Requests;
} MODULE;

static NDIS_HANDLE Handle;

static NDIS_STATUS NTAPI Attach(NDIS_HANDLE Filter, NDIS_HANDLE Driver, PVOID Parameters)
{
    NDIS_FILTER_ATTRIBUTES Attributes = {
        { NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES, NDIS_FILTER_ATTRIBUTES_REVISION_1, sizeof(NDIS_FILTER_ATTRIBUTES) }, 0
    };
    MODULE *Module = ExAllocatePoolWithTag(NonPagedPoolNx, sizeof(MODULE), TAG);
    NDIS_STATUS Status;

    UNREFERENCED_PARAMETER(Driver);
    UNREFERENCED_PARAMETER(Parameters);
    if (Module == NULL) {
        return NDIS_STATUS_RESOURCES;
    }
    RtlZeroMemory(Module, sizeof(MODULE));
    Module->Filter = Filter;
    Status = NdisFSetAttributes(Filter, Module, &Attributes);
    if (Status != NDIS_STATUS_SUCCESS) {
        ExFreePoolWithTag(Module, TAG);
        return Status;
    }
    DbgPrint("NdisFilter: attached\n");
    return NDIS_STATUS_SUCCESS;
}

static VOID NTAPI Detach(NDIS_HANDLE Context)
{
    MODULE *Module = Context;

    DbgPrint("NdisFilter: %d chains sent, %d received, %d requests\n", Module->Sent, Module->Received, Module->Requests);
    ExFreePoolWithTag(Module, TAG);
}

// It keeps nothing, so that both end at once.
static NDIS_STATUS NTAPI Change(NDIS_HANDLE Context, PVOID Parameters)
{
    UNREFERENCED_PARAMETER(Context);
    UNREFERENCED_PARAMETER(Parameters);
    return NDIS_STATUS_SUCCESS;
}

static VOID NTAPI Send(NDIS_HANDLE Context, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Flags)
{
    MODULE *Module = Context;

    InterlockedIncrement(&Module->Sent);
    NdisFSendNetBufferLists(Module->Filter, Lists, Port, Flags);
}

static VOID NTAPI SendComplete(NDIS_HANDLE Context, NET_BUFFER_LIST *Lists, ULONG Flags)
{
    NdisFSendNetBufferListsComplete(((MODULE *)Context)->Filter, Lists, Flags);
}

static VOID NTAPI CancelSend(NDIS_HANDLE Context, PVOID CancelId)
{
    NdisFCancelSendNetBufferLists(((MODULE *)Context)->Filter, CancelId);
}

static VOID NTAPI Receive(NDIS_HANDLE Context, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Count, ULONG Flags)
{
    MODULE *Module = Context;

    InterlockedIncrement(&Module->Received);
    NdisFIndicateReceiveNetBufferLists(Module->Filter, Lists, Port, Count, Flags);
}

static VOID NTAPI Return(NDIS_HANDLE Context, NET_BUFFER_LIST *Lists, ULONG Flags)
{
    NdisFReturnNetBufferLists(((MODULE *)Context)->Filter, Lists, Flags);
}

// Copies the result of a clone to its request, and frees the clone.
static NDIS_OID_REQUEST *Original(MODULE *Module, NDIS_OID_REQUEST *Clone)
{
    NDIS_OID_REQUEST *Request = Clone->SourceReserved[0];

    Request->Data = Clone->Data;
    NdisFreeCloneOidRequest(Module->Filter, Clone);
    return Request;
}

static NDIS_STATUS NTAPI OidRequest(NDIS_HANDLE Context, NDIS_OID_REQUEST *Request)
{
    MODULE *Module = Context;
    NDIS_OID_REQUEST *Clone;
    NDIS_STATUS Status = NdisAllocateCloneOidRequest(Module->Filter, Request, TAG, &Clone);

    if (Status != NDIS_STATUS_SUCCESS) {
        return Status;
    }
    InterlockedIncrement(&Module->Requests);
    Clone->SourceReserved[0] = Request;
    Status = NdisFOidRequest(Module->Filter, Clone);
    if (Status != NDIS_STATUS_PENDING) {
        Original(Module, Clone);
    }
    return Status;
}

static VOID NTAPI OidRequestComplete(NDIS_HANDLE Context, NDIS_OID_REQUEST *Clone, NDIS_STATUS Status)
{
    MODULE *Module = Context;

    NdisFOidRequestComplete(Module->Filter, Original(Module, Clone), Status);
}

static VOID NTAPI DevicePnPEvent(NDIS_HANDLE Context, NET_DEVICE_PNP_EVENT *Event)
{
    NdisFDevicePnPEventNotify(((MODULE *)Context)->Filter, Event);
}

static NDIS_STATUS NTAPI NetPnPEvent(NDIS_HANDLE Context, NET_PNP_EVENT_NOTIFICATION *Event)
{
    return NdisFNetPnPEvent(((MODULE *)Context)->Filter, Event);
}

static VOID NTAPI Status(NDIS_HANDLE Context, NDIS_STATUS_INDICATION *Indication)
{
    NdisFIndicateStatus(((MODULE *)Context)->Filter, Indication);
}

static VOID NTAPI Unload(PDRIVER_OBJECT Driver)
{
    UNREFERENCED_PARAMETER(Driver);
    NdisFDeregisterFilterDriver(Handle);
}

NTSTATUS NTAPI DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING Path)
{
    NDIS_FILTER_DRIVER_CHARACTERISTICS Characteristics = {
        .Header = { NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS, NDIS_FILTER_CHARACTERISTICS_REVISION_2, sizeof(Characteristics) },
        .MajorNdisVersion = 6,
        .MinorNdisVersion = 30,
        .FriendlyName = RTL_CONSTANT_STRING(L"A filter that counts"),
        .UniqueName = RTL_CONSTANT_STRING(L"{5e0c1a8e-0b6c-4b1c-9b8c-1d4b2f7a3c55}"),
        .ServiceName = RTL_CONSTANT_STRING(L"NdisFilter"),
        .AttachHandler = Attach,
        .DetachHandler = Detach,
        .RestartHandler = Change,
        .PauseHandler = Change,
        .SendNetBufferListsHandler = Send,
        .SendNetBufferListsCompleteHandler = SendComplete,
        .CancelSendNetBufferListsHandler = CancelSend,
        .ReceiveNetBufferListsHandler = Receive,
        .ReturnNetBufferListsHandler = Return,
        .OidRequestHandler = OidRequest,
        .OidRequestCompleteHandler = OidRequestComplete,
        .DevicePnPEventNotifyHandler = DevicePnPEvent,
        .NetPnPEventHandler = NetPnPEvent,
        .StatusHandler = Status,
    };

    UNREFERENCED_PARAMETER(Path);
    Driver->DriverUnload = Unload;
    return NdisFRegisterFilterDriver(Driver, NULL, &Characteristics, &Handle);
}
