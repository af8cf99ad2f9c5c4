// SPDX-License-Identifier: MIT OR Apache-2.0

// An NDK consumer in C: one side sends a message, the other returns it. docs/consumer.md builds and runs it.
//
// Each of its two I/O control requests is a whole connection, from the opening of the adapter to its closing, on the thread of the caller.

#include "ndk.h"

// Waits for one connection, returns its first message, and waits for the end of the connection.
#define IOCTL_SERVE CTL_CODE(FILE_DEVICE_UNKNOWN, 0x800, METHOD_BUFFERED, FILE_ANY_ACCESS)
// Connects, sends MESSAGE, and compares what returns. The output is the number of bytes.
#define IOCTL_CALL CTL_CODE(FILE_DEVICE_UNKNOWN, 0x801, METHOD_BUFFERED, FILE_ANY_ACCESS)

// "Echo"
#define TAG 0x6F686345
#define MESSAGE "a message of a consumer in C"
#define BUFFER_SIZE 4096
#define SOCKADDR_INET_SIZE 28
#define ADDRESS_FAMILY_INET 2
// Units of 100 ns, relative.
#define SECONDS(Count) (-10000000LL * (Count))

// The input of both requests. Remote is that of IOCTL_CALL.
typedef struct {
    UCHAR Local[SOCKADDR_INET_SIZE];
    ULONG Interface;
    UCHAR Remote[SOCKADDR_INET_SIZE];
} ENDPOINTS;

// A call that may complete later.
typedef struct {
    KEVENT Done;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} CALL;

// The objects of a connection, and what its callbacks signal.
typedef struct {
    NDK_ADAPTER *Adapter;
    NDK_CQ *Cq;
    NDK_PD *Pd;
    NDK_MR *Mr;
    NDK_QP *Qp;
    NDK_LISTENER *Listener;
    NDK_CONNECTOR *Connector;
    PMDL Mdl;
    PUCHAR Buffer;
    BOOLEAN IsRegistered;
    KEVENT Completed;
    KEVENT Disconnected;
    KEVENT Connecting;
    PVOID volatile Incoming;
} SESSION;

static UNICODE_STRING Name = RTL_CONSTANT_STRING(L"\\Device\\NdkEcho");
static UNICODE_STRING Link = RTL_CONSTANT_STRING(L"\\DosDevices\\NdkEcho");

static WSK_REGISTRATION Registration;
static WSK_PROVIDER_NPI Provider;
static WSK_PROVIDER_NDK_DISPATCH Ndk;

// Calls that complete inline, or through a callback.

static VOID NTAPI Created(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    CALL *Call = Context;

    Call->Object = Object;
    Call->Status = Status;
    KeSetEvent(&Call->Done, IO_NO_INCREMENT, FALSE);
}

static VOID NTAPI Completed(PVOID Context, NTSTATUS Status)
{
    Created(Context, Status, NULL);
}

static VOID NTAPI Closed(PVOID Context)
{
    Created(Context, STATUS_SUCCESS, NULL);
}

static VOID Begin(CALL *Call)
{
    KeInitializeEvent(&Call->Done, NotificationEvent, FALSE);
    Call->Object = NULL;
}

// Waits for a call that has returned Status.
static NTSTATUS End(CALL *Call, NTSTATUS Status)
{
    if (Status == STATUS_PENDING) {
        KeWaitForSingleObject(&Call->Done, Executive, KernelMode, FALSE, NULL);
        Status = Call->Status;
    }
    return Status;
}

// Waits for a create call that has stored Inline or passes its object to Created.
static NTSTATUS EndCreate(CALL *Call, NTSTATUS Status, PVOID Inline, PVOID *Object)
{
    BOOLEAN IsPending = Status == STATUS_PENDING;

    Status = End(Call, Status);
    *Object = !NT_SUCCESS(Status) ? NULL : IsPending ? (PVOID)Call->Object : Inline;
    return Status;
}

static VOID Close(PVOID Object, NDK_FN_CLOSE_OBJECT *Function)
{
    CALL Call;

    Begin(&Call);
    End(&Call, Function(Object, Closed, &Call));
}

// Callbacks of a connection.

static VOID NTAPI Notify(PVOID Context, NTSTATUS Status)
{
    UNREFERENCED_PARAMETER(Status);
    KeSetEvent(&((SESSION *)Context)->Completed, IO_NO_INCREMENT, FALSE);
}

static VOID NTAPI Disconnect(PVOID Context)
{
    KeSetEvent(&((SESSION *)Context)->Disconnected, IO_NO_INCREMENT, FALSE);
}

static VOID NTAPI Ignore(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
}

