// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interfaces: every adapter is one.

use std::sync::Arc;

use nt_sim::Host;

use crate::adapter::{Adapter, adapters};

/// Returns the interface that a row or a call names by LUID or index; the first one when it names none.
pub(super) fn interface(host: &Host, luid: u64, index: u32) -> Option<Arc<Adapter>> {
    let named = |adapter: &&Arc<Adapter>| match (luid, index) {
        (0, 0) => true,
        (0, index) => adapter.if_index == index,
        (luid, _) => adapter.luid == luid,
    };
    adapters(host).iter().find(named).cloned()
}
