// SPDX-License-Identifier: MIT OR Apache-2.0

// What NdkEcho.c uses of NDKPI 2.0 and of Winsock Kernel, for compilers without the WDK, whose headers are ndkpi.h and wsk.h. Members and
// arguments that it does not use are PVOID. x64.

#pragma once

#include <ntddk.h>

typedef struct {
    USHORT Major;
    USHORT Minor;
} NDK_VERSION;

typedef struct {
    NDK_VERSION Version;
    ULONG ObjectType;
    PVOID Reserved[4];
} NDK_OBJECT_HEADER;

typedef VOID NTAPI NDK_FN_CREATE_COMPLETION(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object);
typedef VOID NTAPI NDK_FN_REQUEST_COMPLETION(PVOID Context, NTSTATUS Status);
typedef VOID NTAPI NDK_FN_CLOSE_COMPLETION(PVOID Context);
typedef VOID NTAPI NDK_FN_CQ_NOTIFICATION_CALLBACK(PVOID Context, NTSTATUS Status);
typedef VOID NTAPI NDK_FN_DISCONNECT_EVENT_CALLBACK(PVOID Context);

typedef NTSTATUS NTAPI NDK_FN_CLOSE_OBJECT(NDK_OBJECT_HEADER *Object, NDK_FN_CLOSE_COMPLETION *Completion, PVOID Context);

// Completion queues.

typedef struct {
    NTSTATUS Status;
    ULONG BytesTransferred;
    PVOID QpContext;
    PVOID RequestContext;
} NDK_RESULT;

#define NDK_CQ_NOTIFY_ANY 1

typedef struct NDK_CQ NDK_CQ;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkCloseCq;
    PVOID NdkQueryExtension;
    PVOID NdkResizeCq;
    VOID (NTAPI *NdkArmCq)(NDK_CQ *Cq, ULONG Type);
    ULONG (NTAPI *NdkGetCqResults)(NDK_CQ *Cq, NDK_RESULT *Results, ULONG Count);
    PVOID NdkControlCqInterruptModeration;
    PVOID NdkGetCqResultsEx;
} NDK_CQ_DISPATCH;

struct NDK_CQ {
    NDK_OBJECT_HEADER Header;
    const NDK_CQ_DISPATCH *Dispatch;
};

// Memory regions.

#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 1

typedef struct NDK_MR NDK_MR;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkCloseMr;
    PVOID NdkQueryExtension;
    NTSTATUS (NTAPI *NdkRegisterMr)(NDK_MR *Mr, PMDL Mdl, SIZE_T Length, ULONG Flags, NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    NTSTATUS (NTAPI *NdkDeregisterMr)(NDK_MR *Mr, NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    PVOID NdkInitializeFastRegisterMr;
    PVOID NdkGetRemoteTokenFromMr;
    ULONG (NTAPI *NdkGetLocalTokenFromMr)(NDK_MR *Mr);
} NDK_MR_DISPATCH;

struct NDK_MR {
    NDK_OBJECT_HEADER Header;
    const NDK_MR_DISPATCH *Dispatch;
};

// Queue pairs.

typedef struct {
    PVOID VirtualAddress;
    ULONG Length;
    ULONG MemoryRegionToken;
} NDK_SGE;

typedef struct NDK_QP NDK_QP;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkCloseQp;
    PVOID NdkQueryExtension;
    VOID (NTAPI *NdkFlush)(NDK_QP *Qp);
    NTSTATUS (NTAPI *NdkSend)(NDK_QP *Qp, PVOID Context, const NDK_SGE *Sgl, ULONG Count, ULONG Flags);
    NTSTATUS (NTAPI *NdkReceive)(NDK_QP *Qp, PVOID Context, const NDK_SGE *Sgl, ULONG Count);
    PVOID Others[6];
} NDK_QP_DISPATCH;

struct NDK_QP {
    NDK_OBJECT_HEADER Header;
    const NDK_QP_DISPATCH *Dispatch;
};