// Keeps the first connector, and refuses others.
static VOID NTAPI Connect(PVOID Context, NDK_CONNECTOR *Connector)
{
    SESSION *Session = Context;

    if (InterlockedCompareExchangePointer(&Session->Incoming, Connector, NULL) != NULL) {
        Connector->Dispatch->NdkCloseConnector(&Connector->Header, Ignore, NULL);
        return;
    }
    KeSetEvent(&Session->Connecting, IO_NO_INCREMENT, FALSE);
}

static NTSTATUS Wait(KEVENT *Event, LONGLONG Limit)
{
    LARGE_INTEGER Timeout;
    NTSTATUS Status;

    Timeout.QuadPart = Limit;
    Status = KeWaitForSingleObject(Event, Executive, KernelMode, FALSE, &Timeout);
    return Status == STATUS_TIMEOUT ? STATUS_IO_TIMEOUT : Status;
}

static ULONG AddressLength(const UCHAR *Address)
{
    return *(const USHORT *)Address == ADDRESS_FAMILY_INET ? 16 : SOCKADDR_INET_SIZE;
}

// Opens everything that both sides need.
static NTSTATUS Open(SESSION *Session, ULONG Interface)
{
    const NDK_VERSION Version = { 2, 0 };
    CALL Call;
    PVOID Inline = NULL;
    NTSTATUS Status;

    KeInitializeEvent(&Session->Completed, SynchronizationEvent, FALSE);
    KeInitializeEvent(&Session->Disconnected, NotificationEvent, FALSE);
    KeInitializeEvent(&Session->Connecting, NotificationEvent, FALSE);
    Session->Buffer = ExAllocatePoolWithTag(NonPagedPoolNx, BUFFER_SIZE, TAG);
    if (Session->Buffer == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    Session->Mdl = IoAllocateMdl(Session->Buffer, BUFFER_SIZE, FALSE, FALSE, NULL);
    if (Session->Mdl == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    MmBuildMdlForNonPagedPool(Session->Mdl);

    Status = Ndk.WskOpenNdkAdapter(Provider.Client, Version, Interface, &Session->Adapter);
    if (!NT_SUCCESS(Status)) {
        Session->Adapter = NULL;
        return Status;
    }
    Begin(&Call);
    Status = Session->Adapter->Dispatch->NdkCreateCq(Session->Adapter, 16, Notify, Session, NULL, Created, &Call, (NDK_CQ **)&Inline);
    Status = EndCreate(&Call, Status, Inline, (PVOID *)&Session->Cq);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Adapter->Dispatch->NdkCreatePd(Session->Adapter, Created, &Call, (NDK_PD **)&Inline);
    Status = EndCreate(&Call, Status, Inline, (PVOID *)&Session->Pd);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Pd->Dispatch->NdkCreateMr(Session->Pd, FALSE, Created, &Call, (NDK_MR **)&Inline);
    Status = EndCreate(&Call, Status, Inline, (PVOID *)&Session->Mr);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Mr->Dispatch->NdkRegisterMr(Session->Mr, Session->Mdl, BUFFER_SIZE, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, Completed, &Call);
    Status = End(&Call, Status);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Session->IsRegistered = TRUE;
    Begin(&Call);
    Status = Session->Pd->Dispatch->NdkCreateQp(Session->Pd, Session->Cq, Session->Cq, Session, 4, 4, 1, 1, 0, Created, &Call,
        (NDK_QP **)&Inline);
    return EndCreate(&Call, Status, Inline, (PVOID *)&Session->Qp);
}

// Closes what is open, each object before those that it was made of.
static VOID CloseAll(SESSION *Session)
{
    PVOID Incoming;
    CALL Call;

    // From here on, Connect refuses every connector. One that it has kept since Serve gave up is closed as well: it would hold the listener.
    Incoming = InterlockedExchangePointer(&Session->Incoming, Session);
    if (Session->Connector == NULL) {
        Session->Connector = Incoming;
    }
    if (Session->Connector != NULL) {
        Close(Session->Connector, Session->Connector->Dispatch->NdkCloseConnector);
    }
    if (Session->Listener != NULL) {
        Close(Session->Listener, Session->Listener->Dispatch->NdkCloseListener);
    }
    if (Session->Qp != NULL) {
        Close(Session->Qp, Session->Qp->Dispatch->NdkCloseQp);
    }
    if (Session->IsRegistered) {
        Begin(&Call);
        End(&Call, Session->Mr->Dispatch->NdkDeregisterMr(Session->Mr, Completed, &Call));
    }
    if (Session->Mr != NULL) {
        Close(Session->Mr, Session->Mr->Dispatch->NdkCloseMr);
    }
    if (Session->Pd != NULL) {
        Close(Session->Pd, Session->Pd->Dispatch->NdkClosePd);
    }
    if (Session->Cq != NULL) {
        Close(Session->Cq, Session->Cq->Dispatch->NdkCloseCq);
    }
    if (Session->Adapter != NULL) {
        Ndk.WskCloseNdkAdapter(Provider.Client, Session->Adapter);
    }
    if (Session->Mdl != NULL) {
        IoFreeMdl(Session->Mdl);
    }
    if (Session->Buffer != NULL) {
        ExFreePoolWithTag(Session->Buffer, TAG);
    }
}

static NDK_SGE Range(SESSION *Session, ULONG Offset, ULONG Length)
{
    NDK_SGE Sge;

    Sge.VirtualAddress = Session->Buffer + Offset;
    Sge.Length = Length;
    Sge.MemoryRegionToken = Session->Mr->Dispatch->NdkGetLocalTokenFromMr(Session->Mr);
    return Sge;
}

static NTSTATUS Receive(SESSION *Session)
{
    NDK_SGE Sge = Range(Session, 0, BUFFER_SIZE / 2);

    return Session->Qp->Dispatch->NdkReceive(Session->Qp, Session->Buffer, &Sge, 1);
}

static NTSTATUS Send(SESSION *Session, ULONG Offset, ULONG Length)
{
    NDK_SGE Sge = Range(Session, Offset, Length);

    return Session->Qp->Dispatch->NdkSend(Session->Qp, NULL, &Sge, 1, 0);
}

// Waits for the completions of one send and one receive; returns the length of what was received.
static NTSTATUS Complete(SESSION *Session, ULONG Count, ULONG *Received)
{
    NDK_RESULT Result;
    NTSTATUS Status;

    while (Count != 0) {
        while (Count != 0 && Session->Cq->Dispatch->NdkGetCqResults(Session->Cq, &Result, 1) == 1) {
            if (!NT_SUCCESS(Result.Status)) {
                return Result.Status;
            }
            if (Result.RequestContext == Session->Buffer) {
                *Received = Result.BytesTransferred;
            }
            Count--;
        }
        if (Count != 0) {
            // A completion that came before the queue is armed is notified at once.
            Session->Cq->Dispatch->NdkArmCq(Session->Cq, NDK_CQ_NOTIFY_ANY);
            Status = Wait(&Session->Completed, SECONDS(30));
            if (!NT_SUCCESS(Status)) {
                return Status;
            }
        }
    }
    return STATUS_SUCCESS;
}

static NTSTATUS Serve(SESSION *Session, const ENDPOINTS *At)
{
    CALL Call;
    PVOID Inline = NULL;
    ULONG Received = 0;
    NTSTATUS Status;

    Begin(&Call);
    Status = Session->Adapter->Dispatch->NdkCreateListener(Session->Adapter, Connect, Session, Created, &Call, (NDK_LISTENER **)&Inline);
    Status = EndCreate(&Call, Status, Inline, (PVOID *)&Session->Listener);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Listener->Dispatch->NdkListen(Session->Listener, At->Local, AddressLength(At->Local), Completed, &Call);
    Status = End(&Call, Status);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Wait(&Session->Connecting, SECONDS(30));
    Session->Connector = Session->Incoming;
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Receive(Session);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Connector->Dispatch->NdkAccept(Session->Connector, Session->Qp, 0, 0, NULL, 0, Disconnect, Session, Completed,
        &Call);
    Status = End(&Call, Status);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Complete(Session, 1, &Received);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Send(Session, 0, Received);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Complete(Session, 1, &Received);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    return Wait(&Session->Disconnected, SECONDS(30));
}

static NTSTATUS CallPeer(SESSION *Session, const ENDPOINTS *At, ULONG *Received)
{
    const ULONG Half = BUFFER_SIZE / 2;
    CALL Call;
    PVOID Inline = NULL;
    NTSTATUS Status;

    Begin(&Call);
    Status = Session->Adapter->Dispatch->NdkCreateConnector(Session->Adapter, Created, &Call, (NDK_CONNECTOR **)&Inline);
    Status = EndCreate(&Call, Status, Inline, (PVOID *)&Session->Connector);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Receive(Session);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Connector->Dispatch->NdkConnect(Session->Connector, Session->Qp, At->Local, AddressLength(At->Local), At->Remote,
        AddressLength(At->Remote), 0, 0, NULL, 0, Completed, &Call);
    Status = End(&Call, Status);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Begin(&Call);
    Status = Session->Connector->Dispatch->NdkCompleteConnect(Session->Connector, Disconnect, Session, Completed, &Call);
    Status = End(&Call, Status);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    RtlCopyMemory(Session->Buffer + Half, MESSAGE, sizeof(MESSAGE));
    Status = Send(Session, Half, sizeof(MESSAGE));
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = Complete(Session, 2, Received);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    if (*Received != sizeof(MESSAGE) || RtlCompareMemory(Session->Buffer, MESSAGE, sizeof(MESSAGE)) != sizeof(MESSAGE)) {
        return STATUS_DATA_ERROR;
    }
    Begin(&Call);
    return End(&Call, Session->Connector->Dispatch->NdkDisconnect(Session->Connector, Completed, &Call));
}

// The device.

static NTSTATUS Finish(PIRP Irp, NTSTATUS Status, ULONG Length)
{
    Irp->IoStatus.Status = Status;
    Irp->IoStatus.Information = Length;
    IoCompleteRequest(Irp, IO_NO_INCREMENT);
    return Status;
}

static NTSTATUS NTAPI Succeed(PDEVICE_OBJECT Device, PIRP Irp)
{
    UNREFERENCED_PARAMETER(Device);
    return Finish(Irp, STATUS_SUCCESS, 0);
}

static NTSTATUS NTAPI Control(PDEVICE_OBJECT Device, PIRP Irp)
{
    PIO_STACK_LOCATION Location = IoGetCurrentIrpStackLocation(Irp);
    const ULONG Code = Location->Parameters.DeviceIoControl.IoControlCode;
    const ENDPOINTS *At = Irp->AssociatedIrp.SystemBuffer;
    SESSION *Session;
    ULONG Received = 0;
    NTSTATUS Status;

    UNREFERENCED_PARAMETER(Device);
    if (Code != IOCTL_SERVE && Code != IOCTL_CALL) {
        return Finish(Irp, STATUS_INVALID_DEVICE_REQUEST, 0);
    }
    if (Location->Parameters.DeviceIoControl.InputBufferLength < sizeof(ENDPOINTS)) {
        return Finish(Irp, STATUS_BUFFER_TOO_SMALL, 0);
    }
    Session = ExAllocatePoolWithTag(NonPagedPoolNx, sizeof(SESSION), TAG);
    if (Session == NULL) {
        return Finish(Irp, STATUS_INSUFFICIENT_RESOURCES, 0);
    }
    RtlZeroMemory(Session, sizeof(SESSION));
    Status = Open(Session, At->Interface);
    if (NT_SUCCESS(Status)) {
        Status = Code == IOCTL_SERVE ? Serve(Session, At) : CallPeer(Session, At, &Received);
    }
    CloseAll(Session);
    ExFreePoolWithTag(Session, TAG);
    if (NT_SUCCESS(Status) && Code == IOCTL_CALL
        && Location->Parameters.DeviceIoControl.OutputBufferLength >= sizeof(ULONG)) {
        *(ULONG *)Irp->AssociatedIrp.SystemBuffer = Received;
        return Finish(Irp, Status, sizeof(ULONG));
    }
    return Finish(Irp, Status, 0);
}

static VOID NTAPI Unload(PDRIVER_OBJECT Driver)
{
    IoDeleteSymbolicLink(&Link);
    IoDeleteDevice(Driver->DeviceObject);
    WskReleaseProviderNPI(&Registration);
    WskDeregister(&Registration);
}

// Registers with Winsock Kernel, and gets the functions that open NDK adapters.
static NTSTATUS Register(VOID)
{
    static const WSK_CLIENT_DISPATCH Dispatch = { 0x0100, 0, NULL };
    WSK_CLIENT_NPI Client = { NULL, &Dispatch };
    NTSTATUS Status = WskRegister(&Client, &Registration);

    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = WskCaptureProviderNPI(&Registration, WSK_INFINITE_WAIT, &Provider);
    if (!NT_SUCCESS(Status)) {
        WskDeregister(&Registration);
        return Status;
    }
    Status = Provider.Dispatch->WskControlClient(Provider.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0, NULL, sizeof(Ndk), &Ndk, NULL,
        NULL);
    if (!NT_SUCCESS(Status)) {
        WskReleaseProviderNPI(&Registration);
        WskDeregister(&Registration);
    }
    return Status;
}

NTSTATUS NTAPI DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING Path)
{
    PDEVICE_OBJECT Device;
    NTSTATUS Status;

    UNREFERENCED_PARAMETER(Path);
    Status = Register();
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = IoCreateDevice(Driver, 0, &Name, FILE_DEVICE_UNKNOWN, 0, FALSE, &Device);
    if (NT_SUCCESS(Status)) {
        Status = IoCreateSymbolicLink(&Link, &Name);
        if (!NT_SUCCESS(Status)) {
            IoDeleteDevice(Device);
        }
    }
    if (!NT_SUCCESS(Status)) {
        WskReleaseProviderNPI(&Registration);
        WskDeregister(&Registration);
        return Status;
    }
    Driver->MajorFunction[IRP_MJ_CREATE] = Succeed;
    Driver->MajorFunction[IRP_MJ_CLEANUP] = Succeed;
    Driver->MajorFunction[IRP_MJ_CLOSE] = Succeed;
    Driver->MajorFunction[IRP_MJ_DEVICE_CONTROL] = Control;
    Driver->DriverUnload = Unload;
    return STATUS_SUCCESS;
}
