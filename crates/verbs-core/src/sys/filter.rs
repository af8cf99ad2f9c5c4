// SPDX-License-Identifier: MIT OR Apache-2.0

//! Filters of sockets, in the classic BPF of Linux: the kernel drops what a filter does not accept.

use core::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX,
    BPF_MSH, BPF_RET, BPF_W, sock_filter,
};

use crate::error::Error;

/// Bytes of an Ethernet header without a tag.
const ETHERNET: u32 = 14;
const UDP: u32 = libc::IPPROTO_UDP as u32;
/// Where metadata of a packet begins: below the bytes of the packet.
const METADATA: u32 = libc::SKF_AD_OFF.cast_unsigned();

/// A program that accepts what passes all of its conditions.
#[derive(Debug, Default)]
pub struct Filter(Vec<Step>);

#[derive(Debug)]
enum Step {
    /// Changes the accumulator or the index register.
    Do(u32, u32),
    /// Drops unless the accumulator has this value.
    Require(u32),
    /// Drops if the accumulator has this value.
    Refuse(u32),
    /// Drops if the accumulator has one of these bits.
    RefuseBits(u32),
}

impl Filter {
    /// Accepts Ethernet frames to this host with UDP datagrams to an address and port: whole ones, which are not of a VLAN.
    pub fn of_frames(address: IpAddr, port: u16) -> Self {
        let filter = Self::default()
            .load_metadata(libc::SKF_AD_PKTTYPE)
            .require(libc::PACKET_HOST.into())
            .load_metadata(libc::SKF_AD_VLAN_TAG)
            .mask(0x0FFF)
            .require(0);
        let filter = match address {
            IpAddr::V4(address) => filter
                .load(BPF_B, ETHERNET + 9)
                .require(UDP)
                // More fragments, and the offset of a fragment.
                .load(BPF_H, ETHERNET + 6)
                .refuse_bits(0x3FFF)
                .load(BPF_W, ETHERNET + 16)
                .require(address.into())
                // The length of the IP header.
                .then(BPF_LDX | BPF_B | BPF_MSH, ETHERNET)
                .then(BPF_LD | BPF_H | BPF_IND, ETHERNET + 2),
            IpAddr::V6(address) => {
                let octets = address.octets();
                let (words, _) = octets.as_chunks::<4>();
                let filter = filter.load(BPF_B, ETHERNET + 6).require(UDP);
                let filter = words.iter().enumerate().fold(filter, |filter, (at, word)| {
                    filter.load(BPF_W, ETHERNET + 24 + 4 * at as u32).require(u32::from_be_bytes(*word))
                });
                filter.load(BPF_H, ETHERNET + 40 + 2)
            }
        };
        filter.require(port.into())
    }

    /// Accepts what has not arrived by an interface.
    pub fn not_by(interface: u32) -> Self {
        let mut filter = Self::default().load_metadata(libc::SKF_AD_IFINDEX);
        filter.0.push(Step::Refuse(interface));
        filter
    }

    /// Sets the filter of a socket.
    pub fn attach(&self, socket: &impl AsFd) -> Result<(), Error> {
        let mut program = self.program();
        let length = u16::try_from(program.len()).map_err(|_| Error::Invalid)?;
        let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        let value = (&raw const program).cast();
        // SAFETY: `value` is a program header of the size given, and its instructions live until after the call, which copies them.
        let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size) };
        if result < 0 { Err(Error::last()) } else { Ok(()) }
    }

    fn load(self, width: u32, at: u32) -> Self {
        self.then(BPF_LD | width | BPF_ABS, at)
    }

    fn load_metadata(self, field: i32) -> Self {
        self.load(BPF_W, METADATA.wrapping_add_signed(field))
    }

    fn mask(self, bits: u32) -> Self {
        self.then(BPF_ALU | BPF_AND | BPF_K, bits)
    }

    fn then(mut self, code: u32, operand: u32) -> Self {
        self.0.push(Step::Do(code, operand));
        self
    }

    fn require(mut self, value: u32) -> Self {
        self.0.push(Step::Require(value));
        self
    }

    fn refuse_bits(mut self, bits: u32) -> Self {
        self.0.push(Step::RefuseBits(bits));
        self
    }

    /// Returns the instructions: those of the steps, then one that accepts, and one that drops.
    fn program(&self) -> Vec<sock_filter> {
        let steps = &self.0;
        let mut program = Vec::with_capacity(steps.len() + 2);
        for (at, step) in steps.iter().enumerate() {
            // Instructions between this one and the last one.
            let to_drop = u8::try_from(steps.len() - at).unwrap_or(u8::MAX);
            program.push(match *step {
                Step::Do(code, k) => instruction(code, 0, 0, k),
                Step::Require(k) => instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, to_drop, k),
                Step::Refuse(k) => instruction(BPF_JMP | BPF_JEQ | BPF_K, to_drop, 0, k),
                Step::RefuseBits(k) => instruction(BPF_JMP | BPF_JSET | BPF_K, to_drop, 0, k),
            });
        }
        program.push(instruction(BPF_RET | BPF_K, 0, 0, u32::MAX));
        program.push(instruction(BPF_RET | BPF_K, 0, 0, 0));
        program
    }
}

/// Returns an instruction; the jumps are of a condition that holds, and of one that does not.
fn instruction(code: u32, holds: u8, fails: u8, k: u32) -> sock_filter {
    // Codes are of 16 bits.
    sock_filter { code: code as u16, jt: holds, jf: fails, k }
}