// Protection domains.

typedef struct NDK_PD NDK_PD;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkClosePd;
    PVOID NdkQueryExtension;
    NTSTATUS (NTAPI *NdkCreateMr)(NDK_PD *Pd, BOOLEAN FastRegister, NDK_FN_CREATE_COMPLETION *Completion, PVOID Context, NDK_MR **Mr);
    PVOID NdkCreateMw;
    PVOID NdkCreateSrq;
    NTSTATUS (NTAPI *NdkCreateQp)(NDK_PD *Pd, NDK_CQ *ReceiveCq, NDK_CQ *InitiatorCq, PVOID QpContext, ULONG ReceiveQueueDepth,
        ULONG InitiatorQueueDepth, ULONG MaxReceiveRequestSge, ULONG MaxInitiatorRequestSge, ULONG InlineDataSize,
        NDK_FN_CREATE_COMPLETION *Completion, PVOID Context, NDK_QP **Qp);
    PVOID NdkCreateQpWithSrq;
    PVOID NdkGetPrivilegedMemoryRegionToken;
} NDK_PD_DISPATCH;

struct NDK_PD {
    NDK_OBJECT_HEADER Header;
    const NDK_PD_DISPATCH *Dispatch;
};

// Connectors and listeners.

typedef struct NDK_CONNECTOR NDK_CONNECTOR;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkCloseConnector;
    PVOID NdkQueryExtension;
    NTSTATUS (NTAPI *NdkConnect)(NDK_CONNECTOR *Connector, NDK_QP *Qp, const VOID *Source, ULONG SourceLength, const VOID *Destination,
        ULONG DestinationLength, ULONG InboundReadLimit, ULONG OutboundReadLimit, const VOID *PrivateData, ULONG PrivateDataLength,
        NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    PVOID NdkConnectWithSharedEndpoint;
    NTSTATUS (NTAPI *NdkCompleteConnect)(NDK_CONNECTOR *Connector, NDK_FN_DISCONNECT_EVENT_CALLBACK *Disconnected,
        PVOID DisconnectContext, NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    NTSTATUS (NTAPI *NdkAccept)(NDK_CONNECTOR *Connector, NDK_QP *Qp, ULONG InboundReadLimit, ULONG OutboundReadLimit,
        const VOID *PrivateData, ULONG PrivateDataLength, NDK_FN_DISCONNECT_EVENT_CALLBACK *Disconnected, PVOID DisconnectContext,
        NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    PVOID NdkReject;
    PVOID NdkGetConnectionData;
    PVOID NdkGetLocalAddress;
    PVOID NdkGetPeerAddress;
    NTSTATUS (NTAPI *NdkDisconnect)(NDK_CONNECTOR *Connector, NDK_FN_REQUEST_COMPLETION *Completion, PVOID Context);
    PVOID NdkCompleteConnectEx;
    PVOID NdkAcceptEx;
} NDK_CONNECTOR_DISPATCH;

struct NDK_CONNECTOR {
    NDK_OBJECT_HEADER Header;
    const NDK_CONNECTOR_DISPATCH *Dispatch;
};

typedef VOID NTAPI NDK_FN_CONNECT_EVENT_CALLBACK(PVOID Context, NDK_CONNECTOR *Connector);

typedef struct NDK_LISTENER NDK_LISTENER;

typedef struct {
    NDK_FN_CLOSE_OBJECT *NdkCloseListener;
    PVOID NdkQueryExtension;
    NTSTATUS (NTAPI *NdkListen)(NDK_LISTENER *Listener, const VOID *Address, ULONG Length, NDK_FN_REQUEST_COMPLETION *Completion,
        PVOID Context);
    PVOID NdkGetLocalAddress;
    PVOID NdkControlConnectEvents;
} NDK_LISTENER_DISPATCH;

struct NDK_LISTENER {
    NDK_OBJECT_HEADER Header;
    const NDK_LISTENER_DISPATCH *Dispatch;
};

// Adapters.

typedef struct NDK_ADAPTER NDK_ADAPTER;

typedef struct {
    PVOID NdkQueryExtension;
    PVOID NdkQueryAdapterInfo;
    NTSTATUS (NTAPI *NdkCreateCq)(NDK_ADAPTER *Adapter, ULONG Depth, NDK_FN_CQ_NOTIFICATION_CALLBACK *Notification,
        PVOID NotificationContext, GROUP_AFFINITY *Affinity, NDK_FN_CREATE_COMPLETION *Completion, PVOID Context, NDK_CQ **Cq);
    NTSTATUS (NTAPI *NdkCreatePd)(NDK_ADAPTER *Adapter, NDK_FN_CREATE_COMPLETION *Completion, PVOID Context, NDK_PD **Pd);
    PVOID NdkCreateSharedEndpoint;
    NTSTATUS (NTAPI *NdkCreateConnector)(NDK_ADAPTER *Adapter, NDK_FN_CREATE_COMPLETION *Completion, PVOID Context,
        NDK_CONNECTOR **Connector);
    NTSTATUS (NTAPI *NdkCreateListener)(NDK_ADAPTER *Adapter, NDK_FN_CONNECT_EVENT_CALLBACK *Connecting, PVOID ConnectContext,
        NDK_FN_CREATE_COMPLETION *Completion, PVOID Context, NDK_LISTENER **Listener);
    PVOID NdkBuildLAM;
    PVOID NdkReleaseLAM;
} NDK_ADAPTER_DISPATCH;

struct NDK_ADAPTER {
    NDK_OBJECT_HEADER Header;
    const NDK_ADAPTER_DISPATCH *Dispatch;
};

// Winsock Kernel, through which adapters are opened.

#define WSK_INFINITE_WAIT 0xFFFFFFFF
#define WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH 0x4E444B44

typedef struct {
    USHORT Version;
    USHORT Reserved;
    PVOID WskClientEvent;
} WSK_CLIENT_DISPATCH;

typedef struct {
    PVOID ClientContext;
    const WSK_CLIENT_DISPATCH *Dispatch;
} WSK_CLIENT_NPI;

typedef struct {
    ULONGLONG State;
    PVOID Context;
    KSPIN_LOCK Lock;
} WSK_REGISTRATION;

typedef struct {
    USHORT Version;
    USHORT Reserved;
    PVOID WskSocket;
    PVOID WskSocketConnect;
    NTSTATUS (NTAPI *WskControlClient)(PVOID Client, ULONG ControlCode, SIZE_T InputSize, PVOID Input, SIZE_T OutputSize, PVOID Output,
        SIZE_T *OutputSizeReturned, PIRP Irp);
    PVOID Others[3];
} WSK_PROVIDER_DISPATCH;

typedef struct {
    PVOID Client;
    const WSK_PROVIDER_DISPATCH *Dispatch;
} WSK_PROVIDER_NPI;

typedef struct {
    NTSTATUS (NTAPI *WskOpenNdkAdapter)(PVOID Client, NDK_VERSION Version, ULONG InterfaceIndex, NDK_ADAPTER **Adapter);
    VOID (NTAPI *WskCloseNdkAdapter)(PVOID Client, NDK_ADAPTER *Adapter);
} WSK_PROVIDER_NDK_DISPATCH;

NTSTATUS NTAPI WskRegister(WSK_CLIENT_NPI *Client, WSK_REGISTRATION *Registration);
NTSTATUS NTAPI WskCaptureProviderNPI(WSK_REGISTRATION *Registration, ULONG Timeout, WSK_PROVIDER_NPI *Provider);
VOID NTAPI WskReleaseProviderNPI(WSK_REGISTRATION *Registration);
VOID NTAPI WskDeregister(WSK_REGISTRATION *Registration);
