// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet frames, queues and offloads of the adapter.

mod announce;
mod device_rss;
mod filters;
mod frames;
mod lightweight_filter;
mod merged;
mod moderation;
mod offload_requests;
mod offloads;
mod poll;
mod queue_pairs;
mod receive_hash;
mod ring_formats;
mod rings;
mod rsc;
mod rss;
mod send_lists;
mod short_frames;
mod transmit;
mod vlan;
