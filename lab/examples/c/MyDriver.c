// SPDX-License-Identifier: MIT OR Apache-2.0

// A driver that makes a device: the smallest consumer that docs/consumer.md builds.

#include <ntddk.h>

static UNICODE_STRING Name = RTL_CONSTANT_STRING(L"\\Device\\MyDriver");
static UNICODE_STRING Link = RTL_CONSTANT_STRING(L"\\DosDevices\\MyDriver");

static NTSTATUS NTAPI Complete(PDEVICE_OBJECT Device, PIRP Irp)
{
    UNREFERENCED_PARAMETER(Device);
    Irp->IoStatus.Status = STATUS_SUCCESS;
    Irp->IoStatus.Information = 0;
    IoCompleteRequest(Irp, IO_NO_INCREMENT);
    return STATUS_SUCCESS;
}

static VOID NTAPI Unload(PDRIVER_OBJECT Driver)
{
    IoDeleteSymbolicLink(&Link);
    IoDeleteDevice(Driver->DeviceObject);
}

NTSTATUS NTAPI DriverEntry(PDRIVER_OBJECT Driver, PUNICODE_STRING Path)
{
    PDEVICE_OBJECT Device;
    NTSTATUS Status;

    UNREFERENCED_PARAMETER(Path);
    Status = IoCreateDevice(Driver, 0, &Name, FILE_DEVICE_UNKNOWN, 0, FALSE, &Device);
    if (!NT_SUCCESS(Status)) {
        return Status;
    }
    Status = IoCreateSymbolicLink(&Link, &Name);
    if (!NT_SUCCESS(Status)) {
        IoDeleteDevice(Device);
        return Status;
    }
    Driver->MajorFunction[IRP_MJ_CREATE] = Complete;
    Driver->MajorFunction[IRP_MJ_CLEANUP] = Complete;
    Driver->MajorFunction[IRP_MJ_CLOSE] = Complete;
    Driver->DriverUnload = Unload;
    return STATUS_SUCCESS;
}
