// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices in one process, over UDP sockets of the loopback interface.
