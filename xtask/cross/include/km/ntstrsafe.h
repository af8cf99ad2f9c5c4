// SPDX-License-Identifier: MIT OR Apache-2.0

/* Definitions that wdk-sys expects of current kit headers and that the MinGW-w64 ones lack. */
#pragma once
#ifndef POOL_FLAG_NON_PAGED
typedef ULONG64 POOL_FLAGS;
#define POOL_FLAG_UNINITIALIZED 0x0000000000000002ULL
#define POOL_FLAG_NON_PAGED     0x0000000000000040ULL
#define POOL_FLAG_PAGED         0x0000000000000100ULL
NTKERNELAPI PVOID NTAPI ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag);
#endif
