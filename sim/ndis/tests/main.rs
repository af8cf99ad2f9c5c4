// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the simulated NDIS, IP helper and Winsock Kernel: services, and checks of their users.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls and implements functions of NDIS as drivers do")]

mod adapter_life;
mod adapters;
mod bus_mastering;
mod common;
mod control_devices;
mod direct_oids;
mod driver_offences;
mod driver_services;
mod filter_events;
mod filter_lists;
mod filter_offences;
mod filter_oids;
mod filter_statuses;
mod filters;
mod handlers;
mod interrupts;
mod ip_stack;
mod irql_limits;
mod lists;
mod ndis;
mod ndk_offences;
mod offences;
mod offload_offences;
mod physical_device;
mod poll;
mod power_failure;
mod power_offences;
mod receive_offences;
mod rss;
mod rules;
mod services;
mod sg_lists;
mod shared_memory;
mod stack_lists;
mod task_offloads;
mod tolerances;
mod transitions;
mod upper_drivers;
mod viordma;
mod wsk;
