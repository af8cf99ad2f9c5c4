// SPDX-License-Identifier: MIT OR Apache-2.0

//! NET_BUFFER_LISTs of filter modules: passed on, made and given back by their drivers. (WDK: "Filter Module Send and Receive Operations")

use std::sync::Arc;

use ndk_abi::ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_RETURN_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NET_BUFFER_LIST,
};
use nt_sim::{current, guest::Guest, imports};

use crate::{
    adapter::{Adapter, adapter},
    data_path::{cancel_below, check_level, complete_from, give_back, pass_down, pass_up},
    filter_module::{FilterModule, ModuleState, module},
    in_flight::Held,
    list_fields::{SOURCE, chain},
    nbl,
    rules::{self, broken, require},
};

/// A module with its place in the stack of its adapter.
struct Caller {
    adapter: Arc<Adapter>,
    module: Arc<FilterModule>,
    place: usize,
}

impl Caller {
    fn of(what: &str, handle: usize) -> Self {
        let module = module(handle);
        let adapter = adapter(module.adapter);
        let index = adapter.filters().iter().position(|other| other.handle == handle);
        let Some(index) = index else {
            broken(rules::FILTER_STATES, format!("{what} was called while the module is being attached"))
        };
        Self { adapter, module, place: index + 1 }
    }

    /// Checks a list that the module passes on; `held` is where it is. Returns whether it is the module's own, which only a running module
    /// may make.
    fn require_its(&self, what: &str, list: Guest<NET_BUFFER_LIST>, held: Option<Held>) -> bool {
        let Some(held) = held else {
            let source = list.field::<usize>(SOURCE).read();
            require(source == self.module.handle, rules::FILTER_STATES, || {
                format!(
                    "{what} of {:#x}, which the filter module neither holds nor has made: its SourceHandle is {source:#x}",
                    list.address()
                )
            });
            let state = self.module.state();
            require(state == ModuleState::Running, rules::FILTER_STATES, || {
                format!("{what} of a list of the filter module's own in state {state}")
            });
            return true;
        };
        require(held.place == self.place, rules::OWNED_BY_FILTER, || {
            format!("{what} of {:#x}, which the filter module does not hold", list.address())
        });
        false
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Passes lists down: those of drivers above, and the module's own.
    [<= DISPATCH_LEVEL]
    fn NdisFSendNetBufferLists(handle: usize, lists: Guest<NET_BUFFER_LIST>, _port: u32, flags: u32) {
        const WHAT: &str = "NdisFSendNetBufferLists";
        check_level(WHAT, flags, NDIS_SEND_FLAGS_DISPATCH_LEVEL);
        let caller = Caller::of(WHAT, handle);
        let lists = chain(lists);
        for &list in &lists {
            let held = caller.adapter.data_path.state.lock().below.get(&list.address()).copied();
            caller.require_its(WHAT, list, held);
        }
        pass_down(&caller.adapter, current().host(), caller.place, &lists, flags);
    }

    /// Completes lists that drivers above have sent.
    [<= DISPATCH_LEVEL]
    fn NdisFSendNetBufferListsComplete(handle: usize, lists: Guest<NET_BUFFER_LIST>, flags: u32) {
        const WHAT: &str = "NdisFSendNetBufferListsComplete";
        check_level(WHAT, flags, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
        let caller = Caller::of(WHAT, handle);
        complete_from(&caller.adapter, current().host(), caller.place, &chain(lists), flags);
    }

    /// Passes received lists up: those of drivers below, and the module's own.
    [<= DISPATCH_LEVEL]
    fn NdisFIndicateReceiveNetBufferLists(
        handle: usize,
        lists: Guest<NET_BUFFER_LIST>,
        _port: u32,
        count: u32,
        flags: u32,
    ) {
        const WHAT: &str = "NdisFIndicateReceiveNetBufferLists";
        check_level(WHAT, flags, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
        let caller = Caller::of(WHAT, handle);
        let host = current().host().clone();
        let lists = chain(lists);
        require(lists.len() == count as usize, rules::COUNTED, || {
            format!("{WHAT}: NumberOfNetBufferLists is {count}, the chain has {}", lists.len())
        });
        let keeps = flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0;
        for &list in &lists {
            let held = caller.adapter.data_path.state.lock().above.get(&list.address()).copied();
            require(held.is_none_or(|held| held.keeps || !keeps), rules::RESOURCES, || {
                format!("{WHAT} without NDIS_RECEIVE_FLAGS_RESOURCES, with which {:#x} was indicated", list.address())
            });
            if caller.require_its(WHAT, list, held) && keeps {
                host.state(&nbl::LENT).lock().insert(list.address());
            }
        }
        pass_up(&caller.adapter, &host, caller.place, &lists, flags);
    }

    /// Returns lists that drivers below have indicated.
    [<= DISPATCH_LEVEL]
    fn NdisFReturnNetBufferLists(handle: usize, lists: Guest<NET_BUFFER_LIST>, flags: u32) {
        const WHAT: &str = "NdisFReturnNetBufferLists";
        check_level(WHAT, flags, NDIS_RETURN_FLAGS_DISPATCH_LEVEL);
        let caller = Caller::of(WHAT, handle);
        give_back(&caller.adapter, current().host(), caller.place, &chain(lists), flags);
    }

    /// Cancels sends in the drivers below.
    [<= DISPATCH_LEVEL]
    fn NdisFCancelSendNetBufferLists(handle: usize, cancel_id: usize) {
        let caller = Caller::of("NdisFCancelSendNetBufferLists", handle);
        cancel_below(&caller.adapter, caller.place, cancel_id);
    }
}
