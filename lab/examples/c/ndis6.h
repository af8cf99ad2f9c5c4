// SPDX-License-Identifier: MIT OR Apache-2.0

// What NdisFilter.c uses of NDIS 6.30, for compilers without the WDK, whose header is ndis.h. Structures that it only passes on are incomplete.
// x64.

#pragma once

#include <ntddk.h>

typedef int NDIS_STATUS;
typedef PVOID NDIS_HANDLE;

#define NDIS_STATUS_SUCCESS 0
#define NDIS_STATUS_PENDING 0x00000103
#define NDIS_STATUS_RESOURCES ((NDIS_STATUS)0xC000009A)

typedef struct {
    UCHAR Type;
    UCHAR Revision;
    USHORT Size;
} NDIS_OBJECT_HEADER;

typedef struct NET_BUFFER_LIST NET_BUFFER_LIST;
typedef struct NDIS_STATUS_INDICATION NDIS_STATUS_INDICATION;
typedef struct NET_DEVICE_PNP_EVENT NET_DEVICE_PNP_EVENT;
typedef struct NET_PNP_EVENT_NOTIFICATION NET_PNP_EVENT_NOTIFICATION;

// The arguments of queries, sets and methods, and what the drivers below say of the result.
typedef struct {
    ULONG Oid;
    PVOID InformationBuffer;
    ULONG Others[6];
} NDIS_OID_REQUEST_DATA;

typedef struct {
    NDIS_OBJECT_HEADER Header;
    ULONG RequestType;
    ULONG PortNumber;
    ULONG Timeout;
    PVOID RequestId;
    NDIS_HANDLE RequestHandle;
    NDIS_OID_REQUEST_DATA Data;
    UCHAR NdisReserved[128];
    UCHAR MiniportReserved[16];
    PVOID SourceReserved[2];
} NDIS_OID_REQUEST;

#define NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS 0x8B
#define NDIS_FILTER_CHARACTERISTICS_REVISION_2 2
#define NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES 0x8D
#define NDIS_FILTER_ATTRIBUTES_REVISION_1 1

typedef struct {
    NDIS_OBJECT_HEADER Header;
    ULONG Flags;
} NDIS_FILTER_ATTRIBUTES;

typedef struct {
    NDIS_OBJECT_HEADER Header;
    UCHAR MajorNdisVersion;
    UCHAR MinorNdisVersion;
    UCHAR MajorDriverVersion;
    UCHAR MinorDriverVersion;
    ULONG Flags;
    UNICODE_STRING FriendlyName;
    UNICODE_STRING UniqueName;
    UNICODE_STRING ServiceName;
    PVOID SetOptionsHandler;
    PVOID SetFilterModuleOptionsHandler;
    NDIS_STATUS (NTAPI *AttachHandler)(NDIS_HANDLE Filter, NDIS_HANDLE Driver, PVOID Parameters);
    VOID (NTAPI *DetachHandler)(NDIS_HANDLE Module);
    NDIS_STATUS (NTAPI *RestartHandler)(NDIS_HANDLE Module, PVOID Parameters);
    NDIS_STATUS (NTAPI *PauseHandler)(NDIS_HANDLE Module, PVOID Parameters);
    VOID (NTAPI *SendNetBufferListsHandler)(NDIS_HANDLE Module, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Flags);
    VOID (NTAPI *SendNetBufferListsCompleteHandler)(NDIS_HANDLE Module, NET_BUFFER_LIST *Lists, ULONG Flags);
    VOID (NTAPI *CancelSendNetBufferListsHandler)(NDIS_HANDLE Module, PVOID CancelId);
    VOID (NTAPI *ReceiveNetBufferListsHandler)(NDIS_HANDLE Module, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Count, ULONG Flags);
    VOID (NTAPI *ReturnNetBufferListsHandler)(NDIS_HANDLE Module, NET_BUFFER_LIST *Lists, ULONG Flags);
    NDIS_STATUS (NTAPI *OidRequestHandler)(NDIS_HANDLE Module, NDIS_OID_REQUEST *Request);
    VOID (NTAPI *OidRequestCompleteHandler)(NDIS_HANDLE Module, NDIS_OID_REQUEST *Request, NDIS_STATUS Status);
    VOID (NTAPI *CancelOidRequestHandler)(NDIS_HANDLE Module, PVOID RequestId);
    VOID (NTAPI *DevicePnPEventNotifyHandler)(NDIS_HANDLE Module, NET_DEVICE_PNP_EVENT *Event);
    NDIS_STATUS (NTAPI *NetPnPEventHandler)(NDIS_HANDLE Module, NET_PNP_EVENT_NOTIFICATION *Event);
    VOID (NTAPI *StatusHandler)(NDIS_HANDLE Module, NDIS_STATUS_INDICATION *Indication);
    PVOID DirectOidRequestHandler;
    PVOID DirectOidRequestCompleteHandler;
    PVOID CancelDirectOidRequestHandler;
} NDIS_FILTER_DRIVER_CHARACTERISTICS;

NDIS_STATUS NTAPI NdisFRegisterFilterDriver(PDRIVER_OBJECT Driver, NDIS_HANDLE Context,
    NDIS_FILTER_DRIVER_CHARACTERISTICS *Characteristics, NDIS_HANDLE *Handle);
VOID NTAPI NdisFDeregisterFilterDriver(NDIS_HANDLE Handle);
NDIS_STATUS NTAPI NdisFSetAttributes(NDIS_HANDLE Filter, NDIS_HANDLE Module, NDIS_FILTER_ATTRIBUTES *Attributes);
VOID NTAPI NdisFSendNetBufferLists(NDIS_HANDLE Filter, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Flags);
VOID NTAPI NdisFSendNetBufferListsComplete(NDIS_HANDLE Filter, NET_BUFFER_LIST *Lists, ULONG Flags);
VOID NTAPI NdisFCancelSendNetBufferLists(NDIS_HANDLE Filter, PVOID CancelId);
VOID NTAPI NdisFIndicateReceiveNetBufferLists(NDIS_HANDLE Filter, NET_BUFFER_LIST *Lists, ULONG Port, ULONG Count, ULONG Flags);
VOID NTAPI NdisFReturnNetBufferLists(NDIS_HANDLE Filter, NET_BUFFER_LIST *Lists, ULONG Flags);
NDIS_STATUS NTAPI NdisFOidRequest(NDIS_HANDLE Filter, NDIS_OID_REQUEST *Request);
VOID NTAPI NdisFOidRequestComplete(NDIS_HANDLE Filter, NDIS_OID_REQUEST *Request, NDIS_STATUS Status);
VOID NTAPI NdisFDevicePnPEventNotify(NDIS_HANDLE Filter, NET_DEVICE_PNP_EVENT *Event);
NDIS_STATUS NTAPI NdisFNetPnPEvent(NDIS_HANDLE Filter, NET_PNP_EVENT_NOTIFICATION *Event);
VOID NTAPI NdisFIndicateStatus(NDIS_HANDLE Filter, NDIS_STATUS_INDICATION *Indication);
NDIS_STATUS NTAPI NdisAllocateCloneOidRequest(NDIS_HANDLE Source, NDIS_OID_REQUEST *Request, ULONG Tag, NDIS_OID_REQUEST **Clone);
VOID NTAPI NdisFreeCloneOidRequest(NDIS_HANDLE Source, NDIS_OID_REQUEST *Clone);
