// SPDX-License-Identifier: MIT OR Apache-2.0
/* What MinGW's wdm.h takes from a header of this name, which MinGW lacks: interrupt request levels of arm64, and functions that x64 has in line or as exports. */
#define PASSIVE_LEVEL 0
#define LOW_LEVEL 0
#define APC_LEVEL 1
#define DISPATCH_LEVEL 2
#define CMCI_LEVEL 5
#define CLOCK_LEVEL 13
#define IPI_LEVEL 14
#define DRS_LEVEL 14
#define POWER_LEVEL 14
#define PROFILE_LEVEL 15
#define HIGH_LEVEL 15
#define PAGE_SIZE 0x1000
#define PAGE_SHIFT 12L
NTSYSAPI KIRQL NTAPI KeGetCurrentIrql(VOID);
NTSYSAPI PKTHREAD NTAPI KeGetCurrentThread(VOID);
NTKERNELAPI KIRQL NTAPI KfRaiseIrql(KIRQL NewIrql);
NTKERNELAPI VOID NTAPI KfLowerIrql(KIRQL NewIrql);
#define KeLowerIrql(a) KfLowerIrql(a)
NTKERNELAPI KIRQL NTAPI KeRaiseIrqlToDpcLevel(VOID);
#define KeRaiseIrql(a, b) *(b) = KfRaiseIrql(a)
