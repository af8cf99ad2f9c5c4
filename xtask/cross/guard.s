// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What Control Flow Guard needs of a kit's library: the load configuration (IMAGE_LOAD_CONFIG_DIRECTORY64), which the linker
// finds by its name and whose tables it makes, and the pointers that the compiler's checks call through. They allow each call, unless
// Windows replaces them. The symbol ARM64 is defined for that architecture.
    .section .rdata,"dr"
    .globl _load_config_used
    .p2align 4
_load_config_used:
    .4byte 0x140                        // Size
    .fill 0x6c, 1, 0
    .8byte __guard_check_icall_fptr     // GuardCFCheckFunctionPointer
    .8byte __guard_dispatch_icall_fptr  // GuardCFDispatchFunctionPointer
    .8byte __guard_fids_table           // GuardCFFunctionTable
    .8byte __guard_fids_count           // GuardCFFunctionCount
    .4byte __guard_flags                // GuardFlags
    .fill 0xc, 1, 0                     // CodeIntegrity
    .8byte __guard_iat_table            // GuardAddressTakenIatEntryTable
    .8byte __guard_iat_count            // GuardAddressTakenIatEntryCount
    .8byte __guard_longjmp_table        // GuardLongJumpTargetTable
    .8byte __guard_longjmp_count        // GuardLongJumpTargetCount
    .fill 0x80, 1, 0

    .globl __guard_check_icall_fptr
__guard_check_icall_fptr:
    .8byte _guard_check_icall_nop
    .globl __guard_dispatch_icall_fptr
__guard_dispatch_icall_fptr:
    .8byte _guard_dispatch_icall_nop

    .text
    .def _guard_check_icall_nop; .scl 2; .type 32; .endef
    .globl _guard_check_icall_nop
    .p2align 4
_guard_check_icall_nop:
    ret

    .def _guard_dispatch_icall_nop; .scl 2; .type 32; .endef
    .globl _guard_dispatch_icall_nop
    .p2align 4
_guard_dispatch_icall_nop:
    .ifdef ARM64
    br x9
    .else
    jmp *%rax
    .endif
