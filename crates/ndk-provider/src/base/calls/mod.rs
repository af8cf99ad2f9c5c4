// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that may pend: they use the state of the provider and objects.
//!
//! | module | contents |
//! | --- | --- |
//! | `pended_call` | create, request and close calls that return `STATUS_PENDING` |
//! | `needed_memory` | whether a call completes inline at the caller's IRQL |

pub mod needed_memory;
pub mod pended_call;
