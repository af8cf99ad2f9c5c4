// SPDX-License-Identifier: MIT OR Apache-2.0

/* Empty on purpose: bindings need no intrinsics, and bindgen cannot express the AMX ones. */
